"""Progress of a program that instrumentation does not change: its own instructions at each boundary of a trace.

Exact progress: if a run's reference events were counted (`measure.ground_truth`), the program's `EventCurve` maps the
number of reference events to the program's own instructions.

Estimated progress, for other runs: a trace has all instructions, including those of the counters. Their total in the
whole run is known from the baseline's total, and so are the events counted in each record; the total is therefore
divided among the records by their events. This assumes that every event costs the same, which holds for counters of
one kind: each is the same load, add and store. In signal mode the sampler's instructions are included, in the
baseline as in the run. A run without events is scaled evenly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measure.run_types import BEFORE, PROBE, Run

PROGRESS = "progress"
"""Name of the probe that counts a run's reference events."""

SWAPPED = 2
"""Neighbouring reference events that an optimiser may have reordered: a call without effects and a store, say."""
WIDE_OBSERVATIONS = 5
"""Where reference events leave more observations than this open, progress follows the run's own instructions."""


def events_per_record(run: Run) -> NDArray[np.int64]:
    """Events that all software counters of the run counted in each record, ``(n,)``."""
    names = [counter.metric for counter in run.spec.counters]
    columns = [run.trace.metrics.index(name) for name in names if name in run.trace.metrics]
    return np.asarray(run.trace.values[:, columns].sum(axis=1), np.int64)


def instructions_per_event(run: Run, baseline: Run) -> float:
    """Instructions that the counters add for each event; nan when none was counted."""
    events = int(events_per_record(run).sum())
    return (run.total_instructions - baseline.total_instructions) / events if events else float("nan")


def progress_boundaries(run: Run, baseline: Run) -> NDArray[np.float64]:
    """Instructions of the program itself at the run's boundaries, estimated, ``(n + 1,)``; never decreasing."""
    boundaries = run.trace.boundaries_instructions.astype(np.float64)
    cost = instructions_per_event(run, baseline)
    if np.isnan(cost):
        return boundaries * (baseline.total_instructions / run.total_instructions)
    # The divided cost of a record may exceed its instructions by rounding; progress must not decrease.
    own = np.maximum(np.diff(boundaries) - cost * events_per_record(run), 0.0)
    return boundaries[0] + np.concatenate([[0.0], np.cumsum(own)])


def reference_events_at_boundaries(run: Run) -> NDArray[np.int64] | None:
    """Reference events from the program's start to each boundary of the run, ``(n + 1,)``; None without their probe."""
    names = run.trace.metrics
    if f"{PROBE}{PROGRESS}" not in names or not run.trace.n_records:
        return None
    counts = run.trace.values[:, names.index(f"{PROBE}{PROGRESS}")]
    start = run.trace.values[0, names.index(f"{BEFORE}{PROGRESS}")]
    return np.asarray(start + np.concatenate([[0], np.cumsum(counts)]), np.int64)


def has_reference_events(*runs: Run) -> bool:
    """Whether the reference events of all ``runs`` were counted."""
    return all(reference_events_at_boundaries(run) is not None for run in runs)


@dataclass(frozen=True)
class EventCurve:
    """Instructions that a program has executed of its own, as a function of its reference events so far.

    ``events``, ``instructions``: ``(g,)``, running totals at the observations, from before the program's first
    instruction to its end; neither decreases.
    """

    events: NDArray[np.int64]
    instructions: NDArray[np.int64]

    def bracket(self, events: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper bound of the program's own instructions after ``events`` ``(n,)``; certain, not interpolated.

        `SWAPPED` events more or fewer are allowed for, since a compiler may reorder neighbouring events.
        """
        last = len(self.events) - 1
        low = np.clip(np.searchsorted(self.events, events - SWAPPED, "left") - 1, 0, last)
        high = np.clip(np.searchsorted(self.events, events + SWAPPED, "right"), 0, last)
        return self.instructions[low].astype(np.float64), self.instructions[high].astype(np.float64)

    def boundaries(self, run: Run) -> NDArray[np.float64]:
        """Instructions of the program itself at the run's boundaries, ``(n + 1,)``; never decreasing.

        Raises ValueError for a run without the probe.
        """
        events = reference_events_at_boundaries(run)
        if events is None:
            raise ValueError(f"{run.spec.variant}/{run.spec.replicate} has no probe '{PROGRESS}'")
        return self.positions(events, run.trace.boundaries_instructions)

    def positions(self, events: NDArray[np.int64], instructions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Instructions of the program itself at moments of a run of any build, ``(n,)``; never decreasing.

        ``events``, ``instructions``: the run's reference events and all its instructions until then, ``(n,)``. Between
        two observations, reference events are taken to be evenly spaced. Where hardly any happens for several
        observations, progress follows the run's own instructions, within the certain bounds.
        """
        before = np.clip(np.searchsorted(self.events, events, "right") - 1, 0, len(self.events) - 1)
        after = np.minimum(before + 1, len(self.events) - 1)
        share = (events - self.events[before]) / np.maximum(self.events[after] - self.events[before], 1)
        own = self.instructions[before] + share * (self.instructions[after] - self.instructions[before])
        low, high = self.bracket(events)
        ran = np.diff(instructions)
        for at in np.flatnonzero(high - low > WIDE_OBSERVATIONS * np.median(np.diff(self.instructions))):
            paced = own[at - 1] + ran[at - 1] if at else own[at]
            own[at] = min(max(paced, low[at]), high[at])
        return np.maximum.accumulate(own)
