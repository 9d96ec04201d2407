"""Figure 5: deviation of the intervals that had a sample and of those that had none, by threshold and policy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from experiments.reproduction import Reproduction
from experiments.results import Results
from experiments.runner import run_figure
from measure.cycle_close.rates import ENERGY, pointwise_deviation
from measure.report.style import VARIANTS, new_figure

METRICS = {"cpi": "CPI", ENERGY: "energy", "l1d_hit_rate": "data cache hit rate"}


def tabulate(campaign: Reproduction, results: Results) -> pd.DataFrame:
    """What either kind of interval contributes to the average deviation, the mean over the programs [%].

    Without an approximation an unsampled interval's value is nothing, its deviation 100%.
    """
    (length,) = campaign.interval_instructions
    rows = []
    for threshold in campaign.thresholds:
        for configuration in campaign.configurations:
            for program in campaign.programs:
                full = results.full(program, length)
                trace = results.trace(program, length, threshold, configuration)
                lost = (trace["category"] == "unsampled").to_numpy()
                for metric in METRICS:
                    actual, guess = full[metric].to_numpy(), trace[metric].fillna(0.0).to_numpy()
                    parts = [
                        pointwise_deviation(actual[which], guess[which]) * which.mean() if which.any() else 0.0
                        for which in (~lost, lost)
                    ]
                    rows.append((threshold, configuration, metric, program, *parts, 100 * lost.mean()))
    columns = [
        "threshold", "unsampled_get", "metric", "program", "sampled_part_percent", "unsampled_part_percent",
        "unsampled_intervals_percent",
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=columns)
    means = table.groupby(columns[:3], sort=False)[columns[4:]].mean().reset_index()
    return pd.concat([table, means.assign(program="mean")])[columns]


def draw(campaign: Reproduction, table: pd.DataFrame) -> Any:
    """A panel a metric; bars as in the paper: none, last, closest, for either threshold."""
    means = table[table["program"] == "mean"]
    figure, axes = new_figure(9.4, 3.9, 1, len(METRICS), squeeze=False)
    for axis, (metric, name) in zip(axes[0], METRICS.items(), strict=True):
        mine = means[means["metric"] == metric]
        places = np.arange(len(mine)) + 0.7 * np.repeat(
            np.arange(mine["threshold"].nunique()), mine["unsampled_get"].nunique()
        )
        below, above = mine["sampled_part_percent"].to_numpy(), mine["unsampled_part_percent"].to_numpy()
        axis.bar(places, below, width=0.72, color=VARIANTS[0], label="intervals with a sample of their phase")
        axis.bar(places, above, width=0.72, bottom=below, color=VARIANTS[4], label="unsampled intervals")
        for place, total in zip(places, below + above, strict=True):
            axis.annotate(f"{total:.1f}", (place, total), (0, 2), textcoords="offset points", ha="center", fontsize=8)
        axis.set_xticks(places, mine["unsampled_get"], fontsize=8)
        for threshold in mine["threshold"].unique():
            group = places[(mine["threshold"] == threshold).to_numpy()]
            axis.annotate(
                f"threshold {100 * threshold:g}%", (group.mean(), 0), (0, -24), xycoords="data",
                textcoords="offset points", ha="center", va="top", fontsize=8.5,
            )  # fmt: skip
        axis.set_title(name)
        axis.grid(axis="x", visible=False)
        axis.margins(y=0.1)
    axes[0, 0].set_ylabel("average point-wise deviation [%]")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


if __name__ == "__main__":
    sys.exit(run_figure(__file__, tabulate, draw))
