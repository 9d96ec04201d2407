"""What alignments that two runs share add to the variance of a change across runs.

The change of a run is a mean over the baselines that it is aligned with, and the alignment of two baselines is in the
mean of either: in pairs, baseline i against j is in the changes of runs i and j; without pairs, it is in the mean
similarity of both baselines. So these means do not vary independently, and the error of their mean is larger than
their spread shows, by up to the square root of two where alignments are all the noise there is.

Similarities are taken for a constant, an effect of either run, and noise of the alignment. What is added is unbiased
under that model, and then not taken for less than 0. It vanishes where effects of runs are all the noise there is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FEWEST_PAIRS_FOR_SHARED = 3
"""With two pairs, the one alignment of their baselines is all of their changes that is shared, and it cannot be told
from the change."""


def shared_by_pairs(similarity: NDArray[np.float64], n_baseline: int, n_runs: int) -> NDArray[np.float64]:
    """What is added to the variance of the mean change of ``n_runs`` pairs, ``(m,)``; nan with fewer than three.

    ``similarity``: ``(B + R, B + R, m)``, nan where undefined; run i is paired with baseline i of ``n_baseline``. With
    D_ij = S(run i, baseline j) - S(baseline i, baseline j), the covariance of D_ij and D_ji, over the pairs i and j.
    """
    changes = similarity[n_baseline:, :n_baseline] - similarity[:n_runs, :n_baseline]
    own = np.arange(n_runs)
    changes[own, own] = np.nan
    return np.array([_shared_by_pairs(changes[:, :, column]) for column in range(similarity.shape[2])])


def _shared_by_pairs(changes: NDArray[np.float64]) -> float:
    """The same of one metric, from its changes ``(R, B)``."""
    defined = np.isfinite(changes)
    used = np.flatnonzero(defined.any(axis=1))
    n = len(used)
    if n < FEWEST_PAIRS_FOR_SHARED:
        return float("nan")
    both = defined[np.ix_(used, used)]
    both = both & both.T
    if not both.any(axis=1).all():
        return float("nan")
    between = np.where(both, changes[np.ix_(used, used)], 0.0)
    centre = between.sum() / both.sum()
    products = (between * between.T).sum() / both.sum() - centre**2
    means = between.sum(axis=1) / both.sum(axis=1)
    # The mean product about the estimated centre is too small by the variance of that, of which this is part.
    covariance = (products + means.var(ddof=1) / n) * (n - 1) ** 2 / (n * (n - 2))
    opponents = defined[used].sum(axis=1).mean()
    return float(max(covariance, 0.0) / opponents**2)


def shared_by_baselines(similarity: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is added to the variance of the mean similarity of baselines, ``(m,)``, when that is taken from the spread
    of each one's mean similarity to the others, times (B - 1) / (B - 2).

    ``similarity``: of B baselines, ``(B, B, m)``, nan where undefined. With the noise e of an alignment, the mean of
    all has 2 var(e) / (B (B - 1)) of it, and its estimate var(e) / (B (B - 2)), which for three is the same.
    """
    return np.array([_shared_by_baselines(similarity[:, :, column]) for column in range(similarity.shape[2])])


def _shared_by_baselines(similarity: NDArray[np.float64]) -> float:
    """The same of one metric, ``(B, B)``."""
    used = np.flatnonzero(np.isfinite(similarity).any(axis=1))
    n = len(used)
    between = similarity[np.ix_(used, used)]
    defined = np.isfinite(between)
    freedom = defined.sum() / 2 - n
    if n <= 3 or freedom < 1:
        return 0.0
    means = np.where(defined, between, 0.0).sum(axis=1) / defined.sum(axis=1)
    effects = (means - means.mean()) * (n - 1) / (n - 2)
    residuals = np.where(defined, between - means.mean() - effects - effects[:, np.newaxis], 0.0)
    variance = (residuals**2).sum() / 2 / freedom
    return float(variance * (n - 3) / (n * (n - 1) * (n - 2)))
