"""Finds metrics whose records have running totals of events instead of the events of an interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FEWEST_RECORDS = 20
"""A column with at least this many records that never falls looks like a running total."""
_RARE, _WRAP = 0.1, 0.75
"""So does one in which at most this fraction of the steps fall, each by at least this fraction of its range."""
_MOST = 0.5
"""A metric looks so if this fraction of a group's traces do."""
_NOISE = -0.3
"""Steps between noisy records correlate with the next at -0.5: what one record has too much, the next step lacks."""


def running_totals(metrics: Sequence[str], groups: Sequence[Sequence[NDArray[np.float64]]]) -> tuple[str, ...]:
    """Sentences on metrics that look like running totals.

    ``groups``: of traces, a table ``(n_i, m)`` each. Each trace is judged by itself, since counters wrap in some traces
    only; a metric is told that looks so in half of the traces of some group, as events of one trace may rise by chance,
    or that never falls in any. Where records scatter about a trend, they are events.
    """
    sentences = []
    tables = [table for group in groups for table in group]
    for n, metric in enumerate(metrics):
        columns = [table[:, n] for table in tables]
        never_falls = all(map(_never_falls, columns))
        rising, wrapping = [_rises(column) for column in columns], [_wraps(column) for column in columns]
        suspect = np.array(rising) | np.array(wrapping) | never_falls
        group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        if max(suspect[group_of == group].mean() for group in range(len(groups))) < _MOST:
            continue
        if np.mean([_from_step_to_step(columns[k]) for k in np.flatnonzero(suspect)]) < _NOISE:
            continue
        if any(wrapping):
            what = f"rises from record to record but for rare, deep falls in {sum(wrapping)} of {len(columns)} traces"
            what += f", and never falls in {counted}" if (counted := sum(rising)) else ""
            remedy = "it is one of a counter that wraps or is reset"
            modulo = ", modulo 2^32 if the counter has 32 bits"
        else:
            what = f"never falls in {'any trace' if never_falls else f'{sum(rising)} of {len(columns)} traces'}"
            remedy, modulo = "it is a running total", ""
        sentences.append(
            f"{metric} {what}: if {remedy}, give events per interval instead, the differences of neighbouring "
            f"records{modulo}; how running totals relate says nothing of the events."
        )
    return tuple(sentences)


def _never_falls(column: NDArray[np.float64]) -> bool:
    """Whether no record of a long trace is below the one before, and the last is above the first."""
    return len(column) >= FEWEST_RECORDS and bool(column[-1] > column[0] and (np.diff(column) >= 0).all())


def _rises(column: NDArray[np.float64]) -> bool:
    """Whether no record of a long trace is below the one before, and most are above it.

    A rare event that one trace has in its last records only does not rise.
    """
    return _never_falls(column) and bool(np.median(np.diff(column)) > 0)


def _wraps(column: NDArray[np.float64]) -> bool:
    """Whether a trace rises from record to record but for rare falls, each through most of its range."""
    steps = np.diff(column)
    falls = steps < 0
    if len(column) < FEWEST_RECORDS or not 0 < falls.sum() <= _RARE * len(steps):
        return False
    deep = _WRAP * (column.max() - column.min())
    return bool(np.median(steps[~falls]) > 0 and (-steps[falls] >= deep).all())


def _from_step_to_step(column: NDArray[np.float64]) -> float:
    """Lag-one autocorrelation of the steps that do not fall; 0 where they do not vary."""
    steps = np.diff(column)
    steps = steps[steps >= 0]
    off = steps - steps.mean()
    square = float((off**2).sum())
    return float((off[1:] * off[:-1]).sum()) / square if square > 0 else 0.0
