"""Kernels that walk the record for `emulator.probes`."""

from __future__ import annotations

from typing import Any

from emulator.kernels.jit import kernel


@kernel
def pick_block_ids(n_accesses: Any, stream: Any, found: Any) -> int:
    """Copy the block ids of ``stream`` to ``found``; their number."""
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


@kernel
def count_events(
    stream: Any,
    n_accesses: Any,
    first_store: Any,
    store_slots: Any,
    bounds: Any,
    executions: Any,
    stores: Any,
) -> None:
    """Add the blocks of ``stream`` to ``executions`` and their stores to ``stores``.

    Block b has ``n_accesses[b]`` accesses, of which those at ``store_slots[first_store[b]:first_store[b + 1]]`` are
    stores. ``bounds``: sorted; a store counts for the last bound at or below its address.
    """
    lowest, highest = bounds[0], bounds[len(bounds) - 1]
    position = 0
    while position < len(stream):
        number = stream[position]
        executions[number] += 1
        for slot in range(first_store[number], first_store[number + 1]):
            address = stream[position + 1 + store_slots[slot]]
            if address < lowest or address >= highest:
                continue
            low, high = 0, len(bounds)
            while high - low > 1:
                middle = (low + high) >> 1
                if bounds[middle] <= address:
                    low = middle
                else:
                    high = middle
            stores[low] += 1
        position += 1 + n_accesses[number]
