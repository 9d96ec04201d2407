"""Interval for the difference between instrumented runs and baselines, and its precision with further runs.

Quantiles come from scipy.special, which loads in a fraction of the time of scipy.stats, and on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

POWER = 0.8


@dataclass(frozen=True)
class Difference:
    """Mean of the runs minus mean of the baselines.

    ``low`` and ``high``: its interval, nan where fewer than two baselines are defined. ``baseline_sd`` and
    ``run_sd``: the spreads between runs on which the interval rests; ``own_spread``: whether the second is
    the runs' own or taken from the baselines. ``paired``: of pairs of a baseline and a run; then ``run_sd`` is the
    spread of the differences within pairs. ``shared_variance``: what values that are not independent add to the
    variance of each baseline, in pairs to that of each difference.
    """

    delta: float
    low: float
    high: float
    baseline_sd: float
    run_sd: float
    own_spread: bool
    paired: bool = False
    shared_variance: float = 0.0


def paired_difference(
    baseline: NDArray[np.float64], runs: NDArray[np.float64], alpha: float, shared_variance: float = 0.0
) -> Difference:
    """Mean of ``runs`` minus ``baseline``, ``(r,)`` each and in pairs, with Student's ``1 - 2 alpha`` interval.

    Pairs of which one value is nan are left out. ``shared_variance``: what differences that are not independent add to
    the variance of their mean; nan if that is not known, which leaves no interval.
    """
    changes = runs - baseline
    defined = np.isfinite(changes)
    changes, nan = changes[defined], float("nan")
    if len(changes) < 2 or not np.isfinite(shared_variance):
        return Difference(float(changes.mean()) if len(changes) else nan, nan, nan, nan, nan, False, True)
    delta, spread = float(changes.mean()), float(changes.std(ddof=1))
    baseline_sd, shared = float(baseline[defined].std(ddof=1)), shared_variance * len(changes)
    estimate = Difference(delta, delta, delta, baseline_sd, spread, True, True, shared)
    error, degrees = standard_error(estimate, np.array(len(changes)), np.array(len(changes)))
    half = float(t_quantile(degrees, 1 - alpha) * error)
    return replace(estimate, low=delta - half, high=delta + half)


def difference(
    baseline: NDArray[np.float64], runs: NDArray[np.float64], alpha: float, shared_variance: float = 0.0
) -> Difference:
    """Difference of means of ``runs`` ``(r,)`` and ``baseline`` ``(b,)`` with its ``1 - 2 alpha`` interval.

    The interval of two one-sided tests at level ``alpha`` (TOST, Schuirmann 1987): equivalence within +-delta means
    that the interval lies inside it. Welch-Satterthwaite, with one precaution: the runs are assumed to vary at least
    as much as the baselines, because a few runs that happen to agree are no evidence of precision. A larger variation
    that the runs do not show is not covered: with two runs that vary three times as much as the baselines, an
    interval of 90% contains the truth in 85% of cases. nan values are left out. ``shared_variance``: what baselines
    that are not independent add to the variance of their mean.
    """
    b, r = baseline[np.isfinite(baseline)], runs[np.isfinite(runs)]
    nan = float("nan")
    delta = float(r.mean() - b.mean()) if len(b) and len(r) else nan
    if len(b) < 2 or len(r) == 0:
        return Difference(delta, nan, nan, nan, nan, False)
    baseline_variance = float(b.var(ddof=1))
    run_variance = float(r.var(ddof=1)) if len(r) > 1 else 0.0
    own_spread = run_variance > baseline_variance
    run_variance = max(run_variance, baseline_variance)
    spreads = float(np.sqrt(baseline_variance)), float(np.sqrt(run_variance))
    estimate = Difference(delta, delta, delta, *spreads, own_spread, shared_variance=shared_variance * len(b))
    error, degrees = standard_error(estimate, np.array(len(b)), np.array(len(r)))
    half = float(t_quantile(degrees, 1 - alpha) * error)
    return replace(estimate, low=delta - half, high=delta + half)


def standard_error(
    estimate: Difference, n_baseline: NDArray[np.int64], n_runs: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Standard error and degrees of freedom of a difference like ``estimate`` from so many baselines and runs."""
    if estimate.paired:
        spread = np.sqrt(estimate.run_sd**2 + estimate.shared_variance)
        return np.asarray(spread / np.sqrt(n_runs)), np.asarray(n_runs - 1.0)
    baseline_variance = estimate.baseline_sd**2 + estimate.shared_variance
    return _welch(baseline_variance, estimate.run_sd**2, n_baseline, n_runs, estimate.own_spread)


def t_quantile(degrees: ArrayLike, probability: float) -> NDArray[np.float64]:
    """Quantile of Student's t."""
    from scipy.special import stdtrit

    return np.asarray(stdtrit(np.asarray(degrees, np.float64), probability), np.float64)


def _welch(
    baseline_variance: float,
    run_variance: float,
    b: NDArray[np.int64],
    r: NDArray[np.int64],
    own_spread: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Standard error of a difference of means of ``b`` and ``r`` values, and its degrees of freedom.

    Runs without a spread of their own borrow the baselines', and the degrees of freedom are the baselines'.
    """
    of_means = np.asarray(baseline_variance / b), np.asarray(run_variance / r)
    if not own_spread:
        return np.sqrt(of_means[0] + of_means[1]), np.asarray(b - 1.0)
    return welch(of_means, (b, r))


def welch(
    of_means: Sequence[NDArray[np.float64]], sizes: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Standard error of a difference of two means, and its degrees of freedom (Welch-Satterthwaite).

    ``of_means``: the variance of each mean, at least one above 0; ``sizes``: how many values each is of, at least 2.
    """
    variance = of_means[0] + of_means[1]
    lower = sum(one**2 / (n - 1) for one, n in zip(of_means, sizes, strict=True))
    return np.sqrt(variance), np.asarray(variance**2 / lower)
