"""Simulation points: the intervals that represent the phases, their weights, and estimates from them.

Sherwood et al., "Automatically characterizing large scale program behavior" (ASPLOS 2002), section 5. The caller
simulates the intervals and supplies their counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from measure.program_phases.choose import Phases


@dataclass(frozen=True)
class SimulationPoints:
    """Intervals to simulate. ``intervals`` (p,): from 0; ``phases`` (p,): the phase of each; ``weights`` (p,):
    fraction of the run's instructions, summing to 1."""

    intervals: NDArray[np.int64]
    phases: NDArray[np.int64]
    weights: NDArray[np.float64]


def simulation_points(phases: Phases, coverage: float = 1.0) -> SimulationPoints:
    """The interval nearest to each phase's centre, the lowest on ties, with the phase's weight.

    ``coverage``: use the largest phases that make up this fraction of the run, of equal ones the last, like SimPoint
    3.2. Phases without an interval are left out, and weights sum to 1 again. Raises `ValueError` for a coverage
    outside (0, 1].
    """
    if not 0 < coverage <= 1:
        raise ValueError(f"got a coverage of {coverage}, expected more than 0 and at most 1")
    present = np.flatnonzero(np.bincount(phases.labels))  # np.unique would load masked arrays, for 10 ms
    present = present[phases.weights[present] > 0]
    largest = present[np.lexsort((present, phases.weights[present]))[::-1]]
    if coverage < 1:
        before = np.cumsum(phases.weights[largest]) - phases.weights[largest]
        largest = largest[before < coverage]
    kept = np.sort(largest).astype(np.int64)
    intervals = [
        int(members[phases.distances[members].argmin()])
        for members in (np.flatnonzero(phases.labels == phase) for phase in kept)
    ]
    weights = phases.weights[kept]
    return SimulationPoints(np.array(intervals, np.int64), kept, weights / weights.sum())


def estimate(values: ArrayLike, points: SimulationPoints) -> NDArray[np.float64] | float:
    """The run's mean of ``values`` (n,) or (n, metrics), as the weighted mean over the points.

    Correct for counts of intervals of one length and for values *per instruction* (CPI, misses per instruction); for
    any other ratio, IPC or a miss rate, use `estimate_rate`.
    """
    table = np.asarray(values, dtype=np.float64)
    return points.weights @ table[points.intervals]


def estimate_rate(
    numerators: ArrayLike, denominators: ArrayLike, instructions: ArrayLike, points: SimulationPoints
) -> float:
    """The run's ``sum(numerators) / sum(denominators)``, from the points alone; all are counts (n,) by interval.

    Both are divided by the instructions before they are weighted, so that IPC is weighted by time and a miss rate by
    accesses. NaN if the denominator is 0 in all points.
    """
    length = np.asarray(instructions, dtype=np.float64)[points.intervals]
    above = points.weights @ (np.asarray(numerators, dtype=np.float64)[points.intervals] / length)
    below = points.weights @ (np.asarray(denominators, dtype=np.float64)[points.intervals] / length)
    return float(above / below) if below else float("nan")


def first_n(n_intervals: int, count: int, instructions: ArrayLike | None = None) -> SimulationPoints:
    """The first ``count`` intervals: the method that needs no knowledge of the program."""
    return skip_then_n(n_intervals, 0, count, instructions)


def skip_then_n(n_intervals: int, skip: int, count: int, instructions: ArrayLike | None = None) -> SimulationPoints:
    """``count`` intervals after ``skip`` others, weighted by ``instructions`` (n,), or equally without.

    Raises `ValueError` if the run has too few intervals.
    """
    if skip < 0 or count < 1 or skip + count > n_intervals:
        raise ValueError(f"got {count} intervals after {skip}, expected at least 1 and all of them among {n_intervals}")
    intervals = np.arange(skip, skip + count)
    mass = np.ones(count) if instructions is None else np.asarray(instructions, np.float64)[intervals]
    return SimulationPoints(intervals, np.zeros(count, np.int64), mass / mass.sum())
