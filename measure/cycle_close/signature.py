"""Computes code signatures of intervals: the branches that an interval executed, weighted by instructions.

A signature has N entries (32 by default). Each control transfer's address is hashed to an entry, which grows by the
instructions executed since the previous transfer, so that the entries sum to the interval's length (the cycle-close
paper, section 2). Here signatures are computed from the emulator's counts of executed blocks: each block belongs to
the transfer that ends it, or that ends the blocks after it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.events import BlockFacts, OpClass
from emulator.execution.intervals import Intervals
from emulator.timing.machine_events import N_STATIC, static_events

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: spreads neighbouring addresses


def entry_of(addresses: NDArray[np.int64], dimensions: int) -> NDArray[np.int64]:
    """The signature entry, below ``dimensions``, to which each address of a control transfer is hashed."""
    mixed = (addresses.astype(np.uint64) >> np.uint64(1)) * _MULTIPLIER
    return ((mixed >> np.uint64(32)) % np.uint64(dimensions)).astype(np.int64)


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
    """Computes the signature of each interval from block executions.

    ``entries``, ``lengths``: of each block, the entry of a signature that it counts for and its instructions.
    """

    def __init__(self, dimensions: int = 32) -> None:
        if dimensions < 1:
            raise ValueError(f"a signature of {dimensions} entries, expected at least 1")
        self.dimensions = dimensions
        self.entries = np.zeros(0, np.int64)
        self.lengths = np.zeros(0, np.int64)
        self._addresses: list[int] = []  # of the last instruction of each block
        self._places: dict[int, int] = {}  # numbers of blocks by pc
        self._open_ends: dict[int, int] = {}  # by number of a block that falls through: pc of the block after it

    def make(self, facts: BlockFacts, intervals: Intervals) -> NDArray[np.int64]:
        """The signatures of ``intervals``, ``(n, dimensions)`` instructions."""
        from measure.cycle_close.signature_kernel import fill_signatures

        self.extend(facts)
        out = np.zeros((len(intervals), self.dimensions), np.int64)
        fill_signatures(intervals.starts, intervals.blocks, intervals.executions, self.entries, self.lengths, out)
        return out

    def extend(self, facts: BlockFacts) -> None:
        """Take notice of blocks that were discovered since the last call."""
        if facts.n_blocks > len(self.entries):
            self._add_blocks(facts, facts.n_blocks)

    def _add_blocks(self, facts: BlockFacts, n_blocks: int) -> None:
        """Compute the signature entries of new blocks up to ``n_blocks``."""
        n_before = len(self.entries)
        blocks = facts.blocks[n_before:n_blocks]
        last = (blocks["first_instruction"] + blocks["n_instructions"] - 1).astype(np.int64)
        addresses = facts.instructions["pc"][last].astype(np.int64)
        self.entries = np.concatenate([self.entries, entry_of(addresses, self.dimensions)])
        self.lengths = np.concatenate([self.lengths, blocks["n_instructions"].astype(np.int64)])
        self._addresses += addresses.tolist()
        self._places.update(zip(blocks["pc"].tolist(), range(n_before, n_blocks), strict=True))
        # A block cut short by its length, or ended by a system instruction, falls through into the next one.
        ends = blocks["terminator"]
        runs_on = np.flatnonzero((ends < OpClass.BRANCH) | (ends > OpClass.INDIRECT_CALL))
        open_ends, places = self._open_ends, self._places
        open_ends.update(zip((n_before + runs_on).tolist(), blocks["end_pc"][runs_on].tolist(), strict=True))
        addresses_of_open = []
        for number in open_ends:
            at, steps = number, 0
            while at in open_ends and open_ends[at] in places and steps < len(open_ends):
                at, steps = places[open_ends[at]], steps + 1
            addresses_of_open.append(self._addresses[at])
        if open_ends:
            self.entries[[*open_ends]] = entry_of(np.array(addresses_of_open), self.dimensions)
