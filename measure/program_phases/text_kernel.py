"""Kernels that parse basic block vectors in their usual form. Other text is refused here, and is read or reported line
by line by `measure.program_phases.bbv_files`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import kernel

Counts = NDArray[np.int64]
_MOST_DIGITS = 18
_NEWLINE, _TAB, _RETURN, _SPACE, _HASH, _COLON, _T = 10, 9, 13, 32, 35, 58, 84
_ZERO, _NINE = 48, 57


@kernel
def end_of_number(text: NDArray[np.uint8], place: int) -> int:
    """The end of the number at ``place``; ``place`` if there is no number."""
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
    """Number of intervals in ``text``, or -1 for text in an unusual form: then the results are not valid.

    ``numbers`` and ``counts`` (longer than half the number of colons) get blocks and their counts, ``ends`` (at least
    as long as the number of lines) the end of each interval's entries. The usual form is: lines of an interval that
    runs something, empty lines, and comments, each with its newline.
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
                end = end_of_number(text, place)
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
    """1 if an interval lists a block twice, else 0. ``indices``: each entry's block, as its dimension; ``seen``:
    scratch, one -1 for each dimension."""
    first = 0
    for row in range(ends.size):
        for entry in range(first, ends[row]):
            if seen[indices[entry]] == row:
                return 1
            seen[indices[entry]] = row
        first = ends[row]
    return 0
