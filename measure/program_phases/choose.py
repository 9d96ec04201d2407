"""Chooses the number of phases: k-means for many k and seeds, and the smallest k that scores well enough.

Sherwood et al., "Automatically characterizing large scale program behavior" (ASPLOS 2002), section 4.3; the search
by bisection is that of Hamerly et al., "SimPoint 3.0" (JILP 2005).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measure.program_phases.bic import score_above, variance_floor
from measure.program_phases.kmeans import Clustering, Starts, checked, kmeans_from, starting_centres
from measure.program_phases.projection import LEAST_VARIANCE

Search = Literal["all", "bisect"]


@dataclass(frozen=True)
class Phases:
    """The phases of a run.

    ``labels`` (n,) int32: each interval's phase; ``k``: phases; ``centres`` (k, d); ``distances`` (n,): Euclidean, to
    the own centre; ``weights`` (k,): share of each phase, summing to 1; ``scores``: best score of each k tried.
    """

    labels: NDArray[np.int32]
    k: int
    centres: NDArray[np.float64]
    distances: NDArray[np.float64]
    weights: NDArray[np.float64]
    scores: dict[int, float]


def find_phases(
    points: ArrayLike,
    max_k: int = 30,
    seeds: int = 5,
    threshold: float = 0.9,
    search: Search = "all",
    starts: Starts = "kmeans++",
    weights: ArrayLike | None = None,
    seed: int = 1,
    max_iterations: int = 100,
    k: int | None = None,
    least_variance: float = LEAST_VARIANCE,
) -> Phases:
    """Cluster ``points`` (n, d) for k up to ``max_k``, the best of ``seeds`` starts each, and choose k.

    Chosen is the smallest k whose score reaches ``threshold`` of the distance from the worst to the best; with ``k``,
    only that one is tried. ``weights`` (n,): for example the intervals' instructions. Phases are numbered in order of
    appearance. The rule is relative to the scores seen, so that noise alone may be split; intervals that vary by less
    than ``least_variance`` per coordinate are one phase. Raises `ValueError` for arguments out of range.
    """
    from measure.program_phases.nearest_kernel import blocks_of

    table, mass = checked(points, weights)
    check_range(max_k, seeds, threshold, search, k)
    most = min(k or max_k, len(table))
    begun = [starting_centres(table, most, seed + index, starts, mass) for index in range(seeds)]

    blocks, floor = blocks_of(table), variance_floor(table, least_variance)

    def best_of(k: int) -> tuple[float, Clustering]:
        clusterings = [kmeans_from(table, centres[:k], mass, max_iterations, blocks) for centres in begun]
        scores = [score_above(floor, clustering, mass) for clustering in clusterings]
        best = int(np.argmax(scores))
        return scores[best], clusterings[best]

    tried: dict[int, Clustering] = {}

    def score(k: int) -> float:
        reached, tried[k] = best_of(k)
        return reached

    scores = {most: score(most)} if k is not None else search_k(score, most, threshold, search)
    clustering = tried[choose_k(scores, threshold)]
    order = np.unique(clustering.labels, return_index=True)[1].argsort()
    labels = order.argsort()[clustering.labels].astype(np.int32)
    centres = clustering.centres[order]
    distances = np.sqrt(((table - centres[labels]) ** 2).sum(axis=1))
    shares = np.bincount(labels, weights=mass) / mass.sum()
    return Phases(labels, clustering.k, centres, distances, shares, scores)


def check_range(max_k: int, seeds: int, threshold: float, search: str, k: int | None = None) -> None:
    """Raise `ValueError` for arguments out of range."""
    if max_k < 1:
        raise ValueError(f"got max_k = {max_k}, expected at least 1")
    if seeds < 1:
        raise ValueError(f"got {seeds} seeds, expected at least 1")
    if k is not None and k < 1:
        raise ValueError(f"got k = {k}, expected at least 1")
    if not 0 <= threshold <= 1:
        raise ValueError(f"got a threshold of {threshold}, expected 0 to 1")
    if search not in get_args(Search):
        raise ValueError(f"got the search '{search}', expected one of {', '.join(get_args(Search))}")


def search_k(score: Callable[[int], float], max_k: int, threshold: float, search: Search) -> dict[int, float]:
    """Scores of every k up to ``max_k``, or of those that bisection tries, in the order in which they were tried.

    Bisection: 1, ``max_k`` and their middle, then above the last k when its score is below the threshold over the
    scores so far, and below it otherwise. It assumes that scores rise with k, and may choose a larger k than ``all``.
    """
    if search == "all":
        return {k: score(k) for k in range(1, max_k + 1)}
    low, high = 1, max_k
    scores: dict[int, float] = {}
    for k in (low, high):
        if k not in scores:
            scores[k] = score(k)
    k = (low + high) // 2
    while True:
        if k not in scores:
            scores[k] = score(k)
        values = list(scores.values())
        rising = values.index(max(values)) > values.index(min(values))
        if rising and scores[k] < _bar(values, threshold):
            low, k = k, (k + high) // 2
        else:
            high, k = k, (k + low) // 2
        if high - low <= 1:
            return scores


def choose_k(scores: dict[int, float], threshold: float) -> int:
    """The smallest k whose score is at least ``threshold`` of the distance from the worst to the best."""
    bar = _bar(list(scores.values()), threshold)
    return min(k for k, score in scores.items() if score >= bar)


def _bar(scores: list[float], threshold: float) -> float:
    worst, best = min(scores), max(scores)
    return (best - worst) * threshold + worst
