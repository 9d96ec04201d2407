"""Plain twins of the kernels: loops that a reader can follow, bit for bit the same answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Point = Sequence[float] | NDArray[np.float64]
Labels = Sequence[int] | NDArray[np.int32]
Points = Sequence[Sequence[float]] | NDArray[np.float64]


def squared(a: Point, b: Point) -> float:
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += (x - y) * (x - y)
    return total


def spread_starts(points: Points, weights: Point, draws: Point, furthest: bool) -> list[int]:
    """Numbers of the points at which clusters start."""
    chosen: list[int] = []
    for draw in draws:
        if not chosen:
            costs = list(weights)
        else:
            nearest = [min(squared(p, points[c]) for c in chosen) for p in points]
            costs = nearest if furthest else [w * s for w, s in zip(weights, nearest, strict=True)]
        total = 0.0
        for cost in costs:
            total += cost
        if total == 0:
            break
        if chosen and furthest:
            chosen.append(costs.index(max(costs)))
            continue
        remaining = draw * total
        for index, cost in enumerate(costs):
            if cost > 0:
                pick = index
                remaining -= cost
                if remaining < 0:
                    break
        chosen.append(pick)
    return chosen


def lloyd(
    points: Points, weights: Point, starts: Points, max_iterations: int, repair: bool
) -> tuple[list[int], list[list[float]], int]:
    """Labels, centres and rounds of Lloyd's iteration that measures every distance."""
    centres = [list(map(float, start)) for start in starts]
    k = len(centres)
    labels = [0] * len(points)
    for iteration in range(1, max_iterations + 1):
        for i, point in enumerate(points):
            distances = [squared(point, centre) for centre in centres]
            labels[i] = distances.index(min(distances))
        moved = False
        for cluster in range(k):
            if repair and cluster not in labels:
                costs = [
                    weights[i] * squared(points[i], centres[labels[i]]) if labels.count(labels[i]) > 1 else 0.0
                    for i in range(len(points))
                ]
                # a point that was just moved is alone, and so never moves again
                if max(costs) > 0:
                    labels[costs.index(max(costs))] = cluster
                    moved = True
        new = []
        for cluster in range(k):
            mass, sums = 0.0, [0.0] * len(points[0])
            for i, point in enumerate(points):
                if labels[i] == cluster:
                    mass += weights[i]
                    sums = [s + x * weights[i] for s, x in zip(sums, point, strict=True)]
            if mass > 0:
                new.append([s / mass for s in sums])
            else:
                new.append(centres[cluster] if repair else [0.0] * len(points[0]))
        same = new == centres
        centres = new
        if same and not moved:
            return labels, centres, iteration
    return labels, centres, max_iterations


def bic(points: Points, labels: Labels, centres: Points, weights: Point) -> float:
    n, d, k = len(points), len(points[0]), len(centres)
    total = sum(weights)
    distortion = sum(w * squared(p, centres[c]) for w, p, c in zip(weights, points, labels, strict=True))
    variance = distortion / (total / n) / (d * n)
    mass = [sum(w for w, c in zip(weights, labels, strict=True) if c == cluster) for cluster in range(k)]
    mixed = sum(w / total * math.log(mass[c]) for w, c in zip(weights, labels, strict=True))
    likelihood = n * (-d / 2 * (math.log(2 * math.pi * variance) + 1) - math.log(total) + mixed)
    return likelihood - ((k - 1) + k * d + 1) / 2 * math.log(n)


def manhattan(table: ArrayLike) -> NDArray[np.float64]:
    rows = np.asarray(table, float)
    rows = rows / rows.sum(axis=1, keepdims=True)
    return np.abs(rows[:, None, :] - rows[None, :, :]).sum(axis=2)
