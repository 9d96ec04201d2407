"""numba kernels that simulate caches with LRU replacement.

The tags of a set are kept in the order of their last use, so that most accesses hit at the first comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.kernels.numba_jit import inline_numba_kernel, numba_kernel

# Columns of a cache's geometry: index of its first tag, associativity, sets - 1, log2 of the line size.
FIRST, WAYS, SET_MASK, SHIFT = range(4)


@inline_numba_kernel
def touch(geometry: Any, tags: Any, cache: int, address: Any) -> bool:
    """Access the line of ``address``, which becomes the most recently used one; returns whether it hit."""
    line = np.int64(address) >> geometry[cache, SHIFT]
    ways = geometry[cache, WAYS]
    first = geometry[cache, FIRST] + (line & geometry[cache, SET_MASK]) * ways
    tag = np.uint32(line + 1)
    held = tags[first]
    if held == tag:
        return True
    tags[first] = tag
    for way in range(first + 1, first + ways):
        before = tags[way]
        tags[way] = held
        if before == tag:
            return True
        held = before
    return False


@numba_kernel
def sweep(geometry: Any, tags: Any, misses: Any, addresses: Any) -> None:
    """Access every address in every cache; count the misses of each in ``misses`` (n,)."""
    for cache in range(len(geometry)):
        for n in range(len(addresses)):
            if not touch(geometry, tags, cache, addresses[n]):
                misses[cache] += 1


@numba_kernel
def hierarchy(geometry: Any, tags: Any, counts: Any, last: Any, pcs: Any, addresses: Any) -> None:
    """Access L1I, L1D and L2 (caches 0, 1, 2). ``counts``: (3, 2) accesses and misses; ``last``: (1,) line fetched
    last."""
    for n in range(len(pcs)):
        line = np.int64(pcs[n]) >> geometry[0, SHIFT]
        if line != last[0]:
            last[0] = line
            counts[0, 0] += 1
            if not touch(geometry, tags, 0, pcs[n]):
                counts[0, 1] += 1
                counts[2, 0] += 1
                counts[2, 1] += not touch(geometry, tags, 2, pcs[n])
        if addresses[n]:
            counts[1, 0] += 1
            if not touch(geometry, tags, 1, addresses[n]):
                counts[1, 1] += 1
                counts[2, 0] += 1
                counts[2, 1] += not touch(geometry, tags, 2, addresses[n])
