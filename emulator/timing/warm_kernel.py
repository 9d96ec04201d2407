"""Kernels that estimate the contents of a cache from the last access to each line.

A line is in its set at the time of its last access: it was there, or was filled then. Later fills decide whether it
still is.

LRU      The lines accessed last are in the set.
random   Each fill of a set with associativity w evicts a given other line with probability 1/w, so a line accessed
         ``age`` fills ago is still there with probability exp(-rate * age) (StatCache, Berg and Hagersten, ISPASS 2004,
         uses the same model for whole caches). A full set holds w lines, so the rate solves sum(exp(-rate * age)) = w.
         Nothing was evicted before the set was full: lines that are older than that are all equally likely there. While
         a cache fills, the rate is known and the time at which each set was full follows from the sum.
FIFO     As LRU: as if each line had been filled by its last access. Lines that were filled earlier are evicted sooner,
         but last accesses do not tell which ones: `emulator.timing.online_caches` follows them where it can.

A line is dirty if it has not left the cache since it was written; the probability of that follows in the same way.
Ages may be in any unit in which fills are evenly spaced.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.events import NEVER
from emulator.kernels.jit import Integer, inline_kernel, kernel
from emulator.timing.cache_kernel import next_random
from emulator.timing.layout import (
    INVALID_TAG,
    M_BASE,
    M_CLOCK,
    M_POLICY,
    M_SET_MASK,
    M_WAYS,
    POLICY_LRU,
    POLICY_RANDOM,
    STAMPS,
)

Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]

_STEPS = 30
_CLOSE = 1e-3
_NEAR = 2  # intervals around the one where evenly long intervals would have an age, in which it is looked for first
_NEGLIGIBLE = 45.0  # exp(-45) does not change the sums
_INVALID_LINE = INVALID_TAG >> 1


@kernel
def to_fills(ago: Doubles, since: Doubles, scale: float, ages: Doubles) -> None:
    """Convert ``ages``, (n,), from instructions to fills, in place; infinite ages stay.

    ``since``: (m,) fills since ``ago``, (m,) ascending from 0, interpolated linearly; ``scale``: fills an instruction
    beyond ``ago``, a millionth of which is added everywhere to keep the order of ages without fills between them.
    """
    last = len(ago) - 1
    each = last / (ago[last] + 1e-300)
    at, found_at, slope = np.int64(0), np.int64(-1), 0.0
    for index in range(len(ages)):
        age = ages[index]
        if age == np.inf:
            continue
        inside = min(age, ago[last])
        if ago[at] > inside or (at < last and ago[at + 1] <= inside):  # not in the previous interval
            # Intervals are about equally long, so that a search of all of them is hardly ever needed.
            about = np.int64(inside * each)
            at, above = max(about - _NEAR, np.int64(0)), min(about + _NEAR + 1, np.int64(last + 1))
            if ago[at] > inside or (above <= last and ago[above] <= inside):
                at, above = np.int64(0), np.int64(last + 1)
            while above - at > 1:
                middle = (at + above) >> 1
                if ago[middle] <= inside:
                    at = middle
                else:
                    above = middle
        fills = since[at]
        if at < last and ago[at] < inside:
            if at != found_at:  # a division takes longer than all else
                found_at, slope = at, (since[at + 1] - since[at]) / (ago[at + 1] - ago[at])
            fills += slope * (inside - ago[at])
        ages[index] = fills + scale * (age - inside) + 1e-6 * scale * inside


@kernel
def gather_history(
    order: Longs, addresses: NDArray[np.uint32], ages: NDArray[np.uint32], written: NDArray[np.uint32],
    out_addresses: Longs, out_ages: Doubles, out_written: Doubles,
) -> None:  # fmt: skip
    """Put accesses in ``order``, (n,), and write `NEVER` as infinity."""
    for place in range(len(order)):
        index = order[place]
        out_addresses[place] = addresses[index]
        out_ages[place] = ages[index]
        out_written[place] = np.inf if written[index] == NEVER else float(written[index])


@inline_kernel
def draw(longs: Longs, cache: int) -> float:
    """A number in [0, 1) from the cache's own generator."""
    return float(next_random(longs, cache) >> 10) * 2.0**-53


