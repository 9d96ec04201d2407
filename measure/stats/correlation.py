"""Spearman correlation of the metrics of one trace, and Fisher's z.

Pure functions over arrays; numpy only. `measure.perturbation.perturbation` compares the correlations of many runs.
There are no p-values here on purpose: the records of a trace are autocorrelated, so the usual p-value of a
correlation coefficient, which assumes independence, is wrong by orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

RHO_CEILING = 0.99
"""Correlations beyond this magnitude are reduced to it before they are turned into z.

atanh has no bound: 0.9999 and 0.9990 differ by more, in z, than 0.8 and 0.3. Two metrics that share 99% of
their ranks are one signal for any analysis, so differences above this magnitude do not count as change.
"""

MOST_AT_CEILING = 0.1
"""Where |rho| is at `RHO_CEILING` or beyond in more than this fraction of baselines or runs, neither an absence of
change nor a spread between runs can be shown: values beyond it count as equal, and seem to scatter less."""

_ROUNDING = 1e-9
"""What tanh and atanh may take from `RHO_CEILING`."""

MIN_RECORDS = 4


@dataclass(frozen=True)
class Correlations:
    """Spearman's rho between all metrics of one trace.

    ``metrics``: ``(m,)`` names. ``rho``: ``(m, m)`` symmetric, in [-1, 1]; nan in the rows and columns of
    constant metrics, where correlation is undefined. ``constant``: ``(m,)``. ``tie_fraction``: ``(m,)`` share
    of records that hold the metric's most frequent value, 0 where all values differ. ``n_records``: length of the
    trace, where it is known.
    """

    metrics: tuple[str, ...]
    rho: NDArray[np.float64]
    constant: NDArray[np.bool_]
    tie_fraction: NDArray[np.float64]
    n_records: int | None = None


def average_ranks(values: NDArray[Any]) -> tuple[NDArray[np.float64], int]:
    """Ranks from 1 of ``values`` ``(n,)``, ties sharing their mean, and how many records the most frequent value has.

    Integers are ranked as they are: beyond 2^53, float64 makes neighbours equal.

    That number is 0 if all values differ.
    """
    order = np.argsort(values)  # in any order among equals, which share their rank
    starts, counts = runs_of_equals(values[order])
    ranks = np.empty(len(values))
    if len(starts) == len(values):
        ranks[order] = np.arange(1, len(values) + 1)
        return ranks, 0
    ranks[order] = np.repeat(starts + (counts + 1) / 2, counts)
    return ranks, int(counts.max())


def runs_of_equals(values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each run of equal neighbours in ``values``, (n,) with n at least 1, begins, and how long it is."""
    first = np.empty(len(values), np.bool_)
    first[0] = True
    np.not_equal(values[1:], values[:-1], out=first[1:])
    starts = first.nonzero()[0]
    counts = np.empty(len(starts), np.int64)
    np.subtract(starts[1:], starts[:-1], out=counts[:-1])
    counts[-1] = len(values) - starts[-1]
    return starts, counts


def standard_ranks(values: NDArray[Any]) -> tuple[NDArray[np.float64], int]:
    """Average ranks centred and scaled to unit length (zeros when constant), and the number from `average_ranks`.

    The dot product of two such vectors is Spearman's rho.
    """
    ranks, most = average_ranks(values)
    ranks -= (len(values) + 1) / 2
    length = np.sqrt(ranks @ ranks)
    return (ranks / length if length > 0 else ranks), most


def spearman(values: ArrayLike, metrics: Sequence[str]) -> Correlations:
    """Spearman's rho of all pairs of columns of ``values`` ``(n, m)``, with average ranks for ties.

    Integers are ranked as they are. Raises ValueError when the shape does not fit the names, when there are fewer
    than 4 records, and when a value is not finite, naming the metric and the record.
    """
    table = finite_table(values, metrics)
    n, m = table.shape
    if n < MIN_RECORDS:
        raise ValueError(
            f"a trace of {n} records is too short to correlate: expected at least {MIN_RECORDS}; "
            "sample at a shorter interval or run a longer program"
        )
    ranks = np.empty((m, n))
    most = np.empty(m)
    for column in range(m):
        ranks[column], most[column] = standard_ranks(table[:, column])
    constant = np.asarray(~ranks.any(axis=1))
    rho = np.clip(ranks @ ranks.T, -1.0, 1.0)
    np.fill_diagonal(rho, 1.0)
    rho[constant, :] = np.nan
    rho[:, constant] = np.nan
    return Correlations(tuple(metrics), rho, constant, most / n, n)


def finite_table(values: ArrayLike, metrics: Sequence[str]) -> NDArray[Any]:
    """``values`` ``(n, m)``, integers as they are, all else as float64.

    Raises ValueError when the table does not fit the metrics or is not finite.
    """
    table = np.asarray(values)
    if not np.issubdtype(table.dtype, np.integer):
        table = table.astype(np.float64)
    if table.ndim != 2 or table.shape[1] != len(metrics):
        raise ValueError(f"values have shape {table.shape}: expected (records, {len(metrics)}), one column a metric")
    if not np.isfinite(table).all():
        record, column = np.argwhere(~np.isfinite(table))[0]
        raise ValueError(
            f"metric {metrics[column]!r} is {table[record, column]} at record {record}: expected a finite "
            "number; drop the metric or the records that were not counted before correlating"
        )
    return table


def fisher_z(rho: ArrayLike) -> NDArray[np.float64]:
    """Fisher's variance-stabilising z = atanh(rho), signed, with |rho| clipped at `RHO_CEILING` (z = 2.65).

    nan stays nan. A difference of two z is Cohen's effect size q (Cohen 1988, section 4.2).
    """
    return np.arctanh(np.clip(np.asarray(rho, np.float64), -RHO_CEILING, RHO_CEILING))


def is_at_ceiling(rho: ArrayLike) -> NDArray[np.bool_]:
    """Whether each ``rho`` is at `RHO_CEILING` or beyond, or comes from a z that was cut off there; nan is not."""
    return np.asarray(np.abs(np.nan_to_num(np.asarray(rho, np.float64))) >= RHO_CEILING - _ROUNDING)


def share_at_ceiling(baseline_rho: NDArray[np.float64], run_rho: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each of P pairs the share of baselines ``(B, P)`` or of runs ``(R, P)``, whichever is larger, whose rho is so
    high that z is cut off."""
    shares = [is_at_ceiling(rho).sum(axis=0) / max(len(rho), 1) for rho in (baseline_rho, run_rho)]
    return np.asarray(np.maximum(*shares))
