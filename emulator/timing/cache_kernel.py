"""Kernels of caches and TLBs: lookup, fill, eviction.

Each line has a tag, ``line << 1 | dirty``, and a stamp: when it was last used (LRU) or filled (FIFO); the victim is the
line with the oldest stamp. Empty ways have negative stamps, the first of them the oldest. Under random replacement the
victim comes from the cache's own generator (xorshift64, Marsaglia 2003), once no way is empty. A table of hints keeps
where a line was last found, so that most hits need no search; hints do not change results.
Miss latencies and the next level are left to `emulator.timing.memory_kernel`.
"""

from __future__ import annotations

import numpy as np

from emulator.kernels.jit import Integer, inline_kernel, kernel
from emulator.timing.layout import (
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
    """Look up ``line`` in ``cache``; mark it dirty if ``dirty`` is 1; fill it on a miss if ``allocate`` is 1.

    Returns HIT, MISS, or MISS_DIRTY if the victim was dirty: its line number is then in
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


@inline_kernel
def find_tag(words: np.ndarray, first: int, ways: int, line: int) -> Integer:
    """The way of a set that holds ``line``, or -1; without branches in the loop, so that it is vectorised."""
    tags = words[first : first + ways]
    key = np.uint32(line << 1)
    way = np.int32(0)
    for index in range(ways):
        way += np.int32(index + 1) if (tags[index] ^ key) < 2 else np.int32(0)
    return np.int64(way) - 1


@inline_kernel
def find_oldest(longs: np.ndarray, first: int, ways: int) -> Integer:
    """The way of a set with the oldest stamp; in two passes, each of which is vectorised."""
    stamps = longs[STAMPS + first : STAMPS + first + ways]
    oldest = stamps[0]
    for index in range(1, ways):
        oldest = min(oldest, stamps[index])
    way = np.int64(0)
    for index in range(ways):
        way += index if stamps[index] == oldest else 0
    return way


@kernel
def search(longs: np.ndarray, words: np.ndarray, cache: int, line: int, dirty: int, allocate: int) -> Integer:
    """The slow path of `touch`, for a line that is not where its hint says."""
    policy = longs[cache + M_POLICY]
    ways = longs[cache + M_WAYS]
    first = longs[cache + M_BASE] + (line & longs[cache + M_SET_MASK]) * ways
    hint = longs[cache + M_HINTS] + (line & longs[cache + M_HINT_MASK])
    longs[cache + M_CLOCK] += 1
    way = find_tag(words, first, ways, line)
    if way >= 0:
        words[first + way] |= np.uint32(dirty)
        words[hint] = first + way
        if policy == POLICY_LRU:
            longs[STAMPS + first + way] = longs[cache + M_CLOCK]
        return HIT
    if allocate == 0:
        return MISS
    if policy == POLICY_RANDOM and longs[STAMPS + first + ways - 1] > 0:  # the last way is filled last
        way = next_random(longs, cache) % ways
    else:
        way = find_oldest(longs, first, ways)
    place = first + way
    victim = np.int64(words[place])
    words[place] = line << 1 | dirty
    words[hint] = place
    longs[STAMPS + place] = longs[cache + M_CLOCK]
    if victim & 1:
        longs[cache + M_VICTIM] = victim >> 1
        return MISS_DIRTY
    return MISS
