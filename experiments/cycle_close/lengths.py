"""Beyond the paper's figures: deviation of CPI, energy and hit rates by interval length and threshold."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from experiments.cycle_close.figure6 import METRICS
from experiments.reproduction import Reproduction, short_count
from experiments.results import Results
from experiments.runner import run_figure
from measure.cycle_close.rates import deviations
from measure.report.style import MARKERS, VARIANTS, new_figure


def tabulate(campaign: Reproduction, results: Results) -> pd.DataFrame:
    """A row a threshold, length and metric: mean and largest deviation over the programs, mean error of whole runs."""
    name = next(iter(campaign.configurations))
    rows = []
    for threshold in campaign.thresholds:
        for length in campaign.interval_instructions:
            for program in campaign.programs:
                full = results.full(program, length)
                for row in deviations(full, results.trace(program, length, threshold, name)).to_dict("records"):
                    if row["metric"] in METRICS:
                        values = (row["metric"], row["deviation_percent"], row["whole_run_percent"])
                        rows.append((threshold, length, *values))
    columns = ["threshold", "interval_instructions", "metric", "deviation", "whole_run"]
    groups = pd.DataFrame(rows, columns=columns).groupby(columns[:3], sort=False)
    return groups.agg(
        deviation_percent=("deviation", "mean"), largest_deviation_percent=("deviation", "max"),
        whole_run_percent=("whole_run", "mean"),
    ).reset_index()  # fmt: skip


def draw(campaign: Reproduction, table: pd.DataFrame) -> Any:
    """A panel a threshold, a line a metric."""
    thresholds = sorted(table["threshold"].unique())
    figure, axes = new_figure(9.2, 3.7, 1, len(thresholds), sharey=True, squeeze=False)
    for axis, threshold in zip(axes[0], thresholds, strict=True):
        for number, (metric, name) in enumerate(METRICS.items()):
            mine = table[(table["threshold"] == threshold) & (table["metric"] == metric)]
            lengths = mine["interval_instructions"].tolist()
            axis.plot(
                np.arange(len(lengths)), mine["deviation_percent"], marker=MARKERS[number], markersize=5,
                color=VARIANTS[number], linewidth=1.2, label=name.replace("\n", " "),
            )  # fmt: skip
        axis.set_xticks(np.arange(len(lengths)), [short_count(length) for length in lengths])
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
        axis.set_title(f"threshold {100 * threshold:g}%")
        axis.set_xlabel("interval length [instructions]")
    axes[0, 0].set_ylabel("average point-wise deviation,\nmean of all programs")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


if __name__ == "__main__":
    sys.exit(run_figure(__file__, tabulate, draw))
