"""Kernels that compute signatures and event counts from block executions, and find the closest signature."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import inline_kernel, kernel


@kernel
def fill_signatures(
    starts: NDArray[np.int64],
    blocks: NDArray[np.uint32],
    executions: NDArray[np.int64],
    entries: NDArray[np.int64],
    lengths: NDArray[np.int64],
    out: NDArray[np.int64],
) -> None:
    """Add each block's instructions to the signature entry of the transfer that it belongs to.

    ``entries``, ``lengths``: of each block; ``out``: (n, dimensions), zeros.
    """
    for row in range(len(out)):
        for place in range(starts[row], starts[row + 1]):
            block = blocks[place]
            out[row, entries[block]] += executions[place] * lengths[block]


@kernel
def add_up(
    starts: NDArray[np.int64],
    blocks: NDArray[np.uint32],
    executions: NDArray[np.int64],
    each: NDArray[np.uint8],
    out: NDArray[np.int64],
) -> None:
    """Add each interval's events: ``each`` (n_blocks, m) of one execution of a block; ``out`` (n, m)."""
    for row in range(len(out)):
        for place in range(starts[row], starts[row + 1]):
            block, times = blocks[place], executions[place]
            for column in range(out.shape[1]):
                out[row, column] += times * each[block, column]


@inline_kernel
def distance(signatures: NDArray[np.float64], row: int, signature: NDArray[np.int64], total: int) -> float:
    """Distance of ``signature``, divided by ``total``, from a row."""
    apart = 0.0
    for entry in range(len(signature)):
        apart += abs(signatures[row, entry] - signature[entry] / total)
    return apart


@inline_kernel
def total_of(signature: NDArray[np.int64]) -> int:
    """The sum of a signature, at least 1."""
    total = 0
    for entry in signature:
        total += entry
    return max(total, 1)


def manhattan(
    signatures: NDArray[np.float64], used: int, signature: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Distance of ``signature``, divided by its sum, from each of the first ``used`` rows."""
    out = np.zeros(used)
    fill_distances(signatures, signature, out)
    return out


@kernel
def fill_distances(
    signatures: NDArray[np.float64], signature: NDArray[np.int64], out: NDArray[np.float64]
) -> None:
    """Put the distances of `manhattan` into ``out``."""
    total = total_of(signature)
    for row in range(len(out)):
        out[row] = distance(signatures, row, signature, total)


@kernel
def nearest(signatures: NDArray[np.float64], used: int, signature: NDArray[np.int64]) -> tuple[int, float]:
    """The row closest to ``signature``, the first of equals, and its distance as in `manhattan`; -1 without rows."""
    total = total_of(signature)
    place, least = -1, np.inf
    for row in range(used):
        apart = distance(signatures, row, signature, total)
        if apart < least:
            place, least = row, apart
    return place, least
