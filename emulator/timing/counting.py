"""Counts without a machine: static events of the blocks that were executed, and no time.

What a program did (instructions, loads, branches, floating-point operations), exactly as the cores count it,
for a fraction of the cost: without effective addresses the record is a histogram of block numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.events import BlockFacts, TraceSelection
from emulator.timing.counters import FIRST_DYNAMIC, FIRST_STATIC, N_EVENTS, static_events


class CountingCore:
    """Counts the static events of the record.

    ``addresses``: whether the record carries effective addresses because another consumer asked for them.
    """

    def __init__(self, addresses: bool = False) -> None:
        self.selection = TraceSelection(blocks=True, addresses=addresses)
        self._executions = np.zeros(0, np.int64)
        self._facts: BlockFacts | None = None

    @property
    def executions(self) -> NDArray[np.int64]:
        """How often each block was executed, ``(n_blocks,)``; blocks that came last may be missing."""
        return self._executions

    @property
    def counters(self) -> NDArray[np.int64]:
        """Events so far, ``(N_EVENTS,)`` indexed by `Event`; all but the static ones are 0."""
        counts = np.zeros(N_EVENTS, np.int64)
        if self._facts is not None:
            per_block = static_events(self._facts, 0, len(self._executions)).astype(np.int64)
            counts[FIRST_STATIC:FIRST_DYNAMIC] = self._executions @ per_block
        return counts

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        """Take whole blocks in execution order."""
        self._facts = facts
        if facts.n_blocks > len(self._executions):
            missing = facts.n_blocks - len(self._executions)
            self._executions = np.concatenate([self._executions, np.zeros(missing, np.int64)])
        if self.selection.addresses:
            from emulator.timing.counting_kernel import count_blocks

            lengths = facts.blocks["n_accesses"] + np.uint32(1)
            count_blocks(np.require(stream, np.uint32, ["C", "A", "W"]), lengths, self._executions)
        else:
            self._executions += np.bincount(stream, minlength=len(self._executions))
