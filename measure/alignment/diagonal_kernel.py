"""Kernels of dynamic time warping by anti-diagonals: cumulative costs, and the traceback.

The cells of a row depend on one another; those of an anti-diagonal do not, so that a processor's vectors compute eight
at once. A *window* gives, for each row (record of the reference), the half-open range of columns (records of the other
trace) that the path may use; both ends never decrease from row to row, and neighbouring ranges meet. On an
anti-diagonal the window is one range of rows, whose ends move by at most one row to the next anti-diagonal.
Ties: of equally cheap predecessors the diagonal one is taken, then the one a row up, then the one to the left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import kernel

DIAGONAL, UP, LEFT = 0, 1, 2
Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


def diagonal_bounds(low: Longs, high: Longs) -> tuple[Longs, Longs]:
    """First and last row of the window on each anti-diagonal, ``(n + m - 1,)`` each."""
    first, last = np.empty((2, len(low) + int(high[-1]) - 1), np.int64)
    fill_diagonal_bounds(low, high, first, last)
    return first, last


@kernel
def fill_diagonal_bounds(low: Longs, high: Longs, first: Longs, last: Longs) -> None:
    """Fill ``first`` and ``last`` with the result of `diagonal_bounds`."""
    top, bottom = 0, -1
    for diagonal in range(len(first)):
        while high[top] + top <= diagonal:
            top += 1
        while bottom + 1 < len(low) and low[bottom + 1] + bottom + 1 <= diagonal:
            bottom += 1
        first[diagonal], last[diagonal] = top, bottom


@kernel
def add_squares(local: Floats, reference: Floats, other: Floats) -> None:
    """Add the squared differences of one channel on a part of an anti-diagonal."""
    for k in range(len(local)):
        gap = reference[k] - other[k]
        local[k] += gap * gap


@kernel
def add_four_squares(
    local: Floats, reference: tuple[Floats, Floats, Floats, Floats], other: tuple[Floats, Floats, Floats, Floats]
) -> None:
    """As `add_squares` for four channels, one after the other for each cell, with one store for the four."""
    a, b, c, d = reference
    e, f, g, h = other
    for k in range(len(local)):
        total = local[k]
        gap = a[k] - e[k]
        total += gap * gap
        gap = b[k] - f[k]
        total += gap * gap
        gap = c[k] - g[k]
        total += gap * gap
        gap = d[k] - h[k]
        local[k] = total + gap * gap


@kernel
def choose(across: Floats, up: Floats, left: Floats, local: Floats, penalty: float, out: Floats) -> None:
    """Cumulative costs on a part of an anti-diagonal from those of its cells' predecessors."""
    for k in range(len(local)):
        a, b, c = across[k], up[k] + penalty, left[k] + penalty
        best = b if b < a else a
        out[k] = (c if c < best else best) + local[k]


@kernel
def choose_and_point(
    across: Floats,
    up: Floats,
    left: Floats,
    local: Floats,
    penalty: float,
    out: Floats,
    pointers: NDArray[np.int8],
) -> None:
    """As `choose`; fills ``pointers`` with the predecessors."""
    for k in range(len(local)):
        a, b, c = across[k], up[k] + penalty, left[k] + penalty
        best = b if b < a else a
        pointer = np.int8(UP) if b < a else np.int8(DIAGONAL)
        pointers[k] = np.int8(LEFT) if c < best else pointer
        out[k] = (c if c < best else best) + local[k]


@kernel
def advance(
    reference: Floats,
    other_reversed: Floats,
    first: Longs,
    last: Longs,
    begin: int,
    end: int,
    costs: Floats,
    penalty: float,
    pointers: NDArray[np.int8],
    keep: bool,
) -> None:
    """Advance ``costs`` from anti-diagonals ``begin - 2`` and ``begin - 1`` to ``end - 2`` and ``end - 1``.

    ``reference`` ``(c, n)``; ``other_reversed`` ``(c, m)``, the last record first; ``first``, ``last``: see
    `diagonal_bounds`; ``costs`` ``(3, n + 2)``: row d % 3 has anti-diagonal d, entry i + 1 row i, inf outside the
    window; before the first one entry 0 of row 1 is 0. With ``keep``, ``pointers`` receives the chosen predecessors,
    one anti-diagonal after the other. Local cost: squared Euclidean distance over channels, plus ``penalty`` on steps
    that are not diagonal.
    """
    channels, m = other_reversed.shape
    local_room = np.empty(reference.shape[1])
    position = 0
    for diagonal in range(begin, end):
        top, bottom = first[diagonal], last[diagonal]
        width = bottom - top + 1
        local = local_room[:width]
        local[:] = 0.0
        begins = m - 1 - diagonal + top
        ends = begins + width
        for c in range(0, channels - 3, 4):
            add_four_squares(
                local,
                (reference[c, top : bottom + 1], reference[c + 1, top : bottom + 1],
                 reference[c + 2, top : bottom + 1], reference[c + 3, top : bottom + 1]),
                (other_reversed[c, begins:ends], other_reversed[c + 1, begins:ends],
                 other_reversed[c + 2, begins:ends], other_reversed[c + 3, begins:ends]),
            )  # fmt: skip
        for c in range(channels // 4 * 4, channels):
            add_squares(local, reference[c, top : bottom + 1], other_reversed[c, begins:ends])
        before, just = costs[(diagonal - 2) % 3], costs[(diagonal - 1) % 3]
        now = costs[diagonal % 3]
        across, up, left = before[top : top + width], just[top : top + width], just[top + 1 : top + 1 + width]
        out = now[top + 1 : top + 1 + width]
        if keep:
            choose_and_point(across, up, left, local, penalty, out, pointers[position : position + width])
            position += width
        else:
            choose(across, up, left, local, penalty, out)
        now[top] = np.inf
        now[bottom + 2] = np.inf
        if diagonal == 0:
            before[0] = np.inf  # only the origin may come from outside


@kernel
def walk_back(
    pointers: NDArray[np.int8], first: Longs, last: Longs, begin: int, i: int, j: int, path: Longs, end: int
) -> tuple[int, int, int]:
    """Follow ``pointers`` of the anti-diagonals from ``begin`` to that of ``(i, j)``, until one before, or the origin.

    Fills ``path`` ``(k, 2)`` backwards from row ``end - 1``, the cell ``(i, j)`` included; returns the next cell, not
    yet on the path, and the index of the last path row that was filled. The next cell has ``i = -1`` when the
    origin was reached.
    """
    diagonal = i + j
    position = 0
    for k in range(begin, diagonal):
        position += last[k] - first[k] + 1
    while True:
        end -= 1
        path[end, 0] = i
        path[end, 1] = j
        if diagonal == 0:
            return -1, -1, end
        pointer = pointers[position + i - first[diagonal]]
        steps = 2 if pointer == DIAGONAL else 1
        if pointer != UP:
            j -= 1
        if pointer != LEFT:
            i -= 1
        for _ in range(steps):
            diagonal -= 1
            if diagonal < begin:
                return i, j, end
            position -= last[diagonal] - first[diagonal] + 1
