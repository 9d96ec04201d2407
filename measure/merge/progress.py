"""Progress that instrumentation does not change: the program's own instructions at each boundary of a trace.

Exactly: a run whose anchors were counted (`measure.ground_truth`) is read by the `EventCurve` of the program: after so
many events it has executed so many instructions of its own.

Estimated, for runs without: a trace has all instructions, the counters' included. What the counters added over the
whole run is known (the baseline's total is), and how often they counted in each record is, too; so the addition is
shared out by the events counted. That assumes every event to cost alike, which holds for counters of one kind: each is
the same load, add and store. In signal mode the sampler's instructions stay in, in the baseline as in the run. A run
without events is scaled evenly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from measure.types import BEFORE, PROBE, Run

PROGRESS = "progress"
"""Name of the probe that counts a run's anchors."""

SWAPPED = 2
"""Neighbouring anchors that an optimiser may have put in another order: a call without effects and a store, say."""
WIDE_LOOKS = 5
"""Where anchors leave more looks than this open, the run's own pace decides within them."""


def events_per_record(run: Run) -> NDArray[np.int64]:
    """Events that all software counters of the run counted in each record, ``(n,)``."""
    names = [name for name, _, _ in run.spec.counters]
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
    # No record can be all instrumentation and more: rounding of the shared-out cost must not turn time back.
    own = np.maximum(np.diff(boundaries) - cost * events_per_record(run), 0.0)
    return boundaries[0] + np.concatenate([[0.0], np.cumsum(own)])


def anchors_at_boundaries(run: Run) -> NDArray[np.int64] | None:
    """Anchors since the program began at the run's boundaries, ``(n + 1,)``; None for a run without that probe."""
    names = run.trace.metrics
    if f"{PROBE}{PROGRESS}" not in names or not run.trace.n_records:
        return None
    counts = run.trace.values[:, names.index(f"{PROBE}{PROGRESS}")]
    start = run.trace.values[0, names.index(f"{BEFORE}{PROGRESS}")]
    return np.asarray(start + np.concatenate([[0], np.cumsum(counts)]), np.int64)


@dataclass(frozen=True)
class EventCurve:
    """How many instructions of its own a program has executed after how many anchors.

    ``events``, ``instructions``: ``(g,)``, running totals at the moments looked at, from before the program's first
    instruction to its end; neither decreases.
    """

    events: NDArray[np.int64]
    instructions: NDArray[np.int64]

    def bracket(self, events: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Instructions between which the program was after ``events`` ``(n,)``: certain, whatever lies between.

        `SWAPPED` events more or fewer are allowed for: a compiler may put neighbours in another order.
        """
        last = len(self.events) - 1
        low = np.clip(np.searchsorted(self.events, events - SWAPPED, "left") - 1, 0, last)
        high = np.clip(np.searchsorted(self.events, events + SWAPPED, "right"), 0, last)
        return self.instructions[low].astype(np.float64), self.instructions[high].astype(np.float64)

    def boundaries(self, run: Run) -> NDArray[np.float64]:
        """Instructions of the program itself at the run's boundaries, ``(n + 1,)``; never decreasing.

        Raises ValueError for a run without the probe.
        """
        events = anchors_at_boundaries(run)
        if events is None:
            raise ValueError(f"{run.spec.group}/{run.spec.replicate} has no probe '{PROGRESS}'")
        return self.positions(events, run.trace.boundaries_instructions)

    def positions(self, events: NDArray[np.int64], instructions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Instructions of the program itself at moments of a run of any build, ``(n,)``; never decreasing.

        ``events``, ``instructions``: the run's anchors and all its instructions until then, ``(n,)``. Between two
        looks, anchors are taken to be evenly spaced. While hardly any happens for several looks, the program goes on
        by the run's own instructions, within what is certain.
        """
        before = np.clip(np.searchsorted(self.events, events, "right") - 1, 0, len(self.events) - 1)
        after = np.minimum(before + 1, len(self.events) - 1)
        share = (events - self.events[before]) / np.maximum(self.events[after] - self.events[before], 1)
        found = self.instructions[before] + share * (self.instructions[after] - self.instructions[before])
        low, high = self.bracket(events)
        ran = np.diff(instructions)
        for at in np.flatnonzero(high - low > WIDE_LOOKS * np.median(np.diff(self.instructions))):
            paced = found[at - 1] + ran[at - 1] if at else found[at]
            found[at] = min(max(paced, low[at]), high[at])
        return np.maximum.accumulate(found)
