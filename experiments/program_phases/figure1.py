"""Figure 1: metrics over the whole run of two programs."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from experiments.drawing import instruction_unit
from experiments.program_phases.analysis import METRICS, metrics_of
from experiments.reproduction import Reproduction, short_count
from experiments.results import Results
from experiments.runner import run_figure
from measure.report.style import INK, VARIANTS, new_figure

_POINTS = 400
_UNITS = {"energy": "nJ/instruction", "ipc": "instructions/cycle"}


def tabulate(campaign: Reproduction, results: Results) -> pd.DataFrame:
    """A row a point: mean, smallest and largest value of as many successive intervals as fall on it."""
    (length,) = campaign.interval_instructions
    rows = []
    for program in campaign.programs:
        full = results.full(program, length)
        metrics = metrics_of(full)
        edges = np.unique(np.linspace(0, len(full), min(_POINTS, len(full)) + 1).astype(int))
        for first, last in pairwise(edges.tolist()):
            values = metrics[first:last]
            row: dict[str, Any] = {
                "program": program,
                "begin_instructions": full["begin_instructions"][first],
            }
            for name in METRICS:
                row |= {f"{name}_{how}": getattr(values[name], how)() for how in ("mean", "min", "max")}
            rows.append(row)
    return pd.DataFrame(rows)


def draw(campaign: Reproduction, table: pd.DataFrame) -> Any:
    """A column a program, a row a metric: the mean as a line, what intervals range over as a band."""
    programs = list(table["program"].unique())
    figure, axes = new_figure(
        4.9 * len(programs) + 0.8,
        1.18 * len(METRICS) + 0.6,
        len(METRICS),
        len(programs),
        sharex="col",
        squeeze=False,
    )
    for column, program in enumerate(programs):
        mine = table[table["program"] == program]
        unit_instructions, words = instruction_unit(mine["begin_instructions"].max())
        at = mine["begin_instructions"].to_numpy() / unit_instructions
        for row, (metric, label) in enumerate(METRICS.items()):
            axis = axes[row, column]
            axis.fill_between(
                at, mine[f"{metric}_min"], mine[f"{metric}_max"], color=VARIANTS[5], alpha=0.55, linewidth=0,
                step="post",
            )  # fmt: skip
            axis.plot(at, mine[f"{metric}_mean"], color=VARIANTS[0], linewidth=0.9, drawstyle="steps-post")
            axis.set_ylim(bottom=0)
            axis.set_xlim(0, at[-1])
            if column == 0:
                unit = _UNITS.get(metric, "per 1,000 instr.")
                axis.set_ylabel(f"{label}\n[{unit}]", rotation=0, ha="right", va="center", fontsize=8.5)
        axes[0, column].set_title(program)
        axes[-1, column].set_xlabel(words, color=INK)
    length = short_count(campaign.interval_instructions[0])
    handles = [
        axes[0, 0].plot([], [], color=VARIANTS[0])[0],
        axes[0, 0].fill_between([], [], [], color=VARIANTS[5], alpha=0.55),
    ]
    labels = ["mean", f"range of the intervals of {length} instructions"]
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


if __name__ == "__main__":
    sys.exit(run_figure(__file__, tabulate, draw))
