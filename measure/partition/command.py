"""What ``measure partition`` does: search, validate on fresh runs, write the campaign and the report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from measure.campaign import load_campaign
from measure.errors import CampaignError
from measure.executor import Workers
from measure.partition.budget import Budget
from measure.partition.cover import EXACT_METRICS
from measure.partition.hardware import counting_everything, events_of, split_hardware
from measure.partition.memory import Memory, Remembering, default_path
from measure.partition.oracle import FIRST_REPLICATES, Accept, CampaignOracle, Settings
from measure.partition.page import render_page
from measure.partition.result import Outcome, summary_text, write_campaigns
from measure.partition.session import Asked, Found, Session
from measure.partition.types import Group, Oracle, Verdict
from measure.progress import Status
from measure.store import Store, write_text_atomically

if TYPE_CHECKING:
    from rich.console import Console

    from measure.campaign import Campaign
    from measure.yaml_positions import Document

REPLICATES_FACTOR = 4
VALIDATION = 1  # the round of runs that have nothing to do with the search's
VALIDATION_MARGIN = 1.5  # over what the search's own tests took: other layouts may have to be built


@dataclass(frozen=True)
class Request:
    """The command's options; see their help."""

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
    memory: Path | None = None
    target: str = "emulated"


def run_partition(request: Request, console: Console) -> int:
    """Search and report; the exit status: that of an interruption, or 0. Raises `MeasureError`.

    Results are written whatever ends the search, a time limit included: the files say what was validated.
    """
    budget = Budget(60 * request.minutes if request.minutes else None)
    campaign, document = load_campaign(request.campaign)
    names = tuple(campaign.software_metrics)
    if not names:
        raise CampaignError(f"{document.path}: no software metrics: there is nothing to split into runs")
    most = EXACT_METRICS
    if request.exact and len(names) > most:
        raise CampaignError(
            f"{document.where('software_metrics')}: {len(names)} metrics: --exact is affordable for up to {most}"
        )
    hardware = _hardware_sets(request, campaign, document)
    directory = request.out or Path("results") / f"{campaign.name}-partition"
    asked = campaign
    if len(hardware) > 1:
        machine = counting_everything(campaign.machine, directory)
        asked = campaign.model_copy(update={"machine": machine})
    settings = Settings(request.most_replicates or REPLICATES_FACTOR * campaign.replicates, request.accept)
    with ExitStack() as stack:
        store = stack.enter_context(Store(directory))
        work = _Work(request, asked, document, store, settings, console)
        stack.callback(work.close)
        session = work.search(budget)
    outcome = _outcome(session.found(), campaign, settings, hardware, work.runs_made)
    write_text_atomically(directory / "partition.json", summary_text(outcome))
    files = write_campaigns(outcome, campaign, document, directory)
    write_text_atomically(directory / "partition.html", render_page(outcome))
    _tell(outcome, console)
    written = ", ".join(str(path) for path in [directory / "partition.html", *files])
    console.print(f"Written: {written}", style="dim", soft_wrap=True)
    return session.exit_status


def _hardware_sets(request: Request, campaign: Campaign, document: Document) -> tuple[tuple[str, ...], ...]:
    """The hardware metrics in sets that can be counted at once: by ``--counters``, or else by the machine."""
    from emulator.errors import EmulatorError
    from emulator.timing.load import parse_machine

    where = document.where("hardware_metrics")
    try:
        machine = parse_machine(campaign.machine.read_text(encoding="utf-8"), str(campaign.machine))
        events = events_of(campaign.hardware_metrics, machine)
        counters = request.counters or max(1, machine.pmu.programmable_counters)
        return split_hardware(campaign.hardware_metrics, counters, request.shared, events)
    except EmulatorError as error:
        raise CampaignError(f"{where}: {error}") from None
    except CampaignError as error:
        raise CampaignError(f"{where}: {error}") from None


