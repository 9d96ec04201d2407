"""``measure phases``: vectors, phases, simulation points, and how well these represent the program.

Files of vectors need few of the modules that programs need, so `measure.program_phases.program` is imported only for
programs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from common.atomic_files import remove_leftovers
from common.plain_json import plain_json
from common.quantities import SHORTEST_TRACED_INTERVAL
from measure.arguments import check_number, check_word
from measure.cycle_close.job import Job, check_length, failed_after
from measure.errors import ArgumentError, CampaignError
from measure.program_phases.bbv import BasicBlockVectors
from measure.program_phases.bbv_files import (
    PhaseFileError,
    read_bb,
    read_points,
    write_bb,
    write_labels,
    write_simpoints,
    write_weights,
)
from measure.program_phases.choose import Phases, Search, find_phases
from measure.program_phases.compat import find_phases_simpoint32
from measure.program_phases.data_phases import split_by_waits
from measure.program_phases.homogeneity import similarity
from measure.program_phases.kmeans import Starts
from measure.program_phases.points import SimulationPoints, simulation_points
from measure.program_phases.projection import project
from measure.program_phases.terminal import print_estimates, print_phases, print_warning
from measure.result_files import (
    SUMMARY_NAME,
    check_results_place,
    write_atomically,
    write_result,
    write_text_atomically,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from measure.program_phases.estimates import Estimates
    from measure.program_phases.representation import Representation

_MAY_BE_LEFT = ("trace.parquet", "homogeneity.csv", "phases.png", "phases.html")  # not every run writes these

SUMMARY_FORMAT = "perturbation-phases-1"


@dataclass(frozen=True)
class Options:
    """Options of the search for phases. None: the default of `find_phases`, or with ``compat`` of
    `find_phases_simpoint32`.

    ``k``: this many phases and no search; ``starts``: of k-means, for each k; ``fixed_length``: intervals weigh
    the same, else by their instructions; ``coverage``: the largest phases that make up this fraction get a point;
    ``wait_step``: phases are cut where their intervals wait for memory differently by this fraction of time (0: not);
    ``picture``: draw it, and make the page; ``warm_up_instructions``: of points that are simulated separately. Raises
    `ArgumentError` for those out of range.
    """

    interval_instructions: int = 10_000_000
    max_k: int = 30
    k: int | None = None
    starts: int = 5
    start_method: Starts | None = None
    search: Search | None = None
    threshold: float = 0.9
    dimensions: int = 15
    coverage: float = 1.0
    fixed_length: bool | None = None
    seed: int | None = None
    compat: bool = False
    wait_step: float = 0.0
    picture: bool = True
    warm_up_instructions: int = 1_000_000

    def __post_init__(self) -> None:
        check_number(
            "interval_instructions", self.interval_instructions, least=SHORTEST_TRACED_INTERVAL, whole=True,
            what="instructions",
        )  # fmt: skip
        check_number("max_k", self.max_k, least=1, whole=True, what="phases")
        check_number("starts", self.starts, least=1, whole=True, what="starts of k-means for each k")
        check_number("dimensions", self.dimensions, least=1, whole=True)
        check_number("threshold", self.threshold, least=0, most=1, what="a fraction of the way to the best score")
        check_number("coverage", self.coverage, above=0, most=1, what="a fraction of the program")
        check_number("wait_step", self.wait_step, least=0, most=10, what="a fraction of an instruction's time")
        check_number("warm_up_instructions", self.warm_up_instructions, least=0, whole=True, what="instructions")
        if self.k is not None:
            check_number("k", self.k, least=1, whole=True, what="phases")
        if self.seed is not None:
            check_number("seed", self.seed, whole=True)
        if self.search is not None:
            check_word("search", self.search, get_args(Search))
        if self.start_method is not None:
            check_word("start_method", self.start_method, get_args(Starts))


@dataclass(frozen=True)
class Profiled:
    """The vectors of a program. ``waits``: see `BlockProfile`; ``table``: all intervals simulated in detail, if they
    were; ``ending``: why the guest failed, None if it did not."""

    vectors: BasicBlockVectors
    waits: NDArray[np.float64] | None
    table: pd.DataFrame | None
    ending: str | None


def is_vectors_file(program: Path) -> bool:
    """Whether ``program`` is a file of vectors: ``.bb``, ``.bb.gz``, or QEMU's ``.0.bb``."""
    return ".bb" in program.suffixes


