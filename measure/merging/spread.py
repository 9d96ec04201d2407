"""Distributes the records of a run over the records of a baseline, and moves counts accordingly.

Counts stay whole numbers, because they are counts of events, and each metric's sum stays exactly the run's own total.
Where a record is cut, its running total is rounded at each cut. The counts of its parts then sum to the record's
count by construction, and at any moment the merged total is within half an event of an even distribution. Rounding
each part by itself, the largest remainders up, would conserve the sum as well, but may be off by many events in the
middle of a record that is cut often. `measure.merging.merge_runs` makes spreads from alignments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LONGEST_SLOPE = 25.0  # records


@dataclass(frozen=True)
class Spread:
    """Parts of a run's records, in the order of time.

    ``rows``, ``columns``: ``(k,)``, the baseline record into which a part falls, and the run's record that it is a
    part of; neither decreases. ``upto``: ``(k,)``, the fraction of the run's record up to the end of this part;
    exactly 1 at the last part of every record. ``n_rows``, ``n_columns``: numbers of records of the two traces.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    upto: NDArray[np.float64]
    n_rows: int
    n_columns: int

    def counts(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """``values`` ``(m, c)`` moved to the baseline's records, ``(n, c)``; each column's sum is kept exactly."""
        if values.shape[0] != self.n_columns:
            raise ValueError(f"values have {values.shape[0]} records, expected {self.n_columns}")
        whole = values[self.columns]
        running = np.floor(whole * self.upto[:, None] + 0.5).astype(np.int64)
        last = np.append(np.diff(self.columns) > 0, True)
        running[last] = whole[last]  # not through float: exact for any size
        before = np.zeros_like(running)
        before[1:] = np.where(last[:-1, None], 0, running[:-1])
        merged = np.zeros((self.n_rows, values.shape[1]), np.int64)
        np.add.at(merged, self.rows, running - before)
        return merged

    def records(self, weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Number of the run's records in each of the baseline's, ``(n,)``; 1 everywhere for equal traces.

        ``weights``: ``(m,)``, weight of each of the run's records; default: 1.
        """
        shares = self.shares() if weights is None else self.shares() * weights[self.columns]
        return np.asarray(np.bincount(self.rows, shares, self.n_rows), np.float64)

    def positions(self) -> NDArray[np.float64]:
        """Position of the middle of each record of the run, in records of the baseline, ``(m,)``."""
        return np.asarray(np.bincount(self.columns, self.shares() * self.rows, self.n_columns), np.float64)

    def shares(self) -> NDArray[np.float64]:
        """Size of each part as a fraction of the run's record, ``(k,)``."""
        first = np.append(True, np.diff(self.columns) > 0)
        return self.upto - np.where(first, 0.0, np.append(0.0, self.upto[:-1]))


def spread_of_path(path: NDArray[np.int64]) -> Spread:
    """The spread of a warping path ``(k, 2)`` from (0, 0) to (n-1, m-1): a record is cut evenly among its matches."""
    rows, columns = path[:, 0], path[:, 1]
    parts = np.bincount(columns)
    before = np.cumsum(parts) - parts
    nth = np.arange(len(path)) - before[columns] + 1
    return Spread(rows, columns, nth / parts[columns], int(rows[-1]) + 1, int(columns[-1]) + 1)


def even_spread_of_path(path: NDArray[np.int64], idle: NDArray[np.bool_]) -> Spread:
    """The spread of a warping path, with its single steps evened out. ``idle``: ``(m,)``, the run's records in which
    nothing ran.

    A run that is a tenth longer has two records in every tenth of the baseline's by its path, and so twice the events
    there: in the trace of an inverted index three relations changed by 0.2 to 0.3 for that alone. Each such step is
    taken for a slope, from the middle of the stretch before it to that after it, at most `_LONGEST_SLOPE` records away,
    which moves no record by more than one. Where several steps follow one another, and where nothing ran, records were
    put in, or left out: there the path stays as it is.
    """
    return spread_of_progress(np.arange(path[-1, 0] + 2.0), _even_boundaries(path, idle))


def _even_boundaries(path: NDArray[np.int64], idle: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Where the run's boundaries lie, in records of the baseline, ``(m + 1,)``; never decreasing."""
    rows, columns = path[:, 0], path[:, 1]
    first_rows, first_columns = (
        other[np.flatnonzero(np.diff(one, prepend=-1))] for one, other in ((columns, rows), (rows, columns))
    )
    at = np.arange(columns[-1] + 2.0)
    in_row = np.bincount(rows)
    own = first_rows + (at[:-1] - first_columns[first_rows]) / in_row[first_rows]
    offset = np.append(own, rows[-1] + 1.0) - at
    begins = np.flatnonzero(np.diff(offset, prepend=np.nan) != 0)
    ends = np.append(begins[1:], len(offset)) - 1
    stretches = np.flatnonzero(ends > begins)  # of records that correspond one to one
    idle_before = np.append(0, np.cumsum(idle))
    is_idle = idle_before[begins[stretches[1:]]] > idle_before[ends[stretches[:-1]]]
    is_single = (np.abs(np.diff(offset[begins[stretches]])) <= 1) & ~is_idle
    reach = np.minimum((ends - begins) / 2, _LONGEST_SLOPE)
    begin_at, end_at = begins.astype(np.float64), ends.astype(np.float64)
    begin_at[stretches[1:][is_single]] += reach[stretches[1:][is_single]]
    end_at[stretches[:-1][is_single]] -= reach[stretches[:-1][is_single]]
    knots = np.column_stack([begin_at, end_at]).ravel()
    return np.asarray(at + np.interp(at, knots, np.repeat(offset[begins], 2)))


def spread_of_progress(baseline: NDArray[np.float64], run: NDArray[np.float64]) -> Spread:
    """The spread of two traces' boundaries by progress: a record is cut at the baseline's boundaries.

    ``baseline`` ``(n + 1,)``, ``run`` ``(m + 1,)``: on one scale of progress; neither decreases. Progress before the
    baseline's first record goes into that record, progress after its last record into the last.
    """
    n, m = len(baseline) - 1, len(run) - 1
    first = np.clip(np.searchsorted(baseline, run[:-1], "right") - 1, 0, n - 1)
    last = np.clip(np.searchsorted(baseline, run[1:], "left") - 1, first, n - 1)
    parts = last - first + 1
    columns = np.repeat(np.arange(m), parts)
    nth = np.arange(len(columns)) - np.repeat(np.cumsum(parts) - parts, parts)
    rows = first[columns] + nth
    length = run[1:] - run[:-1]
    length[length <= 0] = 1.0  # a record without progress has one part, whose `upto` is set below
    upto = np.clip((baseline[rows + 1] - run[columns]) / length[columns], 0.0, 1.0)
    upto[np.cumsum(parts) - 1] = 1.0
    return Spread(rows, columns, upto, n, m)
