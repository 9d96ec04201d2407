"""Figure 7: outer correlation of each metric with itself in the first baseline, over added instructions."""

from __future__ import annotations

from typing import Any

import pandas as pd

from experiments.measurement_perturbation.figures import Figure
from experiments.measurement_perturbation.panels import draw_points, outer_points
from experiments.measurement_perturbation.results import Results

KINDS = {"outer-joint": "aligned on all metrics", "outer-held-out": "aligned on the others"}


def tabulate(figure: Figure, results: Results) -> pd.DataFrame:
    """See `outer_points`."""
    return pd.concat([outer_points(results, campaign, figure.metrics) for campaign in results.campaigns])


def draw(figure: Figure, table: pd.DataFrame) -> Any:
    """Above, aligned on all metrics, as in the paper; below, each metric aligned on the others."""
    return draw_points(
        table,
        [(f"outer correlation\n{label}", table[table["kind"] == kind]) for kind, label in KINDS.items()],
    )