@kernel
def random_rate(ages: Doubles, ways: int, guess: float, stays: Doubles) -> float:
    """The eviction rate of each line in a set with random replacement that holds ``ways`` of more than ``ways`` lines.

    ``ages``: (n,) ascending; ``guess``: a rate to begin with, such as that of the set before, or 0; ``stays``: (n,)
    receives exp(-rate * age) up to the first age at which it is negligible. The sum of
    exp(-rate * age) is convex and decreasing, so Newton's method converges monotonically from the left; from the right
    its first step goes to the left, where ``least`` is the end.
    """
    least = np.log(len(ages) / ways) / (ages[len(ages) - 1] + 1e-300)  # the solution if all ages equalled the oldest
    rate = max(guess, least)
    for _ in range(_STEPS):
        total, slope = 0.0, 0.0
        for index in range(len(ages)):
            if rate * ages[index] > _NEGLIGIBLE:
                break
            stays[index] = np.exp(-rate * ages[index])
            total += stays[index]
            slope += stays[index] * ages[index]
        if abs(total - ways) < _CLOSE * ways or (slope == 0.0 and rate == least):
            return rate
        rate = max(rate + (total - ways) / slope, least) if slope > 0.0 else least
    for index in range(len(ages)):
        if rate * ages[index] > _NEGLIGIBLE:
            break
        stays[index] = np.exp(-rate * ages[index])
    return rate


@kernel
def full_since(ages: Doubles, ways: int, filling: tuple[float, float]) -> float:
    """How long a set has been full that holds ``ways`` of more than ``ways`` lines; infinite if that no longer matters.

    ``ages``: (n,) ascending, in fills of the whole cache; ``filling``: lines of the cache, 0 if unknown, and fills of
    it from the start. Each fill evicts a line with probability 1 / lines. A set is not full later than the cache.
    """
    lines, fills = filling
    oldest = ages[len(ages) - 1]
    if lines == 0.0 or fills - lines >= oldest:
        return np.inf
    stay = 0.0
    for index in range(len(ages)):
        older = len(ages) - index
        if stay + older * np.exp(-ages[index] / lines) <= ways:
            return max(fills - lines, -lines * np.log((ways - stay) / older))
        stay += np.exp(-ages[index] / lines)
    return np.inf


@kernel
def keep_residents(
    longs: Longs, cache: int, ages: Doubles, written: Doubles, filling: tuple[float, float], stays: Doubles,
    order: Longs, dirty: Longs, last_rate: Doubles,
) -> Integer:  # fmt: skip
    """Choose the lines that a set holds; return their number.

    ``order``: receives their indices, next victim first; ``dirty``: receives whether each is dirty; (ways,) each.
    ``ages``: (n,) ascending; ``written``: (n,) ages of the last writes, infinite for none; both change;
    ``filling``: as in `full_since`; ``stays``: scratch, (n,).
    ``last_rate``: (1,) the eviction rate of the set before, which the rate of this set replaces.
    """
    ways, policy, n = longs[cache + M_WAYS], longs[cache + M_POLICY], len(ages)
    kept = min(n, ways)
    if policy != POLICY_RANDOM or n <= ways:
        for place in range(kept):
            index = kept - 1 - place
            order[place] = index
            dirty[place] = written[index] < np.inf if n <= ways else written[index] <= ages[kept - 1]
        return kept
    count = 0
    full = full_since(ages, ways, filling)
    if full < ages[n - 1]:
        for index in range(n):
            ages[index] = min(ages[index], full)
            if written[index] < np.inf:
                written[index] = min(written[index], full)
    rate = random_rate(ages, ways, last_rate[0], stays)
    last_rate[0] = rate
    # Systematic sampling of ``ways`` lines, each with its own probability.
    total, next_one = 0.0, draw(longs, cache)
    for index in range(n):
        if rate * ages[index] > _NEGLIGIBLE:
            break
        total += stays[index]
        if total > next_one and count < ways:
            order[count] = index
            dirty[count] = draw(longs, cache) < np.exp(-rate * (written[index] - ages[index]))
            count += 1
            next_one += 1.0
    return count


class LastAccesses(NamedTuple):
    """``lines``: (n,) different lines, the youngest first; how long ago each was accessed and written last."""

    lines: Longs
    ages: Doubles
    written: Doubles


