"""Figure 4: error of the whole program's IPC when a few intervals are simulated: the first, some later, SimPoint's."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from experiments.program_phases.analysis import check_same_intervals, phases_of
from experiments.reproduction import Reproduction, short_count
from experiments.results import Results
from experiments.runner import run_figure
from measure.program_phases.compat import find_phases_simpoint32
from measure.program_phases.points import estimate_rate, first_n, simulation_points, skip_then_n
from measure.report.style import MUTED, VARIANTS, new_figure

START, SKIP, POINTS, COMPAT = "from start", "after skip", "simpoint", "simpoint 3.2"
DATA, MANY = "simpoint and waiting", "simpoint, as many points"
_WAIT_STEP = 0.2  # the default of `measure phases --machine`


def tabulate(campaign: Reproduction, results: Results) -> pd.DataFrame:
    """A row a program and configuration; then the median, mean and maximum of the errors over the programs."""
    (length,) = campaign.interval_instructions
    search = campaign.phases
    rows = []
    for program in campaign.programs:
        full, vectors = results.full(program, length), results.vectors(program, length)
        check_same_intervals(program, full, vectors.ends[1:])
        points = simulation_points(phases_of(vectors, search))
        like32 = simulation_points(
            find_phases_simpoint32(
                vectors.blocks, max_k=search.max_k, seeds=search.seeds, threshold=search.score_share,
                search="all", dimensions=search.dimensions, fixed_length=False,
            )
        )  # fmt: skip
        by_data = simulation_points(phases_of(vectors, search, _WAIT_STEP))
        as_many = simulation_points(phases_of(vectors, search, k=len(by_data.intervals)))
        n, instructions = len(full), full["instructions"].to_numpy()
        skip = min(campaign.skip_instructions // length, n - len(points.intervals))
        configurations = {
            START: first_n(n, len(points.intervals)),
            SKIP: skip_then_n(n, skip, len(points.intervals)),
            POINTS: points,
            COMPAT: like32,
            DATA: by_data,
            MANY: as_many,
        }
        truth = float(full["cycles"].sum() / instructions.sum())
        for configuration, some in configurations.items():
            cpi = estimate_rate(full["cycles"], instructions, instructions, some)
            errors = (100 * abs(truth / cpi - 1), 100 * abs(cpi / truth - 1))
            simulated = 100 * instructions[some.intervals].sum() / instructions.sum()
            rows.append((program, configuration, n, len(some.intervals), simulated, 1 / truth, 1 / cpi, *errors))
    columns = [
        "program", "configuration", "intervals", "simulated_intervals", "simulated_percent", "ipc", "estimated_ipc",
        "ipc_error_percent", "cpi_error_percent",
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=columns)
    errors_only = table.groupby("configuration", sort=False)[columns[-2:]]
    summaries = [errors_only.agg(how).reset_index().assign(program=how) for how in ("median", "mean", "max")]
    return pd.concat([table, *summaries])[columns]


def draw(campaign: Reproduction, table: pd.DataFrame) -> Any:
    """Bars as in the paper; an arrow at what does not fit."""
    shown = {
        START: "from the start (paper's median: 58%)",
        SKIP: f"after {short_count(campaign.skip_instructions)} instructions (23%)",
        POINTS: "at simulation points (2%)",
        DATA: "at points by code and waiting for memory",
    }
    shown = {name: label for name, label in shown.items() if name in set(table["configuration"])}
    programs = list(table["program"].unique())
    gap = programs.index("median")
    places = np.arange(len(programs)) + 0.6 * (np.arange(len(programs)) >= gap)
    top = 100.0
    figure, axis = new_figure(11.2, 3.9)
    for number, (name, label) in enumerate(shown.items()):
        errors = (
            table[table["configuration"] == name].set_index("program").loc[programs, "ipc_error_percent"].to_numpy()
        )
        at = places + 0.21 * (number - 1.5)
        axis.bar(at, np.minimum(errors, top), width=0.2, color=VARIANTS[(4, 5, 0, 1)[number]], label=label)
        for place, error in zip(at, errors, strict=True):
            text = f"{error:.0f}" if error >= 10 else f"{error:.1f}"
            text = f"{text} \u2191" if error > top else text
            axis.annotate(
                text, (place, min(error, top)), (0, 2), textcoords="offset points", ha="center", fontsize=6.5,
                color=MUTED, rotation=90,
            )  # fmt: skip
    axis.axvline(places[gap] - 0.8, color=MUTED, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.set_xticks(places, programs, rotation=28, ha="right", rotation_mode="anchor")
    axis.set_ylim(0, min(top * 1.14, 1.12 * table["ipc_error_percent"].max()))
    axis.set_ylabel("error of IPC [%]")
    axis.grid(axis="x", visible=False)
    figure.legend(loc="outside lower center", ncols=4)
    return figure


if __name__ == "__main__":
    sys.exit(run_figure(__file__, tabulate, draw))
