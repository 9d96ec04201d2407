"""What the perturbation by given sets of metrics becomes when mechanisms are switched, one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from experiments.measurement_perturbation.figures import Figure
from experiments.measurement_perturbation.results import Results
from measure.perturbation.analysis_types import DEFAULT_DELTA
from measure.report.style import VERDICT_MARKERS, VERDICTS, new_figure, short


def tabulate(figure: Figure, results: Results) -> pd.DataFrame:
    """One row a program, setting, set of metrics, and pair of hardware metrics (or metric, across runs)."""
    tables = []
    for campaign in results.campaigns:
        for setting in figure.settings:
            runs = results.table("runs", campaign, setting)
            percent = runs.groupby("group")["instructions_percent"].mean()
            verdicts = results.table("verdicts", campaign, setting)
            tables.append(
                verdicts.assign(campaign=campaign, setting=setting, instructions_percent=verdicts["group"].map(percent))
            )
    columns = ["campaign", "setting", "group", "instructions_percent", "kind", "a", "b", "baseline_rho", "baseline_sd",
               "run_rho", "delta_z", "low", "high", "p_adjusted", "verdict"]  # fmt: skip
    return pd.concat(tables, ignore_index=True)[columns]


def draw(figure: Figure, table: pd.DataFrame) -> Any:
    """The change of every pair within a run; see `draw_changes`."""
    return draw_changes(figure, table[table["kind"] == "inner"], "change of z of each pair within a run")


def draw_changes(figure: Figure, table: pd.DataFrame, label: str) -> Any:
    """A line a setting, a column a program and set of metrics; the pair that changed most is named."""
    places = list(dict.fromkeys(zip(table["campaign"], table["group"], strict=True)))
    settings = list(figure.settings)
    drawn, axes = new_figure(
        max(6.4, 1.9 + 3.4 * len(places)),
        0.42 * len(settings) + 1.3,
        1,
        len(places),
        squeeze=False,
        sharey=True,
        sharex=True,
    )
    for axis, (campaign, group) in zip(axes[0], places, strict=True):
        mine = table[(table["campaign"] == campaign) & (table["group"] == group)]
        axis.axvspan(-DEFAULT_DELTA, DEFAULT_DELTA, color="#eef1f4", lw=0)
        for row, setting in enumerate(settings):
            _draw_setting(axis, row, mine[mine["setting"] == setting])
        added = mine[mine["setting"] == settings[0]]["instructions_percent"].iloc[0]
        axis.set_title(f"{campaign}, {group}: +{added:.2f}%")
        axis.set_xlabel(label)
        axis.margins(x=0.14)
    axes[0, 0].set_yticks(range(len(settings)), settings)
    axes[0, 0].set_ylim(len(settings) - 0.6, -0.7)
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color="none", marker=VERDICT_MARKERS[verdict], markerfacecolor=colour, markeredgewidth=0,
               label=verdict)
        for verdict, colour in VERDICTS.items()
        if (table["verdict"] == verdict).any()
    ]  # fmt: skip
    drawn.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return drawn


def _draw_setting(axis: Any, row: int, pairs: pd.DataFrame) -> None:
    for verdict, colour in VERDICTS.items():
        some = pairs[pairs["verdict"] == verdict]
        axis.scatter(
            some["delta_z"], [row] * len(some), s=16, color=colour, marker=VERDICT_MARKERS[verdict], lw=0, alpha=0.8,
            zorder=3,
        )  # fmt: skip
    worst = pairs.iloc[int(np.nanargmax(pairs["delta_z"].abs()))]
    name = " - ".join(dict.fromkeys((short(worst["a"]), short(worst["b"]))))
    axis.annotate(
        name, (worst["delta_z"], row), (0, 5), textcoords="offset points", ha="center", fontsize=6.5, zorder=4
    )
