"""What several figures show alike: correlation over added instructions, a panel an order, baselines as a band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.measurement_perturbation.results import Results
from measure.campaign.run_types import BASELINE
from measure.report.style import LINES, MUTED, new_figure

LEAST = 0.3
"""The paper plots correlations from here on only (section 3.3); figures mark it."""
VERDICTS = {"perturbed": "X", "changed": "^", "inconclusive": "o", "equivalent": ".", "not assessable": "x"}
_PERTURBED_SIZE, _OTHER_SIZE = 34, 14


def inner_points(results: Results, campaign: str, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Absolute inner correlation of ``pairs`` in every run of the orders, with verdict and range of the baselines."""
    inner = results.table("inner", campaign)
    rows = [_of_pair(results, campaign, inner, *pair) for pair in pairs]
    return pd.concat(rows, ignore_index=True)


def _of_pair(results: Results, campaign: str, inner: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    mine = inner[((inner["a"] == a) & (inner["b"] == b)) | ((inner["a"] == b) & (inner["b"] == a))]
    baselines = mine[mine["group"] == BASELINE]["rho"].abs()
    verdicts = results.table("verdicts", campaign)
    verdicts = verdicts[verdicts["kind"] == "inner"]
    verdicts = verdicts[verdicts["a"].isin((a, b)) & verdicts["b"].isin((a, b))]
    points = results.points(campaign).merge(mine[["group", "replicate", "rho"]], on=["group", "replicate"])
    points = points.merge(verdicts[["group", "delta_z", "p_adjusted", "verdict"]], on="group", how="left")
    return pd.DataFrame(
        {
            "campaign": campaign, "order": points["order"], "step": points["step"],
            "added": [_short_list(text) for text in points["added"]],
            "instructions_percent": points["instructions_percent"], "series": f"{a} {b}", "rho": points["rho"].abs(),
            "baseline_low": baselines.min(), "baseline_high": baselines.max(), "delta_z": points["delta_z"],
            "verdict": points["verdict"].fillna(BASELINE),
        }
    )  # fmt: skip


def outer_points(results: Results, campaign: str, metrics: Sequence[str]) -> pd.DataFrame:
    """Outer correlation of ``metrics`` with the first baseline in every run of the orders, joint and held out.

    The start of each order is another baseline; the range is that of all others.
    """
    outer, verdicts = results.table("outer", campaign), results.table("verdicts", campaign)
    points = results.points(campaign)
    points.loc[points["step"] == 0, "replicate"] = 1
    tables = []
    for metric in metrics:
        for kind, column in (("outer-joint", "rho_joint"), ("outer-held-out", "rho_held_out")):
            mine = outer[outer["metric"] == metric]
            baselines = mine[mine["group"] == BASELINE][column].abs()
            decided = verdicts[(verdicts["kind"] == kind) & (verdicts["a"] == metric)]
            merged = points.merge(mine[["group", "replicate", column]], on=["group", "replicate"])
            merged = merged.merge(decided[["group", "delta_z", "verdict"]], on="group", how="left")
            tables.append(
                pd.DataFrame(
                    {
                        "campaign": campaign, "kind": kind, "order": merged["order"], "step": merged["step"],
                        "added": [_short_list(text) for text in merged["added"]],
                        "instructions_percent": merged["instructions_percent"], "series": metric,
                        "rho": merged[column].abs(), "baseline_low": baselines.min(),
                        "baseline_high": baselines.max(), "delta_z": merged["delta_z"],
                        "verdict": merged["verdict"].fillna(BASELINE),
                    }
                )
            )  # fmt: skip
    return pd.concat(tables, ignore_index=True)


def _short_list(text: str) -> str:
    """The metric that was added, or how many."""
    names = text.split()
    return text if len(names) <= 1 else f"{len(names)} metrics"


def draw_points(table: pd.DataFrame, rows: Sequence[tuple[str, pd.DataFrame]]) -> Any:
    """A row of panels for each of ``rows`` (label of the axis, its points), a column an order.

    Bands are the ranges of the baselines; crosses are perturbed, circles inconclusive, dots equivalent.
    """
    orders = sorted(table["order"].unique())
    figure, axes = new_figure(
        3.3 * len(orders) + 0.6, 2.9 * len(rows) + 0.75, len(rows), len(orders), squeeze=False, sharex=True,
        sharey=True,
    )  # fmt: skip
    colours = dict(zip(table["series"].unique(), LINES, strict=False))
    for line, (label, points) in enumerate(rows):
        for axis, order in zip(axes[line], orders, strict=True):
            for series, mine in points[points["order"] == order].groupby("series", sort=False):
                _draw_series(axis, mine, colours[series])
            axis.axhline(LEAST, color=MUTED, lw=0.8, ls=":")
            axis.set_ylim(min(LEAST, table["rho"].min()) - 0.02, 1.01)
            if line == 0:
                axis.set_title(f"order {order}")
        axes[line, 0].set_ylabel(label)
    for axis in axes[-1]:
        axis.set_xlabel("added instructions [%]")
    _legend(
        figure,
        {series.replace("PAPI_", "").replace(" ", " - "): colour for series, colour in colours.items()},
    )
    return figure


def _draw_series(axis: Any, points: pd.DataFrame, colour: str) -> None:
    axis.axhspan(points["baseline_low"].iloc[0], points["baseline_high"].iloc[0], color=colour, alpha=0.13, lw=0)
    points = points.sort_values("instructions_percent")  # one more metric may well take instructions away
    axis.plot(points["instructions_percent"], points["rho"], color=colour, lw=0.9, alpha=0.8)
    for verdict, marker in VERDICTS.items():
        mine = points[points["verdict"] == verdict]
        size = _PERTURBED_SIZE if verdict == "perturbed" else _OTHER_SIZE
        axis.scatter(
            mine["instructions_percent"], mine["rho"], s=size, marker=marker, lw=0.7,
            color=colour if marker != "o" else "white", edgecolors="white" if marker == "X" else colour, zorder=3,
        )  # fmt: skip


def _legend(figure: Any, colours: dict[str, str]) -> None:
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=colour, label=series) for series, colour in colours.items()]
    marks = [
        Line2D([], [], color="none", marker=marker, markerfacecolor="white" if marker == "o" else MUTED,
               markeredgecolor=MUTED, markersize=7 if verdict == "perturbed" else 4.5, label=verdict)
        for verdict, marker in VERDICTS.items()
    ]  # fmt: skip
    figure.legend(handles=lines, loc="outside lower left", ncols=len(lines), columnspacing=1.2)
    figure.legend(handles=marks, loc="outside lower right", ncols=len(marks), columnspacing=0.6, handletextpad=0.1)


def binned(values: np.ndarray, bins: int) -> np.ndarray:
    """Means of ``bins`` stretches of equal length of ``values`` ``(n,)``; all of them when there are fewer."""
    edges = np.linspace(0, len(values), min(bins, len(values)) + 1).astype(int)
    return np.add.reduceat(values.astype(float), edges[:-1]) / np.diff(edges)
