"""Windows for dynamic time warping: the full matrix, a band, a corridor around a coarse path.

A window is two arrays ``(n,)``, ``low`` and ``high``: row i may use columns ``low[i] .. high[i] - 1``. Both
never decrease, ranges of neighbouring rows meet, and the corners are inside, so that a path always exists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Window:
    """Columns ``low[i] .. high[i] - 1`` of ``columns`` for each row i."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    columns: int

    @property
    def cells(self) -> int:
        """Number of cells in the window."""
        return int((self.high - self.low).sum())

    def touches(self, path: NDArray[np.int64]) -> bool:
        """Whether ``path`` runs along a side of the window that is not a side of the matrix."""
        i, j = path[:, 0], path[:, 1]
        lower, upper = self.low[i], self.high[i]
        return bool((((j == lower) & (lower > 0)) | ((j == upper - 1) & (upper < self.columns))).any())


def full_window(rows: int, columns: int) -> Window:
    """The window with every cell."""
    return Window(np.zeros(rows, np.int64), np.full(rows, columns, np.int64), columns)


def band_window(rows: int, columns: int, radius: int) -> Window:
    """Cells within ``radius`` columns of the straight line between the corners (so the slope does not
    matter).

    The Sakoe-Chiba band (Sakoe and Chiba 1978), slope-normalised for traces of different lengths.
    """
    centre = np.arange(rows) * ((columns - 1) / max(1, rows - 1))
    reach = radius + columns / rows / 2  # half the columns that one row advances: neighbouring rows meet
    low = np.maximum(np.ceil(centre - reach), 0).astype(np.int64)
    high = np.minimum(np.floor(centre + reach) + 1, columns).astype(np.int64)
    return _sound(low, high, columns)


def corridor_window(path: NDArray[np.int64], factor: int, rows: int, columns: int, radius: int) -> Window:
    """Cells within ``radius`` records of a coarse ``path`` whose records stand for ``factor`` records each.

    The projection of Salvador and Chan (2007, section 3.2), in one step.
    """
    coarse_rows = int(path[-1, 0]) + 1
    first = np.full(coarse_rows, columns, np.int64)
    last = np.zeros(coarse_rows, np.int64)
    np.minimum.at(first, path[:, 0], path[:, 1] * factor)
    np.maximum.at(last, path[:, 0], (path[:, 1] + 1) * factor)
    coarse = np.minimum(np.arange(rows) // factor, coarse_rows - 1)
    # The radius applies to columns and to rows: a row gets the ranges of all rows within the radius.
    earlier = np.maximum(np.arange(rows) - radius, 0) // factor
    later = np.minimum((np.arange(rows) + radius) // factor, coarse[-1])
    low = np.maximum(first[np.minimum(earlier, coarse_rows - 1)] - radius, 0)
    high = np.minimum(last[later] + radius, columns)
    return _sound(low, high, columns)


def _sound(low: NDArray[np.int64], high: NDArray[np.int64], columns: int) -> Window:
    """Repair the corners and make neighbouring rows meet."""
    low[0], high[-1] = 0, columns
    low = np.minimum.accumulate(low[::-1])[::-1].copy()
    high = np.maximum.accumulate(high)
    low[1:] = np.minimum(low[1:], high[:-1])  # at worst, a diagonal step past the last column
    low = np.minimum(low, high - 1)
    return Window(np.ascontiguousarray(low), np.ascontiguousarray(high), columns)
