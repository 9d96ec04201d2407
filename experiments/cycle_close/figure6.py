"""Figure 6: average point-wise deviation of CPI, energy and hit rates, by program and sampling configuration."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from experiments.reproduction import Reproduction
from experiments.results import Results
from experiments.runner import run_figure
from measure.cycle_close.rates import ENERGY, deviations
from measure.report.style import MUTED, VARIANTS, new_figure

METRICS = {
    "cpi": "CPI",
    ENERGY: "energy",
    "l1d_hit_rate": "data cache\nhit rate",
    "l1i_hit_rate": "instruction\ncache hit rate",
    "branch_hit_rate": "branches\npredicted rightly",
}
PAPER_CPI, PAPER_WORST = 3.2, 10.3  # the paper, sections 5 and 7


def tabulate(campaign: Reproduction, results: Results) -> pd.DataFrame:
    """A row a program, configuration and metric, all in percent; then the means over the programs."""
    (length,), (threshold,) = campaign.interval_instructions, campaign.thresholds
    rows = []
    for program in campaign.programs:
        full = results.full(program, length)
        for name in campaign.configurations:
            trace = results.trace(program, length, threshold, name)
            simulated = 100 * (trace["category"] == "simulated").mean()
            for row in deviations(full, trace).to_dict("records"):
                if row["metric"] in METRICS:
                    values = (row["metric"], row["deviation_percent"], row["whole_run_percent"])
                    rows.append((program, name, *values, simulated, full.attrs["seconds"] / trace.attrs["seconds"]))
    columns = [
        "program", "configuration", "metric", "deviation_percent", "whole_run_percent", "simulated_percent",
        "full_over_sampled",
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=columns)
    means = table.groupby(["configuration", "metric"], sort=False)[columns[3:]].mean().reset_index()
    return pd.concat([table, means.assign(program="mean")])[columns]


def draw(campaign: Reproduction, table: pd.DataFrame) -> Any:
    """A panel a metric, a row a program, a mark a configuration; deviations are logarithmic."""
    programs, names = list(table["program"].unique()), list(table["configuration"].unique())
    shown = [metric for metric in METRICS if metric in set(table["metric"])]
    figure, axes = new_figure(10.4, 0.34 * len(programs) + 2.1, 1, len(shown), sharey=True, squeeze=False)
    places = np.arange(len(programs))
    for axis, metric in zip(axes[0], shown, strict=True):
        mine = table[table["metric"] == metric]
        for number, name in enumerate(names):
            own = mine[mine["configuration"] == name].set_index("program")["deviation_percent"]
            axis.scatter(
                np.maximum(own.reindex(programs), 1e-3), places, s=30, marker="osD^v"[number % 5],
                color=VARIANTS[number % len(VARIANTS)], linewidths=0, label=_words(name), alpha=0.9, zorder=3,
            )  # fmt: skip
        limit = PAPER_CPI if metric == "cpi" else PAPER_WORST
        axis.axvline(limit, color=MUTED, linewidth=1.0, linestyle=(0, (4, 2)))
        axis.annotate(
            f"{limit:g}%", (limit, -0.75), (-2, 0), textcoords="offset points", fontsize=7.5, color=MUTED,
            ha="right", va="center",
        )  # fmt: skip
        axis.set_xscale("log")
        axis.set_xlim(7e-4, 100)
        axis.set_xticks([0.001, 0.01, 0.1, 1, 10, 100], ["≤.001", "0.01", "0.1", "1", "10", "100"], fontsize=8)
        axis.set_title(METRICS[metric], fontsize=9.5)
        axis.grid(axis="y", linewidth=0.4)
    axes[0, 0].set_yticks(places, programs)
    axes[0, 0].set_ylim(len(programs) - 0.4, -1.2)
    for axis in axes[0]:
        axis.axhline(len(programs) - 1.5, color=MUTED, linewidth=0.6)
    axes[0, len(shown) // 2].set_xlabel(
        "average point-wise deviation [%]; dashed: the paper's mean for CPI, its largest of the other metrics"
    )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(names))
    return figure


def _words(name: str) -> str:
    paper = "the paper's, threshold of"
    return {"paper": f"{paper} 2L", "of L": f"{paper} L"}.get(name, name)


if __name__ == "__main__":
    sys.exit(run_figure(__file__, tabulate, draw))
