"""Where the hart's state counts accesses by their reuse time, by that of their page, and by sets.

An access is counted if the instructions since the last one to its line have more than `NEAR_BITS` bits. Others, which
are most, are taken to hit: hardly any lines of the same set lie between, and fewer pages than a TLB has. With more than
`FAR_BITS` bits, an access may have missed the first cache and be one of the second. The fields of a count are accesses

- by the reuse time of their line, in `REUSE_BINS` bins,
- by the time since the last such access to their page, in as many bins,
- by the number of their line modulo `LINE_SETS`, those with at most `FAR_BITS` bits, then the others,
- by the number of their page modulo `PAGE_SETS`.

Bins cut each power of two into four: a loop over a few lines more than a cache holds differs from one over a few less.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NEAR_BITS, FAR_BITS = 5, 10
PAGE_BITS = 12  # log2 of the size of these pages, which is that of guest memory's
# The time of the first instruction: a line that was never touched, 0 in the table, looks half of all time old.
TOUCH_EPOCH = 1 << 31

BINS_PER_OCTAVE = 4
REUSE_BINS = 32 * BINS_PER_OCTAVE
LINE_SETS, PAGE_SETS = 256, 64
PAGE_FIELDS = REUSE_BINS
LINE_SET_FIELDS = PAGE_FIELDS + REUSE_BINS
FAR_LINE_SET_FIELDS = LINE_SET_FIELDS + LINE_SETS
PAGE_SET_FIELDS = FAR_LINE_SET_FIELDS + LINE_SETS
REUSE_FIELDS = PAGE_SET_FIELDS + PAGE_SETS
"""Number of fields; before it, the first ones of pages, of sets of lines, of these after a long time, and of sets of
pages."""

# Bins of lines have several copies in the state, whose sum counts. The words behind them are the other fields.
REUSE_COPIES = 4
REUSE_WORDS = REUSE_FIELDS + (REUSE_COPIES - 1) * REUSE_BINS

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


def count_access(words: NDArray[np.int64], time: int, page_time: int, line: int, page: int) -> None:
    """Count in the state's ``words``, (REUSE_WORDS,), what a translation counts of an access."""
    fields = words[REUSE_WORDS - REUSE_FIELDS :]
    words[bin_of(time)] += 1
    fields[PAGE_FIELDS + bin_of(page_time)] += 1
    fields[(FAR_LINE_SET_FIELDS if time >> FAR_BITS else LINE_SET_FIELDS) + line % LINE_SETS] += 1
    fields[PAGE_SET_FIELDS + page % PAGE_SETS] += 1


def fields_of(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """The fields of a count, (REUSE_FIELDS,), from the state's ``words``."""
    lines = words[: REUSE_COPIES * REUSE_BINS].reshape(REUSE_COPIES, REUSE_BINS).sum(axis=0)
    return np.concatenate([lines, words[REUSE_COPIES * REUSE_BINS :]])
