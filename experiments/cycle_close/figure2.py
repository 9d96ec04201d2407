"""Figure 2: seconds to trace each program cycle-close at each interval length, and to simulate all of it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from experiments.reproduction import Reproduction, short_count
from experiments.results import Results
from experiments.runner import run_figure
from measure.report.style import INK, MUTED, new_figure

MEAN, FULL = "geometric mean", "full"
_TICKS = [step * 10**power for power in range(-2, 4) for step in (1, 2, 5)]


def tabulate(campaign: Reproduction, results: Results) -> pd.DataFrame:
    """A row a program and setting: the ratio to full simulation, and the largest there can be.

    That is 1/(s + r), s the share of intervals simulated, r the cost of emulation with signatures over the cost of
    full simulation.
    """
    threshold = campaign.thresholds[0]
    rows = []
    for program in campaign.programs:
        full = results.full(program, campaign.interval_instructions[0])
        instructions = int(full["end_instructions"].iloc[-1])
        seconds = full.attrs["seconds"]
        rows.append((program, FULL, 0, instructions, seconds, 100.0, 1.0, 1.0))
        for name in campaign.configurations:
            for length in campaign.interval_instructions:
                trace = results.trace(program, length, threshold, name)
                fast = results.online(program, length, threshold, name).attrs["seconds"]
                simulated = float((trace["category"] == "simulated").mean())
                limit = 1 / (simulated + fast / seconds)
                mine = trace.attrs["seconds"]
                rows.append((program, name, length, instructions, mine, 100 * simulated, seconds / mine, limit))
    columns = [
        "program", "configuration", "interval_instructions", "instructions", "seconds", "simulated_percent",
        "full_over_sampled", "limit_full_over_sampled",
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=columns)
    settings = ["configuration", "interval_instructions"]
    means = table.groupby(settings, sort=False)[columns[3:]].agg(_geometric_mean).reset_index()
    return pd.concat([table, means.assign(program=MEAN)])[columns]


def _geometric_mean(values: pd.Series[float]) -> float:
    return float(np.exp(np.log(values).mean()))


def draw(campaign: Reproduction, table: pd.DataFrame) -> Any:
    """A panel a configuration; a row a program, a mark an interval length; time is logarithmic, as in the paper."""
    from matplotlib import colormaps

    names = [name for name in table["configuration"].unique() if name != FULL]
    programs = list(table["program"].unique())
    lengths = sorted(table["interval_instructions"].unique())[1:]
    shades = colormaps["cividis"](np.linspace(0.0, 0.92, len(lengths)))
    figure, axes = new_figure(9.6, 0.36 * len(programs) + 1.9, 1, len(names), sharey=True, sharex=True, squeeze=False)
    full = table[table["configuration"] == FULL].set_index("program")["seconds"]
    places = np.arange(len(programs))
    for axis, name in zip(axes[0], names, strict=True):
        mine = table[table["configuration"] == name]
        for program, place in zip(programs, places, strict=True):
            own = mine[mine["program"] == program]["seconds"]
            axis.plot([own.min(), full[program]], [place, place], color=MUTED, linewidth=0.7, zorder=1)
        for length, shade in zip(lengths, shades, strict=True):
            seconds = mine[mine["interval_instructions"] == length].set_index("program")["seconds"]
            axis.scatter(
                seconds.loc[programs], places, s=34, color=shade, edgecolors=INK, linewidths=0.4, zorder=3,
                label=short_count(length),
            )  # fmt: skip
        axis.scatter(full.loc[programs], places, s=46, marker="D", color="#d55e00", zorder=3, label="full simulation")
        axis.set_xscale("log")
        axis.set_title({"paper": "as in the paper"}.get(name, name))
        axis.set_xlabel("seconds")
        axis.grid(axis="y", visible=False)
        low, high = axis.get_xlim()
        ticks = [tick for tick in _TICKS if low <= tick <= high]
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_xticks([], minor=True)
    axes[0, 0].set_yticks(places, programs)
    axes[0, 0].invert_yaxis()
    axes[0, 0].axhline(len(programs) - 1.5, color=MUTED, linewidth=0.6)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), title="interval length [instructions]"
    )
    return figure


if __name__ == "__main__":
    sys.exit(run_figure(__file__, tabulate, draw))
