"""Computes code signatures of intervals: the branches that an interval executed, weighted by instructions.

A signature has N entries. Each control transfer has one, which grows by the instructions executed since the previous
transfer, so that the entries sum to the interval's length (the cycle-close paper, section 2). Here signatures are
computed from the emulator's counts of executed blocks: each block belongs to the transfer that ends it, or that ends
the blocks after it.

The paper hashes a transfer's address to one of 32 entries. Two loops with the same entry cannot be told apart then: of
eight loops, two or more have the same with a probability of 61%. Therefore entries can be balanced instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emulator.events import BlockFacts, OpClass
from emulator.execution.intervals import Intervals
from emulator.timing.machine_events import N_STATIC, static_events

if TYPE_CHECKING:
    from measure.cycle_close.signature_kernel import Places

_VERSION_SHIFT = 40  # of the version of code in what identifies a transfer, above its address
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: spreads neighbouring addresses


def entry_of(addresses: NDArray[np.int64], dimensions: int) -> NDArray[np.int64]:
    """The signature entry, below ``dimensions``, to which each address of a control transfer is hashed."""
    mixed = (addresses.astype(np.uint64) >> np.uint64(1)) * _MULTIPLIER
    return ((mixed >> np.uint64(32)) % np.uint64(dimensions)).astype(np.int64)


def entries_for(frequent_branches: int) -> int:
    """Entries of a signature with which each of so many frequent branches has its own: a power of two."""
    return 1 << (frequent_branches - 1).bit_length()


def about_crowded_signatures(frequent_branches: int, dimensions: int) -> str:
    """A sentence on signatures with fewer entries than branches that were frequent at some time; "" without."""
    if frequent_branches <= dimensions:
        return ""
    return (
        f"{frequent_branches:,} branches were frequent at some time, and a signature has {dimensions:,} entries, so "
        f"that unlike code may be of one phase: with --dimensions {entries_for(frequent_branches)} each has its own."
    )


class StaticEventCounter:
    """Counts static events, which follow from the executed blocks: loads, branches, operations. They are exact."""

    def __init__(self) -> None:
        self._each = np.zeros((0, N_STATIC), np.uint8)

    def count(self, facts: BlockFacts, intervals: Intervals) -> NDArray[np.int64]:
        """The static events of each interval, ``(n, N_STATIC)`` from `FIRST_STATIC` on."""
        from measure.cycle_close.signature_kernel import add_up

        n_counted = len(self._each)
        if facts.n_blocks > n_counted:
            self._each = np.concatenate([self._each, static_events(facts, n_counted, facts.n_blocks)])
        out = np.zeros((len(intervals), N_STATIC), np.int64)
        add_up(intervals.starts, intervals.blocks, intervals.executions, self._each, out)
        return out


class SignatureMaker:
    """Computes the signature of each interval from block executions, one interval after another.

    ``balanced``: a transfer gets the entry with the fewest instructions so far when an interval first executes it. When
    the transfer is first frequent, it reserves this entry, or gets another entry if another transfer has reserved it,
    so that frequent transfers share no entry while there are enough entries. Else a hash of the address is the entry.
    """

    def __init__(self, dimensions: int = 32, balanced: bool = False) -> None:
        if dimensions < 1:
            raise ValueError(f"a signature of {dimensions} entries, expected at least 1")
        self.dimensions = dimensions
        self._balanced = balanced
        self._entries = np.zeros(0, np.int64)
        self._lengths = np.zeros(0, np.int64)
        self._totals = np.zeros(dimensions, np.int64)
        self._settled = np.zeros(0, np.bool_)  # of each block
        self._given: dict[int, int] = {}  # entries by address and version of a transfer, if they are balanced
        self._frequent: set[int] = set()  # address and version of each transfer that was frequent in some interval
        self._taken = np.zeros(dimensions, np.bool_)  # whether a frequent transfer has the entry
        self._addresses = np.zeros(0, np.int64)  # of each block: address and version of its transfer
        self._places: dict[int, int] = {}  # numbers of blocks by pc
        self._versions: dict[int, int] = {}  # by address of a transfer: how often its code was replaced
        self._open_ends: dict[int, int] = {}  # by number of a block that falls through: pc of the block after it

    @property
    def places(self) -> Places:
        """Where each block counts; until blocks are discovered."""
        from measure.cycle_close.signature_kernel import Places

        return Places(self._entries, self._settled, self._lengths, self._totals)

    @property
    def frequent(self) -> int:
        """How many transfers were frequent in some interval, if entries are balanced; those beyond the number of
        entries share one with another."""
        return len(self._frequent)

    def make(self, facts: BlockFacts, intervals: Intervals) -> NDArray[np.int64]:
        """The signatures of ``intervals``, ``(n, dimensions)`` instructions."""
        from measure.cycle_close.signature_kernel import fill_signatures

        self.extend(facts)
        out = np.zeros((len(intervals), self.dimensions), np.int64)
        starts, blocks, executions = intervals.starts, intervals.blocks, intervals.executions
        row = 0
        while (row := fill_signatures(starts, blocks, executions, self.places, row, out)) < len(out):
            mine = slice(starts[row], starts[row + 1])
            self.give_entries(blocks[mine], executions[mine])
        return out

    def extend(self, facts: BlockFacts) -> None:
        """Take notice of blocks that were discovered since the last call."""
        if facts.n_blocks > len(self._entries):
            self._add_blocks(facts, facts.n_blocks)

    def give_entries(self, blocks: NDArray[np.uint32], executions: NDArray[np.int64]) -> None:
        """Give entries to those ``blocks`` of an interval that have none or are frequent for the first time, by their
        ``executions``; the most frequent first. Nothing is done where entries are hashed."""
        from measure.cycle_close.signature_kernel import FREQUENT

        if not self._balanced:
            return
        addresses, place = np.unique(self._addresses[blocks], return_inverse=True)
        sums = np.bincount(place, executions * self._lengths[blocks]).astype(np.int64)
        totals, enough = self._totals.copy(), sums.sum() / FREQUENT
        entries, settled = np.zeros(len(addresses), np.int64), np.zeros(len(addresses), np.bool_)
        for one in np.argsort(-sums, kind="stable").tolist():
            address = int(addresses[one])
            becomes_frequent = bool(sums[one] >= enough) and address not in self._frequent
            if address not in self._given or (becomes_frequent and self._taken[self._given[address]]):
                free = np.flatnonzero(~self._taken)
                self._given[address] = int(free[totals[free].argmin()] if len(free) else totals.argmin())
            entries[one] = self._given[address]
            if becomes_frequent:
                self._frequent.add(address)
                self._taken[entries[one]] = True
                self._entries[self._addresses == address] = entries[one]  # of blocks that did not run now, too
            settled[one] = address in self._frequent
            totals[entries[one]] += sums[one]
        self._entries[blocks], self._settled[blocks] = entries[place], settled[place]

    def _add_blocks(self, facts: BlockFacts, n_blocks: int) -> None:
        """Find the transfers that new blocks up to ``n_blocks`` belong to, and their entries."""
        n_before = len(self._entries)
        blocks = facts.blocks[n_before:n_blocks]
        last = (blocks["first_instruction"] + blocks["n_instructions"] - 1).astype(np.int64)
        ends_at = facts.instructions["pc"][last].astype(np.int64)
        versions = self._place(facts, n_before, ends_at)
        if self._balanced:
            ends_at += versions << _VERSION_SHIFT
        self._addresses = np.concatenate([self._addresses, ends_at])
        self._lengths = np.concatenate([self._lengths, blocks["n_instructions"].astype(np.int64)])
        # A block cut short by its length, or ended by a system instruction, falls through into the next one.
        ends = blocks["terminator"]
        runs_on = np.flatnonzero((ends < OpClass.BRANCH) | (ends > OpClass.INDIRECT_CALL))
        open_ends, places = self._open_ends, self._places
        open_ends.update(zip((n_before + runs_on).tolist(), blocks["end_pc"][runs_on].tolist(), strict=True))
        changed = set(range(n_before, n_blocks))
        for number in open_ends:
            at, steps = number, 0
            while at in open_ends and open_ends[at] in places and steps < len(open_ends):
                at, steps = places[open_ends[at]], steps + 1
            if self._addresses[number] != self._addresses[at]:
                self._addresses[number] = self._addresses[at]
                changed.add(number)
        self._entries = np.concatenate([self._entries, np.zeros(n_blocks - n_before, np.int64)])
        self._settled = np.concatenate([self._settled, np.zeros(n_blocks - n_before, np.bool_)])
        mine = np.array(sorted(changed))
        self._entries[mine] = self._entries_of(self._addresses[mine])
        self._settled[mine] = [not self._balanced or one in self._frequent for one in self._addresses[mine].tolist()]

    def _place(self, facts: BlockFacts, first: int, ends_at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Note the addresses of the blocks from ``first`` on. Returns how often the code that ended where each block
        ends had been replaced by other code, (n,). ``ends_at``: addresses of the blocks' last instructions, (n,)."""
        versions = np.zeros(len(ends_at), np.int64)
        for place, (pc, end) in enumerate(zip(facts.blocks["pc"][first:].tolist(), ends_at.tolist(), strict=True)):
            earlier = self._places.get(pc)
            if earlier is not None and _differ(facts, earlier, first + place):
                self._versions[end] = self._versions.get(end, 0) + 1
            self._places[pc] = first + place
            versions[place] = self._versions.get(end, 0)
        return versions

    def _entries_of(self, addresses: NDArray[np.int64]) -> NDArray[np.int64]:
        from measure.cycle_close.signature_kernel import NO_ENTRY

        if not self._balanced:
            return entry_of(addresses, self.dimensions)
        return np.array([self._given.get(address, NO_ENTRY) for address in addresses.tolist()], np.int64)


def _differ(facts: BlockFacts, one: int, other: int) -> bool:
    """Whether two blocks at the same address have other instructions, as far as both go."""
    (first, n), (other_first, other_n) = (
        (int(facts.blocks["first_instruction"][number]), int(facts.blocks["n_instructions"][number]))
        for number in (one, other)
    )
    both = min(n, other_n)
    rows = facts.instructions
    return not np.array_equal(rows[first : first + both], rows[other_first : other_first + both])
