"""k-means: starting centres, and Lloyd's iteration with repair of empty clusters.

`choose` decides the number of clusters, with the score of `bic`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from measure.program_phases.nearest_kernel import Blocks

Starts = Literal["kmeans++", "sample", "furthest"]


@dataclass(frozen=True)
class Clustering:
    """Points in clusters, none of them empty.

    ``labels`` (n,) int32; ``centres`` (k, d): the weighted mean of each cluster; ``distortion``: the sum of weight x
    squared distance to the own centre; ``converged``: the last round moved no centre.
    """

    labels: NDArray[np.int32]
    centres: NDArray[np.float64]
    distortion: float
    converged: bool

    @property
    def k(self) -> int:
        return len(self.centres)


def kmeans_from(
    points: NDArray[np.float64],
    centres: NDArray[np.float64],
    weights: NDArray[np.float64],
    max_iterations: int = 100,
    blocks: Blocks | None = None,
) -> Clustering:
    """Cluster from given ``centres`` (k, d). Clusters that no point can fill are left out.

    ``blocks``: `blocks_of` the points, to be reused when they are clustered more than once.
    """
    from measure.program_phases.kmeans_kernel import lloyd
    from measure.program_phases.nearest_kernel import blocks_of, squares_to

    if max_iterations < 1:
        raise ValueError(f"got {max_iterations} iterations, expected at least 1")
    labels, means, mass, _, _, _, converged = lloyd(
        points, weights, blocks or blocks_of(points), np.ascontiguousarray(centres), max_iterations, True
    )
    filled = mass > 0
    if not filled.all():
        labels = (np.cumsum(filled) - 1)[labels].astype(np.int32)
        means = means[filled]
    distortion = float(weights @ squares_to(points, means, labels))
    return Clustering(labels, means, distortion, converged)


def starting_centres(
    points: NDArray[np.float64], k: int, seed: int, starts: Starts, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(at most k, d) centres to start from; the first j of k are the starts for j. Raises `ValueError`.

    ``kmeans++``: drawn by weight x squared distance; ``sample``: distinct intervals; ``furthest``: each the furthest
    from those before it.
    """
    from measure.program_phases.kmeans_kernel import spread_starts

    if k < 1:
        raise ValueError(f"got k = {k}, expected at least 1")
    if starts not in get_args(Starts):
        raise ValueError(f"got starts '{starts}', expected one of {', '.join(get_args(Starts))}")
    rng = np.random.default_rng(seed)
    if starts == "sample":
        return points[rng.permutation(len(points))[:k]]
    return points[spread_starts(points, weights, rng.random(k), starts == "furthest")]


def checked(points: ArrayLike, weights: ArrayLike | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points (n, d) and weights (n,) as contiguous floats. Raises `ValueError` for values that cannot be clustered."""
    table = np.ascontiguousarray(points, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"got points of shape {table.shape}, expected (intervals, dimensions), at least one of each")
    mass = np.ones(len(table)) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    if mass.shape != (len(table),):
        raise ValueError(f"got weights of shape {mass.shape}, expected ({len(table)},)")
    for name, values in (("points", table), ("weights", mass)):
        if not np.isfinite(values).all():
            raise ValueError(
                f"got {name} that are not finite (interval {int(np.argwhere(~np.isfinite(values))[0, 0])})"
            )
    if (mass <= 0).any():
        raise ValueError(f"got weight {mass.min()} (interval {int(mass.argmin())}), expected positive weights")
    return table, mass
