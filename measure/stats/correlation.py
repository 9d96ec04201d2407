"""Spearman correlation of the metrics of one trace, Fisher's z, and an interval within one trace.

Pure functions over arrays; numpy only. `measure.perturbation.perturbation` compares the correlations of many runs.
There are no p-values here on purpose: the records of a trace are autocorrelated, so the usual p-value of a
correlation coefficient, which assumes independence, is wrong by orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
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


def stationary_bootstrap_interval(
    values_pair: ArrayLike,
    *,
    level: float = 0.95,
    n_resamples: int = 999,
    block_records: float | None = None,
    seed: int,
) -> tuple[float, float]:
    """Interval ``(low, high)`` for Spearman's rho of ``values_pair`` ``(n, 2)`` within one autocorrelated
    trace.

    Stationary bootstrap (Politis and Romano 1994, section 2): blocks of geometric length, wrapping around,
    keep the dependence between neighbouring records. The mean block length, in records, is chosen by
    `automatic_block_records` as the longest that the two rank series or their product ask for, unless given.
    Each resample is ranked anew; the interval is normal in Fisher's z with the bootstrap's standard
    deviation. It says how well *this trace* determines its rho, not how much rho varies from run to run.

    Returns (nan, nan) for a constant metric; raises ValueError as `spearman` does.
    """
    correlations = spearman(values_pair, ("first", "second"))
    if correlations.constant.any():
        return float("nan"), float("nan")
    table = np.asarray(values_pair, np.float64)
    n = len(table)
    codes = [np.unique(column, return_inverse=True)[1] for column in table.T]
    if block_records is None:
        first, second = (standard_ranks(column)[0] for column in table.T)
        block_records = max(automatic_block_records(series) for series in (first, second, first * second))
    rng = np.random.default_rng(seed)
    resampled = np.empty(n_resamples)
    for index in range(n_resamples):
        rows = _stationary_rows(n, block_records, rng)
        first, second = (_code_ranks(code[rows]) for code in codes)
        length = np.sqrt((first @ first) * (second @ second))
        resampled[index] = first @ second / length if length > 0 else np.nan
    # The bootstrap needs z itself, not z as it is compared between runs: the only limit is the one that keeps z
    # finite.
    limit = 1 - 1 / n**2
    centre = np.arctanh(np.clip(correlations.rho[0, 1], -limit, limit))
    spread = np.nanstd(np.arctanh(np.clip(resampled, -limit, limit)), ddof=1)
    half = NormalDist().inv_cdf(0.5 + level / 2) * spread
    return float(np.tanh(centre - half)), float(np.tanh(centre + half))


def automatic_block_records(series: NDArray[np.float64]) -> float:
    """Mean block length, in records, for the stationary bootstrap of the mean of ``series`` ``(n,)``.

    Politis and White (2004, section 3.2), as corrected by Patton, Politis and White (2009): flat-top lag
    window up to twice the lag after which autocorrelations stay insignificant; at most min(3 sqrt(n), n / 3).
    """
    n = len(series)
    centred = series - series.mean()
    longest = max(1.0, np.ceil(min(3 * np.sqrt(n), n / 3)))
    run_length = max(5, int(np.sqrt(np.log10(n))))
    last_lag = int(np.ceil(np.sqrt(n))) + run_length
    lags = min(n - 1, 2 * last_lag)
    size = 1 << int(2 * n - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), size)[: lags + 1] / n
    if covariance[0] <= 0:
        return 1.0
    bound = 2 * np.sqrt(np.log10(n) / n)
    small = np.abs(covariance[1:] / covariance[0]) < bound
    cutoff = next((lag for lag in range(last_lag - run_length + 1) if small[lag : lag + run_length].all()), None)
    if cutoff is None:  # never settles: up to the last significant lag
        cutoff = int(np.flatnonzero(~small[:last_lag])[-1]) + 1
    window = min(2 * max(cutoff, 1), lags)
    lag = np.arange(-window, window + 1)
    weight = np.clip(2 * (1 - np.abs(lag) / window), 0.0, 1.0)
    weighted = weight * covariance[np.abs(lag)]
    long_run = weighted.sum()
    if long_run <= 0:
        return 1.0
    derivative = (np.abs(lag) * weighted).sum()
    return float(np.clip((derivative**2 / long_run**2 * n) ** (1 / 3), 1.0, longest))


def _stationary_rows(n: int, block_records: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Row numbers ``(n,)`` of one stationary-bootstrap resample."""
    starts = rng.random(n) < 1 / block_records
    starts[0] = True
    positions = np.flatnonzero(starts)
    lengths = np.diff(positions, append=n)
    origins = rng.integers(0, n, len(positions))
    return (np.repeat(origins - positions, lengths) + np.arange(n)) % n


def _code_ranks(codes: NDArray[np.intp]) -> NDArray[np.float64]:
    """Centred average ranks of small integers, by counting: the inner loop of the bootstrap."""
    counts = np.bincount(codes)
    middles = np.cumsum(counts) - (counts - 1) / 2
    return middles[codes] - (len(codes) + 1) / 2
