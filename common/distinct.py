"""The distinct values of an array, without loading what `numpy.unique` loads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values, ascending; ``values`` are integers of any shape.

    The first call of `numpy.unique` loads masked arrays, which takes some 10 ms of a short command.
    """
    ordered = np.sort(values, axis=None)
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]
