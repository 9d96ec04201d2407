"""``measure run`` and ``measure report``: from a campaign file or a directory of results to the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from common.yaml_document import YamlDocument
from measure.analysis.analysis import analyse, baselines_of, summary, with_explanation
from measure.analysis.explained import stored_findings
from measure.analysis.stored_runs import CampaignResult, load_results, stored_runs, with_truth
from measure.campaign.first_use import Preparation
from measure.campaign.plan_summary import continue_history, describe_plan
from measure.cluster.choice import workers_on
from measure.console.browser import open_in_browser
from measure.console.command_words import shown_path
from measure.console.progress import RunsBar, Status
from measure.errors import CampaignError, MeasureError, RunError
from measure.ground_truth.prepare import prepare
from measure.perturbation.finding import Finding
from measure.perturbation.similarity import align_in_threads
from measure.programs.catalogue import ProgramError
from measure.report.html import render
from measure.report.model import ReportData
from measure.report.terminal import print_places, print_result
from measure.result_files import (
    SUMMARY_NAME,
    check_results_place,
    check_writable_results,
    is_writable,
    write_result,
    write_text_atomically,
)
from measure.run_types import HOST
from measure.runs.campaign_file import load_campaign
from measure.runs.campaign_model import Campaign
from measure.runs.executor import Outcome, Workers, execute_plan
from measure.runs.looks import after_look, load_history
from measure.runs.plan import Plan, make_plan
from measure.runs.plan_file import FILE_NAME, save_plan
from measure.runs.store import Store
from measure.truth_checks.assess import plain, with_ground_truth
from measure.verdict_files.deliver import deliver
from measure.verdict_files.options import NO_OPTIONS, VerdictOptions
from measure.verdict_files.pair_tables import write_pairs
from measure.verdict_files.verdict_summary import write_verdicts
from measure.verdict_files.verdict_table import table_of

if TYPE_CHECKING:
    from distributed import Client

_VERDICT_FILES = (SUMMARY_NAME, "verdicts.json", "pairs.csv", "pairs.parquet", "report.html")


@dataclass(frozen=True)
class Finished:
    """A campaign whose runs are compared and whose report is written into ``directory``."""

    result: CampaignResult
    outcome: Outcome
    data: ReportData
    directory: Path


def run_campaign(
    path: Path, out: Path | None, console: Console, *, workers: int | None = None,
    scheduler: str | Client | None = None, target: str = "emulated", settings: Sequence[str] = (),
    verdicts: VerdictOptions = NO_OPTIONS,
) -> int:  # fmt: skip
    """`make_campaign`, print the result, and deliver its ``verdicts``; the command's exit status.

    Raises `MeasureError` at the end when some runs failed.
    """
    verdicts.check_places()
    finished = make_campaign(path, out, console, workers=workers, scheduler=scheduler, target=target, settings=settings)
    return _tell(finished, console, verdicts)


def report_campaign(
    results: Path, out: Path | None, console: Console, settings: Sequence[str] = (),
    verdicts: VerdictOptions = NO_OPTIONS, *, open_page: bool = False,
) -> int:  # fmt: skip
    """`read_campaign`, print the result, and deliver its ``verdicts``; the command's exit status.

    ``open_page``: open the report in the browser. Raises `MeasureError` at the end when some runs failed.
    """
    verdicts.check_places()
    finished = read_campaign(results, out, console, settings, must_write=True)
    if open_page:
        open_in_browser((finished.directory / "report.html").absolute().as_uri())
    return _tell(finished, console, verdicts)


def make_campaign(
    path: Path, out: Path | None, console: Console, *, workers: int | None = None,
    scheduler: str | Client | None = None, target: str = "emulated", settings: Sequence[str] = (),
) -> Finished:  # fmt: skip
    """Run the campaign of ``path``, or go on where it stopped, and write its report; into results/NAME without ``out``.

    ``console``: shows progress; results are not printed; ``settings``: changes of the file (`load_campaign`).
    ``workers``: processes of this machine, or ``scheduler``: a Dask cluster (see
    `measure.cluster.dask_workers.connect`). Raises `CampaignError` for what is wrong with the file, and for an interval
    that gives the first runs too few records, and `RunError` when so many runs failed that nothing can be said.
    """
    campaign, document = load_campaign(path, settings)
    directory = out or Path("results") / campaign.name
    check_results_place(directory, "measure run", campaign.name)
    if campaign.host is not None and target == "emulated":
        target, workers = HOST, _one_worker(document, workers, scheduler)
    with workers_on(scheduler, workers, console.print) as makers:
        first_use = Preparation(makers, target, campaign)
        plan = continue_history(_plan(campaign, document, console, target, first_use.begin), directory)
        with Store(directory) as store, RunsBar(console) as bar:
            truth = None
            if plan.campaign.ground_truth:
                truth = prepare(plan, document, directory, lambda text: console.print(text, style="dim"), target)
                plan = truth.plan
            result = CampaignResult(plan, truth)
            _remove_verdicts_of_another_design(plan, directory)
            save_plan(plan, directory)
            console.print(describe_plan(plan, store), style="dim", highlight=False)
            outcome = execute_plan(
                result.specs, store, keys=result.keys, workers=makers, started=bar.start, progress=bar.advance
            )
        if outcome.too_short:
            raise CampaignError(f"{document.where('sampling', 'every')}: {outcome.too_short}")
        first_use.wait()
        return _finish(result, outcome, directory, console, makers, can_explain=target == "emulated")


def _remove_verdicts_of_another_design(plan: Plan, directory: Path) -> None:
    """So that a campaign that is ended before its verdicts does not leave another's beside its plan."""
    before = load_history(directory / FILE_NAME)
    if before is not None and before.design != plan.history.design:
        for name in _VERDICT_FILES:
            (directory / name).unlink(missing_ok=True)


