"""Chooses the length of a record and the hardware metrics of a campaign, from timed runs of its program; one more
tells which of its counters vary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml

from measure.errors import RunError
from measure.perturbation.uninformative_metrics import MetricFinding, metric_findings
from measure.run_types import BASELINE, CounterPlace, IntervalUnit, Run, RunSpec
from measure.runs.campaign_model import Campaign
from measure.runs.record_lengths import CYCLES, INSTRUCTIONS, MANY, UnevenRecords, find_uneven

if TYPE_CHECKING:
    from instrumenter.building.program_build import Build

RECORDS = 800
FEWEST_RECORDS = 100
SHORTEST_RECORD_CYCLES = 1000
MOST_METRICS = 8
NEARLY_TIED = 0.4
"""A metric beyond it gives way to others: records of the campaign's runs begin elsewhere, and it may be tied there."""
_FINEST_RECORDS = 4000
_NEARLY_UNEVEN = 0.8 * MANY
"""Records of cycles give way to records of instructions from here on: those of the campaign's runs begin elsewhere, and
its report complains of `MANY`."""
_EVEN_CYCLES = 30_000
"""Records of so many cycles were even in all programs that were tried (docs/method.md). A program with such records
runs long, and is not run once more to look at them."""
_CANDIDATES = (
    "PAPI_TOT_INS", "PAPI_LD_INS", "PAPI_SR_INS", "PAPI_BR_CN", "PAPI_BR_MSP", "PAPI_L1_DCM", "PAPI_L1_ICM",
    "PAPI_L2_TCM", "PAPI_TLB_DM", "PAPI_FP_OPS", "PAPI_BR_TKN", "PAPI_BTAC_M", "PAPI_INT_INS",
)  # fmt: skip
"""Hardware metrics in the order in which they are tried: instructions first, then what the caches and predictors do."""


@dataclass(frozen=True)
class ChosenMetric:
    """A hardware metric, what it counts, and its events in the run."""

    name: str
    description: str
    events: int


@dataclass(frozen=True)
class Trial:
    """``every``, ``unit``: proposed length of a record; ``cycles``, ``instructions``, ``seconds``: of the run;
    ``left_out``: metrics that vary too little in this program; ``steady``: those that do, and were taken for want of
    others; ``uneven``: how uneven records of cycles are, None where they are even enough to be proposed."""

    every: int
    unit: IntervalUnit
    cycles: int
    instructions: int
    seconds: float
    metrics: tuple[ChosenMetric, ...]
    left_out: tuple[MetricFinding, ...]
    steady: tuple[MetricFinding, ...] = ()
    uneven: UnevenRecords | None = None

    @property
    def records(self) -> int:
        """About how many records a run has."""
        return (self.cycles if self.unit == "cycles" else self.instructions) // self.every


