"""Warms up a simulated interval with the last memory references and branch outcomes before it.

The circular queues of the cycle-close paper (section 3.3): the last M references and B branch outcomes, kept while
the program is emulated and passed to the caches and predictors before an interval is simulated. The emulator's record
contains both, so the queue is the end of that record.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.events import BlockFacts, OpClass, TraceSelection


class RecordQueue:
    """An observer that keeps the end of the record, with at least ``references`` and ``branches`` if it has so many."""

    selection = TraceSelection(blocks=True, addresses=True)

    def __init__(self, references: int, branches: int) -> None:
        self._references = references
        self._branches = branches
        self._parts: list[NDArray[np.uint32]] = []
        self._words = 0
        self._room_words = self._least_words = 4 * (references + branches) + 1024

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        self._parts.append(stream.copy())
        self._words += len(stream)
        if self._words > self._room_words:
            tail = self.tail(facts)
            self._parts, self._words = [tail], len(tail)
            # If blocks contain much besides references and branches, the tail is long, and finding it is not free.
            self._room_words = max(self._least_words, 2 * len(tail))

    def tail(self, facts: BlockFacts) -> NDArray[np.uint32]:
        """The shortest end of the record, in whole blocks, that contains the last ``references`` and ``branches``."""
        if not self._parts:
            return np.zeros(0, np.uint32)
        from measure.cycle_close.warmup_kernel import start_of_tail

        stream = np.concatenate(self._parts)
        ends = facts.blocks["terminator"]
        transfers = ((ends >= OpClass.BRANCH) & (ends <= OpClass.INDIRECT_CALL)).astype(np.int64)
        start = start_of_tail(
            stream, facts.blocks["n_accesses"].astype(np.int64), transfers, self._references, self._branches
        )
        return stream[start:]
