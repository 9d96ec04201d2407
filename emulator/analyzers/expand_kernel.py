"""From the record to columns of events, as a numba kernel: one pass, no allocation.

A host predicts badly how long the next block is. So what is static is copied sixteen events at a time, and what is
dynamic is put into its places four at a time, by lists that are filled up with the place after the block's last event:
columns are longer than they are filled, and what is behind their end is overwritten by the next block. Indices are
unsigned, which spares a test for negative ones each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.jit import inline_kernel, kernel

# Columns of ``blocks``: first selected instruction and how many, words in the record after the id, words of values;
# then, for addresses and for each column of values, the first of its ``places`` and the one after its last.
FIRST, COUNT, WORDS, VALUES, PLACES = range(5)
SLACK = 80  # of columns: a block and what is left of sixteen
FOURS = 4  # places come in multiples of
_EIGHT, _SIXTEEN = np.uint64(8), np.uint64(16)


@inline_kernel
def copy_eight(to: Any, at: Any, source: Any, first: Any) -> None:
    """Eight elements; all are read before one is written, so that they become vectors."""
    a, b = source[first], source[first + np.uint64(1)]
    c, d = source[first + np.uint64(2)], source[first + np.uint64(3)]
    e, f = source[first + np.uint64(4)], source[first + np.uint64(5)]
    g, h = source[first + np.uint64(6)], source[first + np.uint64(7)]
    to[at], to[at + np.uint64(1)] = a, b
    to[at + np.uint64(2)], to[at + np.uint64(3)] = c, d
    to[at + np.uint64(4)], to[at + np.uint64(5)] = e, f
    to[at + np.uint64(6)], to[at + np.uint64(7)] = g, h


@inline_kernel
def copy_block(to: Any, at: Any, source: Any, first: Any, count: Any) -> None:
    """``count`` elements and up to fifteen more."""
    copy_eight(to, at, source, first)
    copy_eight(to, at + _EIGHT, source, first + _EIGHT)
    done = _SIXTEEN
    while done < count:
        copy_eight(to, at + done, source, first + done)
        done += _EIGHT


@inline_kernel
def clear_block(to: Any, at: Any, count: Any) -> None:
    """``count`` zeros and up to fifteen more."""
    for n in range(16):
        to[at + np.uint64(n)] = 0
    done = _SIXTEEN
    while done < count:
        for n in range(8):
            to[at + done + np.uint64(n)] = 0
        done += _EIGHT


@kernel
def expand(
    stream: NDArray[np.uint32],
    values: NDArray[np.uint64],
    job: NDArray[np.int64],
    blocks: NDArray[np.uint32],
    chosen: tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]],
    places: NDArray[np.uint32],
    columns: tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint8]],
    of_values: NDArray[np.uint64],
    target: int,
    room: int,
) -> int:
    """Fill the columns with selected instructions, to ``room`` and a block, or until the record is used up; how many.

    ``job``: words of the record and values that are used up. ``chosen``: of the selected instructions, their rows in
    the facts, pcs, and addresses behind them. ``places``: (n, 2) events of a block and words of what it recorded.
    ``columns``: rows, pcs, addresses, taken; one that is empty is not wanted. ``of_values``: (columns, room) of
    values, of which ``target`` is where control goes (-1: none).
    """
    rows, pcs, addresses, taken = columns
    chosen_rows, chosen_pcs, chosen_next = chosen
    position, value_position = np.uint64(job[0]), np.uint64(job[1])
    end, limit, n = np.uint64(len(stream)), np.uint64(room), np.uint64(0)
    one = np.uint64(1)
    while position < end and n < limit:
        block = blocks[np.uint64(stream[position])]
        count = np.uint64(block[FIRST + 1])
        if count:
            first = np.uint64(block[FIRST])
            if len(rows):
                copy_block(rows, n, chosen_rows, first, count)
            if len(pcs):
                copy_block(pcs, n, chosen_pcs, first, count)
            if len(addresses):
                clear_block(addresses, n, count)
                k, last = np.uint64(block[PLACES]), np.uint64(block[PLACES + 1])
                while k < last:
                    for m in range(FOURS):
                        at = k + np.uint64(m)
                        word = stream[position + np.uint64(places[at, 1])]
                        addresses[n + np.uint64(places[at, 0])] = word
                    k += np.uint64(FOURS)
            if len(taken):
                clear_block(taken, n, count)
            for column in range(len(of_values)):
                to = of_values[column]
                clear_block(to, n, count)
                lists = PLACES + 2 + 2 * column
                for item in range(block[lists], block[lists + 1]):
                    event = np.uint64(places[np.uint64(item), 0])
                    value = values[value_position + np.uint64(places[np.uint64(item), 1])]
                    to[n + event] = value
                    if column == target and len(taken):
                        taken[n + event] = value != np.uint64(chosen_next[first + event])
            n += count
        position += one + np.uint64(block[WORDS])
        value_position += np.uint64(block[VALUES])
    job[0], job[1] = np.int64(position), np.int64(value_position)
    return int(n)
