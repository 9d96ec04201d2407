"""Finds phases by the rules of SimPoint 3.2, so that its users get its labels.

Random numbers, projection, sampled or furthest-first starts, empty clusters at the origin, score and choice of k are
SimPoint's. Its mistakes are kept where labels depend on them (a run that is cut off keeps the centres before the
last) and left out where they do not: a last line without newline counts, and identical intervals are one phase.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from measure.program_phases.bbv import BasicBlockVectors
from measure.program_phases.choose import Phases, Search, check_range, choose_k, search_k
from measure.program_phases.projection import project_with

if TYPE_CHECKING:
    from measure.program_phases.nearest_kernel import Blocks

_M1, _M2 = 2147483563, 2147483399
_LARGEST = 1.0 - 1.2e-7
_PI = 3.14159265358979  # the digits with which SimPoint defines its score


def random_numbers(seed: int, count: int) -> NDArray[np.float64]:
    """(count,) numbers of single precision in (0, 1), the first ones of this seed.

    Two multiplicative generators combined (L'Ecuyer, CACM 31(6), 1988, section 3), the first one shuffled through a
    table of 32 (Bays and Durham, ACM TOMS 2(1), 1976) that its ninth and later numbers fill from the end. Raises
    `ValueError` for seed 1, which leaves the original's table unset, and for seeds beyond 32 bits.
    """
    if seed == 1 or not -(2**31) < seed < 2**31:
        raise ValueError(f"got the seed {seed}, expected 32 bits and not 1, for which SimPoint 3.2 defines no numbers")
    first = second = max(1, abs(seed))
    table = [0] * 32
    for slot in range(39, -1, -1):
        first = 40014 * first % _M1
        if slot < 32:
            table[slot] = first
    latest = table[0]
    divisor = 1 + (_M1 - 1) // 32
    scale = 1.0 / _M1
    numbers = np.empty(count)
    for index in range(count):
        first = 40014 * first % _M1
        second = 40692 * second % _M2
        slot = latest // divisor
        latest = table[slot] - second
        table[slot] = first
        if latest < 1:
            latest += _M1 - 1
        single = float(np.float32(scale * latest))
        numbers[index] = single if single <= _LARGEST else float(np.float32(_LARGEST))
    return numbers


def find_phases_simpoint32(
    vectors: BasicBlockVectors,
    max_k: int = 30,
    seeds: int = 5,
    threshold: float = 0.9,
    search: Search = "bisect",
    starts: Literal["sample", "furthest"] = "sample",
    dimensions: int = 15,
    max_iterations: int = 100,
    fixed_length: bool = True,
    seed_kmeans: int = 493575226,
    seed_projection: int = 2042712918,
    k: int | None = None,
) -> Phases:
    """Phases of the vectors; every default is SimPoint 3.2's, ``search`` that of ``-maxK`` (``all``: ``-k 1:max_k``);
    ``k``: just that one (``-k k``).

    ``fixed_length``: intervals weigh the same, else by their instructions. Blocks numbered from 0 count as numbered
    from 1. A phase may have no interval; its weight is then 0. Raises `ValueError` for arguments out of range.
    """
    check_range(max_k, seeds, threshold, search, k)
    if starts not in ("sample", "furthest"):
        raise ValueError(f"got starts '{starts}', expected sample or furthest")
    if max_iterations < 2:
        raise ValueError(f"got {max_iterations} iterations, expected at least 2")
    from measure.program_phases.nearest_kernel import blocks_of

    points = project_simpoint32(vectors, dimensions, seed_projection)
    n = len(points)
    if n == 0:
        raise ValueError("got no intervals, expected at least one")
    sums = vectors.instructions.astype(np.float64)
    weights = np.full(n, 1.0 / n) if fixed_length else sums / _sum(sums)
    tried: dict[int, _Run] = {}
    blocks = blocks_of(points)
    next_seed = seed_kmeans

    def score(k: int) -> float:
        nonlocal next_seed
        runs = []
        for index in range(seeds):  # SimPoint advances the seed by itself *and* by the index of the start
            begun = _starts(points, k, next_seed + index, starts)
            runs.append(_cluster(points, blocks, weights, begun, max_iterations))
            next_seed += 1
        tried[k] = max(runs, key=lambda run: run.score)
        return tried[k].score

    scored = _finite(score)
    finite = {k: scored(k)} if k is not None else search_k(scored, max_k, threshold, search)
    run = tried[choose_k(finite, threshold)]
    distances = np.sqrt(run.squares)
    return Phases(run.labels, len(run.centres), run.centres, distances, run.mass, finite)


def project_simpoint32(vectors: BasicBlockVectors, dimensions: int = 15, seed: int = 2042712918) -> NDArray[np.float64]:
    """(n_intervals, dimensions): SimPoint 3.2's projection; one matrix row for every block number."""
    if dimensions < 1:
        raise ValueError(f"got {dimensions} dimensions to project to, expected at least 1")
    ids = vectors.block_ids
    zero_based = int(len(ids) > 0 and ids[0] == 0)
    used = int(ids[vectors.indices].max()) + zero_based if len(vectors.indices) else 0
    matrix = random_numbers(seed, used * dimensions).reshape(used, dimensions) * 2.0 - 1.0
    return project_with(vectors, matrix, (ids[vectors.indices] + zero_based - 1).astype(np.int32))


@dataclass(frozen=True)
class _Run:
    """One clustering: labels and squared distances (n,), centres (k, d), the mass of each cluster (k,)."""

    labels: NDArray[np.int32]
    squares: NDArray[np.float64]
    centres: NDArray[np.float64]
    mass: NDArray[np.float64]
    score: float


def _starts(points: NDArray[np.float64], k: int, seed: int, starts: str) -> NDArray[np.float64]:
    n = len(points)
    drawn = random_numbers(seed, k if starts == "sample" else 1)
    chosen = [int(value * 2147483648.0) % n for value in drawn]
    if starts == "furthest":
        nearest = np.full(n, np.inf)
        while len(chosen) < k:
            nearest = np.minimum(nearest, _squares(points, points[chosen[-1]]))
            chosen.append(int(nearest.argmax()))
    return points[chosen]


def _squares(points: NDArray[np.float64], centre: NDArray[np.float64]) -> NDArray[np.float64]:
    total = np.zeros(len(points))
    for column, value in zip(points.T, centre, strict=True):
        total += (column - value) ** 2
    return total


def _cluster(
    points: NDArray[np.float64],
    blocks: Blocks,
    weights: NDArray[np.float64],
    starts: NDArray[np.float64],
    max_iterations: int,
) -> _Run:
    """One run of k-means from ``starts``, with its score."""
    from measure.program_phases.kmeans_kernel import lloyd
    from measure.program_phases.nearest_kernel import nearest_centres

    _, centres, mass, before, mass_before, _, converged = lloyd(points, weights, blocks, starts, max_iterations, False)
    if not converged:
        centres, mass = before, mass_before
    labels, squares = nearest_centres(points, blocks, centres)
    n, dimensions = points.shape
    distortion = _sum(squares * weights) / (_sum(weights) / n)
    variance = distortion / (dimensions * n)
    score = math.inf
    if variance > 0:
        total = _sum(weights)
        terms = np.zeros(len(mass))
        terms[mass > 0] = [math.log(value) for value in mass[mass > 0]]
        likelihood = -dimensions * (math.log(2.0 * _PI * variance) + 1) / 2.0 - math.log(total)
        likelihood = _sum(terms[labels] * weights / total, likelihood) * n
        score = likelihood - ((len(centres) - 1) + len(centres) * dimensions + 1) / 2.0 * math.log(n)
    return _Run(labels, squares, centres, mass, score)


def _sum(values: NDArray[np.float64], start: float = 0.0) -> float:
    """The sum in order of the index; a pairwise sum rounds differently."""
    return float(np.add.accumulate(np.concatenate(([start], values)))[-1])


def _finite(score: Callable[[int], float]) -> Callable[[int], float]:
    """Scores of which none is infinite: no variance at all gives the largest score, and scores stay comparable."""
    return lambda k: min(score(k), 1e300)
