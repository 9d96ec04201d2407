"""The command line of the reproductions: run what is missing, then make the figures.

python -m experiments.program_phases.run [FIGURE.yaml ...]
python -m experiments.cycle_close.run [FIGURE.yaml ...]
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import pandas as pd

from common.atomic_files import remove_leftovers
from emulator.errors import EmulatorError
from experiments.drawing import between_marks, save_small
from experiments.reproduction import Reproduction, Task, load_reproduction, tasks_of
from experiments.results import Results, elf_of, missing, perform
from instrumenter.errors import InstrumenterError
from measure.errors import MeasureError
from measure.result_files import write_atomically, write_text_atomically

Tabulate = Callable[[Reproduction, Results], pd.DataFrame]
Draw = Callable[[Reproduction, pd.DataFrame], Any]


def run_folder(folder: Path, arguments: Sequence[str] | None = None) -> int:
    """What `run` of a paper's ``folder`` does; the exit status."""
    options = _parser(folder).parse_args(arguments)
    try:
        paths = options.campaigns or sorted(folder.glob("*.yaml"))
        campaigns = {path: load_reproduction(path, options.size) for path in paths}
        directory = results_of(folder, options.results)
        run_tasks(tasks_of(list(campaigns.values())), directory, options.jobs, options.keep)
        out = options.out or (directory if options.size else folder)
        for path, campaign in campaigns.items():
            script = importlib.import_module(f"experiments.{folder.name}.{path.stem}")
            record(path.stem, campaign, Results(directory, campaign), script.tabulate, script.draw, out)
            _say(f"{campaign.shows}: {out / path.stem}.csv")
        if not options.campaigns:
            compare = importlib.import_module(f"experiments.{folder.name}.compare")
            _compare(compare.rows(out), out)
    except (MeasureError, EmulatorError, InstrumenterError) as error:
        _say(str(error))
        return getattr(error, "exit_status", 1)
    except KeyboardInterrupt:
        _say("Interrupted: finished runs are kept; the same command goes on from there.")
        return 130
    return 0


def _parser(folder: Path) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{folder.name}.run",
        description="Run what is missing for the paper's figures and make them.",
    )
    parser.add_argument("campaigns", nargs="*", type=Path, help="campaign files (default: all of the folder)")
    parser.add_argument("--size", help="run all programs at this size; figures then go to the results")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time (default: one a processor)"
    )
    parser.add_argument("--results", type=Path, help=f"default: results/{folder.name}")
    parser.add_argument("--out", type=Path, help="where figures and tables go (default: beside the campaigns)")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="take the results there are, whichever version of the code made them",
    )
    return parser


def run_figure(script: str, tabulate: Tabulate, draw: Draw, arguments: Sequence[str] | None = None) -> int:
    """What a figure's script does as a program: write its table and its picture from results, or redraw."""
    path = Path(script).resolve()
    folder = path.parent
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{folder.name}.{path.stem}")
    parser.add_argument("--redraw", action="store_true", help="draw the recorded table; needs no results")
    parser.add_argument("--size", help="results of this size")
    parser.add_argument("--results", type=Path, help=f"default: results/{folder.name}")
    parser.add_argument("--out", type=Path, default=folder, help="default: beside the campaigns")
    options = parser.parse_args(arguments)
    try:
        campaign = load_reproduction(path.with_suffix(".yaml"), options.size)
        results = Results(results_of(folder, options.results), campaign)
        record(path.stem, campaign, None if options.redraw else results, tabulate, draw, options.out)
    except MeasureError as error:
        _say(str(error))
        return error.exit_status
    return 0


def results_of(folder: Path, given: Path | None) -> Path:
    """Where the results of a paper's folder are."""
    return given if given is not None else Path("results") / folder.name


def record(
    stem: str, campaign: Reproduction, results: Results | None, tabulate: Tabulate, draw: Draw, out: Path
) -> None:
    """Write ``stem``.csv from the results, unless there are none, and draw what it says as ``stem``.png."""
    path = out / f"{stem}.csv"
    if results is not None:
        table = tabulate(campaign, results)
        write_atomically(path, lambda to: table.to_csv(to, index=False, float_format="%.5g"))
    drawn = draw(campaign, pd.read_csv(path))
    if isinstance(drawn, str):
        write_text_atomically(out / f"{stem}.md", drawn)
    else:
        write_atomically(out / f"{stem}.png", lambda to: save_small(drawn, to))


def _compare(rows: Sequence[tuple[str, str, str]], out: Path) -> None:
    """Set ours beside the paper's: between the marks in ``out``/README.md, or in a file of its own."""
    table = "\n".join(f"| {' | '.join(row)} |" for row in [("", "paper", "ours"), ("---",) * 3, *rows])
    page = out / "README.md"
    if not page.is_file():
        write_text_atomically(out / "comparison.md", table + "\n")
        return
    text = between_marks(page, f"{table}\n", "comparison")
    write_text_atomically(page, text)


def run_tasks(tasks: Sequence[Task], directory: Path, jobs: int = 1, keep: bool = False) -> int:
    """Perform what is missing of ``tasks``, ``jobs`` at a time; how many were. Each is kept as soon as it is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    with console.status("building the programs"):
        for task in tasks:
            elf_of(task.catalogue, task.program)
    for folder in directory.glob("*/"):
        remove_leftovers(folder)
    wanted = [rest for task in tasks if (rest := missing(task, directory, keep)) is not None]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not wanted) as progress:
        bar = progress.add_task(directory.name, total=len(wanted))
        if jobs <= 1:
            for task in wanted:
                progress.update(bar, description=task.name)
                perform(task, directory)
                progress.advance(bar)
        else:
            _run_side_by_side(wanted, directory, jobs, lambda name: progress.update(bar, advance=1, description=name))
    return len(wanted)


def _run_side_by_side(tasks: Sequence[Task], directory: Path, jobs: int, done: Callable[[str], None]) -> None:
    """Several programs at a time, one run of each: its later runs then find its translations on disk."""
    groups: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        groups.setdefault((task.program, task.size), []).append(task)
    pending: list[list[Task]] = list(groups.values())
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[None], tuple[list[Task], str]] = {}
        try:
            while pending or running:
                while pending and len(running) < jobs:
                    group = pending.pop(0)
                    running[pool.submit(perform, group[0], directory)] = (group[1:], group[0].name)
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    rest, name = running.pop(future)
                    future.result()
                    done(name)
                    if rest:
                        pending.insert(0, rest)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
