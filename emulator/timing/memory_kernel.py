"""Kernels of the memory hierarchy: L1 misses, L2, memory, TLBs, and their delays.

L1 caches use virtual addresses without an address-space number: lines of other programs come in only through `pollute`.
The L2 uses physical addresses, so its conflicts depend on page placement. Write-backs and stores that bypass a cache
pass through a write buffer that is never full: they are counted and cost no time. ``longs`` and ``words`` are the
core's state, see `emulator.timing.layout`.
"""

from __future__ import annotations

import numpy as np

from emulator.kernels.jit import Integer, inline_kernel, kernel
from emulator.timing.cache_kernel import HIT, MISS_DIRTY, touch
from emulator.timing.layout import (
    COUNTS,
    DTLB,
    ITLB,
    L1D,
    L1I,
    L2,
    M_VICTIM,
    P_DTLB_PENALTY,
    P_FRAMES,
    P_ITLB_PENALTY,
    P_L1D_SHIFT,
    P_L1I_SHIFT,
    P_L2_LATENCY,
    P_L2_SHIFT,
    P_MEMORY_LATENCY,
    P_PAGE_SHIFT,
    P_WRITE_ALLOCATE,
    P_WRITE_BACK,
)
from emulator.timing.machine_events import Event

DTLB_MISSES, ITLB_MISSES = COUNTS + Event.DTLB_MISSES, COUNTS + Event.ITLB_MISSES
L1D_MISSES, L1I_MISSES = COUNTS + Event.L1D_MISSES, COUNTS + Event.L1I_MISSES
L1D_LOAD_MISSES, L1D_STORE_MISSES = COUNTS + Event.L1D_LOAD_MISSES, COUNTS + Event.L1D_STORE_MISSES
L1D_WRITEBACKS, L2_WRITEBACKS = COUNTS + Event.L1D_WRITEBACKS, COUNTS + Event.L2_WRITEBACKS
L2_ACCESSES, L2_MISSES = COUNTS + Event.L2_ACCESSES, COUNTS + Event.L2_MISSES
L2_DATA_ACCESSES, L2_DATA_MISSES = COUNTS + Event.L2_DATA_ACCESSES, COUNTS + Event.L2_DATA_MISSES
MEMORY_READS, MEMORY_WRITES = COUNTS + Event.MEMORY_READS, COUNTS + Event.MEMORY_WRITES


@kernel
def l2_line(longs: np.ndarray, words: np.ndarray, address: int) -> Integer:
    """Physical L2 line of a virtual address."""
    shift = longs[P_PAGE_SHIFT]
    frame = np.int64(words[longs[P_FRAMES] + (address >> shift)])
    physical = frame << shift | address & ((np.int64(1) << shift) - 1)
    return physical >> longs[P_L2_SHIFT]


@kernel
def read_below(longs: np.ndarray, words: np.ndarray, address: int, is_data: int) -> Integer:
    """Read a line that missed in an L1 cache from the L2 or memory (without an L2 its latency is 0); returns the delay
    [cycles]."""
    latency = longs[P_L2_LATENCY]
    if latency > 0:
        longs[L2_ACCESSES] += 1
        longs[L2_DATA_ACCESSES] += is_data
        outcome = touch(longs, words, L2, l2_line(longs, words, address), 0, 1)
        if outcome == HIT:
            return latency
        longs[L2_MISSES] += 1
        longs[L2_DATA_MISSES] += is_data
        if outcome == MISS_DIRTY:
            longs[L2_WRITEBACKS] += 1
            longs[MEMORY_WRITES] += 1
    longs[MEMORY_READS] += 1
    return latency + longs[P_MEMORY_LATENCY]


@kernel
def write_below(longs: np.ndarray, words: np.ndarray, address: int) -> None:
    """Write a line, or a written-through store, below the L1: to the L2 if it has the line, else to memory."""
    if longs[P_L2_LATENCY] > 0 and touch(longs, words, L2, l2_line(longs, words, address), 1, 0) == HIT:
        return
    longs[MEMORY_WRITES] += 1


@inline_kernel
def translate_fetch(longs: np.ndarray, words: np.ndarray, page: int) -> int:
    """Look a page up in the instruction TLB; returns the delay [cycles]."""
    if touch(longs, words, ITLB, page, 0, 1) == HIT:
        return 0
    longs[ITLB_MISSES] += 1
    return longs[P_ITLB_PENALTY]


@inline_kernel
def translate_data(longs: np.ndarray, words: np.ndarray, page: int) -> int:
    """Look a page up in the data TLB; returns the delay [cycles]."""
    if touch(longs, words, DTLB, page, 0, 1) == HIT:
        return 0
    longs[DTLB_MISSES] += 1
    return longs[P_DTLB_PENALTY]


@inline_kernel
def fetch_line(longs: np.ndarray, words: np.ndarray, line: int) -> int:
    """Fetch an instruction line; returns the delay [cycles], 0 for a hit."""
    if touch(longs, words, L1I, line, 0, 1) == HIT:
        return 0
    longs[L1I_MISSES] += 1
    return read_below(longs, words, line << longs[P_L1I_SHIFT], 0)


@inline_kernel
def access_data(longs: np.ndarray, words: np.ndarray, address: int, is_store: int) -> Integer:
    """Load from or store to the L1 data cache; returns the delay [cycles], 0 for a hit."""
    write_back = longs[P_WRITE_BACK]
    allocate = 1 - is_store | longs[P_WRITE_ALLOCATE]
    outcome = touch(longs, words, L1D, address >> longs[P_L1D_SHIFT], is_store & write_back, allocate)
    delay = np.int64(0)
    if outcome != HIT:
        delay = miss_data(longs, words, address, is_store, outcome)
    if is_store > write_back:
        write_below(longs, words, address)
    return delay


@kernel
def miss_data(longs: np.ndarray, words: np.ndarray, address: int, is_store: int, outcome: int) -> Integer:
    """Handle an access that missed in the L1 data cache; returns the delay [cycles].

    The line is read before the victim is written back, as through a victim buffer.
    """
    longs[L1D_MISSES] += 1
    longs[L1D_LOAD_MISSES] += 1 - is_store
    longs[L1D_STORE_MISSES] += is_store
    victim = longs[L1D + M_VICTIM]
    delay = np.int64(0)
    if is_store == 0 or longs[P_WRITE_ALLOCATE]:
        delay = read_below(longs, words, address, 1)
    elif longs[P_WRITE_BACK]:
        write_below(longs, words, address)
    if outcome == MISS_DIRTY:
        longs[L1D_WRITEBACKS] += 1
        write_below(longs, words, victim << longs[P_L1D_SHIFT])
    return delay


@kernel
def pollute(longs: np.ndarray, words: np.ndarray, cache: int, lines: np.ndarray) -> None:
    """Bring lines of another address space into a cache or TLB; evicted dirty lines are written back."""
    for line in lines:
        if touch(longs, words, cache, line, 0, 1) == MISS_DIRTY:
            if cache == L1D:
                longs[L1D_WRITEBACKS] += 1
                write_below(longs, words, longs[L1D + M_VICTIM] << longs[P_L1D_SHIFT])
            else:
                longs[L2_WRITEBACKS] += 1
                longs[MEMORY_WRITES] += 1
