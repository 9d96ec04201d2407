"""Counting block executions in a record with effective addresses, as a numba kernel."""

from __future__ import annotations

import numpy as np

from emulator.timing.jit import kernel


@kernel
def count_blocks(stream: np.ndarray, lengths: np.ndarray, executions: np.ndarray) -> None:
    """Add up executions by block; ``lengths``: words of the record that each block takes."""
    position = np.int64(0)
    while position < len(stream):
        block = np.int64(stream[position])
        executions[block] += 1
        position += np.int64(lengths[block])
