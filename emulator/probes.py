"""Non-intrusive probes: events counted from the record, without touching the program.

`BlockCounter` counts executions of blocks, from which the executions of any instruction follow; `EventCounter` counts
many kinds of executions, and of stores into address ranges, at once. The counts are exact: the ground truth that
instrumentation is compared with. Addresses are those of the program that the guest begins with: what processes do that
execute another program does not count for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.events import ACCESS_STORE, FIRST_PROGRAM, BlockFacts, TraceSelection


class BlockCounter:
    """Executions of each block. It selects block ids only, so it costs little."""

    selection = TraceSelection(blocks=True, exact_stop=True)

    def __init__(self, with_addresses: bool = False) -> None:
        # If another observer selects addresses, the stream holds them, too.
        self.with_addresses = with_addresses
        if with_addresses:
            self.selection = TraceSelection(blocks=True, addresses=True, exact_stop=True)
        self.executions: NDArray[np.int64] = np.zeros(0, np.int64)

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        if len(self.executions) < facts.n_blocks:
            grown = np.zeros(2 * facts.n_blocks, np.int64)
            grown[: len(self.executions)] = self.executions
            self.executions = grown
        ids = block_ids(facts, stream) if self.with_addresses else stream
        counted = np.bincount(ids, minlength=0)
        self.executions[: len(counted)] += counted

    def executions_by_pc(self, facts: BlockFacts) -> dict[int, int]:
        """How often the program's instruction at each executed address was executed."""
        blocks, instructions = facts.blocks, facts.instructions
        totals: dict[int, int] = {}
        is_own = blocks["program"] == FIRST_PROGRAM
        for number in np.flatnonzero(is_own & (self.executions[: facts.n_blocks] != 0)):
            count = int(self.executions[number])
            first = int(blocks["first_instruction"][number])
            for pc in instructions["pc"][first : first + int(blocks["n_instructions"][number])]:
                totals[int(pc)] = totals.get(int(pc), 0) + count
        return totals


class EventCounter:
    """Counts several kinds of events at once, cheaply enough to stay on for whole runs.

    ``events``: for each kind, the addresses of instructions whose executions are summed (an address given twice counts
    twice), and half-open address ranges: a store counts for its kind when its first byte lies in one of them.
    ``uncounted_code``: half-open address ranges of the code whose stores count for no kind.
    """

    selection = TraceSelection(blocks=True, addresses=True, exact_stop=True)

    def __init__(
        self,
        events: Sequence[tuple[Sequence[int], Sequence[tuple[int, int]]]],
        uncounted_code: Iterable[tuple[int, int]] = (),
    ) -> None:
        self._uncounted_code = tuple(uncounted_code)
        self._weights: list[dict[int, int]] = []
        for pcs, _ in events:
            self._weights.append({})
            for pc in pcs:
                self._weights[-1][pc] = self._weights[-1].get(pc, 0) + 1
        # Ranges may overlap: stores are counted for each part between neighbouring bounds, and each part belongs to
        # some kinds of events.
        bounds = sorted({bound for _, ranges in events for pair in ranges for bound in pair})
        self._bounds = np.array(bounds or [0], np.uint32)
        self._stores = np.zeros(len(self._bounds), np.int64)
        self._within = np.array(
            [[any(low <= bound < high for low, high in ranges) for bound in self._bounds] for _, ranges in events],
            np.int64,
        ).reshape(len(events), len(self._bounds))  # fmt: skip
        self._executions = np.zeros(0, np.int64)
        self._blocks = np.zeros(0, np.int64)  # blocks with counted instructions
        self._in_block = np.zeros((len(events), 0), np.int64)  # counted instructions of each kind in these blocks
        self._first_store = np.zeros(1, np.int64)  # by block: its first place in `_store_slots`; and the end
        self._store_slots = np.zeros(0, np.int64)  # places of stores among the accesses of their block
        self._n_accesses = np.zeros(0, np.int64)

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        from emulator.probes_kernel import count_events

        if facts.n_blocks > len(self._executions):
            self._add_blocks(facts)
        count_events(
            stream, self._n_accesses, self._first_store, self._store_slots, self._bounds, self._executions,
            self._stores,
        )  # fmt: skip

    def totals(self) -> NDArray[np.int64]:
        """Events so far, ``(n_kinds,)``; call `Machine.drain` first."""
        executions = self._executions[self._blocks]
        return np.asarray(self._in_block @ executions + self._within @ self._stores)

    def _add_blocks(self, facts: BlockFacts) -> None:
        """Extend the tables by new blocks."""
        known = len(self._executions)
        blocks, instructions = facts.blocks[known:], facts.instructions
        counts = blocks["n_instructions"].astype(np.int64)
        block = np.repeat(np.arange(len(blocks)), counts)
        offset = np.arange(len(block)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = instructions[blocks["first_instruction"].astype(np.int64)[block] + offset]
        accesses = rows["access"] != 0
        before = np.cumsum(accesses) - accesses
        slots = before - np.repeat(before[np.cumsum(counts) - counts], counts)
        is_own = (blocks["program"] == FIRST_PROGRAM)[block]
        stores = is_own & ((rows["access"] & ACCESS_STORE) != 0)
        for low, high in self._uncounted_code:
            stores &= (rows["pc"] < low) | (rows["pc"] >= high)
        per_block = np.bincount(block[stores], minlength=len(blocks))
        self._store_slots = np.concatenate([self._store_slots, slots[stores]])
        self._first_store = np.concatenate([self._first_store, self._first_store[-1] + np.cumsum(per_block)])
        self._n_accesses = np.concatenate([self._n_accesses, blocks["n_accesses"].astype(np.int64)])
        found = np.zeros((len(self._weights), len(blocks)), np.int64)
        for kind, weights in enumerate(self._weights):
            if weights:
                wanted = np.flatnonzero(is_own & np.isin(rows["pc"], np.fromiter(weights, np.uint32)))
                np.add.at(found[kind], block[wanted], [weights[int(pc)] for pc in rows["pc"][wanted]])
        some = np.flatnonzero(found.any(axis=0))
        self._blocks = np.concatenate([self._blocks, known + some])
        self._in_block = np.concatenate([self._in_block, found[:, some]], axis=1)
        self._executions = np.concatenate([self._executions, np.zeros(len(blocks), np.int64)])


def block_ids(facts: BlockFacts, stream: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The block ids, in order, of a stream that also holds addresses."""
    from emulator.probes_kernel import pick_block_ids

    found = np.empty(len(stream), np.uint32)
    return found[: pick_block_ids(facts.blocks["n_accesses"].astype(np.int64), stream, found)]
