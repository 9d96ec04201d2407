"""What ``measure partition`` does: search, validate on fresh runs, write the campaign and the report."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from measure.campaign import load_campaign
from measure.errors import CampaignError
from measure.executor import Workers
from measure.partition.cover import EXACT_METRICS
from measure.partition.hardware import counting_everything, events_of, split_hardware
from measure.partition.memory import Memory, Remembering, default_path
from measure.partition.oracle import FIRST_REPLICATES, Accept, CampaignOracle, Settings
from measure.partition.page import render_page
from measure.partition.result import Outcome, summary_text, write_campaigns
from measure.partition.search import PartitionSearch
from measure.partition.types import Group, Oracle, Progress, Verdict
from measure.store import Store, write_text_atomically

if TYPE_CHECKING:
    from rich.console import Console

    from measure.campaign import Campaign
    from measure.yaml_positions import Document

REPLICATES_FACTOR = 4
VALIDATION = 1  # the round of runs that have nothing to do with the search's


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


def run_partition(request: Request, console: Console) -> bool:
    """Search and report; True when it was interrupted. Raises `MeasureError`."""
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
        session = _Session(request, asked, document, store, settings, console)
        stack.callback(session.close)
        interrupted = session.search_and_validate()
        outcome = session.outcome(hardware)
    write_text_atomically(directory / "partition.json", summary_text(outcome))
    write_text_atomically(directory / "partition.html", render_page(outcome))
    files = write_campaigns(outcome, campaign, document, directory)
    _tell(outcome, console)
    written = ", ".join(str(path) for path in [directory / "partition.html", *files])
    console.print(f"Written: {written}", style="dim", soft_wrap=True)
    return interrupted


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


class _Session:
    """One search with its validation."""

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
        self._console = console
        count = request.workers or os.cpu_count() or 1
        self._workers = Workers(count)

        def oracle(round_: int) -> CampaignOracle:
            return CampaignOracle(
                campaign, document, store, settings, round_=round_, workers=self._workers,
                target=request.target, notify=lambda message: console.print(message, style="dim"),
            )  # fmt: skip

        self._oracles = [oracle(0), oracle(VALIDATION)]
        path = request.memory or default_path()
        self._memories = [Memory(path, one.context(), one.definitions) for one in self._oracles]
        self._asked: list[Oracle] = [
            Remembering(one, memory, read=request.resume)
            for one, memory in zip(self._oracles, self._memories, strict=True)
        ]
        first = min(FIRST_REPLICATES, settings.most_replicates)
        known = self._memories[0].all() if request.resume else {}
        self.search = PartitionSearch(
            len(campaign.software_metrics), self._asked[0], seed=campaign.seed,
            width=max(1, -(-count // first)), known=known, exact=request.exact,
        )  # fmt: skip
        self.progress: Progress | None = None
        self.validated: dict[Group, Verdict] = {}
        self.revoked: dict[Group, Verdict] = {}
        self.remembered = len(known)
        self._deadline = time.monotonic() + 60 * request.minutes if request.minutes else None

    def close(self) -> None:
        self._workers.close()
        for memory in self._memories:
            memory.close()

    def search_and_validate(self) -> bool:
        """Until the best is confirmed by fresh runs, or Ctrl-C (True)."""
        try:
            while True:
                self._search()
                if self._validate():
                    return False
        except KeyboardInterrupt:
            self._console.print("Interrupted; the best so far, and all verdicts are kept.", style="yellow")
            return True

    def _late(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _search(self) -> None:
        shown = None
        with self._console.status("measuring baselines and all metrics together") as status:
            for progress in self.search.run():
                self.progress = progress
                said = self._line(progress)
                status.update(said)
                state = (progress.best.rank, progress.stage)
                if not self._console.is_terminal and state != shown:
                    self._console.print(said, markup=False, soft_wrap=True)
                shown = state
                if self._late():
                    break
        self.progress = self.search.conclude(self.progress.stage if self.progress else "stopped")

    def _line(self, progress: Progress) -> str:
        best = progress.best
        count = len(best.groups)
        lacking = f", {len(best.uncovered)} metrics in none" if best.uncovered else ""
        runs = sum(one.runs_made for one in self._oracles)
        return (
            f"{progress.stage}: {count} group{'s' if count != 1 else ''}{lacking}; {progress.calls} tested, "
            f"{runs} runs. {progress.outlook.describe(progress.proof)}"
        )

    def _validate(self) -> bool:
        """Test the best partition's groups on fresh runs; False when some did not stand, and are marked."""
        groups = [group for group in self.search.reported.groups if group not in self.validated]
        if not groups:
            return True
        with self._console.status(f"validating {len(groups)} groups on fresh runs"):
            verdicts = self._asked[1].test(groups)
        stood = True
        for group, verdict in zip(groups, verdicts, strict=True):
            if verdict.good:
                self.validated[group] = verdict
                continue
            stood = False
            failed = Verdict(
                verdict.state, f"good at first, but not on fresh runs: {verdict.reason}", verdict.worst,
                verdict.change, verdict.kind, verdict.runs,
            )  # fmt: skip
            self._memories[0].put(group, failed)
            self.search.revoke(group, failed)
            self.revoked[group] = failed
            self._console.print(
                f"{', '.join(self._names(group))}: {failed.reason}", style="yellow", markup=False
            )
        return stood

    def _names(self, group: Group) -> list[str]:
        return [self._oracles[0].names[metric] for metric in sorted(group)]

    def outcome(self, hardware: tuple[tuple[str, ...], ...]) -> Outcome:
        """All there is to report."""
        standing = self.search.conclude()
        stage = self.progress.stage if self.progress else "baselines"
        return Outcome(
            name=self._campaign.name,
            metrics=self._oracles[0].names,
            best=standing.best,
            proof=standing.proof,
            stage=stage,
            outlook=standing.outlook,
            tested=dict(self.search.known),
            validated=dict(self.validated),
            calls=self.search.calls,
            remembered=self.remembered,
            runs=sum(one.runs_made for one in self._oracles),
            hardware=hardware,
            delta=self._campaign.delta,
            alpha=self._campaign.alpha,
            accept=self._settings.accept,
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