class _Work:
    """The oracles of a session, with the processes and the memory that they need."""

    def __init__(
        self,
        request: Request,
        campaign: Campaign,
        document: Document,
        store: Store,
        settings: Settings,
        console: Console,
    ) -> None:
        self._request, self._campaign, self._settings = request, campaign, settings
        self._document, self._store, self._console = document, store, console
        self._at_once = request.workers or os.cpu_count() or 1
        self._workers = Workers(self._at_once)
        self._oracles: list[CampaignOracle] = []
        self._memories: list[Memory] = []

    @property
    def runs_made(self) -> int:
        """Runs that were made now."""
        return sum(oracle.runs_made for oracle in self._oracles)

    def close(self) -> None:
        self._workers.close()
        for memory in self._memories:
            memory.close()

    def search(self, budget: Budget) -> Session:
        """A session that has ended."""
        names = tuple(self._campaign.software_metrics)
        shown: object = None

        def describe() -> str:
            return f"{session.describe()} {self.runs_made} runs made."

        def changed() -> None:
            nonlocal shown
            if session.state != shown:
                status.say()
            shown = session.state

        with Status(self._console, describe) as status:
            session = Session(
                len(names), self._prepare, budget, seed=self._campaign.seed, exact=self._request.exact,
                width=max(1, -(-self._at_once // min(FIRST_REPLICATES, self._settings.most_replicates))),
                changed=changed, tell=lambda text: self._console.print(text, style="yellow", markup=False),
                names=lambda group: ", ".join(names[metric] for metric in sorted(group)),
            )  # fmt: skip
            session.run()
        return session

    def _prepare(self) -> Asked:
        """Build what the baselines need; everything else is built when it is asked for."""
        request, memory = self._request, self._request.memory or default_path()
        asked: list[Oracle] = []
        known: list[dict[Group, Verdict]] = []
        for round_ in (0, VALIDATION):
            oracle = CampaignOracle(
                self._campaign, self._document, self._store, self._settings, round_=round_,
                workers=self._workers, target=request.target,
                notify=lambda message: self._console.print(message, style="dim"),
            )  # fmt: skip
            self._oracles.append(oracle)
            self._memories.append(Memory(memory, oracle.context(), oracle.definitions))
            asked.append(Remembering(oracle, self._memories[-1], read=request.resume))
            known.append(self._memories[-1].all() if request.resume else {})
        search, fresh = self._oracles

        def validation_seconds(groups: Mapping[Group, Verdict]) -> float:
            runs = [verdict.runs for group, verdict in groups.items() if group not in known[VALIDATION]]
            baselines = 0 if fresh.runs_made else self._campaign.baselines
            seconds = search.seconds_of(len(runs), baselines + sum(runs), self._at_once) if runs else 0.0
            return VALIDATION_MARGIN * seconds

        return Asked(asked[0], asked[1], known[0], validation_seconds, self._memories[0].put)


def _outcome(
    found: Found, campaign: Campaign, settings: Settings, hardware: tuple[tuple[str, ...], ...], runs: int
) -> Outcome:
    """All there is to report."""
    standing = found.standing
    return Outcome(
        name=campaign.name,
        metrics=tuple(campaign.software_metrics),
        best=standing.best,
        proof=standing.proof,
        stage=standing.stage,
        outlook=standing.outlook,
        tested=found.tested,
        validated=found.validated,
        calls=found.calls,
        remembered=found.remembered,
        stopped=found.stopped,
        runs=runs,
        hardware=hardware,
        delta=campaign.delta,
        alpha=campaign.alpha,
        accept=settings.accept,
    )


def _tell(outcome: Outcome, console: Console) -> None:
    from rich.table import Table

    table = Table(title=outcome.headline, title_justify="left")
    for heading in ("group", "software metrics", "closest to the limit", "fresh runs"):
        table.add_column(heading)
    for row in outcome.rows():
        table.add_row(*row)
    console.print(table)
    for sentence in outcome.sentences():
        console.print(f"- {sentence}", markup=False)
