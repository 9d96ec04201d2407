"""`measure run --dry-run`: what a campaign will cost and what it can find, before its runs are made.

The program runs once without a timing model (its instructions and events), and the first part of two baselines with it
(instructions a second). Programs that are built for that stay in the cache of builds, nothing else is kept.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from common.yaml_document import YamlDocument
from measure.campaign.event_counts import CountedRun, count_campaign, print_counts, run_untimed
from measure.console.machine_load import command_processor_seconds, load_per_processor
from measure.console.tables import print_table
from measure.errors import CampaignError
from measure.judging.comparing_time import comparing_seconds
from measure.judging.power import assumed_spread, comparing_text, runs_text
from measure.perturbation.analysis_types import FEWEST_RECORDS
from measure.run_types import BASELINE, BOUNDARY_COLUMNS, NULL_CONTROL
from measure.runs.build_notices import SecondRunOf
from measure.runs.builds import Builds, shifted_layouts
from measure.runs.campaign_model import Campaign
from measure.runs.plan import Plan, checked_machine, make_plan
from measure.runs.variance import planned_runs

if TYPE_CHECKING:
    from measure.targets.emulated import PartTiming

_PART_INSTRUCTIONS = 30_000_000
_LEAST_INSTRUCTIONS = 1_000
_TIMINGS = 3  # the shortest counts: what shares caches with it only adds to it
_BUSY = 0.1  # tasks a processor, from which on the time is told as a range
_STARTS = 2  # one after the other: the command, and at the same time all processes that make runs
_MOST_TIMING_SECONDS = 2.0
_PASSES = 2  # of a second run: one follows its progress, the other reads its counters
_VALUE_BYTES = 8
_SPEC_BYTES = 30_000  # of a trace's file, for its specification and the format
_REPORT_BYTES = 3_000_000  # of report.html, summary.json and plan.json, with 8 metrics and 3 variants


@dataclass(frozen=True)
class Rate:
    """The speed of runs with a timing model, from the first part of one.

    ``set_up_seconds``: to link and to start a run; ``seconds``: for ``instructions``, which took ``cycles``.
    """

    set_up_seconds: float
    instructions: int
    cycles: int
    seconds: float

    @classmethod
    def of(cls, parts: Sequence[PartTiming]) -> Rate:
        """The rate by repeated ``parts``: what was quickest tells most."""
        part = min(parts, key=lambda one: one.seconds)
        set_up = min(one.set_up_seconds for one in parts)
        return cls(set_up, part.instructions, part.cycles, part.seconds)

    def run_seconds(self, instructions: int) -> float:
        """Time of a run of so many instructions."""
        return self.set_up_seconds + self.seconds * instructions / max(1, self.instructions)


@dataclass(frozen=True)
class PlanEstimate:
    """What a campaign takes. ``counted``: events of its software metrics, None without any.

    ``runs``: number of all runs; ``builds``: number of programs; ``missing``: those that are not in the cache;
    ``build_seconds``: of one, None if it is unknown or no program is missing; ``instructions``: most in a run;
    ``records``: in a baseline; ``columns``: most in a trace; ``at_once``: runs made at the same time;
    ``second_runs``: runs beside which a second one counts; ``second_seconds``: that each of them takes longer;
    ``comparing_seconds``: to compare the runs and to draw the report; ``start_seconds``: to load the command and the
    processes that make runs; ``load``: other tasks that want to run, for each processor; ``timed_share``: of a
    baseline's instructions, whose cycles tell the number of records.

    All times are the processor's, so those of a machine without other work.
    """

    counted: CountedRun | None
    runs: int
    builds: int
    missing: int
    build_seconds: float | None
    instructions: int
    records: int
    columns: int
    rate: Rate
    at_once: int
    second_runs: int = 0
    second_seconds: float = 0.0
    comparing_seconds: float = 0.0
    start_seconds: float = 0.0
    load: float = 0.0
    timed_share: float = 1.0

    @property
    def is_busy(self) -> bool:
        """Whether other work takes so much of the machine that the time depends on it."""
        return self.load > _BUSY

    @property
    def busy_seconds(self) -> float:
        """As `seconds`, if the other work stays as it is: processors are shared with it equally."""
        return self.seconds * (1 + self.load)

    @property
    def seconds(self) -> float:
        """Time to start, to build, to run and to compare, on a machine without other work."""
        runs = math.ceil(self.runs / self.at_once) * self.rate.run_seconds(self.instructions)
        runs += math.ceil(self.second_runs / self.at_once) * self.second_seconds
        return self.start_seconds + runs + self.missing * (self.build_seconds or 0.0) + self.comparing_seconds

    @property
    def bytes(self) -> int:
        """Most bytes of the results."""
        return self.runs * (self.records * self.columns * _VALUE_BYTES + _SPEC_BYTES) + _REPORT_BYTES


def estimate(campaign: Campaign, document: YamlDocument, console: Console, workers: int | None = None) -> PlanEstimate:
    """Try the campaign out. Raises as `make_plan`, `CampaignError` when a run has too few records, and `RunError` when
    the program fails."""
    from measure.targets.emulated import time_part

    load, start_seconds = load_per_processor(), _STARTS * command_processor_seconds("measure")
    _, config = checked_machine(campaign, document)
    sets = campaign.variant_sets()
    variants = [BASELINE, *sets, *([NULL_CONTROL] if campaign.has_controls else [])]
    builds = Builds(campaign, document, config.clock_hz, lambda text: console.print(text, style="dim"))
    plain = _plain_plan(campaign, document, lambda text: console.print(text, style="dim"))
    missing = builds.missing([(variant, 0) for variant in variants])
    counting = [SecondRunOf(variant) for variant, metrics in sets.items() if campaign.in_second_run(metrics)]
    missing_counting = builds.missing([(program, 0) for program in counting])
    took = builds[BASELINE, 0].seconds
    build_seconds = took if (missing or missing_counting) and math.isfinite(took) else None
    first, second = sorted(plain.specs, key=lambda spec: spec.replicate)[:2]
    counted = count_campaign(campaign, document, console) if campaign.software_metrics else None
    time_part(second, _LEAST_INSTRUCTIONS)  # loads kernels
    parts = [part := time_part(first, _PART_INSTRUCTIONS)]
    while len(parts) < _TIMINGS and sum(one.set_up_seconds + one.seconds for one in parts) < _MOST_TIMING_SECONDS:
        parts.append(time_part(first, _PART_INSTRUCTIONS))
    rate = Rate.of(parts)
    baseline = part.instructions if part.ended else run_untimed(campaign, Path(first.binary), {}).instructions
    instructions = max(baseline, counted.instructions if counted else 0)
    interval, unit = campaign.sampling.interval
    length = baseline if unit == "instructions" else round(part.cycles / part.instructions * baseline)
    if length // interval < FEWEST_RECORDS:
        raise CampaignError(
            f"{document.where('sampling', 'every')}: a run would have about {length // interval} records of "
            f"{campaign.sampling.every}, expected at least {FEWEST_RECORDS}: sample at a shorter interval or give the "
            "program more work"
        )
    runs = planned_runs(campaign)
    layouts = 1 if first.layout_seed is not None else min(shifted_layouts(campaign), campaign.baselines)
    return PlanEstimate(
        counted, runs, layouts * len(variants) + len(counting), layouts * len(missing) + len(missing_counting),
        build_seconds, instructions, length // interval,
        len(BOUNDARY_COLUMNS) + len(campaign.hardware_metrics) + max(map(len, sets.values()), default=0)
        + bool(counting),
        rate, min(workers or os.cpu_count() or 1, runs),
        campaign.replicates * len(counting), _PASSES * counted.seconds if counting and counted else 0.0,
        comparing_seconds(campaign, length // interval), start_seconds, load,
        part.instructions / baseline,
    )  # fmt: skip


def _plain_plan(campaign: Campaign, document: YamlDocument, notify: Callable[[str], None]) -> Plan:
    """The plan of the campaign's baselines."""
    nothing: dict[str, object] = {
        "software_metrics": {}, "variants": {}, "cumulative": None, "controls": False, "variance_runs": 0,
    }  # fmt: skip
    return make_plan(campaign.model_copy(update=nothing), document, notify)