def refuse_for_vectors(program: Path, **arguments: object) -> None:
    """Raise `ArgumentError` for the first of ``arguments``, by name, that is given (not empty, 0 or None): they are for
    running a program, and ``program`` is a file of vectors."""
    for name, given in arguments.items():
        if given:
            raise ArgumentError(
                f"{name}: got {given!r}, expected none for {program}, a file of vectors: nothing is run"
            )


def phases_of(vectors: BasicBlockVectors, options: Options, waits: NDArray[np.float64] | None = None) -> Phases:
    """The phases of the vectors, cut by ``waits`` if given.

    Raises `CampaignError` for options out of range.
    """
    arguments: dict[str, Any] = {"max_k": options.max_k, "seeds": options.starts, "threshold": options.threshold}
    arguments |= {"k": options.k}
    chosen = {"search": options.search, "starts": options.start_method}
    arguments |= {name: value for name, value in chosen.items() if value is not None}
    try:
        if options.compat:
            if options.seed is not None:
                arguments["seed_kmeans"] = options.seed
            fixed = options.fixed_length is not False
            return find_phases_simpoint32(vectors, dimensions=options.dimensions, fixed_length=fixed, **arguments)
        seed = 1 if options.seed is None else options.seed
        length = np.ones(vectors.n_intervals) if options.fixed_length else vectors.instructions.astype(float)
        points = project(vectors, options.dimensions, seed)
        found = find_phases(points, weights=length, seed=seed, **arguments)
        return found if waits is None else split_by_waits(found, points, waits, length, options.wait_step)
    except ValueError as error:
        raise CampaignError(str(error)) from None


def run_phases(job: Job, machine: Path | None, options: Options, directory: Path, console: Console) -> str | None:
    """Find the phases of a program or of a file of vectors, write the results to ``directory``, and print them.

    Returns why the guest failed, None if it did not.
    """
    check_results_place(directory, "measure phases", program=job.program)
    started = time.perf_counter()
    made = profiled(job, machine, options, console)
    vectors, table = made.vectors, made.table
    vector_seconds = time.perf_counter() - started
    found = phases_of(vectors, options, made.waits)
    points = simulation_points(found, options.coverage)
    phase_seconds = time.perf_counter() - started - vector_seconds
    about = _summary(job, options, vectors, found, points)
    estimated, uniform, judged = None, None, None
    if table is not None:
        assert machine is not None
        estimated, uniform, judged = judged_points(job, machine, options, table, found, points, console)
        about |= _judged(estimated, judged)
    remove_leftovers(directory)
    files = _write(directory, job, vectors, found, points, made, options, uniform)
    _write_summary(directory, about, files)
    if options.picture:
        edges = np.append(0, np.cumsum(vectors.instructions))
        _write_page(directory, about, edges, files, machine, vectors=vectors, found=found, table=table,
                    uniform=uniform, judged=judged)  # fmt: skip
    if made.ending is not None:
        console.print(failed_after(int(vectors.instructions.sum())), style="red")
    print_warning(console, judged)
    print_phases(console, vectors, found, points, uniform, (vector_seconds, phase_seconds))
    if options.k is not None and found.k < options.k:
        console.print(
            f"Note: {found.k} phases, not the {options.k} of --k: the program's {vectors.n_intervals} intervals are "
            "not so many different ones; shorter intervals (--interval) are more."
        )
    if estimated is not None:
        print_estimates(console, estimated)
    _print_place(console, directory, options)
    return made.ending


def judged_points(
    job: Job, machine: Path, options: Options, table: pd.DataFrame, found: Phases, points: SimulationPoints,
    console: Console,
) -> tuple[Estimates, pd.DataFrame, Representation | None]:  # fmt: skip
    """The points' estimates of the program beside the full simulation in ``table``, how alike the intervals of each
    phase are, and whether the points stand for the program. Raises `CampaignError` for bad input."""
    from measure.program_phases.homogeneity import homogeneity
    from measure.program_phases.program import metrics_of
    from measure.program_phases.representation import representation

    uniform = homogeneity(found.labels, metrics_of(table), table["instructions"])
    estimated = _estimates(job, machine, options, table, points, console)
    return estimated, uniform, representation(estimated, uniform)


