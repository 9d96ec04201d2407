"""Where the hart's state counts accesses by their reuse time, by that of their page, and by turns of cache sets.

An access is counted if the instructions since the last one to its line have more than `NEAR_BITS` bits. Others, which
are most, are taken to hit: hardly any lines of the same set lie between, and fewer pages than a TLB has. With more than
`FAR_BITS` bits, an access may have missed the first cache and be one of the second.

A turn of a set is a counted access to it, unless the one before was to the same line: as many turns as it has lines
replace all of them. The fields of a count are accesses

- by the reuse time of their line, in `REUSE_BINS` bins,
- by the time since the last access that counted their page, unless that is the one before, in as many bins,
- by the turns of the first cache's set since the last counted access to their line, in `TURN_BINS` bins,
- by the class of the reuse time of their line, `TIME_CLASSES`, and the number of that line modulo `LINE_SETS`,
- by the class of the time of their page, likewise, and the number of that page modulo `PAGE_SETS`.

Bins of time cut each power of two into four: a loop over a few lines more than a cache holds differs from one over a
few less. Bins of turns are exact up to `EXACT_TURNS`, then cut alike. Classes are coarse: they tell sets into which
many lines fall from those where a few are accessed again and again. Turns tell that all lines of a while fall into a
few sets also where these are others soon, as in a walk down one column of a matrix after the other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NEAR_BITS = 5
PAGE_BITS = 12  # log2 of the size of these pages, which is that of guest memory's
# The time of the first instruction: a line that was never touched, 0 in the table, looks half of all time old.
TOUCH_EPOCH = 1 << 31

BINS_PER_OCTAVE = 4
REUSE_BINS = 32 * BINS_PER_OCTAVE
EXACT_TURNS = 64
_SAME_BIN = EXACT_TURNS - BINS_PER_OCTAVE * (EXACT_TURNS.bit_length() - 1)
TURN_BINS = REUSE_BINS + _SAME_BIN
CLASS_SHIFT = 4  # log2 of the bins of a class: each is four powers of two
TIME_CLASSES = REUSE_BINS >> CLASS_SHIFT
LINE_SETS, PAGE_SETS = 256, 64
PAGE_FIELDS = REUSE_BINS
TURN_FIELDS = PAGE_FIELDS + REUSE_BINS
LINE_SET_FIELDS = TURN_FIELDS + TURN_BINS
PAGE_SET_FIELDS = LINE_SET_FIELDS + TIME_CLASSES * LINE_SETS
REUSE_FIELDS = PAGE_SET_FIELDS + TIME_CLASSES * PAGE_SETS
"""Number of fields; before it, the first ones of pages, of turns, and of sets of lines and pages by class."""

# Bins of lines have several copies in the state, whose sum counts. The words behind them are the other fields.
REUSE_COPIES = 4
REUSE_WORDS = REUSE_FIELDS + (REUSE_COPIES - 1) * REUSE_BINS

# Of each set, a word with the number of the line that the last turn was for (32 bits), and its turns (above).
TURN_SETS = 1024
FIRST_TURN = 1 << 31  # a line that was never touched, 0 in the table, has waited for half of all turns

# A double's exponent and the first bits of its fraction are the bin, for times from 1 on.
DOUBLE_SHIFT = 52 - (BINS_PER_OCTAVE.bit_length() - 1)
DOUBLE_BIN_0 = 1023 * BINS_PER_OCTAVE


def bin_of(time: int) -> int:
    """The bin of a reuse time of 32 bits; of 0 as of 1."""
    time = max(time, 1)
    octave = time.bit_length() - 1
    return BINS_PER_OCTAVE * octave + (BINS_PER_OCTAVE * time >> octave) - BINS_PER_OCTAVE


def bin_edges() -> NDArray[np.float64]:
    """The shortest reuse time of each bin, then the end of the last: (REUSE_BINS + 1,)."""
    bins = np.arange(REUSE_BINS + 1)
    return np.asarray(2.0 ** (bins // BINS_PER_OCTAVE) * (1 + bins % BINS_PER_OCTAVE / BINS_PER_OCTAVE))


def turn_bin_of(turns: int) -> int:
    """The bin of a number of turns; 0 of an access to the line of the last turn, which is none."""
    return turns if turns < EXACT_TURNS else bin_of(turns) + _SAME_BIN


def turn_bin_starts() -> NDArray[np.float64]:
    """The fewest turns of each bin, then the end of the last: (TURN_BINS + 1,)."""
    return np.concatenate([np.arange(EXACT_TURNS), bin_edges()[EXACT_TURNS - _SAME_BIN :]])


def fields_of(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """The fields of a count, (REUSE_FIELDS,), from the state's ``words``."""
    lines = words[: REUSE_COPIES * REUSE_BINS].reshape(REUSE_COPIES, REUSE_BINS).sum(axis=0)
    return np.concatenate([lines, words[REUSE_COPIES * REUSE_BINS :]])
