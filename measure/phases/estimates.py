"""What simulation points say of the whole program, beside full simulation and beside cheaper habits.

Sherwood et al., "Discovering and exploiting program phases" (IEEE Micro 23(6), 2003), Figure 4: the points, the first
N intervals, and N after a stretch that is skipped, all of the same cost.

Intervals are cut out of the full simulation and so perfectly warm. Simulation points are looked at by the warm-up of
`measure.phases.warmed`, too: that is the error that their user sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from measure.cycleclose.metrics import ENERGY, RATES
from measure.phases.points import SimulationPoints, estimate, estimate_rate, first_n, skip_then_n

if TYPE_CHECKING:
    import pandas as pd

FULL, POINTS, FIRST, SKIP = "full simulation", "simulation points", "first N", "skip, then N"
_SKIPPED = 0.1  # of the intervals


def warmed_by(warm_up: str) -> str:
    """The name of simulation points with a warm-up."""
    return f"{POINTS}, {warm_up}"


def estimates(
    table: pd.DataFrame, points: SimulationPoints, warmed: Mapping[str, pd.DataFrame] | None = None
) -> dict[str, dict[str, dict[str, float]]]:
    """For each way (`FULL` first) and metric: ``value``, and ``error_percent`` of what full simulation gives.

    ``table``: all intervals, as `measure.cycleclose.metrics.table_of` has them; ``warmed``: the points alone, in their
    order, by warm-up. Every way but the full one costs as many intervals as there are ``points``. NaN where there is no
    value.
    """
    instructions = table["instructions"].to_numpy(dtype=np.float64)
    n, count = len(table), len(points.intervals)
    ways = {
        FULL: first_n(n, n, instructions),
        POINTS: points,
        FIRST: first_n(n, count, instructions),
        SKIP: skip_then_n(n, min(int(n * _SKIPPED), n - count), count, instructions),
    }
    told = {name: _metrics(table, some) for name, some in ways.items()}
    alone = replace(points, intervals=np.arange(count))
    told |= {warmed_by(name): _metrics(some, alone) for name, some in (warmed or {}).items()}
    truth = told[FULL]
    return {
        name: {
            metric: {
                "value": value,
                "error_percent": 100 * abs(value - truth[metric]) / abs(truth[metric])
                if truth[metric]
                else float("nan"),
            }
            for metric, value in values.items()
        }
        for name, values in told.items()
    }


def _metrics(table: pd.DataFrame, points: SimulationPoints) -> dict[str, float]:
    """Each metric that the table has, weighted by what it is a ratio of."""
    found = {}
    for name, (above, below, complement) in RATES.items():
        if table[name].notna().any():
            rate = estimate_rate(
                table[above.name.lower()], table[below.name.lower()], table["instructions"], points
            )
            found[name] = 1 - rate if complement else rate
    if ENERGY in table:
        found[ENERGY] = float(estimate(table[ENERGY], points))
    return found
