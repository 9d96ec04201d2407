"""Kernels that edit the record, and that find which instructions access a range."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.kernels.jit import Integer, kernel

INSIDE, OUTSIDE = 1, 2


@kernel
def edit_record(
    stream: Any, n_accesses: Any, first_kept: Any, kept: Any, own_length: Any, timed_length: Any,
    is_moved: Any, begins: Any, distances: Any, edited: Any, totals: Any,
) -> Integer:  # fmt: skip
    """Copy the record ``stream`` to ``edited`` with the kept accesses only, moved; returns the words written.

    Block b has ``n_accesses[b]`` accesses, of which those at ``kept[first_kept[b]:first_kept[b + 1]]`` are copied.
    ``begins``, ``distances``: moves of addresses, the first begin 0, of the accesses of blocks that ``is_moved`` marks.
    ``totals[0]`` grows by ``own_length[b]``, ``totals[1]`` by ``timed_length[b]``; ``totals[2]`` becomes the last b.
    """
    n_moves = len(begins)
    position = 0
    written = 0
    own, timed, last = np.int64(0), np.int64(0), np.int64(totals[2])
    while position < len(stream):
        block = np.int64(stream[position])
        edited[written] = stream[position]
        written += 1
        own += own_length[block]
        timed += timed_length[block]
        last = block
        for slot in range(first_kept[block], first_kept[block + 1]):
            address = np.int64(stream[position + 1 + kept[slot]])
            if n_moves > 1 and is_moved[block]:
                low, high = 0, n_moves
                while high - low > 1:
                    middle = (low + high) >> 1
                    if begins[middle] <= address:
                        low = middle
                    else:
                        high = middle
                address += distances[low]
            edited[written] = address
            written += 1
        position += 1 + n_accesses[block]
    totals[0] += own
    totals[1] += timed
    totals[2] = last
    return written


@kernel
def mark_accesses(stream: Any, n_accesses: Any, first_access: Any, lows: Any, highs: Any, marks: Any) -> None:
    """Add `INSIDE` to the mark of each access whose address is in a range ``[lows[n], highs[n])``, else `OUTSIDE`.

    The accesses of block b have the marks ``marks[first_access[b]:]``, in order.
    """
    position = 0
    while position < len(stream):
        block = np.int64(stream[position])
        first = first_access[block]
        for access in range(n_accesses[block]):
            address = np.int64(stream[position + 1 + access])
            mark = OUTSIDE
            for n in range(len(lows)):
                if lows[n] <= address < highs[n]:
                    mark = INSIDE
            marks[first + access] |= mark
        position += 1 + n_accesses[block]
