"""Kernel that writes the text of basic block vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import Integer, inline_kernel, kernel

MOST_BYTES_OF_ENTRY = 32
"""A colon, a block of at most 10 digits, a colon, a count of at most 19 digits, and a blank."""
_NEWLINE, _BLANK, _COLON, _ZERO, _T = 10, 32, 58, 48, 84


@inline_kernel
def _put_number(text: NDArray[np.uint8], place: Integer, number: Integer) -> Integer:
    """Write a colon and the digits of ``number``; returns the place after them."""
    text[place] = _COLON
    end = place + 2
    rest = number // 10
    while rest:
        end += 1
        rest //= 10
    rest = number
    for at in range(end - 1, place, -1):
        text[at] = _ZERO + rest % 10
        rest //= 10
    return end


@kernel
def put_vectors(
    text: NDArray[np.uint8], starts: NDArray[np.int64], numbers: NDArray[np.uint32], counts: NDArray[np.int64]
) -> int:
    """Write a line for each interval, with the numbers of its blocks and counts; returns the number of bytes.

    ``starts``: (n + 1,) first entry of each interval; ``text``: (m,), with `MOST_BYTES_OF_ENTRY` for each entry and 2
    for each interval.
    """
    place = 0
    for interval in range(len(starts) - 1):
        text[place] = _T
        place += 1
        for entry in range(starts[interval], starts[interval + 1]):
            place = _put_number(text, place, numbers[entry])
            place = _put_number(text, place, counts[entry])
            text[place] = _BLANK
            place += 1
        text[place] = _NEWLINE
        place += 1
    return place
