"""Says what of a trace is furthest off from the full simulation, and that many of its intervals have no sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from measure.cycle_close.rate_labels import RATE_LABELS
from measure.cycle_close.rates import FAR_OFF_PERCENT, FEW_ACCESSES, LEAST_PER_INSTRUCTION, RATES

MANY_UNSAMPLED = 0.1
"""Fraction of unsampled intervals from which on that is said."""
_LEAST_APART = 0.01
"""Of a hit rate, what says nothing: 0.002 instead of 0.001 is 100% off, too."""
_CYCLES_OF = ("stall_cycles", "frontend_stall_cycles")
"""Events that are a share of all cycles; `_LEAST_APART` of these says nothing either."""


def worst_metric(metrics: Mapping[str, Mapping[str, Any]]) -> tuple[str, float] | None:
    """The metric that is furthest off, and by how many percent in an interval on average, or in the whole run if that
    is more; None without any. ``metrics``: of summary.json. Rates of few accesses, and hit rates that are close to the
    true ones, count for nothing."""
    found = {}
    for name, one in metrics.items():
        accesses, each, whole = (
            one[key] for key in ("accesses_per_1000_instructions", "deviation_percent", "whole_run_percent")
        )
        if each is None or (accesses is not None and accesses < FEW_ACCESSES):
            continue
        is_share = name in RATES and RATES[name][2]
        matters = not is_share or one["absolute"] is None or one["absolute"] >= _LEAST_APART
        found[name] = max(each, whole or 0.0) if matters else 0.0
    return max(found.items(), key=lambda item: item[1], default=None)


def worst_event(events: Mapping[str, Mapping[str, float]]) -> tuple[str, float] | None:
    """The event that is furthest off in the whole run, and by how many percent; None without any. ``events``: of
    summary.json. Rare ones count for nothing, and stalls that are few of all cycles."""
    least = LEAST_PER_INSTRUCTION * events["instructions"]["full"]
    off = {
        name: one["off_percent"]
        for name, one in events.items()
        if one["full"] >= least and not (name in _CYCLES_OF and _is_small_part(one, events["cycles"]))
    }
    return max(off.items(), key=lambda item: abs(item[1]), default=None)


def _is_small_part(event: Mapping[str, float], cycles: Mapping[str, float]) -> bool:
    """Whether ``event`` is off by little of all ``cycles``."""
    return abs(event["off_percent"]) / 100 * event["full"] < _LEAST_APART * cycles["full"]


def is_far_off(validation: Mapping[str, Any]) -> bool:
    """Whether a metric or an event is far off. ``validation``: of summary.json."""
    worst = worst_metric(validation["metrics"]), worst_event(validation["events"])
    return any(one is not None and abs(one[1]) > FAR_OFF_PERCENT for one in worst)


def about_worst(validation: Mapping[str, Any]) -> str:
    """Sentences on the metric and the event that are furthest off; what is far off comes first."""
    metric, event = worst_metric(validation["metrics"]), worst_event(validation["events"])
    far, near = [], []
    if metric is not None:
        found = validation["metrics"][metric[0]]
        whole = found["whole_run_percent"]
        in_all = "" if whole is None else f", the whole run {_percent(whole)}"
        text = f"{RATE_LABELS[metric[0]]}, an interval {_percent(found['deviation_percent'])} on average{in_all}"
        far.append(text) if metric[1] > FAR_OFF_PERCENT else near.append(f"Furthest off of the metrics: {text}.")
    if event is not None:
        text = f"{event[0]}, {'+' if event[1] > 0 else ''}{_percent(event[1])} in the whole run"
        far.append(text) if abs(event[1]) > FAR_OFF_PERCENT else near.append(f"Furthest off of the events: {text}.")
    return " ".join([*([f"Far off: {'; '.join(far)}."] if far else []), *near])


def _percent(value: float) -> str:
    return f"{value:.{0 if abs(value) >= 10 else 1}f}%"


def about_unsampled(share: float) -> str:
    """A sentence on the ``share`` of unsampled intervals; "" where they are few."""
    if share <= MANY_UNSAMPLED:
        return ""
    return (
        f"{100 * share:.1f}% of the intervals are unsampled: their phase had no sample when they ran, so they have "
        "values of others, or none. --roll-back goes back and simulates one of each such phase."
    )
