"""Lloyd's k-means with Hamerly's bounds, as a numba kernel.

Bounds only skip distances that cannot change a label, so labels are those of the plain algorithm. The distances
of a point from all centres are summed side by side, dimension by dimension, which is what vector units want.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from measure.jit import njit


@njit
def squared_distance(
    points: NDArray[np.float64], row: int, centres: NDArray[np.float64], centre: int
) -> float:
    """Squared Euclidean distance of a point from a centre."""
    total = 0.0
    for d in range(points.shape[1]):
        gap = points[row, d] - centres[centre, d]
        total += gap * gap
    return total


@njit
def refine(
    points: NDArray[np.float64], centres: NDArray[np.float64], labels: NDArray[np.int64], limit: int
) -> int:
    """Move ``centres`` (k, d) and ``labels`` (n,) to where Lloyd's iterations stop; how many there were.

    The nearest centre wins, of equal ones the first. A cluster that loses all its points gets the point that is
    farthest from its centre. Stops when no label changes, or after ``limit`` iterations.
    """
    n, dimensions = points.shape
    k = len(centres)
    upper = np.empty(n)
    lower = np.zeros(n)
    sums = np.empty((k, dimensions))
    sizes = np.empty(k, np.int64)
    moved = np.empty(k)
    half = np.empty(k)
    across = np.empty((dimensions, k))  # the centres, a dimension a row
    apart = np.empty(k)
    for row in range(n):
        labels[row] = -1
        upper[row] = np.inf
    for iteration in range(limit):
        for one in range(k):
            nearest = np.inf
            for other in range(k):
                if other != one:
                    nearest = min(nearest, squared_distance(centres, one, centres, other))
            half[one] = 0.5 * np.sqrt(nearest)
        for one in range(k):
            for d in range(dimensions):
                across[d, one] = centres[one, d]
        changed = 0
        for row in range(n):
            label = labels[row]
            # Strictly: at equality another centre may be as near and come first.
            if label >= 0:
                bound = max(half[label], lower[row])
                if upper[row] < bound:
                    continue
                upper[row] = np.sqrt(squared_distance(points, row, centres, label))
                if upper[row] < bound:
                    continue
            for one in range(k):
                apart[one] = 0.0
            for d in range(dimensions):
                value = points[row, d]
                for one in range(k):
                    gap = value - across[d, one]
                    apart[one] += gap * gap
            best, second, closest = np.inf, np.inf, 0
            for one in range(k):
                if apart[one] < best:
                    second = best
                    best = apart[one]
                    closest = one
                elif apart[one] < second:
                    second = apart[one]
            upper[row] = np.sqrt(best)
            lower[row] = np.sqrt(second)
            if closest != label:
                labels[row] = closest
                changed += 1
        if changed == 0:
            return iteration + 1
        sums[:] = 0.0
        sizes[:] = 0
        for row in range(n):
            sizes[labels[row]] += 1
            for d in range(dimensions):
                sums[labels[row], d] += points[row, d]
        repaired = False
        for one in range(k):
            if sizes[one] > 0:
                continue
            farthest, distance = -1, -1.0
            for row in range(n):
                if sizes[labels[row]] > 1:
                    reach = squared_distance(points, row, centres, labels[row])
                    if reach > distance:
                        farthest, distance = row, reach
            if farthest < 0:
                continue
            old = labels[farthest]
            sizes[old] -= 1
            sizes[one] = 1
            for d in range(dimensions):
                sums[old, d] -= points[farthest, d]
                sums[one, d] = points[farthest, d]
            labels[farthest] = one
            repaired = True
        largest = 0.0
        for one in range(k):
            if sizes[one] == 0:
                moved[one] = 0.0
                continue
            total = 0.0
            for d in range(dimensions):
                mean = sums[one, d] / sizes[one]
                gap = mean - centres[one, d]
                total += gap * gap
                centres[one, d] = mean
            moved[one] = np.sqrt(total)
            largest = max(largest, moved[one])
        for row in range(n):
            upper[row] = np.inf if repaired else upper[row] + moved[labels[row]]
            lower[row] = 0.0 if repaired else lower[row] - largest
    return limit