def _one_worker(document: YamlDocument, workers: int | None, scheduler: str | Client | None) -> int:
    """The number of workers for a campaign on the host: 1. Raises `CampaignError` where others are wanted."""
    if scheduler is not None:
        raise CampaignError(
            f"{document.where('machine')}: runs on the host are made on the host: leave out --scheduler, or name a "
            "machine file"
        )
    if workers not in (None, 1):
        raise CampaignError(
            f"{document.where('machine')}: runs on the host disturb one another: got --workers {workers}, expected 1"
        )
    return 1


def read_campaign(
    results: Path, out: Path | None, console: Console, settings: Sequence[str] = (), *, must_write: bool = False
) -> Finished:
    """Report anew on the runs in a directory, or of a campaign file; makes none. Raises as `make_campaign`.

    Where the directory cannot be written, its files stay as they are; `StoreError` if it ``must_write``.
    """
    if results.is_dir():
        keeps = _keeps(results, must_write)
        result, outcome = load_results(results)
        return _finish(result, outcome, results, console, keeps=keeps)
    campaign, document = load_campaign(results, settings)
    directory = out or Path("results") / campaign.name
    if not directory.is_dir():
        raise CampaignError(f"{directory}: no such directory; `measure run {results}` makes it")
    keeps = _keeps(directory, must_write)
    plan = continue_history(_plan(campaign, document, console), directory)
    result = with_truth(plan, directory)
    return _finish(result, stored_runs(result, directory), directory, console, keeps=keeps)


def _keeps(directory: Path, must_write: bool) -> bool:
    """Whether the report can be kept in ``directory``. Raises `StoreError` if not and it ``must_write``."""
    if must_write:
        check_writable_results(directory, "`measure report` puts its page")
    return is_writable(directory)


def _plan(
    campaign: Campaign,
    document: YamlDocument,
    console: Console,
    target: str = "emulated",
    begin: Callable[[bool], None] = lambda lacks_library: None,
) -> Plan:
    try:
        return make_plan(campaign, document, lambda message: console.print(message, style="dim"), target, begin)
    except ProgramError as error:
        raise CampaignError(f"{document.where('program')}: {error}") from None


