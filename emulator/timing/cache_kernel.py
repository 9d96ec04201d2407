"""Caches and TLBs as numba kernels: look a line up, bring it in, throw one out.

Each line has a tag, ``line << 1 | dirty``, and a stamp: when it was last used (LRU) or brought in (FIFO); the
victim is the line with the oldest stamp, the first of them if there are several. Under random replacement the
victim comes from a generator of the cache's own (xorshift64, Marsaglia 2003), once no way is empty. Where a
line was last seen is kept in a table of hints, so that most hits need no search; hints change no result.
What a miss costs and which level comes next is left to `emulator.timing.memory_kernel`.
"""

from __future__ import annotations

import numpy as np

from emulator.timing.jit import Integer, inline_kernel, kernel
from emulator.timing.layout import (
    INVALID_TAG,
    M_BASE,
    M_CLOCK,
    M_HINT_MASK,
    M_HINTS,
    M_POLICY,
    M_RANDOM,
    M_SET_MASK,
    M_VICTIM,
    M_WAYS,
    POLICY_LRU,
    POLICY_RANDOM,
    STAMPS,
)

HIT, MISS, MISS_DIRTY = 0, 1, 2


@inline_kernel
def next_random(longs: np.ndarray, cache: int) -> Integer:
    """Advance the generator of a cache; the result is not negative."""
    x = np.uint64(longs[cache + M_RANDOM])
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    longs[cache + M_RANDOM] = np.int64(x)
    return np.int64(x >> np.uint64(1))


@inline_kernel
def touch(longs: np.ndarray, words: np.ndarray, cache: int, line: int, dirty: int, allocate: int) -> int:
    """Look ``line`` up in ``cache``; mark it dirty if ``dirty`` is 1; bring it in if ``allocate`` is 1.

    Returns HIT, MISS, or MISS_DIRTY when the line that made room was dirty: its number is then in
    ``longs[cache + M_VICTIM]``.
    """
    place = np.int64(words[longs[cache + M_HINTS] + (line & longs[cache + M_HINT_MASK])])
    tag = np.int64(words[place])
    if tag >> 1 == line:
        if dirty:
            words[place] = np.uint32(tag | dirty)
        if longs[cache + M_POLICY] == POLICY_LRU:
            longs[cache + M_CLOCK] += 1
            longs[STAMPS + place] = longs[cache + M_CLOCK]
        return HIT
    return search(longs, words, np.int64(cache), line, np.int64(dirty), np.int64(allocate))


@kernel
def search(longs: np.ndarray, words: np.ndarray, cache: int, line: int, dirty: int, allocate: int) -> int:
    """Do what `touch` does, for a line that is not where it was last seen."""
    policy = longs[cache + M_POLICY]
    first = longs[cache + M_BASE] + (line & longs[cache + M_SET_MASK]) * longs[cache + M_WAYS]
    last = first + longs[cache + M_WAYS] - 1
    hint = longs[cache + M_HINTS] + (line & longs[cache + M_HINT_MASK])
    longs[cache + M_CLOCK] += 1
    for place in range(first, last + 1):
        tag = np.int64(words[place])
        if tag >> 1 == line:
            words[place] = np.uint32(tag | dirty)
            words[hint] = np.uint32(place)
            if policy == POLICY_LRU:
                longs[STAMPS + place] = longs[cache + M_CLOCK]
            return HIT
    if allocate == 0:
        return MISS
    chosen = first
    if policy == POLICY_RANDOM:
        while chosen <= last and np.int64(words[chosen]) != INVALID_TAG:
            chosen += 1
        if chosen > last:
            chosen = first + next_random(longs, cache) % longs[cache + M_WAYS]
    else:
        for place in range(first + 1, last + 1):
            if longs[STAMPS + place] < longs[STAMPS + chosen]:
                chosen = place
    victim = np.int64(words[chosen])
    words[chosen] = np.uint32(line << 1 | dirty)
    words[hint] = np.uint32(chosen)
    longs[STAMPS + chosen] = longs[cache + M_CLOCK]
    if victim & 1:
        longs[cache + M_VICTIM] = victim >> 1
        return MISS_DIRTY
    return MISS
