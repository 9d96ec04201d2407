"""Kernels of eight alignments of two traces at once, each without one channel: costs row by row, and the traceback.

The lanes are independent, unlike the cells of one row. Windows, costs and ties are as in
`measure.alignment.diagonal_kernel`, which computes one alignment.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import kernel

DIAGONAL, UP, LEFT = 0, 1, 2
LANES = 8


@kernel
def advance_lanes(
    reference: NDArray[np.float64],
    other: NDArray[np.float64],
    reference_outside: NDArray[np.float64],
    other_outside: NDArray[np.float64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    row: NDArray[np.float64],
    penalty: float,
    pointers: NDArray[np.int8],
) -> None:
    """Cumulative costs of eight alignments over all rows, and the predecessors chosen.

    ``reference`` ``(n, 8)`` and ``other`` ``(m, 8)``: the channel that each lane leaves out;
    ``reference_outside`` ``(n, k)`` and ``other_outside`` ``(k, m)``: channels that every lane uses; ``row``:
    ``(m + 1, 8)``, entry ``j + 1`` is column ``j``, inf outside the window, and entry 0 is 0 before the first row;
    ``penalty``: added on steps that advance one trace only;
    ``pointers``: ``(cells, 8)``, row after row.
    """
    outside_channels = reference_outside.shape[1]
    widest = 0
    for i in range(len(low)):
        widest = max(widest, high[i] - low[i])
    outside = np.empty(widest)
    own = np.empty(LANES)
    best = np.empty(LANES)
    diagonal = np.empty(LANES)
    position = 0
    for i in range(len(low)):
        start = low[i]
        width = high[i] - start
        for k in range(width):
            outside[k] = 0.0
        for channel in range(outside_channels):
            value = reference_outside[i, channel]
            for k in range(width):
                gap = value - other_outside[channel, start + k]
                outside[k] += gap * gap
        for lane in range(LANES):
            best[lane] = np.inf
            diagonal[lane] = row[start, lane]
            row[start, lane] = np.inf
        for k in range(width):
            column = start + k
            total = outside[k]
            for lane in range(LANES):
                gap = reference[i, lane] - other[column, lane]
                own[lane] = gap * gap
                total += own[lane]
            for lane in range(LANES):
                above = row[column + 1, lane]
                cheapest = diagonal[lane]
                pointer = DIAGONAL
                if above + penalty < cheapest:
                    cheapest = above + penalty
                    pointer = UP
                if best[lane] + penalty < cheapest:
                    cheapest = best[lane] + penalty
                    pointer = LEFT
                # Rounding may give a negative cost if the channel that is left out has all of the distance.
                cheapest += max(total - own[lane], 0.0)
                diagonal[lane] = above
                best[lane] = cheapest
                row[column + 1, lane] = cheapest
                pointers[position + k, lane] = pointer
        position += width


@kernel
def walk_back(
    pointers: NDArray[np.int8],
    lane: int,
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    first_row: int,
    i: int,
    j: int,
    path: NDArray[np.int64],
    end: int,
) -> tuple[int, int, int]:
    """Follow ``pointers`` of rows ``first_row`` to ``i`` from ``(i, j)`` until the row before, or the origin.

    ``pointers``: ``(cells, lanes)``, of which column ``lane`` is followed. Fills ``path`` ``(k, 2)``
    backwards from row ``end - 1``, the cell ``(i, j)`` included; returns the next cell, not yet on the path,
    and the index of the last path row that was filled. The next cell has ``i = -1`` when the origin was
    reached.
    """
    position = 0
    for k in range(first_row, i):
        position += high[k] - low[k]
    while True:
        end -= 1
        path[end, 0] = i
        path[end, 1] = j
        if i == 0 and j == 0:
            return -1, -1, end
        pointer = pointers[position + j - low[i], lane]
        if pointer != UP:
            j -= 1
        if pointer != LEFT:
            i -= 1
            if i < first_row:
                return i, j, end
            position -= high[i] - low[i]
