"""A kernel that runs interval after interval without a return to Python.

An interval of 200,000 instructions takes some 40 us; the work at its end should not take a tenth of that. The kernel
runs translations up to shortly before the end, interprets the rest to stop exactly there, and records the executions
of blocks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.engine.hart_state import OFFSETS, TOUCH_EPOCH, Exit
from emulator.kernels.jit import Integer, call_address, inline_kernel, kernel

Longs = NDArray[np.int64]

# Places in ``job``: instructions so far; the end of the interval; the next deadline, all in instructions; intervals
# done; entries written; 1 while the interpreting tier, which stops exactly, is in force; the number of blocks at the
# last interval's end; 1 when a watcher has ended the series.
INSTRUCTIONS, TARGET, STOP, DONE, ENTRIES, EXACTLY, N_BLOCKS, ENOUGH, JOB_FIELDS = range(9)
FULL, STOPPED, DONE_ALL = 100, 101, 102  # reasons of the kernel to return, beside those of `Exit`

_PC, _BUDGET, _REASON = (OFFSETS[name] >> 3 for name in ("pc", "budget", "reason"))
_DISPATCH_TABLE, _TOUCH_TIME = OFFSETS["dispatch_table"] >> 3, OFFSETS["touch_time"] >> 3
_OUT_OF_BUDGET, _UNKNOWN = int(Exit.BUDGET), int(Exit.MISS)


@inline_kernel
def close_interval(
    job: Longs, n_blocks: Integer, counts: Longs, before: Longs, reuses: Longs, reuses_before: Longs, ends: Longs,
    starts: Longs, blocks: NDArray[np.uint32], executions: Longs, reuse_times: Longs,
) -> None:  # fmt: skip
    """Record what ran since the last interval ended: block executions and reuse times, as in `Intervals`.

    ``counts``, ``reuses``: totals of the hart; ``before``, ``reuses_before``: totals at the last boundary.
    """
    done, entry = job[DONE], job[ENTRIES]
    for block in range(n_blocks):
        executed = counts[block] - before[block]
        if executed:
            blocks[entry] = block
            executions[entry] = executed
            before[block] = counts[block]
            entry += 1
    bins = reuse_times.shape[1]
    for place in range(bins):
        total = 0
        for copy in range(reuses.shape[0]):
            total += reuses[copy, bins - 1 - place]
        reuse_times[done, place] = total - reuses_before[place]
        reuses_before[place] = total
    ends[done] = job[INSTRUCTIONS]
    job[ENTRIES] = entry
    job[N_BLOCKS] = n_blocks
    job[DONE] = done + 1
    starts[done + 1] = entry


@kernel
def run_intervals(
    enter: Integer, state: Integer, words: Longs, fast: NDArray[np.uint64], exact: NDArray[np.uint64],
    fast_table_address: Integer, exact_table_address: Integer, longest_path: Integer, length: Integer, job: Longs,
    n_blocks: Longs, watcher: Integer, watcher_argument: Integer, counts: Longs, before: Longs, reuses: Longs,
    reuses_before: Longs, ends: Longs, starts: Longs, blocks: NDArray[np.uint32], executions: Longs, reuse_times: Longs,
) -> Integer:  # fmt: skip
    """Run until ``ends`` is full or Python has to act; returns the reason.

    ``enter``: host address of the function that runs translations; ``state``: host address of the hart's state, whose
    ``words`` are int64; ``fast``, ``exact``: the dispatch tables of the translating and the interpreting tier, at the
    host addresses ``fast_table_address`` and ``exact_table_address``; ``longest_path``: instructions that a
    translation may run beyond its budget; ``n_blocks``: (1,) number of blocks, which grows as the interpreter
    discovers blocks; ``watcher``: 0, or the host address of a function that is called with ``watcher_argument`` after
    each interval, and may set ``job[ENOUGH]``. The other arguments: as for `close_interval`.
    """
    while True:
        at = job[INSTRUCTIONS]
        if at >= job[TARGET]:
            if job[DONE] == len(ends) or job[ENOUGH]:
                return DONE_ALL
            if job[ENTRIES] + n_blocks[0] > len(blocks):
                return FULL
            close_interval(
                job, n_blocks[0], counts, before, reuses, reuses_before, ends, starts, blocks, executions, reuse_times
            )  # fmt: skip
            job[TARGET] = at + length
            if watcher:
                call_address(watcher, watcher_argument)
        if job[DONE] == len(ends) or job[ENOUGH]:
            return DONE_ALL
        if at >= job[STOP]:
            return STOPPED
        remaining = min(job[TARGET], job[STOP]) - at
        place = words[_PC] >> 1
        if remaining > longest_path:
            budget = remaining - longest_path
            job[EXACTLY] = 0
            words[_DISPATCH_TABLE] = fast_table_address
            known = fast[place] != 0
        else:
            budget = remaining
            job[EXACTLY] = 1
            words[_DISPATCH_TABLE] = exact_table_address
            known = exact[place] != 0
        if not known:
            return _UNKNOWN
        words[_BUDGET] = budget
        words[_TOUCH_TIME] = TOUCH_EPOCH + at + budget
        call_address(enter, state)
        job[INSTRUCTIONS] = at + budget - words[_BUDGET]
        if words[_REASON] != _OUT_OF_BUDGET:
            return words[_REASON]
