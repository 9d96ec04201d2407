"""What the deviation of CPI is made of: warm-up, variation within phases, intervals without a sample."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from experiments.reproduction import Reproduction
from experiments.results import Results
from experiments.runner import run_figure
from measure.cycle_close.rates import pointwise_deviation
from measure.report.style import VARIANTS, new_figure

# An interval that was simulated is off by what its warm-up lacked; one with a sample, by what it differs from it and by
# that sample's warm-up; one without, by how far the guess was off.
PARTS = {
    "simulated": "warm-up (intervals that were simulated)",
    "matched": "variation within phases (intervals that have a sample)",
    "unsampled": "no sample of the phase",
}


def tabulate(campaign: Reproduction, results: Results) -> pd.DataFrame:
    """A row a program, threshold and configuration: the deviation that each kind of interval adds [%]; the means."""
    (length,) = campaign.interval_instructions
    rows = []
    for program in campaign.programs:
        actual = results.full(program, length)["cpi"].to_numpy()
        for threshold in campaign.thresholds:
            for configuration in campaign.configurations:
                trace = results.trace(program, length, threshold, configuration)
                guess = trace["cpi"].fillna(0.0).to_numpy()
                parts = []
                for name in PARTS:
                    which = (trace["category"] == name).to_numpy()
                    off = pointwise_deviation(actual[which], guess[which]) if which.any() else 0.0
                    parts.append(off * which.mean())
                simulated = 100 * (trace["category"] == "simulated").mean()
                rows.append((program, threshold, configuration, trace.attrs["phases"], simulated, *parts, sum(parts)))
    columns = [
        "program", "threshold", "configuration", "phases", "simulated_intervals_percent",
        *(f"{name}_part_percent" for name in PARTS), "deviation_percent",
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=columns)
    means = table.groupby(["threshold", "configuration"], sort=False)[columns[3:]].mean().reset_index()
    return pd.concat([table, means.assign(program="mean")])[columns]


def draw(campaign: Reproduction, table: pd.DataFrame) -> Any:
    """A panel a threshold, a bar a configuration: the mean over the programs, in its parts."""
    means = table[table["program"] == "mean"]
    thresholds = sorted(means["threshold"].unique(), reverse=True)
    names = list(means["configuration"].unique())
    figure, axes = new_figure(9.6, 0.42 * len(names) + 1.7, 1, len(thresholds), sharey=True, sharex=True, squeeze=False)
    places = np.arange(len(names))
    for axis, threshold in zip(axes[0], thresholds, strict=True):
        mine = means[means["threshold"] == threshold].set_index("configuration").loc[names]
        left = np.zeros(len(names))
        for number, (name, label) in enumerate(PARTS.items()):
            width = mine[f"{name}_part_percent"].to_numpy()
            axis.barh(places, width, left=left, height=0.62, color=VARIANTS[(2, 0, 4)[number]], label=label)
            left += width
        for place, total, simulated in zip(places, left, mine["simulated_intervals_percent"], strict=True):
            axis.annotate(
                f"{total:.1f}% ({simulated:.1f}% simulated)", (total, place), (4, 0), textcoords="offset points",
                va="center", fontsize=8,
            )  # fmt: skip
        axis.set_title(f"threshold {100 * threshold:g}% of 2L")
        axis.set_xlabel("average point-wise deviation of CPI [%]")
        axis.grid(axis="y", visible=False)
        axis.margins(x=0.45)
    words = {"paper": "as in the paper", "data too": "predicting, data too"}
    axes[0, 0].set_yticks(places, [words.get(name, name) for name in names])
    axes[0, 0].invert_yaxis()
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


if __name__ == "__main__":
    sys.exit(run_figure(__file__, tabulate, draw))
