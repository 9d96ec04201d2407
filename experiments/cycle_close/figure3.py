"""Figure 3: average share of intervals simulated in detail and left unsampled, by threshold and interval length."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from experiments.reproduction import Reproduction, short_count
from experiments.results import Results
from experiments.runner import run_figure
from measure.report.style import VARIANTS, new_figure

MEAN = "mean"


def tabulate(campaign: Reproduction, results: Results) -> pd.DataFrame:
    """A row a program, threshold and length; then the means over the programs."""
    rows = []
    for program in campaign.programs:
        for threshold in campaign.thresholds:
            for length in campaign.interval_instructions:
                trace = results.trace(program, length, threshold, next(iter(campaign.configurations)))
                shares = [100 * (trace["category"] == name).mean() for name in ("simulated", "unsampled")]
                rows.append((program, threshold, length, len(trace), trace.attrs["phases"], *shares))
    columns = [
        "program", "threshold", "interval_instructions", "intervals", "phases", "simulated_percent",
        "unsampled_percent",
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=columns)
    means = table.groupby(["threshold", "interval_instructions"], sort=False)[columns[3:]].mean().reset_index()
    return pd.concat([table, means.assign(program=MEAN)])[columns]


def draw(campaign: Reproduction, table: pd.DataFrame) -> Any:
    """Bars of the means, stacked as in the paper; a dot is one program's sum of both."""
    thresholds = sorted(table["threshold"].unique())
    figure, axes = new_figure(9.2, 3.9, 1, len(thresholds), sharey=True, squeeze=False)
    for axis, threshold in zip(axes[0], thresholds, strict=True):
        mine = table[table["threshold"] == threshold]
        means = mine[mine["program"] == MEAN]
        lengths = means["interval_instructions"].tolist()
        places = np.arange(len(lengths))
        below = means["simulated_percent"].to_numpy()
        above = means["unsampled_percent"].to_numpy()
        axis.bar(places, below, width=0.62, color=VARIANTS[0], label="simulated in detail")
        axis.bar(places, above, width=0.62, bottom=below, color=VARIANTS[4], label="unsampled")
        for place, length in zip(places, lengths, strict=True):
            own = mine[(mine["interval_instructions"] == length) & (mine["program"] != MEAN)]
            sums = (own["simulated_percent"] + own["unsampled_percent"]).to_numpy()
            aside = place + np.linspace(-0.2, 0.2, len(sums))
            axis.scatter(
                aside, sums, s=9, color="#1c2733", linewidths=0, zorder=3, alpha=0.75,
                label="both together, one program" if place == 0 else None,
            )  # fmt: skip
        words = [
            f"{short_count(length)}\n{low:.1f}\n+ {high:.1f}"
            for length, low, high in zip(lengths, below, above, strict=True)
        ]
        axis.set_xticks(places, words)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
        axis.set_title(f"threshold {100 * threshold:g}%")
        axis.set_xlabel("interval length [instructions], and means of both shares [%]")
        axis.grid(axis="x", visible=False)
    axes[0, 0].set_ylabel("intervals")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


if __name__ == "__main__":
    sys.exit(run_figure(__file__, tabulate, draw))
