"""What several figures show alike: correlation over added instructions, a panel an order, baselines as a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.measurement_perturbation.results import Results
from measure.report.style import LINES, MUTED, new_figure
from measure.report.style import VERDICTS as VERDICT_COLOURS
from measure.run_types import BASELINE
from measure.stats.correlation import fisher_z

LEAST = 0.3
"""The paper plots correlations from here on only (section 3.3); figures mark it."""
VERDICTS = {"perturbed": "X", "changed": "^", "inconclusive": "o", "equivalent": ".", "not assessable": "s"}
_PERTURBED_SIZE, _OTHER_SIZE = 34, 14


def inner_points(results: Results, campaign: str, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Inner correlation of ``pairs`` in every run of the orders, with verdict and range of the baselines.

    ``rho``, ``baseline_low`` and ``baseline_high`` are absolute, as in the paper. Signed, and in z: the change
    ``delta_z`` with its interval ``low`` to ``high``, and ``band_low`` to ``band_high``, the baselines' distances from
    their mean.
    """
    inner = results.table("inner", campaign)
    rows = [_of_pair(results, campaign, inner, *pair) for pair in pairs]
    return pd.concat(rows, ignore_index=True)


def _of_pair(results: Results, campaign: str, inner: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    mine = inner[((inner["a"] == a) & (inner["b"] == b)) | ((inner["a"] == b) & (inner["b"] == a))]
    plain = mine[mine["group"] == BASELINE]["rho"]
    baselines, z = plain.abs(), fisher_z(plain.to_numpy())
    verdicts = results.table("verdicts", campaign)
    verdicts = verdicts[verdicts["kind"] == "inner"]
    verdicts = verdicts[verdicts["a"].isin((a, b)) & verdicts["b"].isin((a, b))]
    points = results.points(campaign).merge(mine[["group", "replicate", "rho"]], on=["group", "replicate"])
    points = points.merge(verdicts[["group", "delta_z", "low", "high", "verdict"]], on="group", how="left")
    return pd.DataFrame(
        {
            "campaign": campaign, "order": points["order"], "step": points["step"],
            "added": [_short_list(text) for text in points["added"]],
            "instructions_percent": points["instructions_percent"], "series": f"{a} {b}", "rho": points["rho"].abs(),
            "baseline_low": baselines.min(), "baseline_high": baselines.max(), "delta_z": points["delta_z"],
            "low": points["low"], "high": points["high"],
            "band_low": z.min() - z.mean(), "band_high": z.max() - z.mean(),
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


def draw_changes(table: pd.DataFrame, delta: float) -> Any:
    """A row of panels a campaign and pair, a column an order: the signed change of z of every run, with its interval.

    Grey: up to ``delta``; bands: the baselines. The marks of verdicts are `VERDICTS`, in the report's colours.
    """
    orders = sorted(table["order"].unique())
    rows = list(table.groupby(["campaign", "series"], sort=False))
    figure, axes = new_figure(
        3.3 * len(orders) + 0.6, 1.9 * len(rows) + 0.75, len(rows), len(orders), squeeze=False, sharex=True,
        sharey="row",
    )  # fmt: skip
    for line, ((campaign, series), points) in enumerate(rows):
        for axis, order in zip(axes[line], orders, strict=True):
            mine = points[(points["order"] == order) & (points["step"] > 0)].sort_values("instructions_percent")
            axis.axhspan(-delta, delta, color=MUTED, alpha=0.1, lw=0)
            axis.axhspan(mine["band_low"].iloc[0], mine["band_high"].iloc[0], color=LINES[0], alpha=0.2, lw=0)
            axis.axhline(0, color=MUTED, lw=0.8)
            for verdict, marker in VERDICTS.items():
                told = mine[mine["verdict"] == verdict]
                x, colour = told["instructions_percent"], VERDICT_COLOURS[verdict]
                axis.vlines(x, told["low"], told["high"], color=colour, lw=0.6, alpha=0.6)
                size = _PERTURBED_SIZE if verdict == "perturbed" else _OTHER_SIZE
                axis.scatter(x, told["delta_z"], s=size, marker=marker, color=colour, lw=0.4, zorder=3)
            if line == 0:
                axis.set_title(f"order {order}")
        several = table["campaign"].nunique() > 1
        name = str(series).replace("PAPI_", "").replace(" ", " - ")
        axes[line, 0].set_ylabel(f"{campaign}: {name}\nchange of z" if several else f"{name}\nchange of z")
    for axis in axes[-1]:
        axis.set_xlabel("added instructions [%]")
    shown = [verdict for verdict in VERDICTS if (table["verdict"] == verdict).any()]
    _legend(figure, {"range of the baselines": LINES[0]}, shown, VERDICT_COLOURS)
    return figure


def draw_points(table: pd.DataFrame, rows: Sequence[tuple[str, pd.DataFrame]]) -> Any:
    """A row of panels for each of ``rows`` (label of the axis, its points), a column an order.

    Bands are the ranges of the baselines; the marks of verdicts are `VERDICTS`.
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
        [verdict for verdict in VERDICTS if (table["verdict"] == verdict).any()],
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


def _legend(
    figure: Any, colours: dict[str, str], verdicts: Sequence[str], of_verdicts: Mapping[str, str] | None = None
) -> None:
    """``colours``: of lines, by their label; ``of_verdicts``: of marks, default: one for all."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=colour, label=series) for series, colour in colours.items()]
    marks = [
        Line2D([], [], color="none", marker=VERDICTS[verdict],
               markerfacecolor="white" if VERDICTS[verdict] == "o" and not of_verdicts else tint,
               markeredgecolor=tint, markersize=7 if verdict == "perturbed" else 4.5, label=verdict)
        for verdict in verdicts
        for tint in [of_verdicts[verdict] if of_verdicts else MUTED]
    ]  # fmt: skip
    figure.legend(handles=lines, loc="outside lower left", ncols=len(lines), columnspacing=1.2)
    figure.legend(handles=marks, loc="outside lower right", ncols=len(marks), columnspacing=0.6, handletextpad=0.1)


def binned(values: np.ndarray, bins: int) -> np.ndarray:
    """Means of ``bins`` stretches of equal length of ``values`` ``(n,)``; all of them when there are fewer."""
    edges = np.linspace(0, len(values), min(bins, len(values)) + 1).astype(int)
    return np.add.reduceat(values.astype(float), edges[:-1]) / np.diff(edges)
