"""Figure 4: energy of every interval by full simulation and by the cycle-close trace, and what was estimated."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from experiments.reproduction import Reproduction, short_count
from experiments.results import Results
from experiments.runner import run_figure
from measure.cycle_close.rates import ENERGY, pointwise_deviation
from measure.report.style import INK, MUTED, VARIANTS, new_figure

COLOURS = {"matched": VARIANTS[0], "simulated": VARIANTS[1], "unsampled": VARIANTS[4]}
WORDS = {
    "matched": "estimated from its phase's sample",
    "simulated": "simulated in detail",
    "unsampled": "unsampled: estimated from the interval before",
}


def tabulate(campaign: Reproduction, results: Results) -> pd.DataFrame:
    """A row an interval; energy over the mean of the whole full simulation."""
    (length,), (threshold,) = campaign.interval_instructions, campaign.thresholds
    tables = []
    for program in campaign.programs:
        full = results.full(program, length)
        trace = results.trace(program, length, threshold, next(iter(campaign.configurations)))
        unit = float(np.average(full[ENERGY], weights=full["instructions"]))
        table = pd.DataFrame(
            {
                "program": program,
                "begin_instructions": full["begin_instructions"],
                "actual": (full[ENERGY] / unit).round(3),
                "estimated": (trace[ENERGY] / unit).round(3),
                "category": trace["category"],
            }
        )
        tables.append(table[: campaign.shown_intervals])
    return pd.concat(tables)


def draw(campaign: Reproduction, table: pd.DataFrame) -> Any:
    """Two panels a program, as in the paper: above the full simulation, below the trace."""
    programs = list(table["program"].unique())
    heights = [1.0, 1.0] * len(programs)
    figure, axes = new_figure(9.4, 1.12 * len(heights) + 1.1, len(heights), height_ratios=heights, sharex=False)
    for number, program in enumerate(programs):
        mine = table[table["program"] == program]
        at = mine["begin_instructions"].to_numpy() / 1e6
        top = 1.06 * max(mine["actual"].max(), mine["estimated"].max())
        above, below = axes[2 * number], axes[2 * number + 1]
        width = min(max(640 / len(at), 0.8), 4.0)  # [points]: bars that touch
        above.vlines(at, 0, mine["actual"], color=MUTED, linewidth=width)
        for category, colour in COLOURS.items():
            own = (mine["category"] == category).to_numpy()
            below.vlines(at[own], 0, mine["estimated"][own], color=colour, linewidth=width)
        off = pointwise_deviation(mine["actual"].to_numpy(), mine["estimated"].to_numpy())
        above.set_title(f"{program}: deviation {off:.1f}% in what is shown", fontsize=9.5)
        above.set_ylabel("full\nsimulation", rotation=0, ha="right", va="center", fontsize=8.5)
        below.set_ylabel("cycle-\nclose", rotation=0, ha="right", va="center", fontsize=8.5)
        for axis in (above, below):
            axis.set_ylim(0, top)
            axis.set_xlim(0, at[-1] + 1)
            axis.grid(axis="x", visible=False)
        above.tick_params(labelbottom=False)
    axes[-1].set_xlabel("instructions [millions]", color=INK)
    figure.supylabel(
        f"energy of an interval of {short_count(campaign.interval_instructions[0])} instructions, program's mean = 1",
        fontsize=9, color=INK,
    )  # fmt: skip
    handles = [axes[1].plot([], [], color=colour, linewidth=4)[0] for colour in COLOURS.values()]
    figure.legend(handles, WORDS.values(), loc="outside lower center", ncols=3)
    return figure


if __name__ == "__main__":
    sys.exit(run_figure(__file__, tabulate, draw))
