"""The change of z that is called perturbed in 80% of such campaigns, estimated from the runs of one.

A change is called perturbed if it exceeds delta by the half-width of its simultaneous interval, which is a multiple of
a standard error that each campaign estimates from its few runs. So the answer depends on how much that estimate varies,
here and in the campaign to come: in both, it is mostly too small if the runs have heavy tails. Both are drawn
again from the residuals of all pairs together, which show the tails better than those of one pair.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from measure.stats.permutation import NO_VARIATION, mean_differences, paired_differences

DRAWS = 1000
AIM = 0.84
"""The probability aimed at, for 80% to be reached. The residuals of few runs show less of a skewed distribution's tail
than there is: where 80% was aimed at, it was 73% with lognormal runs, on which this number was chosen."""
_FEWEST_FOR_SPREAD = 3


def errors_beyond_delta(
    baseline: NDArray[np.float64], runs: NDArray[np.float64], paired: bool, critical: float
) -> float:
    """By how many of its estimated errors a change exceeds delta if it is called perturbed with 80% probability.

    The probability is over the runs of now, which estimate the error, and those of another campaign like this. ``runs``
    ``(R, P)``, ``baseline`` ``(B, P)``, in pairs B = R; ``critical``: half-width of simultaneous intervals in standard
    errors. nan if there is none or no pair varies.
    """
    shapes = _residuals(runs - baseline if paired else baseline)
    if not np.isfinite(critical) or not len(shapes):
        return float("nan")
    n_baseline, n_runs = len(baseline), len(runs)
    wider = 1.0 if paired else _spread_ratio(baseline, runs)
    rng = np.random.default_rng(0)

    def campaigns() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The change by chance and its standard error in `DRAWS` campaigns, ``(DRAWS,)`` each."""
        if paired:
            found = paired_differences(rng.choice(shapes, (n_runs, DRAWS)), np.ones((1, n_runs)))
        else:
            values = rng.choice(shapes, (n_baseline + n_runs, DRAWS))
            values[n_baseline:] *= wider
            found = mean_differences(values, np.repeat([0.0, 1.0], [n_baseline, n_runs])[np.newaxis])
        return found[0][0], found[1][0]

    (_, error_now), (chance, error) = campaigns(), campaigns()
    usable = (error_now > 0) & (error > 0)
    needed = (critical * error - chance)[usable] / error_now[usable]
    return float(np.quantile(needed, AIM)) if len(needed) else float("nan")


def _residuals(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances of ``values`` ``(n, P)`` from each column's mean, of variance 1, all together and sorted."""
    counts = np.isfinite(values).sum(axis=0)
    spreads = _spreads(values)
    usable = (counts > 1) & (spreads > NO_VARIATION)
    kept = values[:, usable]
    scaled = (kept - np.nanmean(kept, axis=0)) / spreads[usable] if usable.any() else kept
    scaled = scaled * np.sqrt(counts[usable] / np.maximum(counts[usable] - 1, 1))
    return np.sort(scaled[np.isfinite(scaled)])


def _spread_ratio(baseline: NDArray[np.float64], runs: NDArray[np.float64]) -> float:
    """How much more runs scatter than baselines, in the median over pairs; at least 1."""
    if len(runs) < _FEWEST_FOR_SPREAD:
        return 1.0
    before, after = _spreads(baseline), _spreads(runs)
    usable = before > NO_VARIATION
    return max(1.0, float(np.median(after[usable] / before[usable]))) if usable.any() else 1.0


def _spreads(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard deviation of each column of ``values`` ``(n, P)``; 0 for fewer than two values."""
    defined = np.isfinite(values)
    counts = defined.sum(axis=0)
    means = np.where(defined, values, 0.0).sum(axis=0) / np.maximum(counts, 1)
    squares = np.where(defined, (values - means) ** 2, 0.0).sum(axis=0)
    return np.asarray(np.sqrt(squares / np.maximum(counts - 1, 1)))
