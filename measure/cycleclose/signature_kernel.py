"""Signatures and event counts from block executions, and the closest of those known, as numba kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from measure.jit import njit


@njit
def fill_signatures(
    starts: NDArray[np.int64],
    blocks: NDArray[np.uint32],
    executions: NDArray[np.int64],
    entries: NDArray[np.int64],
    lengths: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    """Add each interval's instructions to the entry of the transfer that its block belongs to.

    ``entries``, ``lengths``: of each block; ``out``: (n, dimensions), zeros.
    """
    for row in range(len(out)):
        for place in range(starts[row], starts[row + 1]):
            block = blocks[place]
            out[row, entries[block]] += executions[place] * lengths[block]


@njit
def add_up(
    starts: NDArray[np.int64],
    blocks: NDArray[np.uint32],
    executions: NDArray[np.int64],
    each: NDArray[np.uint8],
    out: NDArray[np.int64],
) -> None:
    """Add to each interval's row what its blocks do: ``each`` (n_blocks, m) of one execution; ``out`` (n, m)."""
    for row in range(len(out)):
        for place in range(starts[row], starts[row + 1]):
            block, times = blocks[place], executions[place]
            for column in range(out.shape[1]):
                out[row, column] += times * each[block, column]


@njit
def manhattan(
    signatures: NDArray[np.float64], used: int, signature: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Distance of ``signature``, divided by its sum, from each of the first ``used`` rows."""
    total = max(signature.sum(), 1)
    out = np.zeros(used)
    for row in range(used):
        apart = 0.0
        for entry in range(len(signature)):
            apart += abs(signatures[row, entry] - signature[entry] / total)
        out[row] = apart
    return out


@njit
def nearest(signatures: NDArray[np.float64], used: int, signature: NDArray[np.int64]) -> tuple[int, float]:
    """The row closest to ``signature``, the first of equals, and its distance as `manhattan` has it; -1 for no rows."""
    total = max(signature.sum(), 1)
    place, least = -1, np.inf
    for row in range(used):
        apart = 0.0
        for entry in range(len(signature)):
            apart += abs(signatures[row, entry] - signature[entry] / total)
        if apart < least:
            place, least = row, apart
    return place, least
