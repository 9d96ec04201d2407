"""Numbers of blocks that follow from the guest's execution alone.

The emulator numbers blocks as it discovers them, and it discovers a block earlier, or without running it, where
translations of an earlier run are known. What rests on numbers, such as the random rows of a projection, needs others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.execution.intervals import Intervals


class BlockNumbers:
    """Numbers the blocks that ran from 1: by the interval in which they first ran, and within it by address.

    Blocks of several processes can be equal in these and in length; the one that ran more often in that interval comes
    first.
    """

    def __init__(self) -> None:
        self._numbers = np.zeros(0, np.int64)  # by the emulator's number; 0 for those that did not run
        self.n_blocks = 0

    def vectors(
        self, intervals: Intervals, blocks: NDArray[np.void]
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:  # fmt: skip
        """For each entry of ``intervals``, which follow those of the last call, the block's number, and its executions
        times its instructions. Entries are ordered by interval and number. ``blocks``: rows of BLOCK_DTYPE."""
        self._numbers = np.concatenate([self._numbers, np.zeros(len(blocks) - len(self._numbers), np.int64)])
        rows = np.repeat(np.arange(len(intervals)), np.diff(intervals.starts))
        self._number_new(rows, intervals, blocks)
        numbers = self._numbers[intervals.blocks]
        order = np.argsort(rows * (self.n_blocks + 1) + numbers)
        lengths = blocks["n_instructions"].astype(np.int64)[intervals.blocks]
        return numbers[order].astype(np.uint32), (intervals.executions * lengths)[order]

    def _number_new(self, rows: NDArray[np.int64], intervals: Intervals, blocks: NDArray[np.void]) -> None:
        """Number the blocks that ran for the first time."""
        entries = np.flatnonzero(self._numbers[intervals.blocks] == 0)
        found, first = np.unique(intervals.blocks[entries], return_index=True)
        first = entries[first]
        facts = blocks[found]
        order = np.lexsort(
            (-intervals.executions[first], facts["n_instructions"], facts["end_pc"], facts["pc"], rows[first])
        )
        self._numbers[found[order]] = self.n_blocks + 1 + np.arange(len(found))
        self.n_blocks += len(found)
