"""The phases of a program, or its estimates from another tool's points, as one self-contained HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from measure.cycle_close.rate_labels import RATE_LABELS
from measure.perturbation.wording import number_text
from measure.program_phases.bbv import BasicBlockVectors
from measure.program_phases.choose import Phases
from measure.program_phases.estimates import FULL, POINTS, warmed_by
from measure.program_phases.homogeneity import (
    PARTIAL_NOTE,
    PROGRAM,
    faintest,
    is_partial,
    mean_text,
    metrics_in,
    similarity,
)
from measure.report.elements import Step, bullets, data_link, paragraph, section, table, to_do
from measure.report.page import csv_uri, plain_page
from measure.report.traces import Line, Row, Square, Strip, TraceFigure, scripts

if TYPE_CHECKING:
    import pandas as pd

    from measure.program_phases.representation import Representation

MOST_PHASES = 20
MOST_STRETCHES = 240
"""Rows of the similarity matrix; a run of more intervals is cut into so many stretches of neighbours."""
_FILES = {
    "bb": "the vectors, for SimPoint and other tools", "simpoints": "a line a point: its interval, and its phase",
    "weights": "a line a point: its weight, and its phase", "labels": "a line an interval: its phase, and its distance "
    "from the centre",
}  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """What a page shows. ``about``: the content of summary.json; ``edges`` (n + 1,): where intervals begin and end, in
    instructions; ``metrics``: a row an interval, if they were simulated; ``found``, ``vectors``: None for points of
    another tool; ``uniform``: the table of `homogeneity`; ``judged``: how well the points represent the program,
    if known; ``machine``: the file of the machine, None without one;
    ``directory``: of the results; ``files``: names of the files that were written there."""

    about: Mapping[str, Any]
    edges: NDArray[np.int64]
    directory: str
    files: Sequence[str]
    machine: str | None = None
    vectors: BasicBlockVectors | None = None
    found: Phases | None = None
    metrics: pd.DataFrame | None = None
    uniform: pd.DataFrame | None = None
    judged: Representation | None = None

    @property
    def name(self) -> str:
        return str(self.about["program"]).rsplit("/", 1)[-1].split(".")[0]

    @property
    def points(self) -> list[dict[str, Any]]:
        return list(self.about["simulation_points"])


def render_page(shown: Shown) -> str:
    """The page as text."""
    figures = _figures(shown)
    n, points = len(shown.edges) - 1, len(shown.points)
    phases = f"{shown.found.k} phases" if shown.found is not None else "points of another tool"
    title = f"{shown.name}: {phases}"
    sub = (
        f"{shown.edges[-1] / 1e6:,.1f} M instructions in {n:,} intervals; {points} simulation points stand for them: "
        f"{100 * points / n:.1f}% of the intervals." + (f" Machine: {shown.machine}." if shown.machine else "")
    )
    parts = [
        to_do(_headline(shown), _steps(shown), "Nothing."),
        *([section("The program over time", *(one.html() for one in figures))] if figures else []),
        _points(shown),
        *([_estimates(shown)] if "estimates" in shown.about else []),
        *([_uniform(shown)] if shown.uniform is not None else []),
        *([_scores(shown)] if shown.found is not None and len(shown.found.scores) > 1 else []),
        _files(shown),
    ]
    return plain_page(
        title=Markup("{}").format(title), heading=Markup("{}").format(title), sub=Markup("{}").format(sub),
        content=Markup("\n").join(parts), scripts=scripts(figures) if figures else Markup(""),
    )  # fmt: skip


def _realistic(about: Mapping[str, Any]) -> dict[str, float | None]:
    """Error [%] of CPI by warm-up, of points that were simulated separately."""
    prefix = warmed_by("")
    return {
        method.removeprefix(prefix): one["cpi"]["error_percent"]
        for method, one in about.get("estimates", {}).items()
        if method.startswith(prefix) and "cpi" in one
    }


def _headline(shown: Shown) -> str:
    errors = _realistic(shown.about)
    known = {warm_up: error for warm_up, error in errors.items() if error is not None}
    if not known:
        return "" if shown.machine else "How well the points represent the program is not known: nothing was simulated."
    if shown.judged is not None and shown.judged.warning:
        return shown.judged.warning
    best, worst = (some(known, key=lambda warm_up: known[warm_up]) for some in (min, max))
    told = f"{known[best]:.2f}% off ({best})"
    if worst != best:
        told += f" to {known[worst]:.2f}% ({worst})"
    return f"CPI of the whole program from the points is {told}."


def _steps(shown: Shown) -> list[Step]:
    """What to do next, with commands."""
    about, length = shown.about, shown.about["interval_instructions"]
    place = f"{shown.directory}/{shown.name}"
    seed = [] if about["seed"] == 1 else ["--seed", str(about["seed"])]
    program = [*seed, *about["options"], about["program"], *about["arguments"]]
    settings = [word for one in about["machine_settings"] for word in ("--set", one)]
    is_program = "bb" not in str(about["program"]).rsplit("/", 1)[-1].split(".")
    steps = []
    if shown.machine is None and is_program:
        steps.append(
            Step(
                "Simulate everything once on a machine, to see how far estimates from the points are off:",
                (shlex.join(["measure", "phases", "--interval", str(length), "--machine",
                             _machine_file("strongarm"), *program]),),
            )
        )  # fmt: skip
    if shown.judged is not None and shown.judged.warning:
        again = ["measure", "phases", "--interval", str(length), "--machine", str(shown.machine), *settings]
        commands = () if shown.found is None else (shlex.join([*again, *shown.judged.more_phases.split(), *program]),)
        steps.append(Step(shown.judged.remedy, commands))
    elif shown.found is not None:
        runnable = str(about["program"]) if is_program and not str(about["program"]).endswith(".c") else "PROGRAM"
        options = [f"--options={' '.join(about['arguments'])}"] if about["arguments"] else []
        steps.append(
            Step(
                "Take the points to gem5, which makes a checkpoint at each (here with a warm-up of 1 M instructions; "
                "the executable must be the one that was profiled):",
                (shlex.join(["build/RISCV/gem5.opt", "configs/deprecated/example/se.py",
                             "--cpu-type=NonCachingSimpleCPU", f"--cmd={runnable}", *options,
                             f"--take-simpoint-checkpoints={place}.simpoints,{place}.weights,{length},1000000"]),),
            )
        )  # fmt: skip
        if is_program:
            steps.append(
                Step(
                    "Try the same points on another machine:",
                    (shlex.join(["measure", "phases", "--points", f"{place}.simpoints", "--weights",
                                 f"{place}.weights", "--interval", str(length), "--machine",
                                 _machine_file("desktop"), *program]),),
                )
            )  # fmt: skip
    return steps


def _machine_file(name: str) -> str:
    """The shipped description of a machine, or where there is none, as outside of a checkout, the place for one."""
    shipped = Path("configs/machines", f"{name}.yaml")
    return str(shipped) if shipped.exists() else "MACHINE.yaml"


def _figures(shown: Shown) -> tuple[TraceFigure, ...]:
    """Metrics over time, the phases under them, and the similarity of intervals."""
    shared: dict[str, Any] = {"edges": shown.edges, "unit": "instructions", "interval": "interval"}
    intervals = tuple(point["interval"] for point in shown.points)
    figures = []
    if shown.metrics is not None:
        zones = tuple((one, one + 1) for one in intervals) if shown.found is None else ()
        marked = "Shaded: the simulation points. " if zones else ""
        figures.append(
            TraceFigure(
                "metrics", **shared,
                rows=tuple(
                    Row(RATE_LABELS[name], (Line(name, shown.metrics[name].to_numpy()),), zones)
                    for name in RATE_LABELS if name in shown.metrics
                ),
                caption=f"Metrics of each interval in full simulation. {marked}See whether they are level within a "
                "phase, and change where phases change: then one interval can stand for its phase. Drag across a plot, "
                "or use the buttons, to zoom in. Single extremes may run out of the picture.",
            )
        )  # fmt: skip
    if shown.found is not None:
        groups = np.zeros(len(shown.edges) - 1, np.int64)
        figures.append(
            TraceFigure(
                "phases", **shared,
                strip=Strip("Phase", shown.found.labels, groups, (("interval", "fourth"),), intervals),
                caption="The phase of each interval; phases are numbered as they appear. Triangles: the simulation "
                "points. See which phases come back, and whether a point lies amid its phase or at its edge.",
            )
        )  # fmt: skip
    if shown.vectors is not None:
        values = similarity(shown.vectors, MOST_STRETCHES)
        white = faintest(values)
        figures.append(
            TraceFigure(
                "similarity", **shared, square=Square("Distance", values, white),
                caption="Similarity of intervals: Manhattan distance of their vectors, from 0 (strong: the same code "
                f"in the same proportions) to {white:.2g} and more (faint); 2 is no code in common. See strong squares "
                "along the diagonal, which are phases, and strong rectangles off it, where a phase comes back.",
            )
        )  # fmt: skip
    return tuple(figures)


def _points(shown: Shown) -> Markup:
    """The simulation points with the phases that they stand for."""
    heads: tuple[str, ...] = ("phase", "weight", "point: interval", "begins at instruction")
    counts = None if shown.found is None else np.bincount(shown.found.labels, minlength=shown.found.k)
    heads += () if counts is None else ("intervals",)
    cpi = None if shown.metrics is None or "cpi" not in shown.metrics else shown.metrics["cpi"].to_numpy()
    heads += () if cpi is None else ("CPI of the point",)
    of_phase = shown.uniform if shown.uniform is not None and "cpi_mean" in shown.uniform else None
    heads += () if of_phase is None else ("CPI of the phase",)
    rows = []
    for point in shown.points:
        interval, phase = point["interval"], point["phase"]
        row: list[Any] = [phase, point["weight"], interval, int(shown.edges[interval])]
        row += [] if counts is None else [int(counts[phase])]
        row += [] if cpi is None else [float(cpi[interval])]
        row += [] if of_phase is None else [float(of_phase["cpi_mean"][str(phase)])]
        rows.append(row)
    largest = sorted(rows, key=lambda row: -row[1])[:MOST_PHASES]
    cells = [
        (
            f"phase\u00a0{row[0]}",
            f"{100 * row[1]:.1f}%",
            *(f"{one:,}" if isinstance(one, int) else number_text(one) for one in row[2:]),
        )
        for row in largest
    ]
    of_all = f"The {len(largest)} heaviest of {len(rows)} points. " if len(largest) < len(rows) else ""
    compared = (
        " CPI of the point and of its phase should agree: the point stands for the phase."
        if of_phase is not None
        else ""
    )
    return section(
        "Phases and their simulation points",
        table("Phases and their simulation points", heads, cells),
        Markup('<p class="note">{}Weight: share of all instructions.{} {}</p>').format(
            of_all, compared, data_link("simulation-points", csv_uri(heads, rows), "Data of all points (CSV)")
        ),
    )  # fmt: skip


def _estimates(shown: Shown) -> Markup:
    """The whole program by the points, by warm-up, and by simpler methods."""
    estimates = shown.about["estimates"]
    prefix = warmed_by("")
    names = {
        method: "points, perfectly warm" if method == POINTS else f"points, {method.removeprefix(prefix)}"
        if method.startswith(prefix) else method
        for method in estimates
    }  # fmt: skip
    order = sorted(names, key=lambda method: (method != FULL, not method.startswith(POINTS)))
    heads = ("metric", *(names[method] for method in order))
    rows = [
        (_label(metric), number_text(full["value"]), *(_with_error(estimates[method][metric]) for method in order[1:]))
        for metric, full in estimates[FULL].items()
    ]
    data = csv_uri(
        ("metric", "method", "value", "error_percent"),
        [(metric, names[method], one["value"], one["error_percent"])
         for method in order for metric, one in estimates[method].items()],
    )  # fmt: skip
    return section(
        "The whole program by its points, and the error by warm-up",
        table("Estimates of the whole program", heads, rows),
        Markup('<p class="note">{} {}</p>').format(
            "In brackets: the error against full simulation. Perfectly warm points are cut out of the full simulation, "
            "and so have the error of the phases alone; points with a warm-up were simulated separately, and have the "
            "error to expect in practice. The first intervals, and as many after a part that is skipped, cost as much.",
            data_link("estimates", data, "Data of this table (CSV)"),
        ),
    )  # fmt: skip


def _uniform(shown: Shown) -> Markup:
    """Mean and spread of each metric within the phases."""
    assert shown.uniform is not None
    uniform = shown.uniform
    metrics = metrics_in(uniform)
    largest = sorted((one for one in uniform.index if one != PROGRAM), key=lambda one: -uniform.loc[one, "share"])
    rows = []
    for name in (PROGRAM, *largest[:MOST_PHASES]):
        row = uniform.loc[name]
        spreads = [mean_text(row, metric) for metric in metrics]
        rows.append(
            (
                "whole program" if name == PROGRAM else f"phase\u00a0{name}",
                f"{100 * row['share']:.1f}%",
                f"{int(row['intervals']):,}",
                *spreads,
            )
        )
    data = csv_uri(("phase", *uniform.columns), [(name, *uniform.loc[name]) for name in uniform.index])
    return section(
        "How uniform the phases are",
        table("How uniform the phases are", ("phase", "share", "intervals", *map(_label, metrics)), rows),
        Markup('<p class="note">{} {}</p>').format(
            "Mean of the intervals of a phase (a mean of hit rates is not the rate over all accesses, which the table "
            "above has), and in brackets their standard deviation in percent of it. A phase that spreads much less "
            "than the whole program is one; a large phase that spreads as much is badly represented by one point."
            + (f" {PARTIAL_NOTE}" if is_partial(uniform) else ""),
            data_link("homogeneity", data, "Data of this table (CSV)"),
        ),
    )  # fmt: skip


def _scores(shown: Shown) -> Markup:
    """The score of each number of phases that was tried."""
    assert shown.found is not None
    scores = sorted(shown.found.scores.items())
    heads = ("phases", "score (BIC)")
    return Markup("<details><summary>Scores of the numbers of phases that were tried</summary>{}{}</details>").format(
        table("Scores of the numbers of phases", heads, [(f"{k}", f"{score:,.0f}") for k, score in scores]),
        Markup('<p class="note">{}</p>').format(
            data_link("scores", csv_uri(heads, scores), "Data of this table (CSV)")
        ),
    )


def _files(shown: Shown) -> Markup:
    """The files that were written."""
    about = {f"{shown.name}.{ending}": text for ending, text in _FILES.items()} | {
        "trace.parquet": "metrics and events of every interval in full simulation",
        "homogeneity.csv": "mean and spread of the metrics, by phase",
        "phases.png": "the figures of this page as a picture",
        "summary.json": "phases, points and estimates, for programs",
    }
    return section(
        "Files", bullets(f"`{name}`: {about[name]}" for name in shown.files),
        paragraph(f"In {shown.directory}; .bb, .simpoints, .weights and .labels are in SimPoint's formats.", note=True),
    )  # fmt: skip


def _label(metric: str) -> str:
    return RATE_LABELS.get(metric, metric)


def _with_error(one: Mapping[str, float | None]) -> str:
    error = one["error_percent"]
    return number_text(one["value"]) + (f" ({error:.2f}%)" if error is not None else "")
