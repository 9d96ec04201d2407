"""What a simulated interval starts from: the last memory references and branch outcomes before it.

The circular queues of the cycle-close paper (section 3.3): the last M references and B branch outcomes, kept
while the program is emulated and passed to the caches and predictors before an interval is simulated. Both are
in the record that the emulator gives anyway, so what is kept is its end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.events import BlockFacts, OpClass, TraceSelection


class RecordQueue:
    """An observer that keeps the end of the record: at least ``references`` and ``branches`` if there are."""

    selection = TraceSelection(blocks=True, addresses=True)

    def __init__(self, references: int, branches: int) -> None:
        self._references = references
        self._branches = branches
        self._parts: list[NDArray[np.uint32]] = []
        self._words = 0

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        # A block takes one word and one a reference, so this many words hold what is wanted if blocks end with
        # branches; a block without one holds up to 64 instructions, which is rare.
        wanted = 2 * (self._references + self._branches)
        self._parts.append(stream.copy())
        self._words += len(stream)
        while self._words - len(self._parts[0]) > wanted:
            self._words -= len(self._parts.pop(0))

    def clear(self) -> None:
        """Forget what is kept: another observer has seen it."""
        self._parts.clear()
        self._words = 0

    def tail(self, facts: BlockFacts) -> NDArray[np.uint32]:
        """The end of the record, whole blocks: the last ``references`` and the last ``branches`` are in it, and
        at most a block more."""
        if not self._parts:
            return np.zeros(0, np.uint32)
        from measure.cycleclose.warmup_kernel import start_of_tail

        stream = np.concatenate(self._parts)
        ends = facts.blocks["terminator"]
        transfers = ((ends >= OpClass.BRANCH) & (ends <= OpClass.INDIRECT_CALL)).astype(np.int64)
        start = start_of_tail(
            stream, facts.blocks["n_accesses"].astype(np.int64), transfers, self._references, self._branches
        )
        return stream[start:]