class Scratch(NamedTuple):
    """``starts``: (sets + 1,); ``sorted_``: (n,); ``lines_of_set``: (n + ways,); ``of_set``: (3, n + ways); ``order``,
    ``dirty``: (ways,); ``last_rate``: (1,), 0 before the first set."""

    starts: Longs
    sorted_: Longs
    lines_of_set: Longs
    of_set: Doubles
    order: Longs
    dirty: Longs
    last_rate: Doubles


@inline_kernel
def used_before(longs: Longs, first: int, ways: int, time: int) -> Integer:
    """The way of a set whose line was used last before ``time``. ``first``: place of the set's stamps, which differ;
    at least one is older than ``time``."""
    found = np.int64(-1)
    for way in range(ways):
        stamp = longs[first + way]
        if stamp < time and (found < 0 or stamp > longs[first + found]):
            found = np.int64(way)
    return found


@kernel
def warm_cache(
    longs: Longs, words: NDArray[np.uint32], cache: int, accesses: LastAccesses, since: float,
    filling: tuple[float, float], scratch: Scratch,
) -> None:  # fmt: skip
    """Set ``cache`` to the state after the last ``accesses``. Other lines that the cache holds were accessed ``since``
    ago. ``filling``: as in `full_since`."""
    ways, mask = longs[cache + M_WAYS], longs[cache + M_SET_MASK]
    lines, ages, written = accesses
    starts, sorted_, lines_of_set, of_set, order, dirty, last_rate = scratch
    ages_of_set, written_of_set = of_set[0], of_set[1]
    starts[:] = 0
    for index in range(len(lines)):
        starts[lines[index] & mask] += 1
    for set_ in range(1, mask + 2):
        starts[set_] += starts[set_ - 1]
    for index in range(len(lines) - 1, -1, -1):  # counting sort by set, from the end of each set's part
        starts[lines[index] & mask] -= 1
        sorted_[starts[lines[index] & mask]] = index
    for set_ in range(mask + 1):
        n = np.int64(0)
        for place in range(starts[set_], starts[set_ + 1]):
            index = sorted_[place]
            lines_of_set[n] = lines[index]
            ages_of_set[n] = ages[index]
            written_of_set[n] = written[index]
            n += 1
        first = longs[cache + M_BASE] + set_ * ways
        # The lines that it holds, the one used last first. Under LRU replacement one is at least as old as those used
        # after it that were not accessed since, and cannot have left if fewer lines than ways were used after it.
        is_lru = longs[cache + M_POLICY] == POLICY_LRU
        oldest, before, n_after = since, np.int64(1) << 62, np.int64(0)
        while n_after < n and ages_of_set[n_after] <= since:
            n_after += 1
        for rank in range(ways):
            held = np.int64(rank)  # other policies do not keep the order of use
            if is_lru:
                held = used_before(longs, STAMPS + first, ways, before)
                before = longs[STAMPS + first + held]
            tag = np.int64(words[first + held])
            line = tag >> 1
            if line == _INVALID_LINE:
                continue
            listed = np.int64(-1)
            for place in range(n):
                if lines_of_set[place] == line:
                    listed = np.int64(place)
            if listed >= 0:
                if is_lru:
                    oldest = max(oldest, ages_of_set[listed])
                    if tag & 1 and n_after < ways:
                        written_of_set[listed] = ages_of_set[listed]
                    n_after += ages_of_set[listed] > since
                continue
            n_after += 1
            spot = np.int64(n)
            while spot > 0 and ages_of_set[spot - 1] > oldest:
                lines_of_set[spot] = lines_of_set[spot - 1]
                ages_of_set[spot] = ages_of_set[spot - 1]
                written_of_set[spot] = written_of_set[spot - 1]
                spot -= 1
            lines_of_set[spot] = line
            ages_of_set[spot] = oldest
            written_of_set[spot] = oldest if tag & 1 else np.inf
            n += 1
        count = keep_residents(
            longs,
            cache,
            ages_of_set[:n],
            written_of_set[:n],
            filling,
            of_set[2, :n],
            order,
            dirty,
            last_rate,
        )
        for way in range(ways):
            words[first + way] = INVALID_TAG
            longs[STAMPS + first + way] = way - ways
        for way in range(count):
            longs[cache + M_CLOCK] += 1
            words[first + way] = lines_of_set[order[way]] << 1 | dirty[way]
            longs[STAMPS + first + way] = longs[cache + M_CLOCK]
