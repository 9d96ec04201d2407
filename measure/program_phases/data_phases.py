"""Splits phases by data: each phase of code is cut where its intervals wait for memory differently.

Vectors of code do not distinguish a loop over data in the cache from the same loop over other data. Misses show how
long an interval waits (`measure.cycle_close.live_counts`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from measure.program_phases.choose import Phases


def split_by_waits(
    found: Phases,
    points: NDArray[np.float64],
    waits: NDArray[np.float64],
    weights: NDArray[np.float64],
    step: float,
) -> Phases:
    """Cut each phase into evenly wide ranges of waiting, on a scale of ratios, no wider than ``step``.

    ``points`` (n, d): the clustered ones; ``waits`` (n,): cycles per instruction; ``weights`` (n,): of the intervals.
    Waiting becomes the last coordinate of the centres and distances. Phases are numbered in order of appearance. A
    ``step`` of 0 cuts nothing.
    """
    if step <= 0:
        return found
    scale = np.log1p(waits)
    parts = np.zeros(len(scale), np.int64)
    for phase in np.unique(found.labels):
        mine = np.flatnonzero(found.labels == phase)
        low, high = float(scale[mine].min()), float(scale[mine].max())
        count = max(1, int(np.ceil((high - low) / step)))
        if count > 1:
            parts[mine] = np.minimum((scale[mine] - low) * count / (high - low), count - 1).astype(np.int64)
    whole = found.labels.astype(np.int64) * (int(parts.max()) + 1) + parts
    _, first, numbered = np.unique(whole, return_index=True, return_inverse=True)
    labels = first.argsort().argsort()[numbered].astype(np.int32)
    k = len(first)
    coordinates = np.column_stack([points, scale])
    shares = np.bincount(labels, weights=weights, minlength=k)
    centres = np.stack([np.bincount(labels, weights * column, k) / shares for column in coordinates.T], axis=1)
    distances = np.sqrt(((coordinates - centres[labels]) ** 2).sum(axis=1))
    return replace(found, labels=labels, k=k, centres=centres, distances=distances, weights=shares / shares.sum())
