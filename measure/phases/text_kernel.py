"""Basic block vectors out of their text, as machine code: what is written plainly; everything else is refused here, and
read by `measure.phases.formats` line by line, which says what is wrong with it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.jit import kernel

Counts = NDArray[np.int64]
_MOST_DIGITS = 18
_NEWLINE, _TAB, _RETURN, _SPACE, _HASH, _COLON, _T = 10, 9, 13, 32, 35, 58, 84
_ZERO, _NINE = 48, 57


@kernel
def read_number(text: NDArray[np.uint8], place: int) -> int:
    """The end of the number that is to be at ``place``; ``place`` when there is none."""
    end = place
    while end < text.size and _ZERO <= text[end] <= _NINE:
        end += 1
    return end if end - place <= _MOST_DIGITS else place


@kernel
def skip_blanks(text: NDArray[np.uint8], place: int) -> int:
    """The first place from ``place`` on that has no blank or tab."""
    while place < text.size and (text[place] == _SPACE or text[place] == _TAB):
        place += 1
    return place


@kernel
def value_of(text: NDArray[np.uint8], place: int, end: int) -> int:
    """The number of the digits from ``place`` to ``end``."""
    value = 0
    for at in range(place, end):
        value = value * 10 + (text[at] - _ZERO)
    return value


@kernel
def read_rows(text: NDArray[np.uint8], numbers: Counts, counts: Counts, ends: Counts) -> int:
    """Intervals in ``text``, or -1 if it is not written plainly: then nothing is to be made of the results.

    ``numbers`` and ``counts`` (more than half as many as there are colons) get blocks and their counts, ``ends`` (at
    least as many as there are lines) where each interval's entries end. Plain are lines of an interval that runs
    something, empty lines, and comments, each with its newline.
    """
    place, entry, row = 0, 0, 0
    while place < text.size:
        if text[place] == _HASH:
            while place < text.size and text[place] != _NEWLINE:
                place += 1
            if place == text.size:
                return -1
        if text[place] == _NEWLINE:
            place += 1
            continue
        if text[place] != _T:
            return -1
        place += 1
        first, executed = entry, 0
        while True:
            place = skip_blanks(text, place)
            if place < text.size and text[place] == _RETURN:
                place += 1
                if place < text.size and text[place] != _NEWLINE:
                    return -1
            if place >= text.size:
                return -1
            if text[place] == _NEWLINE:
                place += 1
                break
            for part in range(2):
                if place >= text.size or text[place] != _COLON:
                    return -1
                place = skip_blanks(text, place + 1)
                end = read_number(text, place)
                if end == place:
                    return -1
                value = value_of(text, place, end)
                if part == 0:
                    numbers[entry] = value
                    place = skip_blanks(text, end)
                else:
                    counts[entry] = value
                    executed = max(executed, value)
                    place = end
            entry += 1
        if entry == first or executed == 0:
            return -1
        ends[row] = entry
        row += 1
    return row


@kernel
def has_twice(indices: NDArray[np.int32], ends: Counts, seen: Counts) -> int:
    """Whether an interval lists a block twice. ``seen`` (n_dims,): -1."""
    first = 0
    for row in range(ends.size):
        for entry in range(first, ends[row]):
            if seen[indices[entry]] == row:
                return 1
            seen[indices[entry]] = row
        first = ends[row]
    return 0
