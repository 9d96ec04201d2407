"""Figure 4: change of inner correlation over added instructions."""

from __future__ import annotations

from typing import Any

import pandas as pd

from experiments.measurement_perturbation.figures import Figure
from experiments.measurement_perturbation.panels import draw_changes, inner_points
from experiments.measurement_perturbation.results import Results
from measure.runs.campaign_file import load_campaign


def tabulate(figure: Figure, results: Results) -> pd.DataFrame:
    """See `inner_points`."""
    return pd.concat([inner_points(results, campaign, figure.pairs) for campaign in results.campaigns])


def draw(figure: Figure, table: pd.DataFrame) -> Any:
    """A row a program and pair, signed: the paper's absolute correlations hide a change of sign."""
    return draw_changes(table, load_campaign(figure.campaigns[0])[0].delta)
