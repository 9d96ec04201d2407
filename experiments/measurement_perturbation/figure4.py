"""Figure 4: inner correlation over added instructions."""

from __future__ import annotations

from typing import Any

import pandas as pd

from experiments.measurement_perturbation.figures import Figure
from experiments.measurement_perturbation.panels import draw_points, inner_points
from experiments.measurement_perturbation.results import Results


def tabulate(figure: Figure, results: Results) -> pd.DataFrame:
    """See `inner_points`."""
    return pd.concat([inner_points(results, campaign, figure.pairs) for campaign in results.campaigns])


def draw(figure: Figure, table: pd.DataFrame) -> Any:
    """A row a program."""
    several = table["campaign"].nunique() > 1
    rows = [
        (f"{campaign}: |rho|" if several else "inner correlation, |rho|", mine)
        for campaign, mine in table.groupby("campaign", sort=False)
    ]
    return draw_points(table, rows)
