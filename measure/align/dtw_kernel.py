"""Dynamic time warping, the inner loops: cumulative costs row by row inside a window, and the way back.

A *window* gives, for each row (record of the reference), the half-open range of columns (records of the other
trace) that the path may use; both ends never decrease from row to row, and neighbouring ranges meet. The full
matrix, a band and a corridor around a coarse path are windows, so one kernel serves them all. What windows to
use, and how much memory, is left to `measure.align.dtw`.

Ties: of equally cheap predecessors the diagonal one is taken, then the one a row up, then the one to the
left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from measure.jit import njit

DIAGONAL, UP, LEFT = 0, 1, 2
LANES = 8


@njit
def advance_rows(
    reference: NDArray[np.float64],
    other: NDArray[np.float64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    first_row: int,
    last_row: int,
    row: NDArray[np.float64],
    penalty: float,
    pointers: NDArray[np.int8],
    keep: bool,
) -> None:
    """Advance ``row`` from the cumulative costs of row ``first_row - 1`` to those of row ``last_row - 1``.

    ``reference``: ``(n, c)``; ``other``: ``(c, m)``, one row a channel; ``low``, ``high``: ``(n,)``; ``row``:
    ``(m + 1,)``, entry ``j + 1`` is column ``j``, inf outside the window, and entry 0 is 0 before the first
    row. With ``keep``, ``pointers`` ``(cells, 1)`` receives the chosen predecessors, row after row.
    Local cost: squared Euclidean distance over channels, plus ``penalty`` on steps that are not diagonal.
    """
    channels = reference.shape[1]
    widest = 0
    for i in range(first_row, last_row):
        widest = max(widest, high[i] - low[i])
    local = np.empty(widest)
    above = np.empty(widest)
    straight = np.empty(widest, np.int8)
    position = 0
    for i in range(first_row, last_row):
        start = low[i]
        width = high[i] - start
        for k in range(width):
            local[k] = 0.0
        for channel in range(channels):
            value = reference[i, channel]
            for k in range(width):
                gap = value - other[channel, start + k]
                local[k] += gap * gap
        # What does not depend on the left neighbour first: the compiler makes it wide.
        for k in range(width):
            diagonal = row[start + k]
            up = row[start + k + 1] + penalty
            take_up = up < diagonal
            above[k] = up if take_up else diagonal
            straight[k] = UP if take_up else DIAGONAL
        row[start] = np.inf  # left of the window, for this row and the next
        # Cell waits for cell here, so only a minimum and one addition are on the way from one to the next.
        left = np.inf
        if keep:
            for k in range(width):
                take_left = left < above[k]
                cheapest = left if take_left else above[k]
                pointers[position + k, 0] = LEFT if take_left else straight[k]
                row[start + k + 1] = cheapest + local[k]
                left = cheapest + (local[k] + penalty)
        else:
            for k in range(width):
                cheapest = left if left < above[k] else above[k]
                row[start + k + 1] = cheapest + local[k]
                left = cheapest + (local[k] + penalty)
        position += width


@njit
def advance_lanes(
    reference: NDArray[np.float64],
    other: NDArray[np.float64],
    reference_outside: NDArray[np.float64],
    other_outside: NDArray[np.float64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    row: NDArray[np.float64],
    pointers: NDArray[np.int8],
) -> None:
    """Eight alignments at once, each leaving one channel out, over all rows, without a penalty: see `advance_rows`.

    ``reference`` ``(n, 8)`` and ``other`` ``(m, 8)``: the channels that are left out in turn, lane by lane;
    ``reference_outside`` ``(n, k)`` and ``other_outside`` ``(k, m)``: channels that every lane uses; ``row``:
    ``(m + 1, 8)``; ``pointers``: ``(cells, 8)``. The lanes do not wait for one another as the cells of one
    row do, which is what makes this several times faster than eight calls.
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
                if above < cheapest:
                    cheapest = above
                    pointer = UP
                if best[lane] < cheapest:
                    cheapest = best[lane]
                    pointer = LEFT
                # Rounding may leave less than nothing where the channel left out is all of the distance.
                cheapest += max(total - own[lane], 0.0)
                diagonal[lane] = above
                best[lane] = cheapest
                row[column + 1, lane] = cheapest
                pointers[position + k, lane] = pointer
        position += width


@njit
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
