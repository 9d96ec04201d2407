"""A kernel that runs interval after interval without a return to Python.

An interval of 200,000 instructions takes some 40 us; the work at its end should not take a tenth of that. The kernel
runs translations up to shortly before the end, interprets the rest to stop exactly there, and records the executions
of blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.engine.hart_state import OFFSETS, Exit
from emulator.events import TOUCH_EPOCH
from emulator.kernels.jit import Integer, call_address, inline_kernel, kernel

Longs = NDArray[np.int64]

# ``instructions`` so far; from where on the interval ends (``target``, a multiple of ``length`` from where the first
# began); the next deadline (``stop``), all in instructions; intervals ``done``; ``entries`` written; ``exactly``: 1
# while the interpreting tier, which stops exactly, is in force.
# ``n_blocks``: number of blocks at the last interval's end; ``enough``: 1 when a watcher has ended the series.
# Constant: host addresses of the function that runs translations, of the hart's state, and of the dispatch tables of
# the translating (``fast``) and the interpreting tier (``exact``); ``longest_path``: instructions that a translation
# may run beyond its budget; ``length``: of an interval; ``watcher_at``: 0, or the host address of a function that is
# called with ``watcher_argument`` after each interval, and may set ``enough``.
JOB_DTYPE = np.dtype(
    [
        (name, "i8")
        for name in (
            "instructions", "target", "stop", "done", "entries", "exactly", "n_blocks", "enough", "enter_at",
            "state_at", "fast_at", "exact_at", "longest_path", "length", "watcher_at", "watcher_argument",
        )
    ]
)  # fmt: skip
_PLACES = {name: place for place, name in enumerate(JOB_DTYPE.names or ())}
DONE, N_BLOCKS, ENOUGH, ENTRIES = (_PLACES[name] for name in ("done", "n_blocks", "enough", "entries"))
INSTRUCTIONS, EXACTLY, STOP = (_PLACES[name] for name in ("instructions", "exactly", "stop"))
LONGEST_PATH = _PLACES["longest_path"]
"""Places in a job as int64 words."""

CHUNK = 16  # counters that are looked at together: most are 0, and the host compares several at once

FULL, STOPPED, DONE_ALL = 100, 101, 102  # reasons of the kernel to return, beside those of `Exit`

_PC, _BUDGET, _REASON = (OFFSETS[name] >> 3 for name in ("pc", "budget", "reason"))
_DISPATCH_TABLE, _TOUCH_TIME = OFFSETS["dispatch_table"] >> 3, OFFSETS["touch_time"] >> 3
_OUT_OF_BUDGET, _UNKNOWN = int(Exit.BUDGET), int(Exit.MISS)


class Totals(NamedTuple):
    """Totals of the hart and at the last boundary: executions by block, ``counts`` and ``counts_before``.
    ``counters`` and what they stand for: as in `BranchCounters`."""

    counts: Longs
    counts_before: Longs
    counters: Longs
    n_counters: Longs
    starts: NDArray[np.uint32]
    terms: NDArray[np.int32]


class IntervalArrays(NamedTuple):
    """The arrays of `Intervals`, with room for more."""

    ends: Longs
    starts: Longs
    blocks: NDArray[np.uint32]
    executions: Longs


class HartWords(NamedTuple):
    """The hart's state as int64 ``words``; the dispatch tables of the translating and the interpreting tier;
    ``n_blocks``: (1,) number of blocks, which grows as the interpreter discovers blocks."""

    words: Longs
    fast: NDArray[np.uint64]
    exact: NDArray[np.uint64]
    n_blocks: Longs


@inline_kernel
def add_up(totals: Totals) -> None:
    """As `BranchCounters.add_up`."""
    counters, counts = totals.counters, totals.counts
    for chunk in range(0, totals.n_counters[0], CHUNK):
        if not _any(counters, chunk):
            continue
        for counter in range(chunk, chunk + CHUNK):
            times = counters[counter]
            if times:
                counters[counter] = 0
                for place in range(totals.starts[counter], totals.starts[counter + 1]):
                    term = totals.terms[place]
                    if term >= 0:
                        counts[term] += times
                    else:
                        counts[~term] -= times


@inline_kernel
def _any(counters: Longs, first: Integer) -> Integer:
    """Not 0 if one of `CHUNK` counters is not 0."""
    found = counters[first]
    for place in range(first + 1, first + CHUNK):
        found |= counters[place]
    return found


@inline_kernel
def _differ(counts: Longs, before: Longs, first: Integer) -> Integer:
    """Not 0 if one of `CHUNK` counts is another one than before."""
    found = counts[first] ^ before[first]
    for place in range(first + 1, first + CHUNK):
        found |= counts[place] ^ before[place]
    return found


@inline_kernel
def close_interval(jobs: NDArray[np.void], n_blocks: Integer, totals: Totals, written: IntervalArrays) -> None:
    """Record what ran since the last interval ended: block executions, as in `Intervals`. The next one ends at a later
    multiple of the length, of which the last block may have passed some."""
    job: Any = jobs[0]
    done, entry = job.done, job.entries
    add_up(totals)
    counts, before = totals.counts, totals.counts_before
    for chunk in range(0, n_blocks, CHUNK):
        if not _differ(counts, before, chunk):
            continue
        for block in range(chunk, chunk + CHUNK):
            executed = counts[block] - before[block]
            if executed:
                written.blocks[entry] = block
                written.executions[entry] = executed
                before[block] = counts[block]
                entry += 1
    written.ends[done] = job.instructions
    job.entries = entry
    job.n_blocks = n_blocks
    job.done = done + 1
    written.starts[done + 1] = entry
    if job.instructions >= job.target:
        job.target += ((job.instructions - job.target) // job.length + 1) * job.length


@kernel
def run_intervals(jobs: NDArray[np.void], hart: HartWords, totals: Totals, written: IntervalArrays) -> Integer:
    """Run until ``written.ends`` is full or Python has to act; returns the reason."""
    job: Any = jobs[0]
    words = hart.words
    while True:
        at = job.instructions
        if at >= job.target:
            if job.done == len(written.ends) or job.enough:
                return DONE_ALL
            if job.entries + hart.n_blocks[0] > len(written.blocks):
                return FULL
            close_interval(jobs, hart.n_blocks[0], totals, written)
            if job.watcher_at:
                call_address(job.watcher_at, job.watcher_argument)
        if job.done == len(written.ends) or job.enough:
            return DONE_ALL
        if at >= job.stop:
            return STOPPED
        remaining = min(job.target, job.stop) - at
        place = words[_PC] >> 1
        if remaining > job.longest_path:
            budget = remaining - job.longest_path
            job.exactly = 0
            words[_DISPATCH_TABLE] = job.fast_at
            known = hart.fast[place] != 0
        else:
            budget = remaining
            job.exactly = 1
            words[_DISPATCH_TABLE] = job.exact_at
            known = hart.exact[place] != 0
        if not known:
            return _UNKNOWN
        words[_BUDGET] = budget
        words[_TOUCH_TIME] = TOUCH_EPOCH + at + budget
        call_address(job.enter_at, job.state_at)
        job.instructions = at + budget - words[_BUDGET]
        if words[_REASON] != _OUT_OF_BUDGET:
            return words[_REASON]
