"""Basic block vectors: how often each block ran in each interval, one sparse row per interval.

Rows are compressed (CSR) and keep the order of their entries. `bbv_files` reads and writes files, `projection` and
the modules after it use the vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class BasicBlockVectors:
    """The vectors of a run.

    ``data`` (entries,) int64: executions of the block x its instructions; ``indices`` (entries,) int32: the
    entry's dimension, from 0; ``indptr`` (intervals + 1,) int64: the start of each interval's entries; ``n_dims``:
    dimensions; ``block_ids`` (n_dims,) int64: the number of each dimension's block in files, ascending.
    Raises `ValueError` for inconsistent arrays.
    """

    data: NDArray[np.int64]
    indices: NDArray[np.int32]
    indptr: NDArray[np.int64]
    n_dims: int
    block_ids: NDArray[np.int64]

    def __post_init__(self) -> None:
        if len(self.data) != len(self.indices):
            raise ValueError(f"got {len(self.data)} counts for {len(self.indices)} indices, expected as many")
        steps = np.diff(self.indptr)
        if len(self.indptr) < 1 or self.indptr[0] != 0 or self.indptr[-1] != len(self.data) or (steps < 0).any():
            raise ValueError(f"got row starts that do not run from 0 up to {len(self.data)} entries")
        if len(self.block_ids) != self.n_dims or (np.diff(self.block_ids) <= 0).any():
            raise ValueError(f"got {len(self.block_ids)} block numbers, expected {self.n_dims} ascending ones")
        if len(self.indices) and not 0 <= self.indices.min() <= self.indices.max() < self.n_dims:
            raise ValueError(f"got a dimension outside 0 to {self.n_dims - 1}")

    @property
    def n_intervals(self) -> int:
        return len(self.indptr) - 1

    @property
    def instructions(self) -> NDArray[np.int64]:
        """(n_intervals,): instructions executed in each interval, the row's sum."""
        ends = np.concatenate(([0], np.cumsum(self.data)))
        return ends[self.indptr[1:]] - ends[self.indptr[:-1]]

    def shares(self) -> NDArray[np.float64]:
        """(entries,): ``data`` over the sum of its row. Raises `ValueError` for an interval without instructions."""
        sums = self.instructions
        if (sums <= 0).any():
            empty = int(np.flatnonzero(sums <= 0)[0])
            raise ValueError(f"interval {empty} executed nothing, so that its vector has no direction; leave it out")
        return self.data / np.repeat(sums, np.diff(self.indptr))


def from_dense(counts: ArrayLike) -> BasicBlockVectors:
    """Vectors of a table (intervals, blocks) of counts; blocks are numbered from 1."""
    table = np.asarray(counts, dtype=np.int64)
    if table.ndim != 2:
        raise ValueError(f"got an array of shape {table.shape}, expected (intervals, blocks)")
    rows, columns = np.nonzero(table)
    indptr = np.searchsorted(rows, np.arange(len(table) + 1)).astype(np.int64)
    ids = np.arange(1, table.shape[1] + 1)
    return BasicBlockVectors(table[rows, columns], columns.astype(np.int32), indptr, table.shape[1], ids)
