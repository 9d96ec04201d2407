"""``measure check-sampling``: makes the runs of a sampling check, compares them, writes the results and prints them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from measure.cluster.choice import workers_on
from measure.console.progress import RunsBar, Status
from measure.errors import CampaignError
from measure.programs.catalogue import ProgramError
from measure.report.terminal import print_places
from measure.result_files import SUMMARY_NAME, check_results_place, write_result, write_text_atomically
from measure.runs.executor import execute_plan
from measure.runs.store import Store
from measure.sampling_check.check import analyse_check, load_check, plan_check, summary_of
from measure.sampling_check.page import print_check, render_check


def run_check(
    path: Path, out: Path | None, console: Console, *, workers: int | None = None, scheduler: str | None = None,
    settings: Sequence[str] = (),
) -> None:  # fmt: skip
    """Run the sampling check of ``path``, or go on where it stopped; into results/NAME without ``out``.

    Writes DIR/summary.json and DIR/report.html. ``workers``: processes of this machine, or ``scheduler``: the address
    of a Dask cluster; ``settings``: changes of the file (`load_check`). Raises `CampaignError` for what is wrong with
    the file and for a directory with other results, and `MeasureError` when fewer than 2 full simulations succeed, or
    at the end when some runs failed.
    """
    check, document = load_check(path, settings)
    directory = out or Path("results") / check.name
    check_results_place(directory, "measure check-sampling", check.name)
    try:
        plan = plan_check(check, document, lambda message: console.print(message, style="dim"))
    except ProgramError as error:
        raise CampaignError(f"{document.where('program')}: {error}") from None
    with (
        workers_on(scheduler, workers, console.print) as makers,
        Store(directory) as store,
        RunsBar(console) as bar,
    ):
        outcome = execute_plan(
            plan.specs, store, keys=plan.keys, workers=makers, started=bar.start, progress=bar.advance
        )
    if outcome.failure:
        console.print(outcome.failure, style="red")
    with Status(console, "comparing runs") as status:
        results = analyse_check(check, outcome, lambda what: status.update(f"comparing runs: {what}"))
    write_result(directory / SUMMARY_NAME, summary_of(check, results, outcome))
    write_text_atomically(directory / "report.html", render_check(check, results))
    print_check(console, check, results)
    print_places(console, directory)
    outcome.check_complete()
