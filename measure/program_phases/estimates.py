"""Estimates the whole program from simulation points, and compares the estimate with full simulation and with two
simpler methods of the same cost.

Sherwood et al., "Discovering and exploiting program phases" (IEEE Micro 23(6), 2003), Figure 4: the points, the first
N intervals, and N after a skipped part, all of the same cost.

Intervals are cut out of the full simulation, and so perfectly warm. Simulation points are also estimated by each
warm-up of `measure.program_phases.warmed`, which gives the error to expect in practice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from measure.cycle_close.rates import ENERGY, RATES
from measure.program_phases.points import SimulationPoints, estimate, estimate_rate, first_n, skip_then_n

if TYPE_CHECKING:
    import pandas as pd

Estimates = dict[str, dict[str, dict[str, float]]]
"""By method and metric: ``value`` and ``error_percent``."""

FULL, POINTS, FIRST, SKIP = "full simulation", "simulation points", "first N", "skip, then N"
_SKIPPED = 0.1  # fraction of the intervals


def warmed_by(warm_up: str) -> str:
    """The name of the estimate by simulation points with a warm-up."""
    return f"{POINTS}, {warm_up}"


def estimates(
    table: pd.DataFrame, points: SimulationPoints, warmed: Mapping[str, pd.DataFrame] | None = None
) -> Estimates:
    """For each method (`FULL` first) and metric: ``value``, and ``error_percent`` relative to full simulation.

    ``table``: all intervals, as from `measure.cycle_close.rates.table_of`; ``warmed``: for each warm-up, by name, a
    table of the points' intervals only, in the order of ``points``. Every method but the full one costs as many
    intervals as there are ``points``. NaN where a metric has no value.
    """
    instructions = table["instructions"].to_numpy(dtype=np.float64)
    n, count = len(table), len(points.intervals)
    methods = {
        FULL: first_n(n, n, instructions),
        POINTS: points,
        FIRST: first_n(n, count, instructions),
        SKIP: skip_then_n(n, min(int(n * _SKIPPED), n - count), count, instructions),
    }
    values_by_method = {name: _metrics(table, some) for name, some in methods.items()}
    alone = replace(points, intervals=np.arange(count))
    values_by_method |= {warmed_by(name): _metrics(some, alone) for name, some in (warmed or {}).items()}
    truth = values_by_method[FULL]
    return {
        name: {
            metric: {"value": value, "error_percent": 100 * abs(value - true) / abs(true) if true else float("nan")}
            for metric, true in truth.items()
            for value in [values.get(metric, float("nan"))]  # intervals without an access have no rate of it
        }
        for name, values in values_by_method.items()
    }


def _metrics(table: pd.DataFrame, points: SimulationPoints) -> dict[str, float]:
    """Each metric of the table, weighted by the denominator of its ratio."""
    found = {}
    for name, (above, below, complement) in RATES.items():
        if table[name].notna().any():
            rate = estimate_rate(table[above.name.lower()], table[below.name.lower()], table["instructions"], points)
            found[name] = 1 - rate if complement else rate
    if ENERGY in table:
        found[ENERGY] = float(estimate(table[ENERGY], points))
    return found
