"""Compiled walks over the record for `emulator.probes`."""

from __future__ import annotations

from typing import Any

from emulator.jit import kernel


@kernel
def pick_block_ids(n_accesses: Any, stream: Any, found: Any) -> int:
    """Copy the block ids of ``stream`` to ``found``; how many there are."""
    position = 0
    count = 0
    while position < len(stream):
        number = stream[position]
        found[count] = number
        count += 1
        position += 1 + n_accesses[number]
    return count


@kernel
def stores_in_ranges(
    first: Any, length: Any, access: Any, stream: Any, lows: Any, highs: Any, counts: Any, store_flag: int
) -> None:
    """Add to ``counts`` the stores of ``stream`` whose address lies in each ``[low, high)``."""
    position = 0
    while position < len(stream):
        number = stream[position]
        position += 1
        start = first[number]
        for row in range(start, start + length[number]):
            if access[row] == 0:
                continue
            address = stream[position]
            position += 1
            if access[row] & store_flag:
                for n in range(len(lows)):
                    if lows[n] <= address < highs[n]:
                        counts[n] += 1
