"""numba kernel that counts the outcomes of conditional branches."""

from __future__ import annotations

from typing import Any

from emulator.kernels.numba_jit import numba_kernel

TABLE_ROWS = 1 << 21  # a power of two, more than the number of branches


@numba_kernel
def tally(state: Any, pcs: Any, taken: Any) -> None:
    """Count in the hash table ``state``, (TABLE_ROWS, 3): pc of a branch, and its counts of not taken and taken."""
    for n in range(len(pcs)):
        place = (pcs[n] >> 1) * 0x9E3779B1 & (TABLE_ROWS - 1)
        while state[place, 0] != pcs[n] and state[place, 0] != 0:
            place = place + 1 & (TABLE_ROWS - 1)
        state[place, 0] = pcs[n]
        state[place, 1 + taken[n]] += 1
