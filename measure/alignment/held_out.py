"""Aligns two traces once for each channel, on all the other channels, for held-out outer correlation.

The same dynamic time warping as `measure.alignment.dtw`, for many left-out channels at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from measure.alignment.dtw import FULL_CELLS, align_normalised
from measure.alignment.windows import Window, band_window


def held_out_paths(
    reference: NDArray[np.float64],
    other: NDArray[np.float64],
    *,
    band: float,
    channels: Sequence[int] | None = None,
    widen: bool = True,
    step_penalty: float = 0.0,
) -> list[NDArray[np.int64]]:
    """For each channel the path ``(k, 2)`` that aligns ``other`` to ``reference`` on all channels but that
    one.

    ``reference`` ``(c, n)`` and ``other`` ``(c, m)``, ``c`` at least 2, as `normalised_channels` prepares
    them. ``band``: half-width, as a fraction of the longer trace, within which each alignment starts; it
    doubles for the channels whose path touches the edge, if it may ``widen``. ``channels``: those to leave out in turn;
    default: each. ``step_penalty``: as in `measure.alignment.dtw.align`.
    """
    from measure.alignment.dtw_kernel import LANES

    n, m = reference.shape[1], other.shape[1]
    left_out = np.arange(len(reference)) if channels is None else np.asarray(channels, np.int64)
    if band_window(n, m, _radius(band, n, m)).cells * LANES > FULL_CELLS:
        return [_one_path(reference, other, int(channel), band, step_penalty, widen) for channel in left_out]
    paths: dict[int, NDArray[np.int64]] = {}
    for start in range(0, len(left_out), LANES):
        paths.update(_group_paths(reference, other, left_out[start : start + LANES], band, widen, step_penalty))
    return [paths[int(channel)] for channel in left_out]


def _radius(band: float, n: int, m: int) -> int:
    return max(1, int(np.ceil(band * max(n, m))))


def _one_path(
    reference: NDArray[np.float64],
    other: NDArray[np.float64],
    channel: int,
    band: float,
    penalty: float,
    widen: bool,
) -> NDArray[np.int64]:
    kept = np.delete(np.arange(len(reference)), channel)
    return align_normalised(
        reference[kept], other[kept], method="band", band=band, step_penalty=penalty, widen=widen
    ).path


def _group_paths(
    reference: NDArray[np.float64],
    other: NDArray[np.float64],
    group: NDArray[np.int64],
    band: float,
    widen: bool,
    penalty: float,
) -> dict[int, NDArray[np.int64]]:
    """Paths for up to eight left-out channels, each in the band that it needs."""
    from measure.alignment.dtw_kernel import LANES

    n, m = reference.shape[1], other.shape[1]
    radius = _radius(band, n, m)
    paths: dict[int, NDArray[np.int64]] = {}
    while True:
        window = band_window(n, m, radius)
        if window.cells * LANES > FULL_CELLS:
            wider = min(1.0, radius / max(n, m))
            return paths | {int(c): _one_path(reference, other, int(c), wider, penalty, widen) for c in group}
        solved = _solve_lanes(reference, other, group, window, penalty)
        settled = np.array([not widen or radius >= max(n, m) or not window.touches(path) for path in solved])
        paths.update({int(c): path for c, path, good in zip(group, solved, settled, strict=True) if good})
        group = group[~settled]
        if not len(group):
            return paths
        radius *= 2


def _solve_lanes(
    reference: NDArray[np.float64],
    other: NDArray[np.float64],
    group: NDArray[np.int64],
    window: Window,
    penalty: float,
) -> list[NDArray[np.int64]]:
    """Cheapest paths in the window, one for each channel of ``group`` left out."""
    from measure.alignment.dtw_kernel import LANES, advance_lanes, walk_back

    n, m = reference.shape[1], other.shape[1]
    lanes_reference, lanes_other = np.zeros((n, LANES)), np.zeros((m, LANES))
    lanes_reference[:, : len(group)] = reference[group].T
    lanes_other[:, : len(group)] = other[group].T
    outside = np.setdiff1d(np.arange(len(reference)), group)
    row = np.full((m + 1, LANES), np.inf)
    row[0] = 0.0
    pointers = np.empty((window.cells, LANES), np.int8)
    advance_lanes(
        lanes_reference,
        lanes_other,
        np.ascontiguousarray(reference[outside].T),
        other[outside],
        window.low,
        window.high,
        row,
        penalty,
        pointers,
    )
    path = np.empty((n + m, 2), np.int64)
    paths = []
    for lane in range(len(group)):
        _, _, end = walk_back(pointers, lane, window.low, window.high, 0, n - 1, m - 1, path, len(path))
        paths.append(path[end:].copy())
    return paths
