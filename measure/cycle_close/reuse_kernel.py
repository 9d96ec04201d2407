"""Kernels that compute cache misses from reuse times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import inline_kernel, kernel


@inline_kernel
def misses_of(reuse_times: NDArray[np.int64], instructions: int, lines: float) -> float:
    """Misses of an interval of ``instructions`` in a fully associative LRU cache of ``lines`` lines.

    ``reuse_times``: (bins,), entry b counts times from 2**(b - 1) to 2**b - 1 instructions.

    StatStack (Eklov and Hagersten, ISPASS 2010, section 3): the number of different lines between two accesses to a
    line is the number of accesses between them whose line is not touched again before the second. With times spread
    evenly in a bin, that number at time t is the rate of accesses times the integral of the fraction of times above it.
    """
    bins = len(reuse_times)
    accesses = 0
    for bin_ in range(bins):
        accesses += reuse_times[bin_]
    if accesses == 0 or instructions == 0:
        return 0.0
    rate = accesses / instructions
    above = float(accesses)
    between = 0.0  # different lines, at the lower edge of the bin
    for bin_ in range(bins):
        inside = reuse_times[bin_]
        width = 1.0 if bin_ == 0 else 2.0 ** (bin_ - 1)
        more = rate * width * (above - 0.5 * inside) / accesses
        if between + more >= lines:
            fraction = (lines - between) / more
            return above - fraction * inside
        between += more
        above -= inside
    return 0.0


class Waits(NamedTuple):
    """The state of a `measure.cycle_close.reuse.WaitModel`.

    ``state``: (1,), number of intervals so far; ``ends``: (m,) instructions from the start to the end of each, the
    first entry 0; for each of n levels, caches and then a TLB, ``lines`` or pages, ``latencies`` (of a miss) [cycles],
    ``has_history``, (n,), and ``fills``, (n, m), misses from the start to each of ``ends``. ``first_bins``, (n,):
    the place of a level's bins among those of an interval, of which one half is of lines, the other of pages.
    """

    state: NDArray[np.int64]
    ends: NDArray[np.int64]
    lines: NDArray[np.float64]
    latencies: NDArray[np.float64]
    has_history: NDArray[np.bool_]
    fills: NDArray[np.float64]
    first_bins: NDArray[np.int64]


@kernel
def add_wait(waits: Waits, end: int, reuse_times: NDArray[np.int64]) -> float:
    """Add the next interval, up to ``end`` instructions, for which there is room; its waiting, in cycles per
    instruction. ``reuse_times``: (1, bins of lines and of pages)."""
    n = waits.state[0]
    waits.state[0] = n + 1
    waits.ends[n + 1] = end
    instructions = end - waits.ends[n]
    total = 0.0
    for level in range(len(waits.lines)):
        lines, latency = waits.lines[level], waits.latencies[level]
        first, bins = waits.first_bins[level], reuse_times.shape[1] // 2
        if waits.has_history[level]:
            fills = waits.fills[level]
            add_evictions(waits.ends, reuse_times, first, bins, n, lines, fills)
            total += (fills[n + 1] - fills[n]) * latency
        else:
            times = reuse_times[0]
            total += misses_of(times[first : first + bins], instructions, lines) * latency
    return total / max(instructions, 1)


@kernel
def add_waits(waits: Waits, ends: NDArray[np.int64], reuse_times: NDArray[np.int64], out: NDArray[np.float64]) -> None:
    """`add_wait` of the next intervals: ``ends``, (n,), ``reuse_times``, (n, bins), their waiting ``out``, (n,)."""
    for row in range(len(ends)):
        out[row] = add_wait(waits, ends[row], reuse_times[row : row + 1])


@kernel
def add_evictions(
    ends: NDArray[np.int64],
    reuse_times: NDArray[np.int64],
    first_bin: int,
    bins: int,
    first: int,
    lines: float,
    fills: NDArray[np.float64],
) -> None:
    """Misses of a cache of ``lines`` lines with random replacement: fills ``fills[first + 1 :]``.

    ``fills[k]``, (n + 1,): misses from the start to ``ends[k]``, (n + 1,). ``reuse_times``: of the intervals from
    ``first`` on, in ``bins`` from ``first_bin`` on, as above. StatCache (Berg and Hagersten, ISPASS 2004): a line
    survives the evictions that follow an access with probability exp(-evictions / lines). Here the evictions before an
    interval are those of the intervals before it, and those inside are spread evenly; nothing is evicted before the
    cache is full.
    misses = sum(accesses * (1 - exp(...))) is convex in the misses: Newton's steps from above converge to the largest
    solution.
    """
    before = np.zeros(bins)
    inside = np.zeros(bins)
    for row in range(reuse_times.shape[0]):
        done = first + row
        begin, length = ends[done], ends[done + 1] - ends[done]
        old = max(fills[done] - lines, 0.0)  # evictions
        is_full = fills[done] >= lines
        misses = 0.0
        at = done
        for bin_ in range(bins):
            misses += reuse_times[row, first_bin + bin_]
            time = 0.75 * 2.0**bin_  # the middle of the bin
            inside[bin_] = min(time, 0.5 * length) / max(length, 1) / lines if is_full else 0.0
            moment = begin + 0.5 * length - time
            while at > 0 and ends[at] > moment:
                at -= 1
            was = fills[at]
            if at < done:
                was += (fills[at + 1] - was) * min(max(moment - ends[at], 0.0) / (ends[at + 1] - ends[at]), 1.0)
            before[bin_] = (old - max(was - lines, 0.0)) / lines if moment < begin else 0.0
        never = float(reuse_times[row, first_bin + bins - 1])
        for _ in range(50):
            difference, slope = misses - never, 1.0
            for bin_ in range(bins - 1):
                accesses = reuse_times[row, first_bin + bin_]
                if accesses:
                    stays = np.exp(-before[bin_] - inside[bin_] * misses)
                    difference -= accesses * (1.0 - stays)
                    slope -= accesses * inside[bin_] * stays
            if slope <= 0.0 or difference < 1e-3 * misses:
                break
            misses -= difference / slope
        fills[done + 1] = fills[done] + max(misses, 0.0)
