"""Draws a cycle-close trace: each metric over the run, estimated and actual, and the sampled intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from measure.cycle_close.rate_labels import PICTURE_LABELS
from measure.cycle_close.rates import ENERGY, RATES
from measure.report.style import INK, MUTED, VARIANTS, new_figure

if TYPE_CHECKING:
    import pandas as pd

# Inches: the figure's width, the height of each metric and of the phases, and the margins around and between them.
# Matplotlib can find the margins by itself, but that takes as long as the rest of the picture.
_WIDTH, _ROW, _PHASES = 9.5, 1.3, 1.15
_LEFT, _RIGHT, _TOP, _BOTTOM, _GAP = 2.3, 0.15, 0.45, 0.85, 0.14
_COLOURS = {"simulated": VARIANTS[1], "matched": VARIANTS[0], "unsampled": VARIANTS[3]}


def trace_figure(estimated: pd.DataFrame, actual: pd.DataFrame | None, name: str) -> Any:
    """One row per metric, the estimate over the actual values if given, and the phases below."""
    shown = [m for m in (*RATES, ENERGY) if m in estimated and estimated[m].notna().any()]
    shown.sort(key=lambda metric: list(PICTURE_LABELS).index(metric))
    n, height = len(shown), _TOP + len(shown) * (_ROW + _GAP) + _PHASES + _BOTTOM
    figure, axes = new_figure(_WIDTH, height, n + 1, layout=None, sharex=True, height_ratios=[_ROW] * n + [_PHASES])
    figure.subplots_adjust(
        left=_LEFT / _WIDTH, right=1 - _RIGHT / _WIDTH, top=1 - _TOP / height, bottom=_BOTTOM / height,
        hspace=_GAP * (n + 1) / (n * _ROW + _PHASES),
    )  # fmt: skip
    axes = np.atleast_1d(axes)  # without any estimate only the phases are drawn
    at = (estimated["begin_instructions"] + estimated["end_instructions"]).to_numpy() / 2e6
    for axis, metric in zip(axes, shown, strict=False):
        if actual is not None:
            axis.plot(at, actual[metric], color=MUTED, linewidth=0.8, label="full simulation", alpha=0.9)
        axis.plot(at, estimated[metric], color=VARIANTS[0], linewidth=0.8, label="cycle-close", alpha=0.85)
        axis.set_ylabel(PICTURE_LABELS[metric], rotation=0, ha="right", va="center", fontsize=8.5)
    for axis in axes:
        axis.yaxis.set_label_coords(-0.1, 0.5)
    axes[0].set_title(f"{name}: cycle-close trace")
    if actual is not None:
        axes[0].legend(loc="upper right", ncols=2, bbox_to_anchor=(1, 1.32))
    below = axes[-1]
    for category, colour in _COLOURS.items():
        mine = (estimated["category"] == category).to_numpy()
        share = 100 * float(np.mean(mine))
        order = 3 if category == "simulated" else 2
        below.scatter(
            at[mine], estimated["phase"].to_numpy()[mine], s=7 if category != "matched" else 3, color=colour,
            label=f"{category} ({share:.1f}%)", zorder=order, linewidths=0,
        )  # fmt: skip
    below.set_ylabel("phase", rotation=0, ha="right", va="center", fontsize=8.5)
    below.set_xlabel("instructions [millions]", color=INK)
    below.legend(loc="upper center", bbox_to_anchor=(0.5, -0.42), ncols=3, markerscale=2)
    return figure