def print_dry_run(campaign: Campaign, document: YamlDocument, console: Console, workers: int | None = None) -> None:
    """Try the campaign out, and print events, runs, time, disk and the change that it can find."""
    found = estimate(campaign, document, console, workers)
    if found.counted is not None:
        print_counts(found.counted, campaign, document, console)
    rows = [(name, escape(text)) for name, text in _rows(campaign, found)]
    print_table(console, escape(f"{campaign.name}: what the campaign takes"), ("", ""), rows)
    console.print("Nothing was kept but programs in the cache of builds.", style="dim")


def _rows(campaign: Campaign, found: PlanEstimate) -> list[tuple[str, str]]:
    rate = found.rate
    variants = list(campaign.variant_sets())
    finds = comparing_text(campaign, campaign.alpha_of_a_look, assumed_spread(campaign), variants)
    known = found.build_seconds is not None or not found.missing
    counted = f"{found.missing} build{'s' * (found.missing != 1)}"
    builds = f", {counted} of about {found.build_seconds:.1f} s" if found.build_seconds else ""
    each = f", about {found.build_seconds:.1f} s each" if found.build_seconds is not None and found.missing else ""
    second = (
        f"Beside {found.second_runs} of them a second run counts, which takes about {found.second_seconds:.1f} s. "
        if found.second_runs
        else ""
    )
    speed = rate.instructions / rate.seconds / 1e6
    duration = f"{_minutes(found.seconds)} on an idle machine"
    if found.is_busy:
        duration = (
            f"{duration}, {_minutes(found.busy_seconds)} if this one stays as busy as in the last minute (load average "
            f"{found.load:.1f} a processor),"
        )
    time_basis = (
        f"{duration} with {found.at_once} at once: {found.runs} runs of about "
        f"{rate.run_seconds(found.instructions):.1f} s{builds}. A run executes at most {found.instructions:,} "
        f"instructions (counted in one without timing); with timing, {speed:.1f} million a "
        f"second (measured on the first {rate.instructions:,}), and {rate.set_up_seconds:.1f} s to link and to start. "
        f"{second}"
        f"Comparing the runs takes {_minutes(found.comparing_seconds)} of it (by alignments of made-up traces)"
        f"{'' if known else '; building the programs comes on top'}"
    )
    basis = f", by the cycles of the first {found.timed_share:.0%} of its instructions" if found.timed_share < 1 else ""
    disk = (
        f"at most {found.bytes / 1e6:.0f} MB: a trace of a run has about {found.records:,} records of "
        f"{found.columns} columns{basis}"
    )
    more = ["the further runs of `ground_truth`"] * campaign.ground_truth + ["the explanation"] * campaign.explain
    return [
        ("runs", runs_text(campaign, variants)),
        ("builds", f"{found.builds}, {found.builds - found.missing} of them in the cache{each}"),
        ("time", time_basis),
        ("disk", disk),
        ("finds", f"Compared {finds}"),
        *([("not included", ", ".join(more))] if more else []),
    ]


def _minutes(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < 90 else f"about {seconds / 60:.0f} minutes"
