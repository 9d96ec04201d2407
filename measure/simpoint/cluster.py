"""SimPoint: phases of a program from its basic block vectors, and the intervals that stand for them.

Sherwood, Perelman, Hamerly and Calder's program phases (sections 3 and 4): each vector is divided by its sum
and projected at random to few dimensions; k-means for k = 1, 2, ... from several starts; the Bayesian
information criterion scores each clustering (Pelleg and Moore, as SimPoint 3.2 has it), and the smallest k
whose score reaches a share of the range of scores wins. The simulation point of a phase is the interval nearest
to its centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.simpoint.formats import BlockVectors

_ITERATIONS = 100
# Variance of a projected coordinate when a thousandth of the instructions goes elsewhere. Less is no phase.
_LEAST_VARIANCE = 1e-3**2 / 3


@dataclass(frozen=True)
class Clustering:
    """``labels``: (n,); ``centres``: (k, d); ``distortion``: sum of squared distances; ``iterations`` it took."""

    labels: NDArray[np.int64]
    centres: NDArray[np.float64]
    distortion: float
    iterations: int

    @property
    def k(self) -> int:
        return len(self.centres)


@dataclass(frozen=True)
class Phases:
    """The clustering that was chosen, and ``scores``: of the best clustering with each k from 1, (max_k,).

    ``points``: the simulation point of each phase, (k,) interval numbers; ``weights``: the share of all
    instructions in each phase, (k,); ``distances``: of each interval from its centre, (n,).
    """

    clustering: Clustering
    scores: NDArray[np.float64]
    points: NDArray[np.int64]
    weights: NDArray[np.float64]
    distances: NDArray[np.float64]

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.clustering.labels


def project(vectors: BlockVectors, dimensions: int = 15, seed: int = 1) -> NDArray[np.float64]:
    """The vectors, each divided by its sum, times a random matrix uniform in [-1, 1): ``(n, dimensions)``."""
    matrix = np.random.default_rng(seed).uniform(-1, 1, (vectors.n_blocks, dimensions))
    projected = np.empty((vectors.n_intervals, dimensions))
    for row in range(vectors.n_intervals):
        mine = slice(vectors.starts[row], vectors.starts[row + 1])
        counts = vectors.counts[mine]
        projected[row] = (counts / max(counts.sum(), 1)) @ matrix[vectors.blocks[mine]]
    return projected


def kmeans(points: NDArray[np.float64], k: int, seed: int, limit: int = _ITERATIONS) -> Clustering:
    """Cluster ``points`` (n, d) from k-means++ starts; never an empty cluster while there are points for it."""
    from measure.simpoint.kmeans_kernel import refine

    points = np.ascontiguousarray(points, np.float64)
    if not 1 <= k <= len(points):
        raise ValueError(f"{k} clusters of {len(points)} points, expected 1 to {len(points)}")
    centres = _starts(points, k, np.random.default_rng(seed))
    labels = np.empty(len(points), np.int64)
    iterations = refine(points, centres, labels, limit)
    distortion = float(((points - centres[labels]) ** 2).sum())
    return Clustering(labels, centres, distortion, iterations)


def _starts(points: NDArray[np.float64], k: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """k-means++ (Arthur and Vassilvitskii): each next start with a chance like its squared distance."""
    chosen = [int(rng.integers(len(points)))]
    apart = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < k:
        total = apart.sum()
        following = (
            int(rng.choice(len(points), p=apart / total)) if total > 0 else int(rng.integers(len(points)))
        )
        chosen.append(following)
        apart = np.minimum(apart, ((points - points[following]) ** 2).sum(axis=1))
    return points[chosen].copy()


def bic(points: NDArray[np.float64], found: Clustering, weights: NDArray[np.float64] | None = None) -> float:
    """The Bayesian information criterion of a clustering with spherical clusters of one variance.

    ``weights``: of the points, (n,), summing to n; default: equal. Differences of less than a thousandth
    of an interval count as that much: intervals that are all but identical have a score, and are no phases.
    """
    n, dimensions = points.shape
    weights = np.ones(n) if weights is None else weights
    squared = ((points - found.centres[found.labels]) ** 2).sum(axis=1)
    variance = max(float((weights * squared).sum()) / (dimensions * n), _LEAST_VARIANCE)
    of_cluster = np.bincount(found.labels, weights, found.k)
    mixture = float((weights * np.log(of_cluster[found.labels])).sum())
    likelihood = n * (-dimensions / 2 * (np.log(2 * np.pi * variance) + 1) - np.log(weights.sum())) + mixture
    parameters = (found.k - 1) + found.k * dimensions + 1
    return float(likelihood - parameters / 2 * np.log(n))


def find_phases(
    vectors: BlockVectors,
    *,
    max_k: int = 30,
    starts: int = 5,
    threshold: float = 0.9,
    dimensions: int = 15,
    seed: int = 1,
) -> Phases:
    """Phases of a program: the smallest k whose score reaches ``threshold`` of the range of scores.

    Intervals count by their instructions. Raises ValueError for parameters that make no sense.
    """
    if not 0 <= threshold <= 1 or max_k < 1 or starts < 1 or dimensions < 1:
        raise ValueError("expected a threshold from 0 to 1, and at least one cluster, start and dimension")
    instructions = vectors.instructions.astype(np.float64)
    points = project(vectors, dimensions, seed)
    weights = instructions * (len(points) / instructions.sum())
    different = len(np.unique(points, axis=0))
    best: list[Clustering] = []
    scores = []
    for k in range(1, min(max_k, different) + 1):
        tried = [kmeans(points, k, seed + 1000 * start) for start in range(starts)]
        scored = [bic(points, one, weights) for one in tried]
        best.append(tried[int(np.argmax(scored))])
        scores.append(max(scored))
    bar = min(scores) + threshold * (max(scores) - min(scores))
    chosen = best[next(k for k, score in enumerate(scores) if score >= bar)]
    distances = np.sqrt(((points - chosen.centres[chosen.labels]) ** 2).sum(axis=1))
    simulation = np.array([
        np.flatnonzero(chosen.labels == phase)[distances[chosen.labels == phase].argmin()] for phase in range(chosen.k)
    ])  # fmt: skip
    shares = np.bincount(chosen.labels, instructions, chosen.k) / instructions.sum()
    return Phases(chosen, np.array(scores), simulation, shares, distances)


def estimate(values: NDArray[np.float64], found: Phases) -> NDArray[np.float64]:
    """The whole program's mean of ``values`` (n, m), events an instruction, from its simulation points, (m,).

    Right for what is weighted by instructions: CPI, misses an instruction; never for IPC.
    """
    return np.asarray(found.weights @ values[found.points])


def similarity(vectors: BlockVectors, at_most: int = 1000) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Manhattan distances (0 to 2) between intervals, at most so many evenly spread ones, and which these are."""
    from scipy.sparse import csr_array
    from scipy.spatial.distance import cdist

    n = vectors.n_intervals
    rows = np.unique(np.linspace(0, n - 1, min(n, at_most)).round().astype(np.int64))
    matrix: Any = csr_array((vectors.counts.astype(np.float64), vectors.blocks, vectors.starts))[
        rows
    ].toarray()
    matrix /= np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    used = matrix[:, matrix.any(axis=0)]
    return cdist(used, used, "cityblock").astype(np.float32), rows
