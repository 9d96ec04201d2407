"""Estimates which lines of code were fetched last, from the executions of blocks in the latest intervals."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from emulator.events import NEVER, BlockFacts
from emulator.execution.intervals import Intervals
from emulator.timing.machine_config import MachineConfig
from emulator.timing.warm import Touched

KEPT_INTERVALS = 32


class CodeLines:
    """Executed blocks of the last `KEPT_INTERVALS` intervals, as lines of a machine's instruction cache."""

    def __init__(self, config: MachineConfig) -> None:
        self._line_bits = config.l1i.line_bytes.bit_length() - 1
        self._last: deque[tuple[int, int, NDArray[np.uint32], NDArray[np.int64]]] = deque(maxlen=KEPT_INTERVALS)

    def add(self, begin: int, ran: Intervals) -> None:
        """Add intervals, the first of which begins after ``begin`` instructions."""
        first = max(len(ran) - KEPT_INTERVALS, 0)
        begins = [begin, *ran.ends.tolist()]
        bounds = ran.starts.tolist()
        for number in range(first, len(ran)):
            entries = slice(bounds[number], bounds[number + 1])
            self._last.append((
                begins[number], begins[number + 1], ran.blocks[entries], ran.executions[entries]
            ))  # fmt: skip

    def before(self, instructions: int, facts: BlockFacts) -> Touched:
        """The lines of all these blocks and their ages at ``instructions``, after the last interval.

        The last execution of a block in an interval is assumed to be as far from the interval's end as its executions
        are from one another on average.
        """
        ages = np.full(facts.n_blocks, np.inf)
        for begin, end, blocks, executions in self._last:
            ages[blocks] = instructions - end + (end - begin) / (executions + 1)
        ran = np.flatnonzero(np.isfinite(ages))
        about = facts.blocks[ran]
        first = about["pc"].astype(np.int64) >> self._line_bits
        n_lines = (about["end_pc"].astype(np.int64) - 1 >> self._line_bits) - first + 1
        within = np.arange(n_lines.sum()) - np.repeat(np.cumsum(n_lines) - n_lines, n_lines)
        lines, ages = np.repeat(first, n_lines) + within, np.repeat(ages[ran], n_lines)
        youngest_first = np.argsort(ages, kind="stable")
        lines, place = np.unique(lines[youngest_first], return_index=True)
        ages = ages[youngest_first][place]
        return Touched(
            (lines << self._line_bits).astype(np.uint32), np.minimum(ages, NEVER - 1).astype(np.uint32),
            np.full(len(lines), NEVER, np.uint32),
        )  # fmt: skip
