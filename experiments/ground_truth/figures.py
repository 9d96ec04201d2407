"""The figures, drawn from the recorded tables; nothing is computed but means over groups of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.drawing import save_small
from measure.report.ground_truth_section import ALGORITHMS
from measure.report.style import INK, LINES, MARKERS, MUTED, VERDICT_MARKERS, VERDICTS, new_figure
from measure.run_types import BASELINE

DELTA = 0.2
_CHANCE = 0.25  # what rounding to whole records costs on average


def draw_all(folder: Path) -> None:
    """Figures 1 to 4 beside the tables of ``folder``."""
    for name, draw in (
        ("sampler", sampler), ("software", software), ("alignment", alignment), ("penalty", penalty)
    ):  # fmt: skip
        save_small(draw(pd.read_csv(folder / f"{name}.csv")), folder / f"{name}.png")


def sampler(table: pd.DataFrame) -> Any:
    """Change of z of every pair, signals instead of ideal sampling, within runs and across them."""
    programs = list(table["program"].unique())
    figure, axes = new_figure(9.0, 3.0, 1, 2, sharey=True)
    for axis, kind, title in zip(axes, ("within", "across"), ("Within a run", "Across runs (held out)"), strict=True):
        axis.axvspan(-DELTA, DELTA, color="#e8f1ec", zorder=0)
        axis.axvline(0, color=MUTED, linewidth=0.8)
        for row, program in enumerate(programs):
            mine = table[(table["program"] == program) & (table["kind"] == kind)]
            for verdict, colour in VERDICTS.items():
                some = mine[mine["pair_verdict"] == verdict]
                marker = VERDICT_MARKERS[verdict]
                axis.plot(some["delta_z"], [row] * len(some), marker, color=colour, markersize=5, alpha=0.7)
        axis.set_title(title)
        axis.set_xlabel("change of z = atanh(rho)")
        axis.set_ylim(len(programs) - 0.4, -0.6)
        axis.grid(axis="y", visible=False)
    labels = [
        f"{program}\n{table[table['program'] == program]['instructions_percent'].iloc[0]:+.2f}% instructions"
        for program in programs
    ]
    axes[0].set_yticks(range(len(programs)), labels)
    _verdicts(axes[1], table["pair_verdict"])
    return figure


def software(table: pd.DataFrame) -> Any:
    """The largest change among hardware pairs against that among pairs with a software metric, a mark a variant: its
    colour is the program's, its shape the verdict's."""
    figure, axes = new_figure(7.6, 5.2)
    columns = ["software-hardware_largest", "software-software_largest"]
    across = table["hardware-hardware_largest"].astype(float)
    up = table[columns].astype(float).max(axis=1)
    least = 0.8 * min(across.min(), up.min())
    most = 1.25 * max(across.max(), up.max())
    axes.axvspan(least, DELTA, color="#e8f1ec", zorder=0)
    axes.fill_between([least, DELTA], DELTA, most, color="#f6e3dd", zorder=0)
    axes.plot([least, most], [least, most], color=MUTED, linewidth=0.8, zorder=0)
    for n, program in enumerate(table["program"].unique()):
        mine = table["program"] == program
        for verdict, marker in VERDICT_MARKERS.items():
            some = mine & (table["software_verdict"] == verdict)
            axes.plot(across[some], up[some], marker, color=LINES[n], markersize=6.5, alpha=0.9)
        axes.plot([], [], color=LINES[n], linewidth=5, label=program)
    for _, row in table[table["hidden"]].iterrows():
        at = float(row["hardware-hardware_largest"]), max(float(row[column] or 0) for column in columns)
        axes.annotate(f"{row['program']}: {row['variant']}", at, xytext=(-7, 4), textcoords="offset points",
                      ha="right", fontsize=8, color=INK)  # fmt: skip
    for verdict, marker in VERDICT_MARKERS.items():
        if (table["software_verdict"] == verdict).any():
            axes.plot([], [], marker, color=MUTED, label=f"software pairs {verdict}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(least, most)
    axes.set_ylim(least, most)
    axes.set_xlabel("largest change of z among hardware pairs")
    axes.set_ylabel("largest change of z among pairs with a software metric")
    axes.text(least * 1.1, most / 1.12, "software pairs beyond delta,\nhardware pairs within", va="top", fontsize=8.5,
              color=VERDICTS["perturbed"])  # fmt: skip
    axes.legend(loc="lower right")
    return figure


def alignment(table: pd.DataFrame) -> Any:
    """Mean error of each algorithm on all channels: baselines hollow, every variant filled."""
    table = table[table["channels"].isin(["all"]) | table["channels"].isna()]
    programs, algorithms = list(table["program"].unique()), list(ALGORITHMS)
    figure, axes = new_figure(9.4, 3.6)
    for n, program in enumerate(programs):
        place = (n - (len(programs) - 1) / 2) * 0.8 / len(programs)
        for x, algorithm in enumerate(algorithms):
            mine = table[(table["program"] == program) & (table["algorithm"] == algorithm)]
            base = mine["group"] == BASELINE
            axes.plot([x + place] * int((~base).sum()), mine[~base]["mean_records"], MARKERS[n], color=LINES[n],
                      markersize=4.5, alpha=0.8)  # fmt: skip
            axes.plot([x + place] * int(base.sum()), mine[base]["mean_records"], MARKERS[n], color=LINES[n],
                      markersize=8, markerfacecolor="none")  # fmt: skip
        axes.plot([], [], MARKERS[n], color=LINES[n], label=program)
    axes.plot([], [], "o", color=MUTED, markersize=8, markerfacecolor="none", label="baselines")
    axes.plot([], [], "o", color=MUTED, markersize=4.5, label="variants")
    axes.axhline(_CHANCE, color=MUTED, linewidth=0.9, linestyle=":")
    axes.set_yscale("log")
    axes.set_xticks(range(len(algorithms)), list(ALGORITHMS.values()))
    axes.set_ylabel("mean error [records]")
    axes.grid(axis="x", visible=False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def penalty(table: pd.DataFrame) -> Any:
    """Typical error of warping on all channels against the penalty of a step."""
    figure, axes = new_figure(6.6, 3.6)
    for n, program in enumerate(table["program"].unique()):
        mine = table[table["program"] == program]
        errors = mine.groupby("penalty")["error_records"].agg(lambda values: np.exp(np.mean(np.log(values))))
        places = np.arange(len(errors))
        axes.plot(places, errors, color=LINES[n], marker=MARKERS[n], markersize=5, linewidth=1.3, label=program)
        axes.set_xticks(places, [f"{value:g}" for value in errors.index])
    axes.axhline(_CHANCE, color=MUTED, linewidth=0.9, linestyle=":")
    axes.set_yscale("log")
    axes.set_yticks([0.3, 0.5, 1.0], ["0.3", "0.5", "1"])
    axes.minorticks_off()
    axes.set_xlabel("penalty of a step that advances one trace only [variances a channel]")
    axes.set_ylabel("typical error [records]")
    axes.legend(loc="upper right")
    return figure


def _verdicts(axis: Any, verdicts: pd.Series) -> None:
    handles = [
        axis.plot([], [], VERDICT_MARKERS[verdict], color=colour, markersize=6, label=verdict)[0]
        for verdict, colour in VERDICTS.items()
        if (verdicts == verdict).any()
    ]
    axis.legend(handles=handles, loc="center left", bbox_to_anchor=(1.01, 0.5))
