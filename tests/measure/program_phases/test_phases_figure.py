"""The picture of a program's phases says what its axes are, and shows all of its marks."""

from __future__ import annotations

import numpy as np
import pandas as pd

from measure.cycle_close.rates import ENERGY
from measure.program_phases.choose import Phases
from measure.program_phases.phases_figure import phases_figure
from measure.program_phases.points import SimulationPoints


def test_axes_have_units_and_no_mark_is_cut() -> None:
    n, k = 8, 4
    labels = np.arange(n, dtype=np.int32) % k
    found = Phases(labels, k, np.zeros((k, 1)), np.zeros(n), np.full(k, 1 / k), {k: 1.0})
    points = SimulationPoints(np.arange(k), np.arange(k), np.full(k, 1 / k))
    metrics = pd.DataFrame({"cpi": np.ones(n), "l2_hit_rate": np.ones(n), ENERGY: np.ones(n)})
    distances = np.ones((n, n)) - np.eye(n)
    figure = phases_figure(distances, found, points, np.full(n, 1_000_000), metrics, "made")
    figure.savefig("/dev/null", format="png")
    matrix, *panels = figure.axes[:5]
    assert matrix.get_xlabel() == matrix.get_ylabel() == panels[-1].get_xlabel() == "instructions [millions]"
    assert [panel.get_ylabel() for panel in panels] == [
        "CPI\n[cycles/instruction]", "energy\n[nJ/instruction]", "L2 hit rate", "phase"
    ]  # fmt: skip
    marks = next(one for one in panels[-1].collections if one.get_label() == "simulation point")
    assert not marks.get_clip_on()
    labels[:] = 0
    figure = phases_figure(distances, found, points, np.full(n, 1_000_000), None, "made")
    assert [one for one in figure.axes[1].get_yticks() if abs(one) < 0.6] == [0]
