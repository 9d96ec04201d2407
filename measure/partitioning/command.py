"""``measure partition``: searches, validates on fresh runs, writes the campaign files and the report."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from measure.analysis.explained import stored_findings
from measure.arguments import check_flag, check_number, check_word, list_of, path_of
from measure.campaign.first_use import Preparation
from measure.cluster.choice import workers_on
from measure.console.command_words import shown_path, words_of_campaign
from measure.console.machine_load import command_age_seconds
from measure.console.progress import Status, fitting, line_width
from measure.console.tables import print_table
from measure.console.time_left import clock_text
from measure.errors import CampaignError
from measure.partitioning.budget import VALIDATION_SHARE, Budget
from measure.partitioning.cover import EXACT_METRICS
from measure.partitioning.group_verdicts import Accept
from measure.partitioning.hardware import counting_everything, events_of, split_hardware
from measure.partitioning.oracle import FIRST_REPLICATES, CampaignOracle, GroupSettings
from measure.partitioning.page import NextCommands, next_steps, render_page
from measure.partitioning.result import HEADINGS, PartitionResult, summary_of, write_campaigns
from measure.partitioning.search_types import Group, GroupVerdict, Oracle
from measure.partitioning.timed_search import Session, SessionOracles, SessionResult
from measure.partitioning.verdict_memory import Memory, RememberingOracle, default_path
from measure.result_files import write_result, write_text_atomically
from measure.runs.campaign_file import load_campaign
from measure.runs.executor import Workers
from measure.runs.machine_kind import check_emulated
from measure.runs.plan_file import load_plan
from measure.runs.store import Store

if TYPE_CHECKING:
    from distributed import Client
    from rich.console import Console

    from common.yaml_document import YamlDocument
    from measure.report.elements import Step
    from measure.runs.campaign_model import Campaign

REPLICATES_FACTOR = 4
VALIDATION = 1  # the round of runs that are independent of the search's
VALIDATION_MARGIN = 1.5  # factor over the time of the search's own tests: other layouts may have to be built


@dataclass(frozen=True)
class Request:
    """The command's options; see their help. Raises `ArgumentError` for those out of range.

    ``memory`` may be given as a str, ``shared`` and ``settings`` as any lists.
    """

    campaign: Path
    out: Path | None = None
    minutes: float | None = None
    exact: bool | None = None
    resume: bool = True
    most_replicates: int | None = None
    accept: Accept = "equivalent"
    counters: int | None = None
    shared: tuple[str, ...] = ()
    workers: int | None = None
    scheduler: str | Client | None = None
    memory: Path | None = None
    target: str = "emulated"
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.memory is not None:
            object.__setattr__(self, "memory", path_of("memory", self.memory))
        for name, what in (("shared", "names of metrics"), ("settings", "changes KEY=VALUE")):
            object.__setattr__(self, name, list_of(name, getattr(self, name), what))
        check_flag("resume", self.resume)
        if self.exact is not None:
            check_flag("exact", self.exact)
        check_word("accept", self.accept, get_args(Accept))
        check_word("target", self.target, ("emulated", "fake"))
        if self.minutes is not None:
            check_number("minutes", self.minutes, above=0)
        for name, least in (("counters", 1), ("most_replicates", 2)):
            if (value := getattr(self, name)) is not None:
                check_number(name, value, least=least, whole=True)


@dataclass(frozen=True)
class Searched:
    """A search that has ended and written its ``files``; ``steps``: what to do next; ``exit_status``: that of an
    interruption, 1 if the time limit ended it before any group was measured, or 0. ``kept``: the directory, where a
    search without any verdict leaves the files of an earlier one as they are."""

    outcome: PartitionResult
    files: tuple[Path, ...]
    steps: tuple[Step, ...]
    exit_status: int
    kept: Path | None = None


def run_partition(request: Request, console: Console) -> int:
    """`search_partition`, and print the result; the exit status. Raises `MeasureError`.

    The time limit includes the time since the command was started.
    """
    searched = search_partition(request, console, command_age_seconds("measure"))
    _print_outcome(searched.outcome, console)
    if searched.kept is not None:
        kept = f"Nothing was written: the files of an earlier search in {searched.kept} stay as they are."
        console.print(kept, style="yellow", soft_wrap=True, markup=False)
    else:
        written = ", ".join(str(path) for path in searched.files)
        console.print(f"Written: {written}", style="dim", soft_wrap=True)
    for step in searched.steps:
        console.print(step.text, markup=False)
        for command in step.commands:
            console.print(f"  {command}", soft_wrap=True, markup=False)
    return searched.exit_status


def search_partition(request: Request, console: Console, spent_seconds: float = 0.0) -> Searched:
    """Search, and write page, summary and campaigns. Raises `MeasureError`. ``spent_seconds``: of the time limit.

    Files are written whatever ends the search, a time limit included: they say what was validated. Only a search that
    has no verdict at all replaces no files.
    """
    budget = Budget(60 * request.minutes if request.minutes else None, spent_seconds=spent_seconds)
    campaign, document = load_campaign(request.campaign, request.settings)
    check_emulated(campaign, document, "measure partition")
    names = tuple(campaign.software_metrics)
    if not names:
        raise CampaignError(f"{document.path}: got no software metrics, expected some to split into runs")
    if request.exact and len(names) > EXACT_METRICS:
        raise CampaignError(
            f"{document.where('software_metrics')}: {len(names)} metrics: --exact is affordable for up to "
            f"{EXACT_METRICS}"
        )
    hardware = _hardware_sets(request, campaign, document)
    directory = request.out or Path("results") / f"{campaign.name}-partition"
    searched = campaign
    if len(hardware) > 1:
        machine = counting_everything(campaign.machine_file, directory)
        searched = campaign.model_copy(update={"machine": machine})
    settings = GroupSettings(request.most_replicates or REPLICATES_FACTOR * campaign.replicates, request.accept)
    with ExitStack() as stack:
        store = stack.enter_context(Store(directory))
        makers = stack.enter_context(workers_on(request.scheduler, request.workers, console.print))
        setup = _SearchSetup(request, searched, document, store, settings, console, makers)
        stack.callback(setup.close)
        session = setup.search(budget)
        starts_tasks = setup.starts_tasks
    found = session.result()
    failed = found.is_empty and bool(found.stopped) and not session.exit_status
    shortfall, time_needed, minutes = "", "", request.minutes
    if failed:
        shortfall, minutes = setup.shortfall(budget)
    elif found.stopped:
        time_needed, minutes = setup.time_needed(found, budget)
    request = replace(request, minutes=minutes)  # for the next time
    outcome = _outcome(
        found, campaign, settings, hardware, setup.runs_made, shortfall, time_needed, setup.outlying_baselines(),
        starts_tasks=starts_tasks,
    )  # fmt: skip
    exit_status = 1 if failed else session.exit_status
    if found.is_empty and (directory / "partition.json").exists():
        return Searched(
            outcome, (), next_steps(outcome, _next_commands(request, outcome, campaign, ())), exit_status, directory
        )
    write_result(directory / "partition.json", summary_of(outcome))
    files = write_campaigns(outcome, campaign, document, directory)
    steps = next_steps(outcome, _next_commands(request, outcome, campaign, files))
    write_text_atomically(directory / "partition.html", render_page(outcome, steps))
    return Searched(outcome, (directory / "partition.html", *files), steps, exit_status)


def _command_again(request: Request) -> str:
    """The command line of ``request``, which goes on with its search: stored verdicts are used in any case."""
    options: list[tuple[str, object]] = [
        ("--out", request.out),
        ("--minutes", f"{request.minutes:g}" if request.minutes else None),
        ("--most-replicates", request.most_replicates),
        ("--accept", request.accept if request.accept != "equivalent" else None),
        ("--counters", request.counters),
        ("--shared", ",".join(request.shared) or None),
        ("--workers", request.workers),
        ("--scheduler", request.scheduler if isinstance(request.scheduler, str) else None),  # no name of a client
        ("--memory", request.memory),
        *(("--set", setting) for setting in request.settings),
    ]
    words = [word for name, value in options if value is not None for word in (name, str(value))]
    if request.exact is not None:
        words.append("--exact" if request.exact else "--anytime")
    return f"measure partition {shown_path(str(request.campaign))} {shlex.join(words)}".rstrip()


def _hardware_sets(request: Request, campaign: Campaign, document: YamlDocument) -> tuple[tuple[str, ...], ...]:
    """The hardware metrics in sets that can be counted at once: by ``--counters``, by default by the machine."""
    from emulator.errors import EmulatorError
    from emulator.timing.machine_file import load_machine

    where = document.where("hardware_metrics")
    try:
        machine = load_machine(campaign.machine_file)
        events = events_of(campaign.hardware_metrics, machine)
        counters = request.counters or max(1, machine.pmu.programmable_counters)
        return split_hardware(campaign.hardware_metrics, counters, request.shared, events)
    except EmulatorError as error:
        raise CampaignError(f"{where}: {error}") from None
    except CampaignError as error:
        raise CampaignError(f"{where}: {error}") from None


class _SearchSetup:
    """The oracles of a session, with their worker processes and verdict memories."""

    def __init__(
        self,
        request: Request,
        campaign: Campaign,
        document: YamlDocument,
        store: Store,
        settings: GroupSettings,
        console: Console,
        workers: Workers,
    ) -> None:
        self._request, self._campaign, self._settings = request, campaign, settings
        self._document, self._store, self._console = document, store, console
        self._at_once, self._workers = workers.count, workers
        self._oracles: list[CampaignOracle] = []
        self._memories: list[Memory] = []

    @property
    def runs_made(self) -> int:
        """Runs made by this command, without those from the store."""
        return sum(oracle.runs_made for oracle in self._oracles)

    @property
    def starts_tasks(self) -> bool:
        """Whether the program starts threads or processes, by the runs that are there."""
        return any(oracle.starts_tasks for oracle in self._oracles)

    def outlying_baselines(self) -> list[str]:
        """Sentences on the baselines that stand out from the others, of the search and of its validation."""
        return [text for oracle in self._oracles for text in oracle.outlying_baselines()]

    def close(self) -> None:
        for memory in self._memories:
            memory.close()

    def search(self, budget: Budget) -> Session:
        """Run a session to its end, with a status line; returns it."""
        names = tuple(self._campaign.software_metrics)
        shown: object = None

        def describe() -> str:
            activity, *others = session.describe()
            return fitting([activity, f"{self.runs_made} runs made", *others], line_width(self._console))

        def changed() -> None:
            nonlocal shown
            if session.state != shown:
                status.say()
            shown = session.state

        with Status(self._console, describe) as status:
            session = Session(
                len(names), lambda: self._prepare(session.hold_limit), budget, seed=self._campaign.seed,
                exact=self._request.exact,
                width=max(1, -(-self._at_once // min(FIRST_REPLICATES, self._settings.most_replicates))),
                changed=changed, tell=lambda text: self._console.print(text, style="yellow", markup=False),
                names=lambda group: ", ".join(names[metric] for metric in sorted(group)),
            )  # fmt: skip
            session.run()
        return session

    def _prepare(self, building: Callable[[], None]) -> SessionOracles:
        """Make the oracles and build what the baselines need, after a call of ``building`` if a program is missing;
        other programs are built when they are tested."""
        request, memory = self._request, self._request.memory or default_path()
        first_use = Preparation(self._workers, request.target, self._campaign)

        def begin(lacks_library: bool) -> None:
            building()
            first_use.begin(lacks_library)

        oracles: list[Oracle] = []
        earlier_verdicts: list[dict[Group, GroupVerdict]] = []
        # Few fresh runs would confirm what happens in many layouts only: as many as a campaign makes.
        confirming = replace(self._settings, first_replicates=max(FIRST_REPLICATES, self._campaign.replicates))
        for round_, settings in ((0, self._settings), (VALIDATION, confirming)):
            oracle = CampaignOracle(
                self._campaign, self._document, self._store, settings, round_=round_,
                workers=self._workers, target=request.target,
                notify=lambda message: self._console.print(message, style="dim"), begin=begin,
            )  # fmt: skip
            self._oracles.append(oracle)
            self._memories.append(Memory(memory, oracle.context(), oracle.definitions))
            oracles.append(RememberingOracle(oracle, self._memories[-1], read=request.resume))
            earlier_verdicts.append(self._memories[-1].all() if request.resume else {})
        search, fresh = self._oracles

        def validation_seconds(groups: Mapping[Group, GroupVerdict]) -> float:
            untested = (group for group in groups if group not in earlier_verdicts[VALIDATION])
            runs = [max(groups[group].runs, confirming.looks[0]) for group in untested]
            baselines = 0 if fresh.runs_made else self._campaign.baselines
            seconds = search.seconds_of(len(runs), baselines + sum(runs), self._at_once) if runs else 0.0
            return VALIDATION_MARGIN * seconds

        return SessionOracles(
            oracles[0], oracles[1], earlier_verdicts[0], earlier_verdicts[VALIDATION], validation_seconds,
            self._memories[0].put, search.judge_unfinished,
        )  # fmt: skip

    def shortfall(self, budget: Budget) -> tuple[str, float | None]:
        """Why ``budget`` was too short to measure anything, and how many minutes it must be, as far as is known."""
        begun = [oracle for oracle in self._oracles if oracle.running_seconds]
        if not begun:
            words = words_of_campaign(str(self._request.campaign), self._request.settings)
            return (
                f"No group was measured in {budget.name}: building the programs took all of it. What was built is kept;"
                f" `measure run --dry-run {words}` says how long the runs take."
            ), self._request.minutes
        runs, seconds, at_least = begun[0].first_runs()
        fresh_seconds = seconds * self._oracles[1].first_runs()[0] / runs
        before = max(0.0, budget.elapsed_seconds - begun[0].running_seconds)
        minutes = math.ceil((before + max(seconds / (1 - VALIDATION_SHARE), seconds + fresh_seconds)) / 60) + 1
        ended = begun[0].runs_made
        return (
            f"No group was measured in {budget.name}: {clock_text(before)} went by before the first run, and "
            f"{ended or 'no'} run{'' if ended == 1 else 's'} ended in the {clock_text(begun[0].running_seconds)} after "
            f"that. The baselines and the first runs of all metrics together are {runs} runs and take "
            f"{'at least' if at_least else 'about'} {clock_text(seconds)}, their validation on fresh runs "
            f"{clock_text(fresh_seconds)}: give --minutes {minutes}{' or more' if at_least else ''}. Runs that ended "
            "are kept."
        ), minutes

    def time_needed(self, found: SessionResult, budget: Budget) -> tuple[str, float | None]:
        """How long the metrics need that are in no good group, and the minutes to go on with; no text without a time
        limit, such metrics or any run."""
        alone = (metric for group in found.tested if len(group) == 1 for metric in group)
        left = len(found.progress.best.uncovered.difference(alone))
        if budget.seconds is None or not left or not self.runs_made:
            return "", self._request.minutes
        tested = [verdict.runs for verdict in found.tested.values()] or [self._settings.looks[0]]
        runs = math.ceil(left * sum(tested) / len(tested))
        seconds = self._oracles[0].seconds_of(left, runs, self._at_once)
        least = self._oracles[1].settings.looks[0]
        good = [
            max(found.tested[group].runs, least) for group in found.progress.best.groups if group not in found.validated
        ]
        fresh = 0 if self._oracles[1].runs_made else self._campaign.baselines
        fresh_seconds = self._oracles[0].seconds_of(
            left + len(good), fresh + max(runs, left * least) + sum(good), self._at_once
        )
        minutes = math.ceil((seconds + VALIDATION_MARGIN * fresh_seconds) / 60) + 1
        metrics = "1 metric is" if left == 1 else f"{left} metrics are"
        return (
            f"{metrics} in no good group, and not tested alone to an end. That takes about {runs} runs, "
            f"{clock_text(seconds)}, if these are tested like others, and fresh runs up to "
            f"{clock_text(fresh_seconds)}: --minutes {minutes} goes on from here."
        ), minutes


def _outcome(
    result: SessionResult, campaign: Campaign, settings: GroupSettings, hardware: tuple[tuple[str, ...], ...],
    runs: int, shortfall: str, time_needed: str, outlying: Sequence[str], *, starts_tasks: bool,
) -> PartitionResult:  # fmt: skip
    """Everything that the report shows."""
    progress = result.progress
    return PartitionResult(
        name=campaign.name,
        metrics=tuple(campaign.software_metrics),
        best=progress.best,
        proof=progress.proof,
        stage=progress.stage,
        outlook=progress.outlook,
        tested=result.tested,
        validated=result.validated,
        calls=result.calls,
        remembered=result.remembered,
        stopped=result.stopped,
        unfinished=result.unfinished,
        shortfall=shortfall,
        time_needed=time_needed,
        outlying=tuple(outlying),
        starts_tasks=starts_tasks,
        runs=runs,
        hardware=hardware,
        delta=campaign.delta,
        alpha=campaign.alpha,
        accept=settings.accept,
    )


def _next_commands(
    request: Request, outcome: PartitionResult, campaign: Campaign, campaigns: Sequence[Path]
) -> NextCommands:
    """What may come next; ``campaign``: that was searched; ``campaigns``: files that collect the groups, if any."""
    runs, merge, explain = [], "", []
    if campaigns:
        runs = [f"measure run {shown_path(str(path))}" for path in campaigns]
        results = " ".join(shlex.quote(f"results/{outcome.name}-{path.stem}") for path in campaigns)
        merge = f"measure merge {results} --out merged.parquet"
    remedies = _remedies(campaign)
    if remedies is None and len(outcome.hardware) == 1:  # with more, the campaign cannot be run as it is
        explain = [
            f"measure run {words_of_campaign(str(request.campaign), request.settings)}",
            f"measure explain {shlex.quote(f'results/{outcome.name}')}",
        ]
    return NextCommands(_command_again(request), tuple(runs), merge, tuple(explain), remedies or ())


def _remedies(campaign: Campaign) -> tuple[str, ...] | None:
    """Commands for the campaigns with remedies of the explanation of ``campaign``; None if it was not explained."""
    results = Path("results") / campaign.name
    try:
        plan = load_plan(results)
    except CampaignError:
        return None
    told = stored_findings(results, plan) if plan.campaign == campaign else None
    if told is None:
        return None
    remedies = [one for findings in told.values() for one in findings if one.kind == "remedy"]
    return tuple(command for one in remedies for command in one.commands_in(shlex.quote(str(results))))


def _print_outcome(outcome: PartitionResult, console: Console) -> None:
    from rich.markup import escape

    if rows := outcome.rows():
        print_table(console, escape(outcome.headline), HEADINGS, [[*map(escape, row)] for row in rows])
    else:
        console.print(outcome.headline, markup=False)
    for sentence in outcome.sentences():
        console.print(f"- {sentence}", markup=False)
