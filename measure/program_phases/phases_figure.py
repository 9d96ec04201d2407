"""Draws a program's phases: the similarity matrix, metrics over time, and the phases below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from measure.cycle_close.rate_labels import PICTURE_LABELS
from measure.program_phases.choose import Phases
from measure.program_phases.homogeneity import faintest
from measure.program_phases.points import SimulationPoints
from measure.report.style import INK, LINES, VARIANTS, new_figure

if TYPE_CHECKING:
    import pandas as pd

_OVER = "instructions [millions]"


def phases_figure(
    distances: NDArray[np.float64],
    found: Phases,
    points: SimulationPoints,
    instructions: NDArray[np.int64],
    metrics: pd.DataFrame | None,
    name: str,
) -> Any:
    """``distances``: the similarity matrix, of all intervals or of evenly spread runs of them; ``instructions`` (n,):
    of each interval; ``metrics``: a column a metric and a row an interval, if they were simulated."""
    shown = [name for name in PICTURE_LABELS if metrics is not None and name in metrics]
    ratios = [5.2, *([1.0] * len(shown)), 0.9]
    figure, axes = new_figure(9.2, 6.6 + 0.95 * len(shown), 2 + len(shown), height_ratios=ratios)
    ends = np.cumsum(instructions) / 1e6
    middle = ends - instructions / 2e6
    extent = (0, float(ends[-1]), float(ends[-1]), 0)
    image = axes[0].imshow(
        distances, extent=extent, cmap="gray", vmin=0, vmax=faintest(distances), aspect="auto", interpolation="nearest"
    )
    axes[0].set_title(f"{name}: similarity of intervals (dark: alike)")
    axes[0].set_xlabel(_OVER, color=INK)
    axes[0].set_ylabel(_OVER, color=INK)
    axes[0].grid(visible=False)
    figure.colorbar(image, ax=axes[0], label="Manhattan distance (at most 2)", fraction=0.035, pad=0.01)
    for axis, metric in zip(axes[1:], shown, strict=False):
        assert metrics is not None
        axis.plot(middle, metrics[metric], color=VARIANTS[0], linewidth=0.8)
        axis.set_ylabel(PICTURE_LABELS[metric], rotation=0, ha="right", va="center", fontsize=8.5)
    below = axes[-1]
    colours = [LINES[label % len(LINES)] for label in found.labels]
    below.scatter(middle, found.labels, c=colours, s=4, linewidths=0)
    below.scatter(
        middle[points.intervals], points.phases, marker="v", s=34, facecolors="none", edgecolors=INK,
        label="simulation point", clip_on=False,
    )  # fmt: skip
    below.set_ylim(-0.6, int(found.labels.max()) + 0.6)
    below.yaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    below.set_ylabel("phase", rotation=0, ha="right", va="center", fontsize=8.5)
    below.set_xlabel(_OVER, color=INK)
    below.legend(loc="upper center", bbox_to_anchor=(0.5, -0.5))
    for axis in axes[1:]:
        axis.set_xlim(0, ends[-1])
    return figure
