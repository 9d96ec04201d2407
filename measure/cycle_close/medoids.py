"""Selects intervals that represent others: k-medoids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 3


def medoids(points: NDArray[np.float64], draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """Indices of the representatives of ``points``, (n, d), ascending.

    ``draws``: (k - 1,) random numbers from 0 to 1; about k points are chosen. Distance is Manhattan's. The first centre
    is the point closest to the mean, each further one is drawn with a probability in proportion to its distance from
    the closest one so far (k-means++, Arthur and Vassilvitskii, SODA 2007). Then, `_ROUNDS` times, each centre becomes
    the member of its cluster that is closest to the cluster's mean.
    """
    # One row an entry, the last one first: sums over the first axis are made one row after the other.
    # One row an entry, the last one first: sums over the first axis are made one row after the other.
    rows = np.ascontiguousarray(points.T[::-1])

    def distances(centre: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.abs(rows - centre[:, None]).sum(axis=0))

    centres = [int(distances(_mean(rows)).argmin())]
    table = [distances(rows[:, centres[0]])]
    apart = table[0].copy()
    for draw in draws:
        totals = apart.cumsum()
        candidates = np.flatnonzero((apart > 0) & (totals >= draw * totals[-1]))
        if not len(candidates):
            break
        centres.append(int(candidates[0]))
        table.append(distances(rows[:, centres[-1]]))
        np.minimum(apart, table[-1], out=apart)
    for _ in range(_ROUNDS):
        own = np.argmin(table, axis=0)
        for number in np.unique(own):
            members = np.flatnonzero(own == number)
            mean = _mean(rows[:, members])
            nearest = np.abs(rows[:, members] - mean[:, None]).sum(axis=0).argmin()
            centres[number] = int(members[nearest])
            table[number] = distances(rows[:, centres[number]])
    return np.unique(centres)


def _mean(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each row, its numbers added one after the other."""
    return np.asarray(rows.cumsum(axis=1)[:, -1] / rows.shape[1])
