"""Kernels of Lloyd's iteration and its starts, free of the interpreter lock.

Every sum runs in the order of its index, so that a plain loop gives the same bits; the nearest centres come from
`nearest_kernel`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import kernel
from measure.program_phases.nearest_kernel import (
    Blocks,
    Floats,
    Labels,
    Scratch,
    assign_with,
    scratch_for,
    squared_distance,
)

Counts = NDArray[np.int64]


class State(NamedTuple):
    """State of Lloyd's iteration over n points and k clusters: ``labels`` (n,), ``centres`` (k, d), ``mass`` (k,);
    ``before`` and ``mass_before``: centres and mass one round earlier; ``sums`` (k, width) and ``counts`` (k,);
    ``table`` (n, width): each point times its weight, then the weight, then zeros up to a multiple of 8;
    ``margins``: see `assign_with`."""

    labels: Labels
    centres: Floats
    mass: Floats
    before: Floats
    mass_before: Floats
    sums: Floats
    counts: Counts
    table: Floats
    margins: Floats


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
    width = dimensions + 8 - dimensions % 8
    state = State(
        np.zeros(n, np.int32), np.array(starts, order="C"), np.zeros(k), np.array(starts, order="C"), np.zeros(k),
        np.empty((k, width)), np.zeros(k, np.int64), np.zeros((n, width)), np.full(blocks.exact.shape[0], -1.0),
    )  # fmt: skip
    rounds = _iterate(
        np.ascontiguousarray(points), weights, blocks, state, scratch_for(blocks, k), max_iterations, repair
    )
    return (
        state.labels, state.centres, state.mass, state.before, state.mass_before, abs(rounds), rounds > 0
    )  # fmt: skip


def spread_starts(points: Floats, weights: Floats, draws: Floats, furthest: bool) -> Counts:
    """(at most k,) indices of starts: the first drawn by weight, each next by weight x squared distance to the nearest
    start (Arthur and Vassilvitskii, "k-means++", SODA 2007, section 2.2), or the furthest of all.

    ``draws`` (k,): uniform numbers from 0 to 1. Fewer are returned when there are fewer distinct points.
    """
    chosen = np.empty(draws.size, np.int64)
    squares, costs = np.full(points.shape[0], np.inf), weights.copy()
    points = np.ascontiguousarray(points)
    return chosen[: _choose(points, weights, draws, furthest, chosen, squares, costs)]


@kernel
def fill_empty(
    points: Floats, weights: Floats, centres: Floats, labels: Labels, margins: Floats, counts: Counts
) -> bool:
    """Give each empty cluster the point that costs most in its own (the lowest on ties); whether any point moved.

    ``counts`` (k,): of the points of each cluster.
    """
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
        margins[:] = -1.0  # this point is not in its nearest cluster: the next round must measure every centre
        moved = True
    return moved


@kernel
def has_empty(labels: Labels, counts: Counts) -> bool:
    """Whether any of the clusters has no point; sets ``counts`` (k,)."""
    counts[:] = 0
    for label in labels:
        counts[label] += 1
    least = counts[0]
    for count in counts:
        least = min(least, count)
    return least == 0


@kernel
def _iterate(
    points: Floats, weights: Floats, blocks: Blocks, state: State, scratch: Scratch, max_iterations: int, repair: int
) -> int:  # fmt: skip
    """`lloyd` on ``state``, whose centres are the starts; the rounds made, negative if the last moved something."""
    n, dimensions = points.shape
    k = state.centres.shape[0]
    labels, centres, mass, before = state.labels, state.centres, state.mass, state.before
    sums, table = state.sums, state.table
    for i in range(n):
        for j in range(dimensions):
            table[i, j] = points[i, j] * weights[i]
        table[i, dimensions] = weights[i]
    largest = 0.0
    iteration, converged = 0, False
    while iteration < max_iterations and not converged:
        iteration += 1
        assign_with(blocks, centres, largest, labels, state.margins, scratch)
        moved = False
        if repair and has_empty(labels, state.counts):
            moved = bool(fill_empty(points, weights, centres, labels, state.margins, state.counts))
        for cluster in range(k):
            state.mass_before[cluster] = mass[cluster]
            for j in range(dimensions):
                before[cluster, j] = centres[cluster, j]
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
                for j in range(dimensions):
                    centres[cluster, j] = 0.0
            step = squared_distance(centres[cluster], before[cluster])
            largest = max(largest, np.sqrt(step))
            for j in range(dimensions):
                if centres[cluster, j] != before[cluster, j]:
                    converged = False
    return iteration if converged else -iteration


@kernel
def _choose(
    points: Floats, weights: Floats, draws: Floats, furthest: int, chosen: Counts, squares: Floats, costs: Floats
) -> int:  # fmt: skip
    """`spread_starts` into ``chosen``; their number. ``squares`` (n,): infinite, ``costs`` (n,): the weights."""
    n = points.shape[0]
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
    return found
