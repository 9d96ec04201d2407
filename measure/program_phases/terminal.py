"""Prints the result of `measure phases`: the points, the homogeneity of the phases, and the estimates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from rich.markup import escape

from measure.console.tables import print_table
from measure.program_phases.bbv import BasicBlockVectors
from measure.program_phases.choose import Phases
from measure.program_phases.homogeneity import PARTIAL_NOTE, PROGRAM, is_partial, mean_text, metrics_in
from measure.program_phases.points import SimulationPoints

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from measure.program_phases.estimates import Estimates
    from measure.program_phases.representation import Representation

_SHOWN_PHASES = 5


def _short(metric: str) -> str:
    """A shortened name, to leave room for other columns, as markup."""
    from measure.cycle_close.rate_labels import SHORT_LABELS

    if metric in SHORT_LABELS:
        return escape(SHORT_LABELS[metric])
    return metric.replace("_nj_per_instruction", " nJ/instr.").replace("_rate", "s").replace("_", " ")


def print_warning(console: Console, judged: Representation | None) -> None:
    """Print why the points are not to be trusted, and what to do; nothing where they are, or nothing is known."""
    if judged is not None and judged.warning:
        console.print(f"{judged.warning} {judged.remedy}", style="yellow")


def print_phases(
    console: Console,
    vectors: BasicBlockVectors,
    found: Phases,
    points: SimulationPoints,
    uniform: pd.DataFrame | None,
    seconds: tuple[float, float],
) -> None:
    """Print the phases with their points and, for the largest ones, ``uniform``, the table of `homogeneity`.

    ``seconds``: durations of the vectors and of the phases.
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
    """Print mean and spread of each metric in the largest phases."""
    metrics = metrics_in(uniform)
    title = "Mean of the intervals' own rates (standard deviation in percent of it)"
    largest = [str(phase) for phase in np.argsort(-found.weights, kind="stable") if found.weights[phase] > 0]
    if len(largest) > _SHOWN_PHASES:
        title += f", the {_SHOWN_PHASES} largest phases"
    shown = uniform.loc[[PROGRAM, *largest[:_SHOWN_PHASES]]]
    rows = [
        (str(name), f"{100 * row['share']:.1f}", *(mean_text(row, metric, "\n") for metric in metrics))
        for name, row in shown.iterrows()
    ]
    headings = ("phase", "share\n\\[%]", *map(_short, metrics))
    print_table(console, title, headings, rows, right=range(1, len(headings)))
    if is_partial(shown):
        console.print(PARTIAL_NOTE, style="dim")


def print_estimates(console: Console, estimated: Estimates) -> None:
    """Print each metric by each method, with its error; ``estimated``: the result of `estimates`."""
    from measure.program_phases.estimates import FULL, POINTS

    prefix = f"{POINTS}, "
    by_warm_up = {method: method.removeprefix(prefix) for method in estimated if method.startswith(prefix)}
    others = {
        method: method.replace(" simulation", "").replace("simulation ", "")
        for method in estimated
        if method not in by_warm_up
    }
    title = "Rates of totals by (error); intervals cut out of full simulation, warm"
    _print_methods(console, estimated, others, title)
    if by_warm_up:
        methods = {FULL: others[FULL], POINTS: "cut out, warm", **by_warm_up}
        _print_methods(console, estimated, methods, "Rates of the points' totals by warm-up (error)")


def _print_methods(console: Console, estimated: Estimates, methods: dict[str, str], title: str) -> None:
    """Print a table of the ``methods``, `FULL` first, under short names."""
    from measure.program_phases.estimates import FULL

    rows = []
    for metric, truth in estimated[FULL].items():
        cells = [_with_error(**estimated[method][metric]) for method in methods if method != FULL]
        rows.append((_short(metric), f"{truth['value']:.3f}", *cells))
    headings = ("metric", *map(escape, methods.values()))
    print_table(console, title, headings, rows, right=range(1, len(headings)))


def _with_error(value: float, error_percent: float) -> str:
    """An estimate and its error; "-" for what is not defined, as the error in percent of 0."""
    if math.isnan(value):
        return "-"
    return f"{value:.3f} (-)" if math.isnan(error_percent) else f"{value:.3f} ({error_percent:.2f}%)"
