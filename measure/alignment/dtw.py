"""Dynamic time warping of two traces, exact if affordable.

Chooses the window and the memory plan; the inner loops are in `measure.alignment.diagonal_kernel`.
`measure.perturbation.perturbation` compares aligned traces.

Method names: ``full`` keeps every predecessor (one byte a cell); ``checkpoint`` keeps the costs of one
anti-diagonal in every few hundred and recomputes the predecessors between them during the traceback: the same path, in
little memory; ``band`` stays near the straight line between the corners and widens while the path touches the band's
edge; ``multiresolution`` aligns averaged traces, then refines in a corridor around that path: not exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measure.alignment.windows import Window, band_window, corridor_window, full_window
from measure.stats.correlation import runs_of_equals

Method = Literal["auto", "full", "checkpoint", "band", "multiresolution"]

DEFAULT_BAND = 0.05
FULL_CELLS = 100_000_000
"""Largest number of cells for which all predecessors are kept, one byte each."""
REFUSED_CELLS = 2_000_000_000
"""Largest number of cells for ``full`` when requested by name."""
LONGEST_EXACT_RECORDS = 100_000
COARSE_RECORDS = 2000


class AlignmentError(ValueError):
    """Two traces cannot be aligned as requested."""


@dataclass(frozen=True)
class Alignment:
    """How the records of two traces correspond.

    ``path``: ``(k, 2)`` pairs (record of the reference, record of the other), from (0, 0) to (n-1, m-1); each
    step advances one of them or both by one. ``cost``: square root of the summed squared distances along the
    path, in standard deviations of the channels, step penalties included. ``method``: the method used.
    ``stretched_fraction``: fraction of the steps that advance only one trace; 0 for traces that correspond one
    to one. ``band``: final half-width of the window, as a fraction of the longer trace; None without a band.
    """

    path: NDArray[np.int64]
    cost: float
    method: str
    stretched_fraction: float
    band: float | None = None

    @property
    def n_reference(self) -> int:
        """Records of the reference."""
        return int(self.path[-1, 0]) + 1

    @property
    def n_other(self) -> int:
        """Records of the other trace."""
        return int(self.path[-1, 1]) + 1


def align(
    reference: ArrayLike,
    other: ArrayLike,
    *,
    method: Method = "auto",
    band: float | None = None,
    step_penalty: float = 0.0,
) -> Alignment:
    """Align ``other`` ``(m, c)`` to ``reference`` ``(n, c)`` by dynamic time warping (Berndt and Clifford
    1994).

    Each channel is first brought to mean 0 and standard deviation 1 within its trace; a constant channel
    becomes 0. The local cost is the squared Euclidean distance over channels; ``step_penalty`` is added to it
    on each step that advances only one trace. Ties: diagonal, then reference only, then other only. ``auto``
    is ``band`` when ``band`` (a fraction of the longer trace) is given; else ``full`` up to 1e8 cells,
    ``checkpoint`` up to 100,000 records, ``multiresolution`` beyond.

    Raises AlignmentError for traces that are empty, not finite or of different channels, for an unknown
    method, and when a method would take too much memory.
    """
    first, second = normalised_channels(reference, "reference"), normalised_channels(other, "other")
    if len(first) != len(second):
        raise AlignmentError(
            f"the reference has {len(first)} channels and the other trace {len(second)}: "
            "expected the same metrics in both"
        )
    return align_normalised(first, second, method=method, band=band, step_penalty=step_penalty)


def normalised_channels(values: ArrayLike, name: str = "trace") -> NDArray[np.float64]:
    """``values`` ``(n, c)`` as ``(c, n)`` contiguous channels of mean 0 and standard deviation 1, or all
    0."""
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise AlignmentError(f"{name} has shape {table.shape}: expected (records, channels), at least one of each")
    if not np.isfinite(table).all():
        record, channel = np.argwhere(~np.isfinite(table))[0]
        raise AlignmentError(
            f"{name} is {table[record, channel]} at record {record} of channel {channel}: "
            "expected finite numbers; drop the records that were not counted"
        )
    centred = table.T - table.mean(axis=0)[:, None]
    spread = centred.std(axis=1)
    # A constant whose mean is rounded leaves tiny differences: compare them with the values themselves.
    constant = spread <= 1e-14 * np.abs(table).max(axis=0)
    return np.ascontiguousarray(np.where(constant[:, None], 0.0, centred / np.where(constant, 1.0, spread)[:, None]))


def check_setting(step_penalty: float, band: float | None) -> None:
    """Raise `AlignmentError` for a penalty below 0 and a band outside (0, 1]; None stands for no band."""
    if not step_penalty >= 0:
        raise AlignmentError(f"step_penalty: got {step_penalty}, expected a number of at least 0")
    if band is not None and not 0 < band <= 1:
        raise AlignmentError(f"band: got {band}, expected a fraction of the longer trace, more than 0 and at most 1")


def align_normalised(
    reference: NDArray[np.float64],
    other: NDArray[np.float64],
    *,
    method: Method = "auto",
    band: float | None = None,
    step_penalty: float = 0.0,
    widen: bool = True,
) -> Alignment:
    """As `align`, for channels ``(c, n)`` and ``(c, m)`` that `normalised_channels` prepared; ``widen``: paths may
    leave the ``band``."""
    n, m = reference.shape[1], other.shape[1]
    check_setting(step_penalty, band)
    if method == "auto":
        method = _automatic_method(n, m, band)
    if method == "band":
        return _banded(reference, other, DEFAULT_BAND if band is None else band, step_penalty, widen)
    if method == "multiresolution":
        return _refined(reference, other, step_penalty)
    if method not in ("full", "checkpoint"):
        raise AlignmentError(f"unknown method {method!r}: expected one of {', '.join(get_args(Method))}")
    if method == "full" and n * m > REFUSED_CELLS:
        raise AlignmentError(
            f"method 'full' needs {n * m / 1e9:.1f} GB for traces of {n} and {m} records; use 'checkpoint', "
            "which gives the same path in little memory"
        )
    path, cost = _solve(reference, other, full_window(n, m), step_penalty, keep_all=method == "full")
    return _alignment(path, cost, method)


def mean_over_runs(keys: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of the rows of ``values`` ``(k, ...)`` over each run of equal ``keys`` ``(k,)``, in order."""
    starts, counts = runs_of_equals(keys)
    sums = np.add.reduceat(values, starts, axis=0)
    return np.asarray(sums / counts.reshape(-1, *[1] * (values.ndim - 1)))


