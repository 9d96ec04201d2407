"""What ``measure run`` and ``measure report`` do: from a campaign file or a directory of results to the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from measure.analysis import analyse, summary
from measure.campaign import load_campaign
from measure.errors import CampaignError, MeasureError, RunError
from measure.executor import Outcome, execute_plan
from measure.ground_truth.assess import plain, with_ground_truth
from measure.ground_truth.prepare import Prepared, load_prepared, prepare
from measure.plan import Plan, make_plan
from measure.plan_file import load_plan, save_plan
from measure.programs import ProgramError
from measure.progress import RunsBar, Status
from measure.report.html import write_page
from measure.report.model import ReportData
from measure.store import Store, write_text_atomically
from measure.terminal import print_result
from measure.types import RunSpec
from measure.yaml_positions import Document


@dataclass(frozen=True)
class Campaigned:
    """A plan with what its ground truth needs, if it has one."""

    plan: Plan
    truth: Prepared | None = None

    @property
    def specs(self) -> Sequence[RunSpec]:
        """All runs to make."""
        return self.truth.specs if self.truth else self.plan.specs

    @property
    def keys(self) -> Sequence[str]:
        """`content_key` of each."""
        return self.truth.keys if self.truth else self.plan.keys


def run_campaign(
    path: Path, out: Path | None, console: Console, *, workers: int | None = None, target: str = "emulated"
) -> ReportData:
    """Run the campaign of ``path``, or go on where it stopped, and report; into results/NAME without ``out``.

    Raises `CampaignError` for what is wrong with the file, `RunError` when nothing can be said, and `MeasureError`,
    after the report of the other runs, when some failed.
    """
    plan, document, directory = _planned(path, out, console, target)
    with Store(directory) as store, RunsBar(console) as bar:
        truth = None
        if plan.campaign.ground_truth:
            truth = prepare(plan, document, directory, lambda text: console.print(text, style="dim"), target)
            plan = truth.plan
        made = Campaigned(plan, truth)
        save_plan(plan, directory)
        outcome = execute_plan(made.specs, store, workers=workers, started=bar.start, progress=bar.advance)
    return _finish(made, outcome, directory, console)


def report_campaign(results: Path, out: Path | None, console: Console) -> ReportData:
    """Report anew on the runs in a directory, or of a campaign file; makes none. Raises as `run_campaign`."""
    if results.is_dir():
        made, outcome = load_results(results)
        return _finish(made, outcome, results, console)
    plan, _, directory = _planned(results, out, console)
    if not directory.is_dir():
        raise CampaignError(f"{directory}: no such directory; `measure run {results}` makes it")
    made = _with_truth(plan, directory)
    return _finish(made, _stored(made, directory), directory, console)


def load_results(directory: Path) -> tuple[Campaigned, Outcome]:
    """What `run_campaign` left in ``directory``. Raises `CampaignError` when there is nothing."""
    made = _with_truth(load_plan(directory), directory)
    return made, _stored(made, directory)


def _with_truth(plan: Plan, directory: Path) -> Campaigned:
    return Campaigned(plan, load_prepared(directory, plan) if plan.campaign.ground_truth else None)


def _stored(made: Campaigned, directory: Path) -> Outcome:
    with Store(directory) as store:
        found = [store.load(key, spec) for key, spec in zip(made.keys, made.specs, strict=True)]
    runs = tuple(run for run, _ in found if run is not None)
    warnings = [f"{damage}; `measure run` makes its run again." for _, damage in found if damage]
    if len(runs) < len(found):
        warnings.append(
            f"{len(found) - len(runs)} of {len(found)} runs are missing: `measure run` makes them."
        )
    return Outcome(runs, (), len(runs), tuple(warnings))


def _planned(
    path: Path, out: Path | None, console: Console, target: str = "emulated"
) -> tuple[Plan, Document, Path]:
    campaign, document = load_campaign(path)
    try:
        plan = make_plan(campaign, document, lambda message: console.print(message, style="dim"), target)
    except ProgramError as error:
        raise CampaignError(f"{document.where('program')}: {error}") from None
    return plan, document, out or Path("results") / campaign.name


def _finish(made: Campaigned, outcome: Outcome, directory: Path, console: Console) -> ReportData:
    """Analyse, write, print."""
    if outcome.failures:
        first = outcome.failures[0]
        message = f"{len(outcome.failures)} runs failed, the first of {first.spec.group}: {first.reason}"
        if not any(run.spec.group != first.spec.group for run in outcome.runs):
            raise RunError(message)
        console.print(message, style="red")
    with Status(console, "comparing runs") as status:
        data = analyse(made.plan, outcome, lambda what: status.update(f"comparing runs: {what}"))
        if made.truth is not None:
            data = with_ground_truth(data, made.truth, outcome.runs, status.update)
        text = json.dumps(summary(data, outcome) | plain(data.ground_truth), indent=1, allow_nan=False)
        write_text_atomically(directory / "summary.json", text)
        status.update("drawing the report")
        write_page(data, directory / "report.html")
    print_result(console, data)
    console.print(f"Report: {directory / 'report.html'}   Summary: {directory / 'summary.json'}", style="dim")
    if outcome.failures:
        raise MeasureError(f"{len(outcome.failures)} runs failed; the report is of the others")
    return data