def trial_run(campaign: Campaign, program: Path, build_key: str, instructions: int, explanation: str = "") -> Trial:
    """Run ``program`` on the campaign's machine, and look at its metrics by records of the length proposed.

    ``instructions``: of the program; ``explanation``: what it said and did not find, which may be why it is short.
    Raises `RunError` for a program that fails or runs too short.
    """
    from emulator.pmu import METRICS, available_metrics
    from emulator.timing.machine_file import machine_text, parse_machine

    machine = parse_machine(machine_text(campaign.machine_file), campaign.machine_name)
    names = tuple(name for name in _CANDIDATES if name in available_metrics(machine))
    _check_length(instructions, "instructions", explanation)
    finest = max(SHORTEST_RECORD_CYCLES // 10, instructions // _FINEST_RECORDS)
    run = _timed(campaign, program, build_key, finest, names)
    _check_length(run.total_cycles, "cycles", explanation)
    every = max(SHORTEST_RECORD_CYCLES, _rounded(run.total_cycles / RECORDS))
    uneven = _uneven(campaign, program, build_key, every)
    unit: IntervalUnit = "cycles"
    if uneven is not None:  # each record has as many instructions: cycles are counted in place of them
        every, unit = uneven.instructions, "instructions"
        names = tuple(CYCLES if name == INSTRUCTIONS else name for name in names)
        sampled = _timed(campaign, program, build_key, every, names, unit=unit)
        counts = records = sampled.trace.counts(names)
    else:
        counts = run.trace.counts(names)
        together = max(1, round(every / finest))
        records = np.add.reduceat(counts, range(0, len(counts) // together * together, together), axis=0)
    tables = {BASELINE: [records.astype(np.float64)]}
    found = {one.metric: one for one in metric_findings(tables, names, "hardware")}
    doubtful = {one.metric for one in metric_findings(tables, names, "hardware", NEARLY_TIED)}
    wanted = sorted(names, key=lambda name: (name in found, name in doubtful))
    chosen = _that_fit([name for name in wanted if name not in found] or wanted[:2], campaign)
    chosen += [name for name in wanted if name not in chosen][: max(0, 2 - len(chosen))]
    totals = dict(zip(names, counts.sum(axis=0).tolist(), strict=True))
    return Trial(
        every, unit, run.total_cycles, run.total_instructions, run.seconds,
        tuple(ChosenMetric(name, METRICS[name].description, totals[name]) for name in chosen),
        tuple(one for name, one in found.items() if name not in chosen),
        tuple(one for name, one in found.items() if name in chosen),
        uneven,
    )  # fmt: skip


def _uneven(campaign: Campaign, program: Path, build_key: str, every_cycles: int) -> UnevenRecords | None:
    """How uneven records of ``every_cycles`` are, by a run with them: the ends of finer records do not tell, since the
    steps in which the guest runs ahead depend on the length. None where they are even."""
    if every_cycles >= _EVEN_CYCLES:
        return None
    run = _timed(campaign, program, build_key, every_cycles, campaign.hardware_metrics)
    return find_uneven(every_cycles, [run], _NEARLY_UNEVEN)


def counter_findings(campaign: Campaign, build: Build, every: int, unit: IntervalUnit) -> dict[str, MetricFinding]:
    """The uninformative ones among the software metrics that ``build`` has counters for, by name: from one timed run
    with records of ``every`` cycles or instructions. Raises `RunError` when the program fails."""
    names = tuple(build.counters)
    counters = tuple(CounterPlace(name, at.symbol, at.offset_bytes) for name, at in build.counters.items())
    run = _timed(campaign, build.elf_path, build.key, every, campaign.hardware_metrics, counters, unit)
    records = run.trace.counts(names).astype(np.float64)
    return {one.metric: one for one in metric_findings({BASELINE: [records]}, names, "software")}


def _timed(
    campaign: Campaign, program: Path, build_key: str, every: int, hardware: tuple[str, ...],
    counters: tuple[CounterPlace, ...] = (), unit: IntervalUnit = "cycles",
) -> Run:  # fmt: skip
    """A run of ``program`` on the campaign's machine, without noise."""
    from emulator.timing.machine_file import machine_text
    from measure.runs.plan import program_input
    from measure.targets import target_named

    stdin, arguments, files = program_input(campaign.program)
    spec = RunSpec(
        variant=BASELINE, replicate=0, seed=campaign.seed, build_key=build_key, binary=str(program),
        arguments=arguments, stdin=stdin, files=tuple(sorted((guest, str(host)) for guest, host in files.items())),
        machine=_with_counters(machine_text(campaign.machine_file), len(hardware)), machine_name=campaign.machine_name,
        hardware_metrics=hardware, counters=counters, sampling_mode="ideal", interval=every,
        interval_unit=unit, limit_instructions=campaign.limits.instructions,
        exit_status=campaign.program.exit_status, program_name=campaign.program.started_as,
    )  # fmt: skip
    return target_named("emulated").execute(spec)


def _that_fit(names: list[str], campaign: Campaign) -> list[str]:
    """As many of ``names`` as the machine counts at once, in their order."""
    from emulator.pmu import PmuError, select_metrics
    from emulator.timing.machine_file import load_machine

    machine = load_machine(campaign.machine_file)
    found: list[str] = []
    for name in names:
        if len(found) == MOST_METRICS:
            break
        try:
            select_metrics([*found, name], machine)
        except PmuError:
            continue
        found.append(name)
    return found


def _check_length(count: int, unit: str, explanation: str) -> None:
    """Raise `RunError` for a program that is too short."""
    if count < FEWEST_RECORDS * SHORTEST_RECORD_CYCLES // (2 if unit == "instructions" else 1):
        raise RunError(
            f"the program runs too short: {count:,} {unit}, expected at least "
            f"{FEWEST_RECORDS * SHORTEST_RECORD_CYCLES:,} cycles, which are {FEWEST_RECORDS} records of "
            f"{SHORTEST_RECORD_CYCLES:,}. Give it more work: arguments after --, a larger input, or a loop around it"
            f"{explanation}"
        )


def _with_counters(machine: str, count: int) -> str:
    """The machine's description with counters for all metrics; timing does not depend on their number."""
    data = yaml.safe_load(machine)
    data["pmu"] = {**(data.get("pmu") or {}), "programmable_counters": max(count, 1)}
    return yaml.safe_dump(data, sort_keys=False)


def _rounded(value: float) -> int:
    """``value`` to two digits."""
    return int(float(f"{value:.2g}"))
