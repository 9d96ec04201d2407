"""What people do today against perturbation: rules that drop metrics by their calls, statements or overhead.

A rule gets what its own tool would know of a variant, and returns the metrics that it keeps.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

THROTTLE_CALLS = 100_000
THROTTLE_SECONDS = 10e-6
"""TAU's defaults: a function that was called more often, in less inclusive time a call, is not measured any more."""

Metrics = tuple[str, ...]


def throttled(events: Mapping[str, float], run_seconds: float, program_seconds: float) -> Metrics:
    """TAU's throttle. ``events``: of each metric in a run of ``run_seconds``; the rule is applied to a program that
    does the same for ``program_seconds``.

    A function's inclusive time a call is at most the whole time by its calls. Raises `ValueError` where this bound does
    not decide.
    """
    kept = []
    for metric, count in events.items():
        calls = count * program_seconds / run_seconds
        if calls <= THROTTLE_CALLS:
            kept.append(metric)
        elif program_seconds / calls >= THROTTLE_SECONDS:
            raise ValueError(f"{metric}: {calls:.0f} calls in {program_seconds} s need the time of each call")
    return tuple(kept)


def selected(statements: Mapping[str, int], functions: Mapping[str, str], threshold: float) -> Metrics:
    """PIRA's first selection: metrics of functions whose aggregated statements reach ``threshold``.

    ``statements``: as `aggregated_statements`; ``functions``: by metric. A function that ``main`` does not reach is not
    selected.
    """
    return tuple(metric for metric, name in functions.items() if statements.get(name, -1) >= threshold)


def thresholds(statements: Mapping[str, int]) -> dict[str, float]:
    """Thresholds that PIRA chooses itself: the median over functions, or over different numbers of statements."""
    return {
        "median": statistics.median_high(statements.values()),
        "unique median": statistics.median_high(set(statements.values())),
    }


def within_overhead(metrics: Sequence[str], overhead: Callable[[frozenset[str]], float], limit: float) -> Metrics:
    """Overhead alone: while the metrics cost ``limit`` or more, the one that costs most by itself is dropped.

    ``overhead``: of collecting a set of metrics, in the unit of ``limit``.
    """
    kept = list(metrics)
    while kept and overhead(frozenset(kept)) >= limit:
        kept.remove(max(kept, key=lambda one: overhead(frozenset({one}))))
    return tuple(kept)
