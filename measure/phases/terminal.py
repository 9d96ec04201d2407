"""What `measure phases` prints: the points, how uniform the phases are, and what the points say of the program."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from measure.phases.bbv import BasicBlockVectors
from measure.phases.choose import Phases
from measure.phases.homogeneity import PROGRAM
from measure.phases.points import SimulationPoints

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_SHOWN_PHASES = 5


def _short(metric: str) -> str:
    """A name that leaves room for the other columns."""
    return metric.replace("_nj_per_instruction", " nJ").replace("_rate", "s").replace("_", " ")


def print_phases(
    console: Console,
    vectors: BasicBlockVectors,
    found: Phases,
    points: SimulationPoints,
    uniform: pd.DataFrame | None,
    seconds: tuple[float, float],
) -> None:
    """The phases with their points and, of the largest ones, ``uniform``: what `homogeneity` gives.

    ``seconds``: that the vectors and that the phases took.
    """
    console.print(
        f"{vectors.n_intervals:,} intervals, {vectors.n_dims:,} blocks: {found.k} phases "
        f"(vectors {seconds[0]:.2f} s, phases {seconds[1]:.2f} s)"
    )
    for phase, interval in zip(points.phases, points.intervals, strict=True):
        console.print(
            f"  phase {phase}: {100 * found.weights[phase]:5.1f}% of the program, "
            f"simulation point: interval {interval:,}"
        )
    if uniform is not None:
        _print_uniform(console, uniform, found)


def _print_uniform(console: Console, uniform: pd.DataFrame, found: Phases) -> None:
    from rich.table import Table

    metrics = [column.removesuffix("_mean") for column in uniform.columns if column.endswith("_mean")]
    title = "Mean (standard deviation in percent of it)"
    largest = [str(phase) for phase in np.argsort(-found.weights, kind="stable") if found.weights[phase] > 0]
    if len(largest) > _SHOWN_PHASES:
        title += f", the {_SHOWN_PHASES} largest phases"
    shown = Table(title=title, title_justify="left")
    for name in ("phase", "share", *metrics):
        shown.add_column(_short(name), justify="right")
    for name in (PROGRAM, *largest[:_SHOWN_PHASES]):
        row = dict(zip(uniform.columns, uniform.loc[name].to_numpy(dtype=float), strict=True))
        cells = []
        for metric in metrics:
            mean, spread = row[f"{metric}_mean"], row[f"{metric}_cov"]
            cells.append("-" if math.isnan(mean) else f"{mean:.3f} ({100 * spread:.1f}%)")
        shown.add_row(name, f"{100 * row['share']:.1f}%", *cells)
    console.print(shown)


def print_estimates(console: Console, told: dict[str, dict[str, dict[str, float]]]) -> None:
    """Each metric by each way, with its error; ``told``: what `estimates` gives."""
    from measure.phases.estimates import FULL, POINTS

    by_warm_up = {way: way.removeprefix(f"{POINTS}, ") for way in told if way.startswith(f"{POINTS}, ")}
    others = {
        way: way.replace(" simulation", "").replace("simulation ", "")
        for way in told
        if way not in by_warm_up
    }
    _print_ways(console, told, others, "Whole program by (error); intervals cut out of full simulation, warm")
    if by_warm_up:
        ways = {FULL: others[FULL], POINTS: "cut out, warm", **by_warm_up}
        _print_ways(console, told, ways, "Simulation points by warm-up (error)")


def _print_ways(
    console: Console, told: dict[str, dict[str, dict[str, float]]], ways: dict[str, str], title: str
) -> None:
    """A table of the ``ways``, `FULL` first, under short names."""
    from rich.table import Table

    from measure.phases.estimates import FULL

    shown = Table(title=title, title_justify="left")
    shown.add_column("metric")
    for name in ways.values():
        shown.add_column(name, justify="right")
    for metric, truth in told[FULL].items():
        cells = [
            f"{told[way][metric]['value']:.3f} ({told[way][metric]['error_percent']:.2f}%)"
            for way in ways
            if way != FULL
        ]
        shown.add_row(_short(metric), f"{truth['value']:.3f}", *cells)
    console.print(shown)
