"""Lloyd's iteration and its starts, compiled by numba and free of the interpreter lock.

Every sum runs in the order of its index, so that a plain loop gives the same bits; the nearest centres come from
`nearest_kernel`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from measure.jit import njit
from measure.phases.nearest_kernel import Blocks, Floats, Labels, assign, squared_distance


@njit
def weighted_points(points: Floats, weights: Floats) -> Floats:
    """(n, width): each point times its weight, then the weight, then zeros up to a multiple of 8."""
    n, dimensions = points.shape
    table = np.zeros((n, dimensions + 8 - dimensions % 8))
    for i in range(n):
        for j in range(dimensions):
            table[i, j] = points[i, j] * weights[i]
        table[i, dimensions] = weights[i]
    return table


@njit
def fill_empty(points: Floats, weights: Floats, centres: Floats, labels: Labels, margins: Floats) -> bool:
    """Give each empty cluster the point that costs most where it is (the lowest on ties); whether any moved."""
    counts = np.zeros(centres.shape[0], np.int64)
    for label in labels:
        counts[label] += 1
    moved = False
    for cluster in range(counts.size):
        if counts[cluster] > 0:
            continue
        costliest, cost = -1, 0.0
        for i in range(labels.size):
            if counts[labels[i]] > 1:
                here = weights[i] * squared_distance(points[i], centres[labels[i]])
                if here > cost:
                    costliest, cost = i, here
        if costliest < 0:
            break
        counts[labels[costliest]] -= 1
        counts[cluster] = 1
        labels[costliest] = cluster
        margins[:] = -1.0  # this point is not where it is nearest: the next round looks at every centre
        moved = True
    return moved


@njit
def lloyd(
    points: Floats, weights: Floats, blocks: Blocks, starts: Floats, max_iterations: int, repair: bool
) -> tuple[Labels, Floats, Floats, Floats, Floats, int, bool]:
    """Lloyd's iteration until no centre moves.

    ``points`` (n, d), ``weights`` (n,), ``blocks``: of the points, ``starts`` (k, d). With ``repair`` an empty cluster
    gets a point, else its centre becomes the origin. Returns labels (n,), centres (k, d), mass of each cluster (k,),
    the centres and masses one round before, the number of rounds, and whether the last one moved nothing.
    """
    n, dimensions = points.shape
    k = starts.shape[0]
    centres, before = starts.copy(), starts.copy()
    mass, mass_before = np.zeros(k), np.zeros(k)
    labels = np.zeros(n, np.int32)
    margins = np.full(blocks.exact.shape[0], -1.0)
    table = weighted_points(points, weights)
    sums = np.empty((k, table.shape[1]))
    largest = 0.0
    iteration, converged = 0, False
    while iteration < max_iterations and not converged:
        iteration += 1
        assign(blocks, centres, largest, labels, margins)
        moved = False
        if repair and has_empty(labels, k):
            moved = fill_empty(points, weights, centres, labels, margins)
        before[:] = centres
        mass_before[:] = mass
        sums[:] = 0.0
        for i in range(n):
            row, total = table[i], sums[labels[i]]
            for j in range(row.size):
                total[j] += row[j]
        largest = 0.0
        converged = not moved
        for cluster in range(k):
            mass[cluster] = sums[cluster, dimensions]
            if mass[cluster] > 0.0:
                for j in range(dimensions):
                    centres[cluster, j] = sums[cluster, j] / mass[cluster]
            elif not repair:
                centres[cluster] = 0.0
            step = squared_distance(centres[cluster], before[cluster])
            largest = max(largest, np.sqrt(step))
            for j in range(dimensions):
                if centres[cluster, j] != before[cluster, j]:
                    converged = False
    return labels, centres, mass, before, mass_before, iteration, converged


@njit
def has_empty(labels: Labels, k: int) -> bool:
    """Whether any of the ``k`` clusters has no point."""
    seen = np.zeros(k, np.bool_)
    found = 0
    for label in labels:
        if not seen[label]:
            seen[label] = True
            found += 1
            if found == k:
                return False
    return True


@njit
def spread_starts(points: Floats, weights: Floats, draws: Floats, furthest: bool) -> NDArray[np.int64]:
    """(at most k,) indices of starts: the first drawn by weight, each next by weight x squared distance to the nearest
    start (Arthur and Vassilvitskii, "k-means++", SODA 2007, section 2.2), or the furthest of all.

    ``draws`` (k,): uniform numbers from 0 to 1. Fewer are returned when there are fewer distinct points.
    """
    n = points.shape[0]
    chosen = np.empty(draws.size, np.int64)
    squares = np.full(n, np.inf)
    costs = weights.copy()
    found = 0
    while found < draws.size:
        if found > 0:
            latest = points[chosen[found - 1]]
            for i in range(n):
                squares[i] = min(squares[i], squared_distance(points[i], latest))
                costs[i] = squares[i] if furthest else weights[i] * squares[i]
        total, best = 0.0, 0
        for i in range(n):
            total += costs[i]
            if costs[i] > costs[best]:
                best = i
        if not total > 0.0:
            break
        if found == 0 or not furthest:
            remaining = draws[found] * total
            for i in range(n):
                if costs[i] > 0.0:
                    best = i
                    remaining -= costs[i]
                    if remaining < 0.0:
                        break
        chosen[found] = best
        found += 1
    return chosen[:found]
