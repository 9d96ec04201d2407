"""Packs arrays of numbers into a page, as base64: steps of 1/65,534 of their range, two bytes each, or numbers in
single precision, four bytes each.

Integers whose range is below 65,535 stay exact in steps. A series that is too long is kept as least, mean and largest
value of as many buckets as fit. `unpack` in plots.js is the other side.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEWEST_BUCKETS = 100
_UNDEFINED = 65_535


def packed(values: NDArray[Any]) -> dict[str, Any]:
    """``values`` (n,) as ``{lo, step, q}``: value = lo + step * q, q as 16-bit numbers in base64; 65535: undefined."""
    numbers = np.asarray(values, np.float64)
    defined = np.isfinite(numbers)
    low, high = (float(numbers[defined].min()), float(numbers[defined].max())) if defined.any() else (0.0, 0.0)
    step = (high - low) / (_UNDEFINED - 1)
    if np.array_equal(numbers[defined], np.round(numbers[defined])):
        step = float(math.ceil(step))
    steps = np.full(len(numbers), _UNDEFINED, np.uint16)
    steps[defined] = np.round((numbers[defined] - low) / (step or 1.0)).astype(np.uint16)
    return {
        "lo": _digits(low),
        "step": _digits(step),
        "q": base64.b64encode(steps.astype("<u2").tobytes()).decode("ascii"),
    }


def packed_singles(values: NDArray[Any]) -> dict[str, Any]:
    """``values`` (n,) as ``{f}``: numbers in single precision, of 7 digits each, in base64; nan: undefined."""
    return {"f": base64.b64encode(np.asarray(values).astype("<f4").tobytes()).decode("ascii")}


def bucket_starts(n: int, kept: int) -> NDArray[np.int64]:
    """The first record of each bucket of a series of ``n`` values, of which a page keeps ``kept``; none if all fit.

    Record r is in bucket floor(r * buckets / n), by which scripts find it again.
    """
    if n <= kept:
        return np.arange(0)
    buckets = max(kept // 3, FEWEST_BUCKETS // 3)
    return np.asarray(-(-np.arange(buckets) * n // buckets))


def packed_series(column: NDArray[Any], starts: NDArray[np.int64]) -> list[dict[str, Any]]:
    """``column`` (n,) whole, or the least, mean and largest values of the buckets that begin at ``starts``.

    Undefined values are left out of their bucket; a bucket without another is undefined.
    """
    if not len(starts):
        return [packed(column)]
    numbers = np.asarray(column, np.float64)
    defined = ~np.isnan(numbers)
    counts = np.add.reduceat(defined.astype(np.int64), starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.add.reduceat(np.where(defined, numbers, 0.0), starts) / counts
    return [packed(one) for one in (np.fmin.reduceat(numbers, starts), means, np.fmax.reduceat(numbers, starts))]


def _digits(value: float) -> float:
    return int(value) if value == int(value) else float(f"{value:.9g}")
