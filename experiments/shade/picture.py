"""The picture: slowdown by level of tracing, ours, the paper's, and other tools beside the level they compare with."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd

from experiments.shade.levels import LEVELS
from measure.report.style import BASELINE, INK, LINES, MARKERS, VARIANTS, new_figure

MEAN = "geometric mean"


def draw(title: str, table: pd.DataFrame, paper: Sequence[Sequence[float]]) -> Any:
    """Means as a line, programs as dots, the paper's range as a band, other tools' means as marks."""
    figure, axes = new_figure(9.2, 5.2)
    means = table[table["program"] == MEAN]
    ours = means[means["way"].str.startswith("level-")].sort_values("level")
    every = table[table["way"].str.startswith("level-") & (table["program"] != MEAN)]
    known = np.arange(len(LEVELS))
    low, high = np.min(paper, axis=0), np.max(paper, axis=0)
    axes.fill_between(known, low, high, color=BASELINE, alpha=0.18, linewidth=0, label="the paper: Shade, doduc to gcc")
    axes.plot(ours["level"], ours["slowdown"], color=VARIANTS[0], linewidth=2, label="ours, geometric mean")
    axes.scatter(every["level"], every["slowdown"], s=14, color=VARIANTS[0], alpha=0.6, label="ours, a program")
    others = means[~means["way"].isin(["native"]) & ~means["way"].str.startswith("level-")]
    counts: dict[int, int] = {}
    points = zip(others["way"], others["level"], others["slowdown"], strict=True)
    for number, (way, level, slowdown) in enumerate(points):
        place = counts[level] = counts.get(level, 0) + 1
        axes.scatter(
            level + 0.11 * place, slowdown, s=34, color=LINES[1 + number % (len(LINES) - 1)],
            marker=MARKERS[number % len(MARKERS)], label="ours, cold" if way == "cold" else way, zorder=3,
        )  # fmt: skip
    axes.axhline(1, color=INK, linewidth=0.8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xticks(known, [f"{n}\n{fill(words, 14)}" for n, (words, _) in enumerate(LEVELS)])
    axes.set_xlabel("level of tracing")
    axes.set_ylabel("time over the native program's")
    axes.set_title(title)
    axes.grid(axis="x", visible=False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
    return figure
