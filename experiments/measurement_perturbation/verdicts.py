"""Verdict of every run, within it and across runs, over added instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from experiments.measurement_perturbation.figures import Figure
from experiments.measurement_perturbation.results import Results
from measure.perturbation.analysis_types import VERDICTS as GRAVITY
from measure.perturbation.verdict import overall_verdict
from measure.report.style import VERDICT_MARKERS, VERDICTS, new_figure

KINDS = {
    "inner": "within a run",
    "outer-joint": "across runs (joint)",
    "outer-held-out": "across runs (held out)",
}


def tabulate(figure: Figure, results: Results) -> pd.DataFrame:
    """One row a run and kind: the gravest verdict of its pairs, the worst pair, and how many pairs are perturbed."""
    rows = []
    for campaign in results.campaigns:
        verdicts = results.table("verdicts", campaign)
        points = results.points(campaign)
        for (group, kind), pairs in verdicts.groupby(["group", "kind"], sort=False):
            point = points[points["group"] == group].iloc[0]
            verdict = overall_verdict(pairs["verdict"].tolist())
            # Across runs only a loss of similarity counts.
            change = pairs["delta_z"].abs() if kind == "inner" else -pairs["delta_z"]
            worst = pairs.iloc[int(np.nanargmax(change))]
            rows.append(
                (campaign, point["order"], point["step"], point["added"], point["instructions_percent"], kind, verdict,
                 worst["a"], worst["b"], worst["baseline_rho"], worst["run_rho"], change.max(),
                 int((pairs["verdict"] == "perturbed").sum()), len(pairs))
            )  # fmt: skip
    columns = ["campaign", "order", "step", "added", "instructions_percent", "kind", "verdict", "a", "b",
               "baseline_rho", "run_rho", "change_z", "perturbed_pairs", "pairs"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns).sort_values(["campaign", "kind", "order", "step"], ignore_index=True)


def draw(figure: Figure, table: pd.DataFrame) -> Any:
    """A row a kind, a column a program; the largest change of any pair in z, with a mark and a colour by verdict."""
    campaigns = list(dict.fromkeys(table["campaign"]))
    shown = [verdict for verdict in GRAVITY if (table["verdict"] == verdict).any()]
    drawn, axes = new_figure(11.4, 7.4, len(KINDS), len(campaigns), squeeze=False, sharex="col", sharey="row")
    for column, campaign in enumerate(campaigns):
        for row, (kind, label) in enumerate(KINDS.items()):
            axis = axes[row, column]
            mine = table[(table["campaign"] == campaign) & (table["kind"] == kind)]
            for _, order in mine.groupby("order"):
                points = order.sort_values("instructions_percent")
                axis.plot(points["instructions_percent"], points["change_z"], color="#b9c2ca", lw=0.7, zorder=1)
            for verdict in shown:
                points = mine[mine["verdict"] == verdict]
                axis.scatter(
                    points["instructions_percent"], points["change_z"], s=15, color=VERDICTS[verdict],
                    marker=VERDICT_MARKERS[verdict], zorder=3, lw=0, label=verdict,
                )  # fmt: skip
            if column == 0:
                axis.set_ylabel(f"{label}\nlargest change of z")
            if row == 0:
                axis.set_title(campaign)
        axes[-1, column].set_xlabel("added instructions [%]")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=len(shown))
    return drawn
