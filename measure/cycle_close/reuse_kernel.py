"""Kernels that compute cache misses from reuse times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.engine.reuse_counts import BINS_PER_OCTAVE, REUSE_BINS, TURN_FIELDS, bin_edges
from emulator.kernels.jit import inline_kernel, kernel
from measure.cycle_close.set_kernel import (
    Classes,
    SetCounts,
    find_classes,
    misses_by_turns,
    misses_of_sets,
    random_misses,
)

Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]

OCTAVES = REUSE_BINS // BINS_PER_OCTAVE


class Distances(NamedTuple):
    """Stack distances of an interval's accesses. ``edges``: (bins + 1,) of the bins of reuse times [instructions]; at
    each, accesses with longer ones, ``above``, and the different lines between the two accesses to a line,
    ``between``."""

    edges: Doubles
    above: Doubles
    between: Doubles


def room_for_distances() -> Distances:
    """Distances to be found."""
    return Distances(bin_edges(), np.zeros(REUSE_BINS + 1), np.zeros(REUSE_BINS + 1))


@inline_kernel
def find_distances(fields: Longs, first: int, instructions: int, out: Distances) -> None:
    """Find the stack distances of an interval of ``instructions``, of which ``fields``, from ``first`` on, count the
    accesses by their reuse time. Short times need not be counted.

    StatStack (Eklov and Hagersten, ISPASS 2010, section 3): the number of different lines between two accesses to a
    line is the number of accesses between them whose line is not touched again before the second. With times spread
    evenly in a bin, that number at time t is the integral of the accesses with longer times, per instruction.
    """
    left = 0.0
    for bin_ in range(REUSE_BINS):
        left += fields[first + bin_]
    # Between the first edge, of one instruction, and the access itself lies at most one line.
    out.above[0], out.between[0] = left, left / max(instructions, 1)
    for bin_ in range(REUSE_BINS):
        inside = fields[first + bin_]
        width = out.edges[bin_ + 1] - out.edges[bin_]
        out.between[bin_ + 1] = out.between[bin_] + width * (left - 0.5 * inside) / max(instructions, 1)
        left -= inside
        out.above[bin_ + 1] = left


@inline_kernel
def misses_of(distances: Distances, lines: float) -> float:
    """Misses of a fully associative LRU cache of ``lines`` lines: accesses with at least so many others between."""
    low, high = 0, len(distances.between) - 1
    if lines <= distances.between[low]:
        return float(distances.above[low])
    if lines > distances.between[high]:
        return 0.0
    while high - low > 1:  # between[low] < lines <= between[high]
        middle = (low + high) // 2
        if distances.between[middle] < lines:
            low = middle
        else:
            high = middle
    part = (lines - distances.between[low]) / (distances.between[high] - distances.between[low])
    return float(distances.above[low] + part * (distances.above[high] - distances.above[low]))


class Waits(NamedTuple):
    """The state of a `measure.cycle_close.reuse.WaitModel`.

    ``state``: (1,), number of intervals so far; ``ends``: (m,) instructions from the start to the end of each, the
    first entry 0; for each of n levels, caches and then a TLB, ``lines`` or pages, ``latencies`` (of a miss) [cycles],
    ``has_history``, (n,), and ``fills``, (n, m), misses from the start to each of ``ends``. ``first_bins``, (n,): where
    the bins of a level are among the fields of an interval's reuse counts; ``sets``: how these count its accesses by
    sets. ``turn_sets``, (1,): sets of the first level whose turns are counted, in ``turn_bins`` with
    ``turn_middles``; ``middles``: of bins of reuse times. ``distances``, ``classes``: scratch space.
    """

    state: Longs
    ends: Longs
    lines: Doubles
    latencies: Doubles
    has_history: NDArray[np.bool_]
    fills: Doubles
    first_bins: Longs
    sets: SetCounts
    turn_sets: Longs
    turn_bins: Doubles
    turn_middles: Doubles
    middles: Doubles
    distances: Distances
    classes: Classes


@kernel
def add_wait(waits: Waits, end: int, reuse_times: Longs) -> float:
    """Add the next interval, up to ``end`` instructions, for which there is room; its waiting, in cycles per
    instruction. ``reuse_times``: (1, REUSE_FIELDS)."""
    n = waits.state[0]
    waits.state[0] = n + 1
    waits.ends[n + 1] = end
    instructions = end - waits.ends[n]
    fields, distances, total = reuse_times[0], waits.distances, 0.0
    for level in range(len(waits.lines)):
        lines, first = waits.lines[level], waits.first_bins[level]
        if level == 0 or first != waits.first_bins[level - 1]:
            find_distances(fields, first, instructions, distances)
            find_classes(fields, first, distances.edges, waits.classes)
        whole = misses_of(distances, lines)
        misses = whole
        if waits.sets.sets[level] > 1:
            misses = misses_of_sets(
                lines, waits.sets, level, fields, first, instructions, distances.edges, waits.classes
            )  # fmt: skip
        if level == 0 and waits.turn_sets[0] > 1:
            # Each finds conflicts that the other does not; with one line in a set, turns leave nothing to be estimated.
            by_turns = misses_by_turns(fields, lines / waits.turn_sets[0], waits.turn_bins)
            misses = by_turns if lines == waits.turn_sets[0] else max(misses, by_turns)
        if waits.has_history[level]:
            fills = waits.fills[level]
            add_evictions(waits.ends, reuse_times, first, n, lines, fills)
            conflicts = misses - whole
            if level == 0 and waits.turn_sets[0] > 1:
                density = distances.above[0] / max(instructions, 1)
                conflicts = random_misses(fields, TURN_FIELDS, waits.turn_middles, 1.0, lines / waits.turn_sets[0])
                conflicts -= random_misses(fields, first, waits.middles, density, lines)
            misses = fills[n + 1] - fills[n] + conflicts
        total += misses * waits.latencies[level]
    return max(total, 0.0) / max(instructions, 1)


@kernel
def add_waits(waits: Waits, ends: Longs, reuse_times: Longs, out: Doubles) -> None:
    """`add_wait` of the next intervals, n rows; their waiting ``out``, (n,)."""
    for row in range(len(ends)):
        out[row] = add_wait(waits, ends[row], reuse_times[row : row + 1])


@kernel
def add_evictions(
    ends: Longs, reuse_times: Longs, first_bin: int, first: int, lines: float, fills: Doubles
) -> None:  # fmt: skip
    """Misses of a cache of ``lines`` lines with random replacement: fills ``fills[first + 1 :]``.

    ``fills[k]``, (n + 1,): misses from the start to ``ends[k]``, (n + 1,). ``reuse_times``: counts of the
    intervals from ``first`` on, in bins from ``first_bin`` on, of which those of an octave are taken together.

    StatCache (Berg and Hagersten, ISPASS 2004): a line survives the evictions that follow an access with probability
    exp(-evictions / lines). Here the evictions before an interval are those of the intervals before it, and those
    inside are spread evenly; nothing is evicted before the cache is full.
    misses = sum(accesses * (1 - exp(...))) is convex in the misses: Newton's steps from above converge to the largest
    solution.
    """
    accesses = np.zeros(OCTAVES)
    before = np.zeros(OCTAVES)
    inside = np.zeros(OCTAVES)
    for row in range(reuse_times.shape[0]):
        done = first + row
        begin, length = ends[done], ends[done + 1] - ends[done]
        old = max(fills[done] - lines, 0.0)  # evictions
        is_full = fills[done] >= lines
        misses = 0.0
        at = done
        for octave in range(OCTAVES):
            accesses[octave] = 0.0
            for place in range(BINS_PER_OCTAVE):
                accesses[octave] += reuse_times[row, first_bin + octave * BINS_PER_OCTAVE + place]
            misses += accesses[octave]
            time = 1.5 * 2.0**octave  # its middle
            inside[octave] = min(time, 0.5 * length) / max(length, 1) / lines if is_full else 0.0
            moment = begin + 0.5 * length - time
            while at > 0 and ends[at] > moment:
                at -= 1
            was = fills[at]
            if at < done:
                was += (fills[at + 1] - was) * min(max(moment - ends[at], 0.0) / (ends[at + 1] - ends[at]), 1.0)
            before[octave] = (old - max(was - lines, 0.0)) / lines if moment < begin else 0.0
        never = accesses[OCTAVES - 1]
        for _ in range(50):
            difference, slope = misses - never, 1.0
            for octave in range(OCTAVES - 1):
                if accesses[octave] > 0.0:
                    stays = np.exp(-before[octave] - inside[octave] * misses)
                    difference -= accesses[octave] * (1.0 - stays)
                    slope -= accesses[octave] * inside[octave] * stays
            if slope <= 0.0 or difference < 1e-3 * misses:
                break
            misses -= difference / slope
        fills[done + 1] = fills[done] + max(misses, 0.0)