def _automatic_method(n: int, m: int, band: float | None) -> Method:
    if band is not None:
        return "band"
    if max(n, m) > LONGEST_EXACT_RECORDS:
        return "multiresolution"
    return "full" if n * m <= FULL_CELLS else "checkpoint"


def _banded(
    reference: NDArray[np.float64], other: NDArray[np.float64], band: float, penalty: float, widen: bool
) -> Alignment:  # fmt: skip
    """Align within a band, which is doubled while the path touches its edge, if it may ``widen``."""
    n, m = reference.shape[1], other.shape[1]
    longest = max(n, m)
    radius = max(1, int(np.ceil(band * longest)))
    while True:
        window = band_window(n, m, radius)
        path, cost = _solve(reference, other, window, penalty)
        if not widen or radius >= longest or not window.touches(path):
            return _alignment(path, cost, "band", min(1.0, radius / longest))
        radius *= 2


def _refined(reference: NDArray[np.float64], other: NDArray[np.float64], penalty: float) -> Alignment:
    """Align averages of many records, then the records themselves in a corridor around that path."""
    n, m = reference.shape[1], other.shape[1]
    factor = -(-max(n, m) // COARSE_RECORDS)
    if factor == 1 or min(n, m) < 2 * factor:
        window = full_window(n, m)
    else:
        coarse = [_averaged(channels, factor) for channels in (reference, other)]
        path, _ = _solve(coarse[0], coarse[1], full_window(coarse[0].shape[1], coarse[1].shape[1]), penalty)
        window = corridor_window(path, factor, n, m, radius=4 * factor)
    path, cost = _solve(reference, other, window, penalty)
    return _alignment(path, cost, "multiresolution")


def _averaged(channels: NDArray[np.float64], factor: int) -> NDArray[np.float64]:
    """Means of ``factor`` neighbouring records of ``(c, n)``, of fewer at the end."""
    starts = np.arange(0, channels.shape[1], factor)
    counts = np.diff(starts, append=channels.shape[1])
    return np.ascontiguousarray(np.add.reduceat(channels, starts, axis=1) / counts)


def _solve(
    reference: NDArray[np.float64],
    other: NDArray[np.float64],
    window: Window,
    penalty: float,
    *,
    keep_all: bool | None = None,
) -> tuple[NDArray[np.int64], float]:
    """Cheapest path ``(k, 2)`` inside the window and its cost, with all predecessors kept or block by block.

    ``keep_all`` None: chosen by the number of cells. Both give the same path.
    """
    from measure.alignment.diagonal_kernel import advance, diagonal_bounds, walk_back

    if keep_all is None:
        keep_all = window.cells <= FULL_CELLS
    rows, columns = reference.shape[1], window.columns
    backwards = np.ascontiguousarray(other[:, ::-1])
    first, last = diagonal_bounds(window.low, window.high)
    sizes = last - first + 1
    diagonals = len(first)
    # A block's pointers, one byte a cell, take as much memory as the costs kept between blocks, 16 bytes a row.
    block = diagonals if keep_all else int(np.ceil(4 * np.sqrt(diagonals)))
    begins = list(range(0, diagonals, block))
    costs = np.full((3, rows + 2), np.inf)
    costs[1, 0] = 0.0  # (-2) % 3: what lies across the origin
    no_pointers = np.empty(0, np.int8)
    checkpoints = []
    for begin in begins:
        checkpoints.append(_narrow(costs, begin, first, last))
        if not keep_all:
            end = min(begin + block, diagonals)
            advance(reference, backwards, first, last, begin, end, costs, penalty, no_pointers, False)
    path = np.empty((rows + columns, 2), np.int64)
    filled = len(path)
    i, j = rows - 1, columns - 1
    cost = 0.0
    for begin, (offset, saved) in zip(reversed(begins), reversed(checkpoints), strict=True):
        end = min(begin + block, diagonals)
        if i + j < begin:
            continue  # a diagonal step passed by the block's only anti-diagonal
        costs.fill(np.inf)
        costs[:, offset : offset + saved.shape[1]] = saved
        pointers = np.empty(int(sizes[begin:end].sum()), np.int8)
        advance(reference, backwards, first, last, begin, end, costs, penalty, pointers, True)
        if end == diagonals:
            cost = costs[(diagonals - 1) % 3, rows]
        i, j, filled = walk_back(pointers, first, last, begin, i, j, path, filled)
    return path[filled:].copy(), float(np.sqrt(cost))


def _narrow(
    costs: NDArray[np.float64], begin: int, first: NDArray[np.int64], last: NDArray[np.int64]
) -> tuple[int, NDArray[np.float64]]:
    """The part of the costs that the anti-diagonals from ``begin`` on need, and its offset."""
    if begin == 0:
        return 0, costs[:, :2].copy()
    low = int(first[max(begin - 2, 0) : begin].min())
    high = int(last[max(begin - 2, 0) : begin].max()) + 3
    kept = costs[:, low:high].copy()
    kept[begin % 3] = np.inf  # is overwritten before it is read
    return low, kept


def _alignment(path: NDArray[np.int64], cost: float, method: str, band: float | None = None) -> Alignment:
    steps = len(path) - 1
    diagonal = int((np.diff(path, axis=0).sum(axis=1) == 2).sum())
    return Alignment(path, cost, method, (steps - diagonal) / steps if steps else 0.0, band)
