"""The Bayesian information criterion of a clustering, as SimPoint 3.2 computes it.

Pelleg and Moore, "X-means" (ICML 2000), section 3.2: one variance for all clusters and dimensions; here with weights.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from measure.program_phases.kmeans import Clustering

_NEGLIGIBLE = 1e-28  # fraction of the points' mean square that is rounding, not variance


def variance_floor(points: NDArray[np.float64], least_variance: float) -> float:
    """The smallest variance with which a clustering of ``points`` (n, d) is scored: ``least_variance``, or rounding.

    It keeps the score finite when all of a cluster's intervals are identical, and from rising when negligible
    differences are separated.
    """
    return max(least_variance, _NEGLIGIBLE * float(np.mean(points**2)), float(np.finfo(float).tiny))


def score_above(floor: float, clustering: Clustering, mass: NDArray[np.float64]) -> float:
    """Score of a clustering of points with the weights ``mass`` (n,) of any scale, higher is better.

    n [-d/2 (ln(2 pi v) + 1) - ln W + sum_i w_i ln(W_label(i)) / W] - p/2 ln n, with v the weighted mean squared
    distance to the centres over d, at least ``floor``, and p = (k - 1) + k d + 1.
    """
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
