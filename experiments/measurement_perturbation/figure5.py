"""Figure 5: the signals of the pair that changed most from one run to the next, and of the metric added between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from experiments.measurement_perturbation.figures import Figure
from experiments.measurement_perturbation.panels import binned
from experiments.measurement_perturbation.results import Results
from measure.report.style import BASELINE as GREY
from measure.report.style import LINES, new_figure

BINS = 400
COLUMNS = (
    "campaign",
    "order",
    "step",
    "run",
    "role",
    "metric",
    "rho",
    "instructions_percent",
    "bin",
    "value",
)


def tabulate(figure: Figure, results: Results) -> pd.DataFrame:
    """The largest change of z of any of the figure's pairs between a run and the next of its order.

    Signals are means of 400 stretches of a trace.
    """
    (campaign,) = results.campaigns
    a, b, before, after = largest_step(figure, results, campaign)
    rows = []
    for run, point in (("good", before), ("perturbed", after)):
        trace = results.trace(campaign, point["key"])
        shown = {"first": a, "second": b}
        if run == "perturbed":
            shown["added"] = str(after["added"]).split(" ", 1)[0]
        for role, metric in shown.items():
            signal = binned(trace[metric].to_numpy(), BINS)
            about = (campaign, point["order"], point["step"], run, role, metric, point["rho"])
            rows += [(*about, point["instructions_percent"], place, value) for place, value in enumerate(signal)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def largest_step(figure: Figure, results: Results, campaign: str) -> tuple[str, str, pd.Series, pd.Series]:
    """Pair of metrics, run before and run after, each a row of the points with ``rho``."""
    inner = results.table("inner", campaign)
    best: tuple[float, Any] = (-1.0, None)
    for a, b in figure.pairs:
        mine = inner[inner["a"].isin((a, b)) & inner["b"].isin((a, b))]
        points = results.points(campaign).merge(mine[["group", "replicate", "rho"]], on=["group", "replicate"])
        for _, run in points.groupby("order"):
            change = np.abs(np.diff(np.arctanh(run["rho"].clip(-0.99, 0.99))))
            at = int(np.argmax(change))
            if change[at] > best[0]:
                best = (float(change[at]), (a, b, run.iloc[at], run.iloc[at + 1]))
    found: tuple[str, str, pd.Series, pd.Series] = best[1]
    return found


def draw(figure: Figure, table: pd.DataFrame) -> Any:
    """As in the paper: rows L1, L2 and S, columns good and perturbed."""
    drawn, axes = new_figure(8.6, 4.6, 3, 2, squeeze=False, sharex="col", sharey="row")
    roles = ("first", "second", "added")
    for row, role in enumerate(roles):  # the start and the end of a program would hide what lies between
        low, high = table[table["role"] == role]["value"].quantile([0.02, 0.98])
        axes[row, 0].set_ylim(low - 0.25 * (high - low), high + 0.25 * (high - low))
    for column, run in enumerate(("good", "perturbed")):
        mine = table[table["run"] == run]
        for axis, role, colour in zip(axes[:, column], roles, (LINES[0], LINES[2], LINES[1]), strict=True):
            signal = mine[mine["role"] == role]
            axis.grid(visible=False)
            if signal.empty:
                axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, ha="center", color=GREY)
                continue
            axis.plot(signal["bin"] / max(1, len(signal) - 1), signal["value"], color=colour, lw=0.7)
            if column == 0 or role == "added":
                axes[roles.index(role), 0].set_ylabel(signal["metric"].iloc[0].removeprefix("PAPI_"))
        point = mine.iloc[0]
        axes[0, column].set_title(
            f"{run}: {point['step']} metrics, +{point['instructions_percent']:.2f}%, rho {point['rho']:.2f}"
        )
        axes[-1, column].set_xlabel("share of the run")
    return drawn