def run_points(
    job: Job, machine: Path, options: Options, files: tuple[Path, Path], directory: Path, console: Console
) -> str | None:
    """Estimate the program by simulation points of another tool, from the ``files`` of points and of weights.

    Also simulates all of it on ``machine``, writes DIR/trace.parquet, summary.json and phases.html, and prints. Returns
    why the guest failed, None if it did not.
    """
    from measure.program_phases.program import simulate
    from measure.program_phases.representation import representation

    check_results_place(directory, "measure phases", program=job.program)
    points = read_points(*files)
    table, ending = simulate(job, machine, options.interval_instructions, console)
    beyond = points.intervals >= len(table)
    if beyond.any():
        raise PhaseFileError(
            f"{files[0]}: got interval {points.intervals[beyond][0]}, expected 0 to {len(table) - 1}: with intervals "
            f"of {options.interval_instructions:,} instructions {job.program} has {len(table)}; "
            "give --interval the length that the points were made with"
        )
    check_length(job, options.interval_instructions, int(table["end_instructions"].iloc[-1]), ending)
    estimated = _estimates(job, machine, options, table, points, console)
    write_atomically(directory / "trace.parquet", lambda path: table.to_parquet(path))
    judged = representation(estimated)
    about = _described(job, options.interval_instructions, points) | _judged(estimated, judged)
    _write_summary(directory, about, ["trace.parquet"])
    if options.picture:
        edges = np.append(table["begin_instructions"].to_numpy()[:1], table["end_instructions"])
        _write_page(directory, about, edges, ["trace.parquet"], machine, table=table, judged=judged)
    if ending is not None:
        console.print(failed_after(int(table["end_instructions"].iloc[-1])), style="red")
    print_warning(console, judged)
    print_estimates(console, estimated)
    _print_place(console, directory, options)
    return ending


def _estimates(
    job: Job, machine: Path, options: Options, table: pd.DataFrame, points: SimulationPoints, console: Console
) -> Estimates:
    """The points' estimates of the program beside the full simulation in ``table``, by warm-up."""
    from measure.program_phases.estimates import estimates
    from measure.program_phases.program import points_by_warm_up

    warmed = points_by_warm_up(job, machine, table, points, options.warm_up_instructions, console)
    return estimates(table, points, warmed)


def profiled(job: Job, machine: Path | None, options: Options, console: Console) -> Profiled:
    """The vectors of the program, or those of the file. Raises `CampaignError` for bad input, and for a file of vectors
    with what is for running a program."""
    if is_vectors_file(job.program):
        refuse_for_vectors(job.program, arguments=job.arguments, stdin=job.stdin, exit_status=job.exit_status)
        return Profiled(read_bb(job.program), None, None, None)
    from measure.program_phases.program import profile

    wait_step = 0.0 if options.compat else options.wait_step
    return Profiled(*profile(job, machine, options.interval_instructions, wait_step, console))


def _described(job: Job, interval_instructions: int, points: SimulationPoints) -> dict[str, Any]:
    listed = zip(points.phases.tolist(), points.intervals.tolist(), points.weights.tolist(), strict=True)
    return {
        "format": SUMMARY_FORMAT,
        "program": str(job.program),
        "arguments": list(job.arguments),
        "machine_settings": list(job.settings),
        "options": job.options,
        "seed": job.seed,
        "interval_instructions": interval_instructions,
        "simulation_points": [
            {"phase": phase, "interval": interval, "weight": weight} for phase, interval, weight in listed
        ],
    }