def _finish(
    result: CampaignResult, outcome: Outcome, directory: Path, console: Console,
    workers: Workers | None = None, *, can_explain: bool = False, keeps: bool = True,
) -> Finished:  # fmt: skip
    """Analyse the runs; where ``directory`` ``keeps`` it, count the look at them, and write summary and report.

    ``workers``: take part in the analysis. ``can_explain``: they make the runs of the explanation that the campaign
    asks for, if it is not there.
    """
    if outcome.failures:
        first = outcome.failures[0]
        if not any(run.spec.variant != first.spec.variant for run in outcome.runs):
            raise RunError(outcome.failure)
    baselines_of(result.plan, outcome)  # without two of them nothing is seen, so that it is no look
    result = replace(result, plan=_count_look(result, outcome, directory, keeps))
    with Status(console, "comparing runs") as status:
        aligner = workers.aligner if workers is not None else align_in_threads
        data = analyse(result.plan, outcome, lambda what: status.update(f"comparing runs: {what}"), aligner)
        if result.truth is not None:
            data = with_ground_truth(data, result.truth, outcome.runs, status.update)
    explained = stored_findings(directory, result.plan)
    if workers is not None and can_explain and result.plan.campaign.explain and explained is None:
        explained = _explain(result.plan, data, directory, console, workers)
    data = with_explanation(data, explained or {})
    if not keeps:
        return Finished(result, outcome, data, directory)
    with Status(console, "drawing the report"):
        write_result(directory / SUMMARY_NAME, summary(data, outcome) | plain(data.ground_truth))
        write_pairs(data, directory)
        write_verdicts(data, directory)
        write_text_atomically(directory / "report.html", render(data, shown_path(str(directory))))
    return Finished(result, outcome, data, directory)


def _count_look(result: CampaignResult, outcome: Outcome, directory: Path, keeps: bool) -> Plan:
    """The plan after this look at its runs, of which some may be missing; ``directory`` keeps the looks, if it can.

    They are read from there, since somebody may have looked while the runs were made.
    """
    plan, kept = result.plan, load_history(directory / FILE_NAME)
    if kept is None or kept.design != plan.history.design:
        return plan
    plan = replace(plan, history=after_look(kept, len(outcome.runs), len(result.specs)))
    if keeps and plan.history != kept:
        save_plan(plan, directory)
    return plan


def _explain(
    plan: Plan, data: ReportData, directory: Path, console: Console, workers: Workers
) -> dict[str, tuple[Finding, ...]]:  # fmt: skip
    """Explain the variants whose relations are broken. What fails becomes the finding on each of them."""
    from measure.explanation.explain_campaign import explain_judged
    from measure.explanation.explain_variant import VariantPerturbation

    judged = {one.name: VariantPerturbation(one.inner, one.outer_held_out) for one in data.variants}
    try:
        explain_judged(plan, judged, directory, console, workers=workers)
    except MeasureError as error:
        text = f"the explanation failed: {error}"
        return {name: (Finding(text, variant=name, heading=name),) for name, one in judged.items() if one.broken}
    return stored_findings(directory, plan) or {}


def _tell(finished: Finished, console: Console, verdicts: VerdictOptions) -> int:
    """Print the result and deliver the verdicts. Raises `MeasureError` at the end when some runs failed."""
    directory = finished.directory
    outcome = finished.outcome
    if outcome.failure:
        console.print(outcome.failure, style="red")
    results = shown_path(str(directory))
    print_result(console, finished.data, results)
    print_places(console, directory)
    sentences = [f"A run of {one.spec.variant} failed: {one.reason}" for one in outcome.failures]
    status = deliver(table_of(finished.data, sentences, finished.result.plan.campaign_file, results), verdicts)
    outcome.check_complete()
    return status
