"""The Bayesian information criterion of a clustering, as SimPoint 3.2 computes it.

Pelleg and Moore, "X-means" (ICML 2000), section 3.2: one variance for all clusters and dimensions; here with weights.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measure.program_phases.kmeans import Clustering, checked

_NEGLIGIBLE = 1e-28  # fraction of the points' mean square that is rounding, not variance


def bic_score(
    points: ArrayLike,
    clustering: Clustering,
    weights: ArrayLike | None = None,
    least_variance: float = 0.0,
) -> float:
    """Score of a clustering of ``points`` (n, d), higher is better; ``weights`` (n,) of any scale.

    n [-d/2 (ln(2 pi v) + 1) - ln W + sum_i w_i ln(W_label(i)) / W] - p/2 ln n, with v the weighted mean squared
    distance to the centres over d and p = (k - 1) + k d + 1. A variance below ``least_variance``, or below rounding,
    is raised to it: the score stays finite when all of a cluster's intervals are identical, and does not rise when
    negligible differences are separated.
    """
    table, mass = checked(points, weights)
    return score_above(variance_floor(table, least_variance), clustering, mass)


def variance_floor(points: NDArray[np.float64], least_variance: float) -> float:
    """The smallest variance with which a clustering of ``points`` (n, d) is scored."""
    return max(least_variance, _NEGLIGIBLE * float(np.mean(points**2)), float(np.finfo(float).tiny))


def score_above(floor: float, clustering: Clustering, mass: NDArray[np.float64]) -> float:
    """As `bic_score`, for points with the weights ``mass`` (n,) and a given `variance_floor`."""
    n, dimensions = len(mass), clustering.centres.shape[1]
    variance = max(clustering.distortion / (mass.mean() * n * dimensions), floor)
    total = float(mass.sum())
    clusters = np.bincount(clustering.labels, weights=mass, minlength=clustering.k)
    filled = clusters[clusters > 0]
    likelihood = (
        -dimensions / 2 * (math.log(2 * math.pi * variance) + 1)
        - math.log(total)
        + float(filled @ np.log(filled)) / total
    )
    parameters = (clustering.k - 1) + clustering.k * dimensions + 1
    return n * likelihood - parameters / 2 * math.log(n)
