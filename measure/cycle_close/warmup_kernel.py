"""Kernel that finds where the end of a record begins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import kernel


@kernel
def start_of_tail(
    stream: NDArray[np.uint32],
    n_accesses: NDArray[np.int64],
    transfers: NDArray[np.int64],
    references: int,
    branches: int,
) -> int:
    """First word of the shortest run of whole blocks at the end that contains ``references`` and ``branches``.

    ``n_accesses``, ``transfers``: references, and 1 or 0 control transfers, of each block.
    """
    total_references = 0
    total_branches = 0
    position = 0
    while position < len(stream):
        block = stream[position]
        total_references += n_accesses[block]
        total_branches += transfers[block]
        position += 1 + n_accesses[block]
    position = 0
    while position < len(stream):
        block = stream[position]
        left_references = total_references - n_accesses[block]
        left_branches = total_branches - transfers[block]
        if left_references < references or left_branches < branches:
            break
        total_references = left_references
        total_branches = left_branches
        position += 1 + n_accesses[block]
    return position
