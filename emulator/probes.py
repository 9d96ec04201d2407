"""Non-intrusive probes: counts of what a program did, taken from the record without touching the program.

`BlockCounter` counts how often each block ran, from which the executions of any instruction follow;
`StoreWatch` counts accesses that store into watched address ranges. Both see exactly what happened: the
ground truth that instrumentation is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.events import ACCESS_STORE, BlockFacts, TraceSelection


class BlockCounter:
    """Executions of each block. Wants the block ids only, so it costs little."""

    selection = TraceSelection(blocks=True, exact_stop=True)

    def __init__(self, with_addresses: bool = False) -> None:
        # With another observer that wants addresses the stream holds them, too.
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
        """How often the instruction at each executed address was executed."""
        blocks, instructions = facts.blocks, facts.instructions
        totals: dict[int, int] = {}
        for number in np.flatnonzero(self.executions[: facts.n_blocks]):
            count = int(self.executions[number])
            first = int(blocks["first_instruction"][number])
            for pc in instructions["pc"][first : first + int(blocks["n_instructions"][number])]:
                totals[int(pc)] = totals.get(int(pc), 0) + count
        return totals


class StoreWatch:
    """Stores into half-open address ranges ``[(low, high), ...]``; ``counts``: ``(n_ranges,)`` int64.

    A store counts for a range when its first byte lies in it.
    """

    selection = TraceSelection(blocks=True, addresses=True, exact_stop=True)

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self.ranges = list(ranges)
        self.counts = np.zeros(len(self.ranges), np.int64)

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        from emulator.probes_kernel import stores_in_ranges

        lows = np.array([low for low, _ in self.ranges], np.uint32)
        highs = np.array([high for _, high in self.ranges], np.uint32)
        stores_in_ranges(
            facts.blocks["first_instruction"].astype(np.int64),
            facts.blocks["n_instructions"].astype(np.int64),
            facts.instructions["access"].astype(np.uint8),
            stream, lows, highs, self.counts, ACCESS_STORE,
        )  # fmt: skip


def block_ids(facts: BlockFacts, stream: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The block ids in a stream that holds addresses, too, in order."""
    from emulator.probes_kernel import pick_block_ids

    found = np.empty(len(stream), np.uint32)
    return found[: pick_block_ids(facts.blocks["n_accesses"].astype(np.int64), stream, found)]
