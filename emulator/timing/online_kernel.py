"""Kernels that bring a core's caches up to date where fast execution misses a line; translations call them.

They do what the record would do to the caches, block for block, and nothing to time; counters of events are not kept.
``held``: the table of lines that the L1 cache holds, by line number: `HELD`, `HELD_WRITTEN` for a line that was written
since it came in, 0 for a line that is not held. ``next_ways``: (sets,) the way of each set that is filled next.
``first``, ``core``: the arrays with the L1 cache and those with the L2 cache, mostly the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.events import HELD, HELD_WRITTEN
from emulator.kernels.jit import Integer, inline_kernel, kernel
from emulator.timing.cache_kernel import next_random
from emulator.timing.layout import (
    L1D,
    L1I,
    M_BASE,
    M_CLOCK,
    M_POLICY,
    M_SET_MASK,
    M_WAYS,
    P_L1D_SHIFT,
    P_L1I_SHIFT,
    P_WRITE_ALLOCATE,
    P_WRITE_BACK,
    POLICY_RANDOM,
    STAMPS,
)
from emulator.timing.memory_kernel import read_below, write_below

Longs = NDArray[np.int64]
Words = NDArray[np.uint32]
Held = NDArray[np.uint8]


class Arrays(NamedTuple):
    """The arrays of a core: ``longs``, ``words``."""

    longs: Longs
    words: Words


@kernel
def access_missing(
    missing: Longs, first: Arrays, core: Arrays, held: Held, next_ways: Longs, below: Integer
) -> None:  # fmt: skip
    """Access the data cache at address ``missing[0]``, whose line it does not hold, for a store if ``missing[1]`` is 1;
    also the L2 cache if ``below`` is not 0. Addresses outside of the address space, where the guest is about to fault,
    touch nothing."""
    address, is_store = missing[0], missing[1]
    if address >> 31 != 0:
        return
    longs, words = core
    if is_store and longs[P_WRITE_ALLOCATE] == 0:
        if below:
            write_below(longs, words, address)
        return
    if below:
        read_below(longs, words, address, 1)
    line = address >> longs[P_L1D_SHIFT]
    victim = fill(first.longs, first.words, L1D, next_ways, line)
    if victim < len(held):  # neither an empty way nor a line of another program
        if held[victim] == HELD_WRITTEN and below:
            write_below(longs, words, victim << longs[P_L1D_SHIFT])
        held[victim] = 0
    held[line] = HELD_WRITTEN if is_store else HELD


@kernel
def fetch_missing(
    missing: Longs, first: Arrays, core: Arrays, held: Held, next_ways: Longs, below: Integer
) -> None:  # fmt: skip
    """Fetch the lines of the code from ``missing[0]`` to before ``missing[1]`` that the instruction cache does not
    hold; also from the L2 cache if ``below`` is not 0."""
    longs, words = core
    shift = longs[P_L1I_SHIFT]
    for line in range(missing[0] >> shift, (missing[1] - 1 >> shift) + 1):
        if held[line] != 0:
            continue
        if below:
            read_below(longs, words, line << shift, 0)
        victim = fill(first.longs, first.words, L1I, next_ways, line)
        if victim < len(held):
            held[victim] = 0
        held[line] = HELD


@inline_kernel
def fill(longs: Longs, words: Words, cache: int, next_ways: Longs, line: Integer) -> Integer:
    """Fill ``line`` into ``cache``, clean, and return the line that makes room. As a search does for a line that is not
    there, but without one: a set with FIFO replacement is filled way by way, round and round."""
    set_ = line & longs[cache + M_SET_MASK]
    ways, way = longs[cache + M_WAYS], next_ways[set_]
    first = longs[cache + M_BASE] + set_ * ways
    if longs[cache + M_POLICY] == POLICY_RANDOM and longs[STAMPS + first + way] > 0:  # no way is empty
        way = next_random(longs, cache) % ways
    else:
        next_ways[set_] = way + 1 if way + 1 < ways else 0
    place = first + way
    victim = np.int64(words[place]) >> 1
    words[place] = line << 1
    longs[cache + M_CLOCK] += 1
    longs[STAMPS + place] = longs[cache + M_CLOCK]
    return victim


@kernel
def hold_all(longs: Longs, words: Words, cache: Integer, held: Held) -> None:
    """Enter the guest's lines that ``cache`` holds in ``held``, which is 0 everywhere."""
    first = longs[cache + M_BASE]
    for place in range(first, first + longs[cache + M_WAYS] * (longs[cache + M_SET_MASK] + 1)):
        tag = np.int64(words[place])
        if tag >> 1 < len(held):
            held[tag >> 1] = HELD_WRITTEN if tag & 1 else HELD


@kernel
def drop_all(longs: Longs, words: Words, cache: Integer, held: Held) -> None:
    """Clear ``held``, and mark the lines that were written as dirty in ``cache``, if its policy is to write back."""
    first = longs[cache + M_BASE]
    for place in range(first, first + longs[cache + M_WAYS] * (longs[cache + M_SET_MASK] + 1)):
        line = np.int64(words[place]) >> 1
        if line < len(held):
            if held[line] == HELD_WRITTEN and longs[P_WRITE_BACK]:
                words[place] = line << 1 | 1
            held[line] = 0
