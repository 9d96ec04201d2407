"""Progress that instrumentation does not change: the program's own instructions at each boundary of a trace.

A trace has all instructions, the counters' included. What the counters added over the whole run is known (the
baseline's total is), and how often they counted in each record is, too; so the addition is shared out
by the events counted. That assumes every event to cost alike, which holds for counters of one kind: each is the
same load, add and store. In signal mode the sampler's instructions stay
in, in the baseline as in the run. A run without events is scaled evenly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from measure.types import Run


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
    """Instructions of the program itself at the run's boundaries, ``(n + 1,)``; never decreasing."""
    boundaries = run.trace.boundaries_instructions.astype(np.float64)
    cost = instructions_per_event(run, baseline)
    if np.isnan(cost):
        return boundaries * (baseline.total_instructions / run.total_instructions)
    # No record can be all instrumentation and more: rounding of the shared-out cost must not turn time back.
    own = np.maximum(np.diff(boundaries) - cost * events_per_record(run), 0.0)
    return boundaries[0] + np.concatenate([[0.0], np.cumsum(own)])
