"""Interval for the difference between instrumented runs and baselines, and the number of runs that would settle it.

Quantiles come from scipy.special, which loads in a fraction of the time of scipy.stats, and on demand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_EXTRA_RUNS = 1000
POWER = 0.8


@dataclass(frozen=True)
class Difference:
    """Mean of the runs minus mean of the baselines.

    ``low`` and ``high``: its interval, nan where fewer than two baselines are defined. ``baseline_sd`` and
    ``run_sd``: the spreads between runs on which the interval rests; ``own_spread``: whether the second is
    the runs' own or taken from the baselines.
    """

    delta: float
    low: float
    high: float
    baseline_sd: float
    run_sd: float
    own_spread: bool


def difference(baseline: NDArray[np.float64], runs: NDArray[np.float64], alpha: float) -> Difference:
    """Difference of means of ``runs`` ``(r,)`` and ``baseline`` ``(b,)`` with its ``1 - 2 alpha`` interval.

    The interval of two one-sided tests at level ``alpha`` (TOST, Schuirmann 1987): equivalence within +-delta means
    that the interval lies inside it. Welch-Satterthwaite, with one precaution: the runs are assumed to vary at least
    as much as the baselines, because a few runs that happen to agree are no evidence of precision. A larger variation
    that the runs do not show is not covered: with two runs that vary three times as much as the baselines, an
    interval of 90% contains the truth in 85% of cases. nan values are left out.
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
    error, degrees = _welch(baseline_variance, run_variance, np.array(len(b)), np.array(len(r)), own_spread)
    half = float(t_quantile(degrees, 1 - alpha) * error)
    spreads = float(np.sqrt(baseline_variance)), float(np.sqrt(run_variance))
    return Difference(delta, delta - half, delta + half, *spreads, own_spread)


def extra_runs_for(estimate: Difference, n_baseline: int, n_runs: int, *, margin: float, tail: float) -> int | None:
    """Number of additional runs *of each kind* that distinguish the estimate from a value ``margin`` (in z) away.

    Significance at one-sided level ``tail`` in 80% of repetitions, if effect and spreads stay as they are. To
    show equivalence the margin is delta - |dz| and the tail alpha; to show a change they are |dz| and
    alpha / (2 pairs), which is Bonferroni's and a little stricter than max-T. None when more than 1000 would
    be needed, when the margin is not positive or the spreads are unknown.
    """
    if not (np.isfinite(estimate.low) and margin > 0):
        return None
    extra = np.arange(1, MOST_EXTRA_RUNS + 1)
    error, degrees = _welch(
        estimate.baseline_sd**2,
        estimate.run_sd**2,
        n_baseline + extra,
        n_runs + extra,
        estimate.own_spread,
    )
    reach = (t_quantile(degrees, 1 - tail) + t_quantile(degrees, POWER)) * error
    enough = np.flatnonzero(reach <= margin)
    return int(extra[enough[0]]) if len(enough) else None


def detectable_change(estimate: Difference, n_baseline: int, n_runs: int, *, delta: float, tail: float) -> float:
    """The change (in z) that is found in 80% of campaigns: significant, and estimated to be beyond ``delta``.

    ``tail``: one-sided level for one pair. The spread is that of ``estimate``. A single run is compared with the
    largest of a few dozen baselines' statistics, a limit that itself varies; a quarter of the level compensates
    that. In simulations (8 to 40 baselines, 1 to 5 runs, 6 to 28 pairs) 78 to 99% were found. nan if the spreads or
    ``tail`` are unknown.
    """
    if not np.isfinite(estimate.low) or np.isnan(tail):
        return math.nan  # always this object, so that equal results compare equal
    error, degrees = _welch(
        estimate.baseline_sd**2,
        estimate.run_sd**2,
        np.array(n_baseline),
        np.array(n_runs),
        estimate.own_spread,
    )
    level = t_quantile(degrees, 1 - tail / (4 if n_runs == 1 else 1))
    return float(np.maximum(level * error, delta) + t_quantile(degrees, POWER) * error)


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
    parts = np.asarray(baseline_variance / b), np.asarray(run_variance / r)
    variance = parts[0] + parts[1]
    if not own_spread:
        return np.sqrt(variance), np.asarray(b - 1.0)
    degrees = variance**2 / (parts[0] ** 2 / (b - 1) + parts[1] ** 2 / (r - 1))
    return np.sqrt(variance), np.asarray(degrees)
