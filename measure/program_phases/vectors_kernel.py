"""Kernels over sparse vectors: projection, and distances between vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import kernel

Floats = NDArray[np.float64]
Labels = NDArray[np.int32]


def project_rows(shares: Floats, indices: Labels, indptr: NDArray[np.int64], matrix: Floats) -> Floats:
    """(rows, d): sparse rows times ``matrix`` (n_dims, d), entries added in stored order."""
    out = np.zeros((indptr.size - 1, matrix.shape[1]))
    _project(shares, indices, indptr, np.ascontiguousarray(matrix), out)
    return out


def manhattan(values: Floats, indices: Labels, indptr: NDArray[np.int64], n_dims: int) -> Floats:
    """(rows, rows): Manhattan distance of sparse non-negative rows, as the sums less twice what they share."""
    rows = indptr.size - 1
    out = np.zeros((rows, rows))
    _distances(values, indices, indptr, np.zeros(n_dims), np.zeros(rows), out)
    return out


@kernel
def _project(shares: Floats, indices: Labels, indptr: NDArray[np.int64], matrix: Floats, out: Floats) -> None:
    for row in range(indptr.size - 1):
        for entry in range(indptr[row], indptr[row + 1]):
            share = shares[entry]
            index = indices[entry]
            for column in range(matrix.shape[1]):
                out[row, column] += share * matrix[index, column]


@kernel
def _distances(
    values: Floats, indices: Labels, indptr: NDArray[np.int64], dense: Floats, sums: Floats, out: Floats
) -> None:
    for a in range(indptr.size - 1):
        for entry in range(indptr[a], indptr[a + 1]):
            dense[indices[entry]] = values[entry]
            sums[a] += values[entry]
        for b in range(a):
            shared = 0.0
            for entry in range(indptr[b], indptr[b + 1]):
                shared += min(values[entry], dense[indices[entry]])
            out[a, b] = out[b, a] = max(0.0, sums[a] + sums[b] - 2.0 * shared)
        for entry in range(indptr[a], indptr[a + 1]):
            dense[indices[entry]] = 0.0
