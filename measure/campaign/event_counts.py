"""`measure run --counts`: counts how often each software metric of a campaign fires, before its long runs.

One program with the counters of all software metrics runs once, without a timing model, and its counters are read at
the end. The campaign's whole runs have the same counts, unless the program reads the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from common.listed_names import listed
from common.yaml_document import YamlDocument
from instrumenter.spec.software_metrics import MetricSpec
from measure.analysis.other_programs import about_other_programs
from measure.console.tables import print_table
from measure.errors import CampaignError, RunError
from measure.runs.campaign_model import Campaign

if TYPE_CHECKING:
    from instrumenter.building.program_build import Build

_ALL = "all metrics"
_CLOCK_HZ = 1_000_000_000  # any value: nothing is sampled
_MOST_PLACES = 3


@dataclass(frozen=True)
class Counts:
    """The counts of one software metric in a whole run.

    ``events``: number of its events; ``total``: value of its counter, which differs from ``events`` if it adds up an
    expression (``adds``); ``sites``: number of places in the source that count; ``places``: ``file:line`` to the
    number of sites there.
    """

    metric: str
    description: str
    events: int
    total: int
    adds: bool
    sites: int
    places: Mapping[str, int]

    @property
    def where(self) -> str:
        """Its places in words, those with most sites first."""
        ordered = sorted(self.places.items(), key=lambda item: (-item[1], item[0]))
        places = [f"{_short(place)}{f' ({number} sites)' if number > 1 else ''}" for place, number in ordered]
        return listed(places, _MOST_PLACES)


@dataclass(frozen=True)
class CountedRun:
    """``metrics``: in the campaign's order; ``instructions``: of the run, with those of its counters; ``seconds``:
    duration of the run; ``warnings``, ``notices``: about the program, see `Build`; ``starts_tasks``: see `UntimedRun`;
    ``uncounted``: those of the notices that are about programs without counters.
    """

    metrics: tuple[Counts, ...]
    instructions: int
    seconds: float
    warnings: tuple[str, ...] = ()
    starts_tasks: bool = False
    notices: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()


@dataclass(frozen=True)
class UntimedRun:
    """A run without a timing model. ``counts``: the counters' values at its end; ``starts_tasks``: whether the program
    started threads or processes; ``other_programs``: as in `Run`."""

    counts: dict[str, int]
    instructions: int
    starts_tasks: bool
    other_programs: tuple[str, ...] = ()


def counting_program(
    campaign: Campaign, document: YamlDocument, notify: Callable[[str], None] = lambda text: None
) -> tuple[Build, dict[str, str]]:
    """The campaign's program with the counters of all software metrics; and for each metric that adds up an expression
    the name of a further counter, which counts its events.

    Raises `CampaignError` for a metric without a site, and as `measure.runs.builds.Builds`.
    """
    from measure.runs.builds import Builds

    counters = {name: spec.model_copy(update={"method": "counter"}) for name, spec in campaign.software_metrics.items()}
    specs, twins = _with_events(counters)
    changes = {
        "software_metrics": specs,
        "variants": {_ALL: tuple(specs)},
        "cumulative": None,
        "sampling": campaign.sampling.model_copy(update={"mode": "ideal"}),
    }
    builds = Builds(campaign.model_copy(update=changes), document, _CLOCK_HZ, notify)
    return builds[_ALL, 0], twins


def count_events(
    campaign: Campaign, document: YamlDocument, notify: Callable[[str], None] = lambda text: None
) -> CountedRun:
    """Build the campaign's program with all software metrics and run it once, without a timing model.

    Raises `CampaignError` for a campaign without software metrics, and for one that counts in a second run in a program
    with threads or processes, `RunError` when the program fails, and as `counting_program`.
    """
    if not campaign.software_metrics:
        raise CampaignError(f"{document.path}: has no software_metrics, so nothing to count")
    build, twins = counting_program(campaign, document, notify)
    started = time.perf_counter()
    run = run_untimed(campaign, build.elf_path, {m: (at.symbol, at.offset_bytes) for m, at in build.counters.items()})
    in_second_run = campaign.in_second_run(tuple(campaign.software_metrics))
    if run.starts_tasks and in_second_run:
        from measure.runs.plan import no_second_run
        from measure.targets.second_run import takes_turns

        raise no_second_run(in_second_run[0], document, takes_turns())
    values = run.counts
    found = tuple(
        Counts(
            metric, spec.describe(), values[twins.get(metric, metric)], values[metric], metric in twins,
            build.sites[metric], build.places[metric],
        )
        for metric, spec in campaign.software_metrics.items()
    )  # fmt: skip
    seconds = time.perf_counter() - started
    of_twins = [f"metric '{twin}'" for twin in twins.values()]
    warnings = tuple(one for one in build.warnings if not any(twin in one for twin in of_twins))
    others = tuple(about_other_programs(run.other_programs))
    notices = (*build.notices, *others)
    return CountedRun(found, run.instructions, seconds, warnings, run.starts_tasks, notices, others)


def _with_events(metrics: Mapping[str, MetricSpec]) -> tuple[dict[str, MetricSpec], dict[str, str]]:
    """The metrics, and for each that adds up an expression a twin that counts its events; and twins by metric."""
    specs, twins = dict(metrics), {}
    for metric, spec in metrics.items():
        if spec.add is None and spec.event != "alloc_bytes":
            continue
        twin = f"{metric}.events"
        while twin in specs:
            twin += "_"
        event = "alloc" if spec.event == "alloc_bytes" else spec.event
        specs[twin] = spec.model_copy(update={"add": None, "event": event})
        twins[metric] = twin
    return specs, twins


def run_untimed(campaign: Campaign, program: Path, counters: Mapping[str, tuple[str, int]]) -> UntimedRun:
    """Run the program without a timing model, and read its counters.

    ``counters``: symbol and offset of each. Raises `RunError` when the program fails.
    """
    from emulator.errors import EmulatorError
    from emulator.linux.vfs.files import VirtualFiles
    from emulator.machine import DEFAULT_CLOCK_HZ, Machine
    from emulator.timing.machine_file import load_machine
    from measure.runs.plan import program_input
    from measure.targets.emulated import check_ending, run_error

    stdin, arguments, mapped = program_input(campaign.program)
    files = VirtualFiles(mapped=mapped, stdin=Path(stdin).read_bytes() if stdin else b"", seed=campaign.seed)
    try:
        clock_hz = DEFAULT_CLOCK_HZ if campaign.host is not None else load_machine(campaign.machine_file).clock_hz
        with Machine(
            program.read_bytes(), arguments, name=campaign.program.started_as, files=files, seed=campaign.seed,
            clock_hz=clock_hz, keep_translations=True, limit_instructions=campaign.limits.instructions,
        ) as machine:  # fmt: skip
            addresses = []
            for symbol, offset in counters.values():
                place = machine.image.find_symbol(symbol)
                if place is None:
                    raise RunError(f"the program has no symbol {symbol}: its counters cannot be read")
                addresses.append(place.address + offset)
            totals = machine.counter_totals(addresses)
            machine.run()
            check_ending(machine, files, campaign.program.exit_status)
            counts = dict(zip(counters, totals.read(), strict=True))
            kernel = machine.kernel
            others = tuple(kernel.system.other_programs)
            return UntimedRun(counts, machine.instructions, kernel.scheduler.has_started_tasks, others)
    except EmulatorError as error:
        raise run_error(error) from error


def count_campaign(campaign: Campaign, document: YamlDocument, console: Console) -> CountedRun:
    """`count_events`, with messages on ``console``; raises also what is wrong with the catalogue as `CampaignError`."""
    from measure.programs.catalogue import ProgramError

    try:
        return count_events(campaign, document, lambda text: console.print(text, style="dim"))
    except ProgramError as error:
        raise CampaignError(f"{document.where('program')}: {error}") from None


def print_counts(counted: CountedRun, campaign: Campaign, document: YamlDocument, console: Console) -> None:
    """Print the events of each metric and variant; first a warning for each metric that never fires, and those
    of the build."""
    for one in counted.metrics:
        if not one.events:
            at = document.where("software_metrics", one.metric)
            warned = any(f"metric '{one.metric}': " in warning for warning in counted.warnings)
            why = "of the events that it may miss the lines below tell; else " if warned else ""
            console.print(
                f"! {escape(one.metric)} never fires: 0 events at {one.sites} "
                f"place{'' if one.sites == 1 else 's'} ({escape(one.where)}). Its runs would say nothing about it: "
                f"{why}give the program an input that gets there, or take it out ({escape(at)}).",
                style="yellow", highlight=False,
            )  # fmt: skip
    for notice in counted.uncounted:
        console.print(f"! {escape(notice)}.", style="yellow", highlight=False)
    for warning in counted.warnings:
        console.print(f"! About a counter: {escape(warning)}.", style="yellow", highlight=False)
    rows = []
    for one in counted.metrics:
        events = f"{one.events:,}" + (f"\nsum {one.total:,}" if one.adds else "")
        rows.append(
            (
                escape(one.metric), escape(one.description), events if one.events else f"[bold red]{events}[/]",
                f"{counted.instructions / one.events:,.0f}" if one.events else "never",
                str(one.sites), escape(one.where),
            )
        )  # fmt: skip
    title = escape(
        f"{campaign.name}: events in one run of {counted.instructions:,} instructions, with those of all these counters"
    )
    headings = ("metric", "event", "events", "one in ...\ninstructions", "sites", "where")
    print_table(console, title, headings, rows, right=[2, 3, 4])
    sets = campaign.model_copy(update={"cumulative": None}).variant_sets()
    by_metric = {one.metric: one.events for one in counted.metrics}
    for variant, metrics in sets.items():
        total = sum(by_metric[metric] for metric in metrics)
        console.print(f"- {escape(variant)}: {total:,} events a run", highlight=False)
    alone = [metric for metric in by_metric if not any(metric in metrics for metrics in sets.values())]
    if alone and campaign.cumulative is None:  # which collects all of them
        console.print(
            f"! In no variant, so that no run collects {'it' if len(alone) == 1 else 'them'}: "
            f"{escape(', '.join(alone))} ({escape(document.where('variants'))}).",
            style="yellow", highlight=False,
        )  # fmt: skip


def _short(place: str) -> str:
    """``file:line`` without the directories of an absolute path."""
    return Path(place).name if place.startswith("/") else place
