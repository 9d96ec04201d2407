"""From the record to columns of events, as a numba kernel: one pass, no allocation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.jit import kernel

# Columns of ``blocks``: first selected instruction and how many, words in the record after the id, words of values.
FIRST, COUNT, WORDS, VALUES = range(4)
# Columns of ``chosen``, one row a selected instruction: its row in the facts; its pc; the place of its address among
# the block's words (-1: none); the address after it (0: it transfers no control); then the places of its values among
# the block's (-1: none), in the order of `VALUE_FIELDS`.
ROW, PC, ADDRESS, NEXT, VALUE = range(5)
TARGET = 5  # of `VALUE_FIELDS`


@kernel
def expand(
    stream: NDArray[np.uint32],
    values: NDArray[np.uint64],
    job: NDArray[np.int64],
    blocks: NDArray[np.int32],
    chosen: NDArray[np.int32],
    wanted: NDArray[np.int64],
    rows: NDArray[np.uint32],
    pcs: NDArray[np.uint32],
    addresses: NDArray[np.uint32],
    taken: NDArray[np.uint8],
    columns: NDArray[np.uint64],
) -> int:
    """Fill the columns with selected instructions until they are full or the record is used up; how many there are.

    ``job``: words of the record and values that are used up, and selected instructions of the block there that were
    delivered already. ``wanted``: which of `VALUE_FIELDS` go to ``columns`` (len(wanted), room). A column that
    is empty is not wanted.
    """
    position, value_position, skip = job[0], job[1], job[2]
    room = columns.shape[1]
    n = 0
    while position < len(stream):
        block = stream[position]
        first = blocks[block, FIRST]
        count = blocks[block, COUNT]
        end = min(count, skip + room - n)
        for place in range(first + skip, first + end):
            if len(rows):
                rows[n] = chosen[place, ROW]
            if len(pcs):
                pcs[n] = chosen[place, PC]
            if len(addresses):
                at = chosen[place, ADDRESS]
                addresses[n] = stream[position + at] if at >= 0 else np.uint32(0)
            for column in range(len(wanted)):
                at = chosen[place, VALUE + wanted[column]]
                columns[column, n] = values[value_position + at] if at >= 0 else np.uint64(0)
            if len(taken):
                at = chosen[place, VALUE + TARGET]
                taken[n] = at >= 0 and values[value_position + at] != np.uint64(chosen[place, NEXT])
            n += 1
        if end < count:
            skip = end
            break
        skip = 0
        position += 1 + blocks[block, WORDS]
        value_position += blocks[block, VALUES]
    job[0], job[1], job[2] = position, value_position, skip
    return n
