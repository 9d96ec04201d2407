"""Sorts metrics into a given number of groups with the least blame, by tabu search; the result is a plan to test.

Hertz and de Werra's TABUCOL ("Using tabu search techniques for graph coloring", Computing 39, 1987) with weights in
place of edges: each step moves the metric whose move to another group lowers the weight most, or raises it least; it
may not move back for a while.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_STEPS_PER_METRIC = 25


def recolour(
    weights: NDArray[np.float64], colours: NDArray[np.intp], n_colours: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """The colouring ``(n,)`` with ``n_colours`` colours that had the least weight inside groups during the search.

    ``weights`` ``(n, n)``: symmetric, zero diagonal, not negative; ``colours``: the initial colouring.
    """
    n = len(weights)
    colours = colours.copy()
    metrics = np.arange(n)
    inside = np.zeros((n, n_colours))  # weight between a metric and a group
    for colour in range(n_colours):
        inside[:, colour] = weights[:, colours == colour].sum(axis=1)
    free_at = np.zeros((n, n_colours), np.int64)
    cost = inside[metrics, colours].sum() / 2
    best, best_cost = colours.copy(), cost
    for step in range(_STEPS_PER_METRIC * n):
        if best_cost <= 1e-12:
            break
        own = inside[metrics, colours]
        gain = inside - own[:, None]
        gain[metrics, colours] = np.inf
        gain[own <= 0] = np.inf  # only metrics that are in conflict move
        tabu = (free_at > step) & (cost + gain >= best_cost - 1e-12)
        gain[tabu] = np.inf
        least = gain.min()
        if not np.isfinite(least):
            continue
        moves = np.flatnonzero(gain <= least + 1e-12)
        metric, colour = divmod(int(moves[rng.integers(len(moves))]), n_colours)
        old = int(colours[metric])
        colours[metric] = colour
        inside[:, old] -= weights[:, metric]
        inside[:, colour] += weights[:, metric]
        cost += least
        free_at[metric, old] = step + 7 + int(rng.integers(10))
        if cost < best_cost - 1e-12:
            best, best_cost = colours.copy(), cost
    return best
