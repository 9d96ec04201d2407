"""Figure 3: the phase that each interval of two programs is in."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from experiments.drawing import instruction_unit
from experiments.program_phases.analysis import phases_of
from experiments.reproduction import Reproduction, short_count
from experiments.results import Results
from experiments.runner import run_figure
from measure.program_phases.points import simulation_points
from measure.report.style import INK, LINES, new_figure


def tabulate(campaign: Reproduction, results: Results) -> pd.DataFrame:
    """A row a stretch of intervals of one phase, and one for each simulation point. Phases count from 1."""
    (length,) = campaign.interval_instructions
    rows = []
    for program in campaign.programs:
        vectors = results.vectors(program, length)
        found = phases_of(vectors, campaign.phases)
        firsts = np.flatnonzero(np.diff(found.labels, prepend=-1))
        for first, last in zip(firsts, [*firsts[1:], len(found.labels)], strict=True):
            place = (int(vectors.ends[first]), int(vectors.ends[last]))
            rows.append((program, "phase", int(found.labels[first]) + 1, *place))
        points = simulation_points(found)
        for interval, phase in zip(points.intervals.tolist(), points.phases.tolist(), strict=True):
            place = (int(vectors.ends[interval]), int(vectors.ends[interval + 1]))
            rows.append((program, "simulation point", phase + 1, *place))
    return pd.DataFrame(rows, columns=["program", "what", "phase", "begin_instructions", "end_instructions"])


def draw(campaign: Reproduction, table: pd.DataFrame) -> Any:
    """A panel a program, a row a phase."""
    programs = list(table["program"].unique())
    most = [int(table[table["program"] == program]["phase"].max()) for program in programs]
    heights = [0.27 * phases + 0.95 for phases in most]
    figure, axes = new_figure(9.2, sum(heights) + 0.6, len(programs), 1, squeeze=False, height_ratios=heights)
    for axis, program, phases in zip(axes[:, 0], programs, most, strict=True):
        mine = table[table["program"] == program]
        unit, words = instruction_unit(mine["end_instructions"].max())
        for phase in range(1, phases + 1):
            own = mine[(mine["phase"] == phase) & (mine["what"] == "phase")]
            begins, ends = (
                own["begin_instructions"].to_numpy() / unit,
                own["end_instructions"].to_numpy() / unit,
            )
            bars = np.column_stack([begins, ends - begins])
            axis.broken_barh(bars, (phase - 0.36, 0.72), color=LINES[(phase - 1) % len(LINES)], linewidth=0.25)
        points = mine[mine["what"] == "simulation point"]
        axis.scatter(
            points["begin_instructions"] / unit, points["phase"], marker="v", s=42, facecolors="white",
            edgecolors=INK, linewidths=1.0, zorder=4, label="simulation point",
        )  # fmt: skip
        axis.set_yticks(range(1, phases + 1))
        axis.set_ylim(phases + 0.6, 0.4)
        axis.set_xlim(0, mine["end_instructions"].max() / unit)
        axis.set_ylabel("phase")
        axis.set_xlabel(words, color=INK)
        axis.set_title(f"{program}: {phases} phases of intervals of {short_count(campaign.interval_instructions[0])}")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center")
    return figure


if __name__ == "__main__":
    sys.exit(run_figure(__file__, tabulate, draw))
