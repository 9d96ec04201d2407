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
