"""As `mechanisms`, across runs: the change of every metric's correlation with itself, aligned on all metrics."""

from __future__ import annotations

from typing import Any

import pandas as pd

from experiments.measurement_perturbation.figures import Figure
from experiments.measurement_perturbation.mechanisms import draw_changes, tabulate

__all__ = ["draw", "tabulate"]


def draw(figure: Figure, table: pd.DataFrame) -> Any:
    """See `draw_changes`."""
    return draw_changes(figure, table[table["kind"] == "outer-joint"], "change of z of each metric across runs")
