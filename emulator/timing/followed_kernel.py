"""Kernels of caches that follow fast execution: translations call them for what the first-level caches do not hold.

Tables of held lines are those of `emulator.engine.instrument.followed_lines`: an access is passed on unless its line is
held by the cache and its page by the TLB. A hit is not passed on, but last accesses tell the order in which lines were
used: with LRU replacement a cache drives out the line of the set that was accessed longest ago. A page was accessed
last when one of its lines that the cache holds was, or else when an access to it was passed on or a line of it driven
out; of a TLB's pages only those that seem oldest are looked at so closely.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.events import HELD, HELD_WRITTEN, PAGE_OUT
from emulator.kernels.jit import Integer, inline_kernel, kernel
from emulator.timing.cache_kernel import MISS, MISS_DIRTY, find_tag, next_random
from emulator.timing.layout import (
    DTLB,
    ITLB,
    L1D,
    L1I,
    M_BASE,
    M_CLOCK,
    M_HINT_MASK,
    M_HINTS,
    M_POLICY,
    M_SET_MASK,
    M_VICTIM,
    M_WAYS,
    MAX_OUTSTANDING,
    P_DTLB,
    P_DTLB_PENALTY,
    P_ITLB,
    P_L1D_SHIFT,
    P_L1I_SHIFT,
    P_OUTSTANDING,
    P_PAGE_SHIFT,
    P_WRITE_ALLOCATE,
    P_WRITE_BACK,
    POLICY_LRU,
    POLICY_RANDOM,
    STAMPS,
)
from emulator.timing.memory_kernel import DTLB_MISSES, ITLB_MISSES, L1I_MISSES, miss_data, read_below, write_below

Longs = NDArray[np.int64]
Words = NDArray[np.uint32]

AT_ONCE = 5
"""Instructions from a load that misses to the first use of its value, by and large: further misses before it are under
way at once. With 9, intervals of a Fourier transform were told apart that are alike."""
SAVED, LAST, BEGAN, ISSUE, ARRIVES, MSHRS = range(6)
"""Places of ``pending``: cycles that misses did not wait, of the latencies that were counted for them; times of the
last miss and of the load whose value is used next; cycles, an instruction in each that does not wait: when the last
miss issued, when all values that loads wait for have arrived, and when each MSHR is free."""
PENDING = MSHRS + MAX_OUTSTANDING
_GROUP = 64  # places of a cache that are looked at together


class Side(NamedTuple):
    """A first-level cache with its TLB. ``longs``, ``words``: the arrays of a core; ``held``, ``times``: the tables of
    followed lines; ``next_ways``, ``next_pages``: the way of each set of the cache and of the TLB that is filled next,
    with LRU replacement until all are; ``page_times``: by place in the TLB, a time before or at which its page was
    accessed last. ``pending``: (PENDING,), what of the pipeline tells how long misses of data wait."""

    longs: Longs
    words: Words
    held: NDArray[np.uint8]
    times: Words
    next_ways: Longs
    next_pages: Longs
    page_times: Words
    pending: Longs


@kernel
def access_missing(missing: Longs, side: Side) -> None:
    """Access the data cache and its TLB at address ``missing[0]``, for a store if ``missing[1]`` is 1, at the time
    ``missing[2]``. Addresses outside of the address space, where the guest is about to fault, touch nothing."""
    address, is_store, now = missing[0], missing[1], missing[2]
    if address >> 31 != 0:
        return
    longs, held = side.longs, side.held
    shift = longs[P_L1D_SHIFT]
    line = address >> shift
    side.times[line] = now
    walked = np.int64(0)
    if longs[P_DTLB]:
        walked = translate(side, DTLB, address >> longs[P_PAGE_SHIFT], longs[P_PAGE_SHIFT] - shift, now)
        longs[DTLB_MISSES] += walked
    through = is_store > longs[P_WRITE_BACK]
    if held[line]:  # its page was out, or the store goes through
        if through:
            write_below(longs, side.words, address)
        elif is_store:
            held[line] = HELD_WRITTEN
        if walked:
            wait(side, is_store, longs[P_DTLB_PENALTY], 0, now)
        return
    outcome = MISS
    if is_store == 0 or longs[P_WRITE_ALLOCATE]:
        victim, state = fill(side, L1D, line, now)
        if state == HELD_WRITTEN and longs[P_WRITE_BACK]:
            outcome = MISS_DIRTY
            longs[L1D + M_VICTIM] = victim
        held[line] = HELD_WRITTEN if is_store else HELD
    delay = miss_data(longs, side.words, address, is_store, outcome)
    if through:
        write_below(longs, side.words, address)
    wait(side, is_store, walked * longs[P_DTLB_PENALTY], delay, now)


@inline_kernel
def wait(side: Side, is_store: Integer, walk: Integer, delay: Integer, now: Integer) -> None:
    """Let an access wait that takes a ``walk`` of the page table and then ``delay`` cycles, as the pipeline does
    (`emulator.timing.issue_kernel.walk`): a walk delays the issue; a miss occupies an MSHR, and waits for one; but only
    a load's value is waited for. Left out: hits on lines that are under way, values of loads that nothing uses and of
    atomic instructions, and that instructions take other than one cycle."""
    longs, pending = side.longs, side.pending
    n_mshrs = longs[P_OUTSTANDING]
    if n_mshrs == 0:  # the pipeline stops
        return
    together = (now - pending[BEGAN]) & 0xFFFFFFFF < AT_ONCE
    if not together:
        pending[ISSUE] = max(pending[ISSUE], pending[ARRIVES])
    issue = pending[ISSUE] + ((now - pending[LAST]) & 0xFFFFFFFF)
    end = max(issue, pending[ARRIVES])
    issue += walk
    if delay > 0:
        port = np.int64(0)
        for other in range(1, n_mshrs):
            if pending[MSHRS + other] < pending[MSHRS + port]:
                port = np.int64(other)
        issue = max(issue, pending[MSHRS + port])
        pending[MSHRS + port] = issue + delay
        if is_store == 0:
            pending[ARRIVES] = max(pending[ARRIVES], issue + delay)
            if not together:
                pending[BEGAN] = now
    pending[ISSUE] = issue
    pending[LAST] = now
    pending[SAVED] += walk + delay - (max(issue, pending[ARRIVES]) - end)


@kernel
def fetch_missing(missing: Longs, side: Side) -> None:
    """Fetch the lines of the code from ``missing[0]`` to before ``missing[1]`` from the time ``missing[2]`` on."""
    longs = side.longs
    shift = longs[P_L1I_SHIFT]
    first = missing[0] >> shift
    for line in range(first, (missing[1] - 1 >> shift) + 1):
        now = missing[2] + line - first
        side.times[line] = now
        if 0 < side.held[line] < PAGE_OUT:
            continue
        if longs[P_ITLB]:
            page_shift = longs[P_PAGE_SHIFT] - shift
            longs[ITLB_MISSES] += translate(side, ITLB, line >> page_shift, page_shift, now)
        if side.held[line]:
            continue
        fill(side, L1I, line, now)
        side.held[line] = HELD
        longs[L1I_MISSES] += 1
        read_below(longs, side.words, line << shift, 0)


@inline_kernel
def fill(side: Side, cache: int, line: Integer, now: Integer) -> tuple[Integer, Integer]:
    """Fill ``line`` into the first-level ``cache``. The line that makes room for it, and what the table said of that,
    0 where a way was empty."""
    longs, words, held = side.longs, side.words, side.held
    ways, set_ = longs[cache + M_WAYS], line & longs[cache + M_SET_MASK]
    first = longs[cache + M_BASE] + set_ * ways
    way = next_place(longs, cache, first, ways, side.next_ways, set_)
    if way == ways:
        way = oldest_line(side, first, ways, now)
    place = first + way
    victim, state = np.int64(words[place]) >> 1, np.int64(0)
    if victim < len(held):
        state = np.int64(held[victim]) & (PAGE_OUT - 1)
        held[victim] = 0
        if longs[P_DTLB if cache == L1D else P_ITLB]:
            keep_time(side, cache, victim, now)
    enter(longs, words, cache, place, line)
    return victim, state


@inline_kernel
def oldest_line(side: Side, first: Integer, ways: Integer, now: Integer) -> Integer:
    """The way of a full set at ``first`` whose line was accessed longest ago."""
    found, oldest = np.int64(0), np.int64(-1)
    for way in range(ways):
        age = (now - np.int64(side.times[np.int64(side.words[first + way]) >> 1])) & 0xFFFFFFFF
        if age > oldest:
            found, oldest = np.int64(way), age
    return found


@inline_kernel
def next_place(
    longs: Longs, cache: int, first: Integer, ways: Integer, next_ways: Longs, set_: Integer
) -> Integer:  # fmt: skip
    """The way of the set at ``first`` that is filled next: round and round, at random once no way is empty, or, with
    LRU replacement, none then, which is ``ways``."""
    way = next_ways[set_]
    policy = longs[cache + M_POLICY]
    if policy == POLICY_LRU:
        next_ways[set_] = min(way + 1, ways)
        return way
    if policy == POLICY_RANDOM and longs[STAMPS + first + way] > 0:
        return next_random(longs, cache) % ways
    next_ways[set_] = way + 1 if way + 1 < ways else 0
    return way


@inline_kernel
def enter(longs: Longs, words: Words, cache: int, place: Integer, line: Integer) -> None:
    """Let ``place`` hold ``line``, clean."""
    words[place] = line << 1
    longs[cache + M_CLOCK] += 1
    longs[STAMPS + place] = longs[cache + M_CLOCK]


@inline_kernel
def translate(side: Side, tlb: int, page: Integer, shift: Integer, now: Integer) -> Integer:
    """Look ``page``, of ``1 << shift`` lines, up in the TLB; 1 for a miss."""
    longs, words = side.longs, side.words
    place = np.int64(words[longs[tlb + M_HINTS] + (page & longs[tlb + M_HINT_MASK])])
    if np.int64(words[place]) >> 1 == page:
        side.page_times[place - longs[tlb + M_BASE]] = now
        return 0
    return find_page(side, np.int64(tlb), page, shift, now)


@kernel
def find_page(side: Side, tlb: int, page: int, shift: int, now: int) -> Integer:
    """`translate` for a page that is not where its hint says."""
    longs, words, held = side.longs, side.words, side.held
    base, ways, set_ = longs[tlb + M_BASE], longs[tlb + M_WAYS], page & longs[tlb + M_SET_MASK]
    first = base + set_ * ways
    way = find_tag(words, first, ways, page)
    missed = way < 0
    if missed:
        way = next_place(longs, tlb, first, ways, side.next_pages, set_)
        if way == ways:
            way = oldest_page(side, L1D if tlb == DTLB else L1I, first - base, first, ways, shift, now)
        victim = np.int64(words[first + way]) >> 1
        if victim << shift < len(held):
            for line in range(victim << shift, victim + 1 << shift):
                held[line] |= PAGE_OUT if held[line] else 0
        for line in range(page << shift, page + 1 << shift):
            held[line] &= PAGE_OUT - 1
        enter(longs, words, tlb, first + way, page)
    words[longs[tlb + M_HINTS] + (page & longs[tlb + M_HINT_MASK])] = first + way
    side.page_times[first + way - base] = now
    return np.int64(missed)


@inline_kernel
def oldest_page(
    side: Side, cache: Integer, first_time: Integer, first: Integer, ways: Integer, shift: Integer, now: Integer
) -> Integer:  # fmt: skip
    """The way of a full set of the TLB of ``cache``, at ``first`` and among the times at ``first_time``, whose page, of
    ``1 << shift`` lines, was accessed longest ago. The page that seems oldest is looked at again, until it is known to
    be."""
    while True:
        found, oldest, second = np.int64(0), np.int64(-1), np.int64(-1)
        for way in range(ways):
            age = (now - np.int64(side.page_times[first_time + way])) & 0xFFFFFFFF
            if age > oldest:
                found, oldest, second = np.int64(way), age, oldest
            else:
                second = max(second, age)
        young = young_line(side, cache, np.int64(side.words[first + found]) >> 1, shift, second, now)
        if young >= second:
            return found
        side.page_times[first_time + found] = now - young


@inline_kernel
def young_line(
    side: Side, cache: Integer, page: Integer, shift: Integer, enough: Integer, now: Integer
) -> Integer:  # fmt: skip
    """How long ago a line of ``page`` was accessed, if less than ``enough``, else that: of a small page any line, of a
    large one those that the ``cache`` holds."""
    longs, words = side.longs, side.words
    if has_small_pages(longs, cache, shift):
        youngest = np.int64(enough)
        for line in range(page << shift, page + 1 << shift):
            youngest = min(youngest, (now - np.int64(side.times[line])) & 0xFFFFFFFF)
        return youngest
    begin = longs[cache + M_BASE]
    end = begin + longs[cache + M_WAYS] * (longs[cache + M_SET_MASK] + 1)
    for group in range(begin, end, _GROUP):
        tags = words[group : min(group + _GROUP, end)]
        matches = np.int32(0)
        for index in range(min(_GROUP, end - group)):  # vectorised: most groups have no line of the page
            matches += np.int32(1) if tags[index] >> np.uint32(shift + 1) == np.uint32(page) else np.int32(0)
        for place in range(group, min(group + _GROUP, end) if matches else group):
            held = np.int64(words[place]) >> 1
            if held >> shift == page:
                age = (now - np.int64(side.times[held])) & 0xFFFFFFFF
                if age < enough:
                    return age
    return enough


@inline_kernel
def has_small_pages(longs: Longs, cache: Integer, shift: Integer) -> Integer:
    """Whether a page has fewer lines, ``1 << shift``, than the ``cache`` has places."""
    return 1 << shift < longs[cache + M_WAYS] * (longs[cache + M_SET_MASK] + 1)


@inline_kernel
def keep_time(side: Side, cache: int, line: Integer, now: Integer) -> None:
    """Note when ``line``, which leaves the ``cache``, was accessed, as a time of its page, if pages are large."""
    longs, words = side.longs, side.words
    shift = longs[P_PAGE_SHIFT] - longs[P_L1D_SHIFT if cache == L1D else P_L1I_SHIFT]
    if has_small_pages(longs, cache, shift):
        return
    tlb, page = DTLB if cache == L1D else ITLB, line >> shift
    ways, set_ = longs[tlb + M_WAYS], page & longs[tlb + M_SET_MASK]
    first = longs[tlb + M_BASE] + set_ * ways
    way = find_tag(words, first, ways, page)
    if way >= 0:
        at = first + way - longs[tlb + M_BASE]
        time = np.int64(side.times[line])
        if (now - time) & 0xFFFFFFFF < (now - np.int64(side.page_times[at])) & 0xFFFFFFFF:
            side.page_times[at] = time
