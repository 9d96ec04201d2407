"""Figure 3: inner correlation in each baseline."""

from __future__ import annotations

from typing import Any

import pandas as pd

from experiments.measurement_perturbation.figures import Figure
from experiments.measurement_perturbation.panels import LEAST
from experiments.measurement_perturbation.results import Results
from measure.report.style import LINES, MARKERS, new_figure
from measure.run_types import BASELINE


def tabulate(figure: Figure, results: Results) -> pd.DataFrame:
    """Absolute correlation by baseline and pair."""
    tables = []
    for campaign in results.campaigns:
        inner = results.table("inner", campaign)
        for pair in figure.pairs:
            mine = inner[inner["a"].isin(pair) & inner["b"].isin(pair) & (inner["group"] == BASELINE)]
            tables.append(
                pd.DataFrame(
                    {
                        "campaign": campaign, "trace": mine["replicate"] + 1, "series": " ".join(pair),
                        "rho": mine["rho"].abs(),
                    }
                )
            )  # fmt: skip
    return pd.concat(tables, ignore_index=True)


def draw(figure: Figure, table: pd.DataFrame) -> Any:
    """A curve a pair, as in the paper."""
    drawn, axis = new_figure(6.4, 3.2)
    for (series, mine), colour, marker in zip(table.groupby("series", sort=False), LINES, MARKERS, strict=False):
        label = str(series).replace("PAPI_", "").replace(" ", " - ")
        axis.plot(mine["trace"], mine["rho"], color=colour, marker=marker, ms=3.5, lw=1, label=label)
    axis.set_ylim(LEAST, 1.01)
    axis.set_xlabel("baseline trace")
    axis.set_ylabel("inner correlation, |rho|")
    drawn.legend(loc="outside lower center", ncols=4)
    return drawn
