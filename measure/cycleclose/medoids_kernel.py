"""Intervals that stand for others, as a numba kernel: k-medoids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from measure.jit import njit

_ROUNDS = 3


@njit
def medoids(points: NDArray[np.float64], draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which of ``points``, (n, d), stand for the others, ascending: about one more than there are ``draws``, (k - 1,)
    from 0 to 1.

    Distance is Manhattan's. The first centre is the point closest to the mean, each further one is drawn with a
    probability in proportion to its distance from the closest one so far (k-means++, Arthur and Vassilvitskii, SODA
    2007). Then, a few times, each centre becomes the member of its cluster that is closest to the cluster's mean.
    """
    n, d = points.shape
    apart = np.full(n, np.inf)
    own = np.zeros(n, np.int64)
    centres = np.zeros(len(draws) + 1, np.int64)
    sums = np.zeros((len(centres), d))
    sizes = np.zeros(len(centres))
    for row in range(n):
        sizes[0] += 1
        for entry in range(d):
            sums[0, entry] += points[row, entry]
    k = 0
    least = np.inf
    for row in range(n):
        distance = _distance(points[row], sums[0] / sizes[0], least)
        if distance < least:
            least, centres[0] = distance, row
    for number in range(len(centres)):
        if number > 0:
            wanted, total = draws[number - 1] * apart.sum(), 0.0
            chosen = -1
            for row in range(n):
                total += apart[row]
                if apart[row] > 0.0 and total >= wanted:
                    chosen = row
                    break
            if chosen < 0:
                break
            centres[number] = chosen
        k = number + 1
        for row in range(n):
            distance = _distance(points[row], points[centres[number]], apart[row])
            if distance < apart[row]:
                apart[row], own[row] = distance, number
    for _ in range(_ROUNDS):
        sums[:], sizes[:] = 0.0, 0.0
        for row in range(n):
            sizes[own[row]] += 1
            for entry in range(d):
                sums[own[row], entry] += points[row, entry]
        for number in range(k):
            sums[number] /= max(sizes[number], 1.0)
        nearest = np.full(k, np.inf)
        for row in range(n):
            distance = _distance(points[row], sums[own[row]], nearest[own[row]])
            if distance < nearest[own[row]]:
                nearest[own[row]], centres[own[row]] = distance, row
        for row in range(n):
            least = np.inf
            for number in range(k):
                distance = _distance(points[row], points[centres[number]], least)
                if distance < least:
                    least, own[row] = distance, number
    return np.unique(centres[:k])


@njit
def _distance(one: NDArray[np.float64], other: NDArray[np.float64], limit: float) -> float:
    """Manhattan's, or something that is not below ``limit``."""
    total = 0.0
    for entry in range(len(one) - 1, -1, -1):  # waiting, which tells most apart, is the last
        total += abs(one[entry] - other[entry])
        if total >= limit:
            break
    return total
