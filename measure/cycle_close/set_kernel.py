"""Kernels that compute the misses of cache sets, from counts of accesses by set and from turns of sets.

Both find conflicts: lines that drive each other out though the cache has room. Counts by set know how full each set is
over an interval, but not when; turns know when, but take all sets to be equally full.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.engine.reuse_counts import (
    CLASS_SHIFT,
    EXACT_TURNS,
    LINE_SETS,
    TIME_CLASSES,
    TURN_BINS,
    TURN_FIELDS,
    bin_edges,
)
from emulator.kernels.jit import inline_kernel

Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]

_CLASS_BINS = 1 << CLASS_SHIFT


class Classes(NamedTuple):
    """An interval's accesses by class of reuse time. ``inside``, (TIME_CLASSES,): their number; ``spread``, the
    integral over the class's time of those with longer times in it; ``widths`` [instructions]. ``in_sets``,
    (TIME_CLASSES, LINE_SETS): of ``inside`` those of each set, in as many columns as a level has sets."""

    inside: Doubles
    spread: Doubles
    widths: Doubles
    in_sets: Doubles


def room_for_classes() -> Classes:
    """Classes to be found."""
    widths = np.diff(bin_edges()[::_CLASS_BINS])
    return Classes(np.zeros(TIME_CLASSES), np.zeros(TIME_CLASSES), widths, np.zeros((TIME_CLASSES, LINE_SETS)))


@inline_kernel
def find_classes(fields: Longs, first: int, edges: Doubles, out: Classes) -> None:
    """Find the classes of the accesses that ``fields``, from ``first`` on, count by bins; not yet ``out.in_sets``."""
    for class_ in range(TIME_CLASSES):
        later, spread = 0.0, 0.0
        for back in range(1, _CLASS_BINS + 1):
            bin_ = (class_ + 1) * _CLASS_BINS - back
            inside = fields[first + bin_]
            spread += (edges[bin_ + 1] - edges[bin_]) * (later + 0.5 * inside)
            later += inside
        out.inside[class_], out.spread[class_] = later, spread


class SetCounts(NamedTuple):
    """How the accesses of each of n levels are counted by sets, each (n,).

    Of each class, ``counted`` fields, from ``first`` on, are of the lowest values of a line's number. This number
    without its lowest ``shift`` bits, modulo ``sets``, a power of two, is the level's set.
    """

    sets: Longs
    shift: Longs
    first: Longs
    counted: Longs


@inline_kernel
def misses_of_sets(
    lines: float, counts: SetCounts, level: int, fields: Longs, first: int, instructions: int, edges: Doubles,
    classes: Classes,
) -> float:  # fmt: skip
    """Misses of an LRU cache of ``lines`` lines in the sets of ``counts`` at ``level``.

    ``fields`` of an interval of ``instructions``: from ``first`` on, its accesses by reuse time, in bins with
    ``edges``, of which `find_classes` has found ``classes``. Inside of a class, the times of a set are spread as those
    of all. Distances in a set follow as in `find_distances`, from its own accesses: a loop over as many lines as it
    holds has one less between, a loop over one more misses. The limit is in the middle, as times are known by bins.
    """
    sets, shift, counted = counts.sets[level], counts.shift[level], counts.counted[level]
    in_sets = classes.in_sets
    for class_ in range(TIME_CLASSES):
        for one in range(sets):
            in_sets[class_, one] = 0.0
        if classes.inside[class_] > 0.0:
            of_class = counts.first[level] + class_ * counted
            for place in range(counted):
                in_sets[class_, (place >> shift) & (sets - 1)] += fields[of_class + place]
    misses = 0.0
    for one in range(sets):
        misses += _misses_of_set(lines / sets + 0.5, one, fields, first, instructions, edges, classes)
    return misses


@inline_kernel
def _misses_of_set(
    limit: float, one: int, fields: Longs, first: int, instructions: int, edges: Doubles, classes: Classes
) -> float:  # fmt: skip
    """Accesses of the set ``one`` with at least ``limit`` lines since the last to their line, itself included."""
    per_instruction = 1.0 / max(instructions, 1)
    left = 0.0
    for class_ in range(TIME_CLASSES):
        left += classes.in_sets[class_, one]
    between = left * per_instruction
    for class_ in range(TIME_CLASSES):
        own = classes.in_sets[class_, one]
        share = own / classes.inside[class_] if own > 0.0 else 0.0
        after = between + per_instruction * (classes.widths[class_] * (left - own) + share * classes.spread[class_])
        if after < limit:
            between = after
            left -= own
            continue
        for bin_ in range(class_ * _CLASS_BINS, (class_ + 1) * _CLASS_BINS):
            inside = share * fields[first + bin_]
            after = between + per_instruction * (edges[bin_ + 1] - edges[bin_]) * (left - 0.5 * inside)
            if after >= limit:
                return left - inside * (limit - between) / (after - between)
            between = after
            left -= inside
    return 0.0


@inline_kernel
def misses_by_turns(fields: Longs, ways: float, bins: Doubles) -> float:
    """Misses of the sets of an LRU cache, of ``ways`` lines each, whose turns are counted.

    ``fields`` count the accesses that are turns by how many turns ago their line was accessed, in bins that begin at
    ``bins``. So many different lines lie between as the turns between whose line does not come back before the access
    (as in `find_distances`): in a loop, one fewer than turns. All sets are taken to be alike in that, but not in how
    often they are accessed, nor when.
    """
    left = 0.0
    for bin_ in range(1, TURN_BINS):  # bin 0 is of accesses that are no turns
        left += fields[TURN_FIELDS + bin_]
    limit, between = ways - 0.5, 0.0
    per_turn = 1.0 / max(left, 1.0)
    for bin_ in range(1, TURN_BINS):
        inside = fields[TURN_FIELDS + bin_]
        if bin_ < EXACT_TURNS:
            if between >= limit:
                return left
            left -= inside
            between += per_turn * left
        else:
            left -= inside
            after = between + per_turn * (bins[bin_ + 1] - bins[bin_]) * (left + 0.5 * inside)
            if after >= limit:
                return left + inside * (after - max(limit, between)) / (after - between)
            between = after
    return 0.0


@inline_kernel
def random_misses(fields: Longs, first: int, middles: Doubles, accesses_each: float, lines: float) -> float:
    """Misses of a cache or set of ``lines`` lines that replaces a random one.

    ``fields``, from ``first`` on, count accesses by the time since the last to their line, in bins with ``middles``, of
    which one of 0 does not count; there are ``accesses_each`` in a unit of time. As in StatCache (Berg and Hagersten,
    ISPASS 2004), a line survives a miss with probability 1 - 1 / lines, and misses are spread evenly. Their rate is the
    largest that follows from itself, found from above.
    """
    accesses = 0.0
    for bin_ in range(len(middles)):
        if middles[bin_] > 0.0:
            accesses += fields[first + bin_]
    survives = np.log(max(1.0 - 1.0 / lines, 1e-9)) * accesses_each
    rate, change = 1.0, 1.0
    while change > 1e-3:
        misses = 0.0
        for bin_ in range(len(middles)):
            inside = fields[first + bin_]
            if inside:
                misses += inside * (1.0 - np.exp(survives * rate * middles[bin_]))
        found = misses / max(accesses, 1.0)
        change = rate - found
        rate = found
    return rate * accesses
