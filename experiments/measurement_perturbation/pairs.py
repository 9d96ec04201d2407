"""In how many runs each pair of hardware metrics is perturbed, by program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from experiments.measurement_perturbation.figures import Figure
from experiments.measurement_perturbation.results import Results
from measure.report.style import INK, new_figure, short


def tabulate(figure: Figure, results: Results) -> pd.DataFrame:
    """One row a pair and program: runs perturbed, of how many, the lowest overhead, baseline and extreme rho."""
    rows = []
    for campaign in results.campaigns:
        verdicts = results.table("verdicts", campaign)
        verdicts = verdicts[verdicts["kind"] == "inner"].merge(
            results.points(campaign)[["group", "instructions_percent"]], on="group"
        )
        for (a, b), runs in verdicts.groupby(["a", "b"], sort=False):
            broken = runs[runs["verdict"] == "perturbed"]
            extreme = runs.iloc[int(np.nanargmax(runs["delta_z"].abs()))]
            rows.append(
                (campaign, a, b, len(broken), len(runs), broken["instructions_percent"].min(),
                 runs["baseline_rho"].iloc[0], runs["baseline_sd"].iloc[0], extreme["run_rho"], extreme["delta_z"])
            )  # fmt: skip
    columns = ["campaign", "a", "b", "perturbed_runs", "runs", "lowest_percent", "baseline_rho",
               "baseline_sd_z", "extreme_rho", "extreme_delta_z"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns).sort_values(
        ["campaign", "perturbed_runs", "a", "b"], ascending=[True, False, True, True], ignore_index=True
    )


def draw(figure: Figure, table: pd.DataFrame) -> Any:
    """A column a program, a row a pair, the pairs that break most often first."""
    share = table.assign(
        pair=[f"{short(a)} - {short(b)}" for a, b in zip(table["a"], table["b"], strict=True)],
        percent=100 * table["perturbed_runs"] / table["runs"],
    ).pivot_table(index="pair", columns="campaign", values="percent", sort=False)
    share = share[list(dict.fromkeys(table["campaign"]))]
    share = share.loc[share.mean(axis=1).sort_values(ascending=False).index]
    drawn, axis = new_figure(6.2, 0.24 * len(share) + 1.0)
    values = share.to_numpy()
    axis.imshow(values, aspect="auto", cmap="OrRd", vmin=0, vmax=100)
    for row, column in np.ndindex(values.shape):
        shade = "white" if values[row, column] > 60 else INK
        axis.text(
            column,
            row,
            f"{values[row, column]:.0f}%" if values[row, column] else "·",
            ha="center",
            va="center",
            fontsize=8,
            color=shade,
        )
    axis.set_xticks(range(len(share.columns)), share.columns)
    axis.set_yticks(range(len(share)), share.index, fontsize=8)
    axis.grid(visible=False)
    axis.set_title("share of instrumented runs in which the pair is perturbed")
    return drawn