def _summary(
    job: Job, options: Options, vectors: BasicBlockVectors, found: Phases, points: SimulationPoints
) -> dict[str, Any]:
    """The content of summary.json, without estimates."""
    length = options.interval_instructions
    if is_vectors_file(job.program):
        length = int(np.sort(vectors.instructions)[vectors.n_intervals // 2])  # the median is the tool's setting
    return _described(job, length, points) | {
        "rules": "simpoint-3.2" if options.compat else "own",
        "wait_step": options.wait_step,
        "intervals": vectors.n_intervals,
        "blocks": vectors.n_dims,
        "k": found.k,
        "scores": {str(k): found.scores[k] for k in sorted(found.scores)},
        "weights": found.weights.tolist(),
    }


def _judged(estimated: Estimates, judged: Representation | None) -> dict[str, Any]:
    """What summary.json says of the estimates, and of whether the points represent the program."""
    about: dict[str, Any] = {"estimates": plain_json(estimated)}
    if judged is not None:
        about["representation"] = {
            "cpi_error_percent": judged.error_percent,
            "cpi_by_chance_percent": judged.by_chance_percent,
            "warning": judged.warning or None,
        }
    return about


def _write_summary(directory: Path, about: dict[str, Any], written: Sequence[str]) -> None:
    """Write the summary of a run that has ``written`` other files, without what only an earlier one had written."""
    for name in _MAY_BE_LEFT:
        if name not in written:
            (directory / name).unlink(missing_ok=True)
    write_result(directory / SUMMARY_NAME, about)


def _write(
    directory: Path,
    job: Job,
    vectors: BasicBlockVectors,
    found: Phases,
    points: SimulationPoints,
    profiled: Profiled,
    options: Options,
    uniform: pd.DataFrame | None,
) -> list[str]:
    """Write the vectors, points, weights, labels, tables and the picture; the names of the files."""
    name = job.program.name.split(".")[0]
    files = []
    if not is_vectors_file(job.program):
        write_bb(directory / f"{name}.bb", vectors)
        files.append(f"{name}.bb")
    write_simpoints(directory / f"{name}.simpoints", points.intervals, points.phases)
    write_weights(directory / f"{name}.weights", points.weights, points.phases)
    write_labels(directory / f"{name}.labels", found.labels, found.distances)
    files += [f"{name}.simpoints", f"{name}.weights", f"{name}.labels"]
    if profiled.table is not None and uniform is not None:
        shown = profiled.table.assign(phase=found.labels)
        write_atomically(directory / "trace.parquet", lambda path: shown.to_parquet(path))
        write_atomically(directory / "homogeneity.csv", lambda path: uniform.to_csv(path))
        files += ["trace.parquet", "homogeneity.csv"]
    if options.picture:
        _draw(directory / "phases.png", name, vectors, found, points, profiled.table)
        files.append("phases.png")
    return files


def _write_page(
    directory: Path,
    about: dict[str, Any],
    edges: NDArray[np.int64],
    files: list[str],
    machine: Path | None,
    *,
    vectors: BasicBlockVectors | None = None,
    found: Phases | None = None,
    table: pd.DataFrame | None = None,
    uniform: pd.DataFrame | None = None,
    judged: Representation | None = None,
) -> None:
    """Write DIR/phases.html; see `measure.program_phases.page.Shown`."""
    from measure.program_phases.page import Shown, render_page

    metrics = None
    if table is not None:
        from measure.program_phases.program import metrics_of

        metrics = metrics_of(table)
    shown = Shown(
        about, edges, str(directory), [*files, SUMMARY_NAME], None if machine is None else str(machine), vectors,
        found, metrics, uniform, judged,
    )  # fmt: skip
    write_text_atomically(directory / "phases.html", render_page(shown))


def _print_place(console: Console, directory: Path, options: Options) -> None:
    page = f"   Page: {directory / 'phases.html'}" if options.picture else ""
    console.print(f"Results: {directory}{page}", style="dim")


def _draw(
    path: Path,
    name: str,
    vectors: BasicBlockVectors,
    found: Phases,
    points: SimulationPoints,
    table: pd.DataFrame | None,
) -> None:
    """Draw the phases into ``path``."""
    from measure.program_phases.phases_figure import phases_figure

    metrics = None
    if table is not None:
        from measure.program_phases.program import metrics_of

        metrics = metrics_of(table)
    figure = phases_figure(similarity(vectors), found, points, vectors.instructions, metrics, name)
    write_atomically(path, lambda part: figure.savefig(part, dpi=110, format="png"))
