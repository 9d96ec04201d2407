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
        self._by_address = self._first_lines = self._last_lines = np.zeros(0, np.int64)  # of all blocks

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
        from measure.cycle_close.code_lines_kernel import lines_of_code

        self._extend(facts)
        if not self._last:
            return Touched(*(np.zeros(0, np.uint32) for _ in range(3)))
        begins, ends, blocks, executions = zip(*self._last, strict=True)
        room = int((self._last_lines - self._first_lines + 1).sum())
        lines, ages = np.empty(room, np.int64), np.empty(room)
        n = lines_of_code(
            np.array(begins), np.array(ends), np.cumsum([0, *map(len, blocks)]), np.concatenate(blocks),
            np.concatenate(executions), instructions, self._by_address, self._first_lines, self._last_lines,
            np.empty(len(self._by_address)), lines, ages,
        )  # fmt: skip
        return Touched(
            (lines[:n] << self._line_bits).astype(np.uint32), np.minimum(ages[:n], NEVER - 1).astype(np.uint32),
            np.full(n, NEVER, np.uint32),
        )  # fmt: skip

    def _extend(self, facts: BlockFacts) -> None:
        """Take notice of new blocks."""
        known = len(self._by_address)
        if facts.n_blocks > known:
            about = facts.blocks[known : facts.n_blocks]
            first = about["pc"].astype(np.int64) >> self._line_bits
            last = about["end_pc"].astype(np.int64) - 1 >> self._line_bits
            self._first_lines = np.concatenate([self._first_lines, first])
            self._last_lines = np.concatenate([self._last_lines, last])
            self._by_address = np.argsort(self._first_lines, kind="stable")
