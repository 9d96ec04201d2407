"""How the records of a run are spread over the records of a baseline, and counts moved accordingly.

Counts stay whole numbers, because they are counts of events: whoever adds them up again finds the run's own total,
with nothing lost to rounding. Where a record is cut, its running total is rounded at each cut. Its pieces
then sum to it by construction, and at any moment the merged total is within half an event of an even spread.
Rounding each piece by itself, the largest remainders up, would conserve as well, but may be off by many events
in the middle of a record that is cut often. Where a spread comes from is left to `measure.merge.runs`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Spread:
    """Pieces of a run's records, in the order of time.

    ``rows``, ``columns``: ``(k,)``, the baseline's record that a piece falls into, and the run's record that it is
    of; neither decreases. ``upto``: ``(k,)``, the fraction of the run's record that this piece and those before it
    make up; exactly 1 at the last piece of every record. ``n_rows``, ``n_columns``: records of the two traces.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    upto: NDArray[np.float64]
    n_rows: int
    n_columns: int

    def counts(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """``values`` ``(m, c)`` on the baseline's records, ``(n, c)``; each column's sum is kept exactly."""
        if values.shape[0] != self.n_columns:
            raise ValueError(f"values have {values.shape[0]} records, expected {self.n_columns}")
        whole = values[self.columns]
        running = np.floor(whole * self.upto[:, None] + 0.5).astype(np.int64)
        last = np.append(np.diff(self.columns) > 0, True)
        running[last] = whole[last]  # not through float: exact whatever the size
        before = np.zeros_like(running)
        before[1:] = np.where(last[:-1, None], 0, running[:-1])
        merged = np.zeros((self.n_rows, values.shape[1]), np.int64)
        np.add.at(merged, self.rows, running - before)
        return merged

    def records(self, weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """How many records of the run each of the baseline's is made of, ``(n,)``; 1 is one to one.

        ``weights``: ``(m,)``, for how many each of the run's is to count; default: 1.
        """
        shares = self.shares() if weights is None else self.shares() * weights[self.columns]
        return np.asarray(np.bincount(self.rows, shares, self.n_rows), np.float64)

    def positions(self) -> NDArray[np.float64]:
        """Where the middle of each record of the run lies, in records of the baseline, ``(m,)``."""
        return np.asarray(np.bincount(self.columns, self.shares() * self.rows, self.n_columns), np.float64)

    def shares(self) -> NDArray[np.float64]:
        """The fraction of the run's record that each piece is, ``(k,)``."""
        first = np.append(True, np.diff(self.columns) > 0)
        return self.upto - np.where(first, 0.0, np.append(0.0, self.upto[:-1]))


def spread_of_path(path: NDArray[np.int64]) -> Spread:
    """Of a warping path ``(k, 2)`` from (0, 0) to (n-1, m-1): a record is cut evenly among those it is matched to."""
    rows, columns = path[:, 0], path[:, 1]
    pieces = np.bincount(columns)
    before = np.cumsum(pieces) - pieces
    nth = np.arange(len(path)) - before[columns] + 1
    return Spread(rows, columns, nth / pieces[columns], int(rows[-1]) + 1, int(columns[-1]) + 1)


def spread_of_progress(baseline: NDArray[np.float64], run: NDArray[np.float64]) -> Spread:
    """Of boundaries ``(n + 1,)`` and ``(m + 1,)`` on one scale of progress: a record is cut where the baseline's are.

    Neither may decrease. What lies before the baseline's first record goes into that one, and likewise at the end.
    """
    n, m = len(baseline) - 1, len(run) - 1
    first = np.clip(np.searchsorted(baseline, run[:-1], "right") - 1, 0, n - 1)
    last = np.clip(np.searchsorted(baseline, run[1:], "left") - 1, first, n - 1)
    pieces = last - first + 1
    columns = np.repeat(np.arange(m), pieces)
    nth = np.arange(len(columns)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    rows = first[columns] + nth
    length = run[1:] - run[:-1]
    length[length <= 0] = 1.0  # such a record has one piece, which is set below
    upto = np.clip((baseline[rows + 1] - run[columns]) / length[columns], 0.0, 1.0)
    upto[np.cumsum(pieces) - 1] = 1.0
    return Spread(rows, columns, upto, n, m)
