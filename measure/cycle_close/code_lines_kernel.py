"""Kernel that estimates when each line of code was fetched last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import kernel

Longs = NDArray[np.int64]


@kernel
def lines_of_code(
    begins: Longs, ends: Longs, starts: Longs, blocks: NDArray[np.uint32], executions: Longs, now: int,
    by_address: Longs, first_lines: Longs, last_lines: Longs, ages: NDArray[np.float64], lines: Longs,
    line_ages: NDArray[np.float64],
) -> int:  # fmt: skip
    """Find the lines of all blocks that ran in the n last intervals, and their ages; returns the number of lines.

    Input: ``begins``, ``ends``, (n,): instructions at the intervals' boundaries; ``starts``, (n + 1,), ``blocks``,
    ``executions``: as in `emulator.execution.intervals.Intervals`; ``now``: instructions; ``by_address``: the numbers
    of all blocks by their address; ``first_lines``, ``last_lines``: of each block. Output: ``lines``, ascending, and
    ``line_ages`` [instructions], with room for all lines of all blocks. Scratch: ``ages``, one a block.
    """
    ages[:] = np.inf
    for interval in range(len(ends) - 1, -1, -1):  # a block's last interval counts
        since, length = now - ends[interval], ends[interval] - begins[interval]
        for place in range(starts[interval], starts[interval + 1]):
            block = blocks[place]
            if ages[block] == np.inf:
                ages[block] = since + length / (executions[place] + 1)
    found = 0
    for block in by_address:
        age = ages[block]
        if age == np.inf:
            continue
        for line in range(first_lines[block], last_lines[block] + 1):
            # Blocks come by address, so the lines found from this block's first line on have no gaps.
            if found and line <= lines[found - 1]:
                place = found - 1 - (lines[found - 1] - line)
                line_ages[place] = min(line_ages[place], age)
            else:
                lines[found], line_ages[found] = line, age
                found += 1
    return found
