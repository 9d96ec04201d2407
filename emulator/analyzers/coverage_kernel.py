"""How conditional jumps went, as a numba kernel."""

from __future__ import annotations

from typing import Any

from emulator.numba_jit import numba_kernel

PLACES = 1 << 21  # more than there can be branches


@numba_kernel
def tally(state: Any, pcs: Any, taken: Any) -> None:
    """Count in the hash table ``state``, (PLACES, 3): pc, and how often the branch there was not taken and was."""
    for n in range(len(pcs)):
        place = (pcs[n] >> 1) * 0x9E3779B1 & (PLACES - 1)
        while state[place, 0] != pcs[n] and state[place, 0] != 0:
            place = place + 1 & (PLACES - 1)
        state[place, 0] = pcs[n]
        state[place, 1 + taken[n]] += 1
