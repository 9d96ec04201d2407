"""``measure cycleclose``: traces a program, shows the trace as it grows, and writes the results."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.atomic_files import remove_leftovers
from common.distinct import distinct
from common.interrupts import INTERRUPTED, exit_status
from common.startup import load_meanwhile
from emulator.errors import EmulatorError, RestoreError
from emulator.gdb.killed import Killed
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_file import load_machine
from measure.built_in.machine import described
from measure.console.progress import Status, WorkBar
from measure.console.tables import print_table
from measure.cycle_close import results
from measure.cycle_close.far_off import about_unsampled, about_worst, is_far_off
from measure.cycle_close.job import (
    Job,
    bad_ending,
    check_length,
    check_same_again,
    failed_after,
    machine_for,
    program_file,
)
from measure.cycle_close.rate_labels import SHORT_LABELS
from measure.cycle_close.rates import DEVIATIONS, Columns, about_blank, columns_of, deviations, event_totals, events_off
from measure.cycle_close.rerun import profile, trace_second_run
from measure.cycle_close.rollback import RollBackTracer
from measure.cycle_close.signature import about_crowded_signatures
from measure.cycle_close.tracer import Category, Interval, Tracer, TracerSettings
from measure.cycle_close.watch import Watch
from measure.errors import CampaignError, MeasureError
from measure.result_files import SUMMARY_NAME, check_results_place, write_result, write_text_atomically

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

# Warn when at least so many intervals were sampled again, and their estimates were off by this fraction of CPI.
ENOUGH_SAMPLED_AGAIN, MUCH_OFF = 5, 0.1
SUMMARY_FORMAT = "perturbation-cycleclose-1"
UNCHECKED = "No estimate was checked by simulating its interval, so how far estimates are off is not known."


@dataclass(frozen=True)
class Traced:
    """A trace and its cost. ``columns``: see `columns_of`; ``interrupted``: the exit status of the interruption that
    ended it early, 0 without one; ``sampled_again``: see `Tracer`, in two runs
    `SecondRun.checks`; ``frequent_branches``: `SignatureMaker.frequent`."""

    columns: Columns
    phases: int
    seconds: float
    interrupted: int
    ending: str | None  # why the guest failed, None for success
    sampled_again: tuple[float, ...] = ()
    frequent_branches: int = 0

    @functools.cached_property
    def table(self) -> pd.DataFrame:
        """The columns as a table."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    @property
    def instructions(self) -> int:
        return int(self.columns["end_instructions"][-1])

    def share(self, category: Category) -> float:
        """Fraction of the intervals that are of a category."""
        return float((self.columns["category"] == category.name.lower()).mean())


def trace_job(
    job: Job, elf: Path, config: MachineConfig, settings: TracerSettings, watch: Watch | None,
    each: Callable[[Interval], None] = lambda interval: None,
) -> Traced:  # fmt: skip
    """Trace the program once under ``settings``. Ctrl-C, SIGTERM and gdb's ``kill`` end it and keep the trace.

    ``each`` is called with every interval, unless the program is run twice.
    """
    core = InOrderCore(config, job.seed)
    if job.samples and not settings.everything:
        return _trace_twice(job, elf, core, settings)
    intervals: list[Interval] = []
    interrupted = 0
    started = time.perf_counter()
    with machine_for(job, elf, core.config.clock_hz) as machine:
        rolls_back = settings.roll_back and not settings.everything
        tracer: Tracer | RollBackTracer
        if rolls_back:
            tracer = RollBackTracer(machine, core, settings)
        else:
            shown = watch is not None
            tracer = Tracer(machine, core, settings, defer_estimates=not shown, stepwise=shown)
        try:
            for interval in tracer.intervals():
                intervals.append(interval)
                each(interval)
                if watch is not None and not watch.show(machine, interval, config):
                    interrupted = INTERRUPTED
                    break
        except (KeyboardInterrupt, Killed) as error:
            interrupted = exit_status(error)
        finally:
            if watch is not None:
                watch.detach_gdb()
        seconds = time.perf_counter() - started
        machine.save_translations()
        problem = bad_ending(machine, job)
    if not intervals:
        raise MeasureError(f"{job.program}: nothing was executed ({problem or 'interrupted'})")
    columns = _columns(tracer.reestimated(intervals), config)
    again = tuple(tracer.sampled_again)
    return Traced(columns, tracer.table.phases, seconds, interrupted, problem, again, tracer.frequent_branches)


def _trace_twice(job: Job, elf: Path, core: InOrderCore, settings: TracerSettings) -> Traced:
    started = time.perf_counter()
    with machine_for(job, elf, core.config.clock_hz) as machine:
        first_run = profile(machine, core, settings)
        machine.save_translations()
        problem = bad_ending(machine, job)
    with machine_for(job, elf, core.config.clock_hz) as machine:
        second_run = trace_second_run(machine, core, settings, first_run, job.samples)
        machine.save_translations()  # they differ from those of the first run, which counts blocks
    seconds = time.perf_counter() - started
    columns, checks = _columns(second_run.intervals, core.config), tuple(second_run.checks)
    return Traced(columns, len(distinct(first_run.phases)), seconds, 0, problem, checks, first_run.frequent_branches)


def _columns(intervals: list[Interval], config: MachineConfig) -> Columns:
    return columns_of(intervals, config.energy.picojoules() if config.energy is not None else None)


def run_cycleclose(
    job: Job,
    settings: TracerSettings,
    directory: Path,
    validate: bool,
    console: Console,
    gdb_port: int = 0,
    picture: bool = False,
) -> tuple[int, str | None]:
    """Trace, validate if requested, write DIR/trace.html, trace.parquet and summary.json, and print.

    ``picture``: write trace.png, too. ``gdb_port``: port at which the live view waits for gdb, 0 for any. The trace
    is on the disk before the full simulation begins. Returns the exit status of an interruption, or 0, and why the
    guest failed, None if it did not. Raises `CampaignError` for bad input, and when not one interval could be
    simulated.
    """
    check_results_place(directory, "measure cycleclose", program=job.program)
    try:
        config = load_machine(job.machine, job.settings)
        elf = program_file(job.program, console)
        job.check_input()
        load_meanwhile("pyarrow.parquet", "measure.cycle_close.trace_page")
        traced = _traced(job, elf, config, settings, console, gdb_port)
        if not traced.interrupted:
            _check(job, settings, traced)
        remove_leftovers(directory)
        _write_trace(job, settings, directory, traced, None)
        full, skipped = None, traced.interrupted
        if validate and not traced.interrupted:
            full = _simulated_in_full(job, elf, config, settings, traced, console)
            skipped = full.interrupted
            if not skipped:
                ends = (one.columns["end_instructions"] for one in (traced, full))
                check_same_again(job, *ends)
    except RestoreError as error:
        raise CampaignError(f"--roll-back: {error}; use --twice, which leaves nothing unsampled either") from None
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    if skipped:
        full = None
    validation = None
    if full is not None:
        validation = _write_trace(job, settings, directory, traced, full)
    if not picture:
        (directory / "trace.png").unlink(missing_ok=True)  # an earlier trace's
    else:
        actual = full.columns if full is not None else None
        results.write_picture(directory, job.program.stem, traced.columns, actual)
    _print(console, directory, traced, full, validation, settings, job.samples, picture)
    if validate and skipped:
        console.print(
            "--validate was skipped: the full simulation "
            + ("was not begun" if traced.interrupted else "was interrupted")
            + ", so the deviation is unknown.",
            style="yellow",
        )
    return skipped, traced.ending


def _traced(
    job: Job, elf: Path, config: MachineConfig, settings: TracerSettings, console: Console, gdb_port: int
) -> Traced:
    """Trace the program, and show the trace as it grows."""
    if console.is_terminal:
        with Watch(console, gdb_port=gdb_port) as watch:
            return trace_job(job, elf, config, settings, watch)
    last: list[Interval] = []

    def describe() -> str:
        where = (f": interval {one.number:,}, {one.end_instructions / 1e6:,.1f} M instructions" for one in last[-1:])
        return "tracing" + "".join(where)

    def show(interval: Interval) -> None:
        last[:] = [interval]

    with Status(console, describe):
        return trace_job(job, elf, config, settings, None, show)


def _simulated_in_full(
    job: Job, elf: Path, config: MachineConfig, settings: TracerSettings, traced: Traced, console: Console
) -> Traced:
    """Simulate the same intervals in full, with a progress bar."""
    with WorkBar(console, "full simulation, to compare", percent=True) as bar:
        bar.begin(traced.instructions)

        def show(interval: Interval) -> None:
            bar.advance(interval.end_instructions - interval.begin_instructions)

        return trace_job(job, elf, config, _full(settings), None, show)


def _check(job: Job, settings: TracerSettings, traced: Traced) -> None:
    """Raise `CampaignError` for a trace without any information, `RunError` where the program failed that early."""
    check_length(job, settings.interval_instructions, traced.instructions, traced.ending)
    if traced.ending is None and not traced.share(Category.SIMULATED):
        raise CampaignError(
            f"{job.program}: none of its {len(traced.columns['phase'])} intervals was simulated, so there is no "
            "estimate: no phase was predicted before it was over. Expected a shorter --interval, or --roll-back "
            "or --twice 1, which leave nothing unsampled"
        )


def _full(settings: TracerSettings) -> TracerSettings:
    from dataclasses import replace

    return replace(settings, everything=True)


def summary_of(job: Job, settings: TracerSettings, traced: Traced, full: Traced | None) -> dict[str, Any]:
    """The content of summary.json."""
    columns = traced.columns
    shares = {category.name.lower(): traced.share(category) for category in Category}
    estimated = ~np.isnan(columns["cpi"])
    cycles, instructions = (float(columns[name][estimated].sum()) for name in ("cycles", "instructions"))
    about: dict[str, Any] = {
        "format": SUMMARY_FORMAT,
        "program": str(job.program),
        "arguments": list(job.arguments),
        "machine": described(job.machine),
        "machine_settings": list(job.settings),
        "options": job.options,
        "seed": job.seed,
        "samples_per_phase": job.samples or None,
        "settings": {name: value for name, value in asdict(settings).items() if name != "everything"},
        "complete": not traced.interrupted and traced.ending is None,
        "intervals": len(estimated),
        "instructions": traced.instructions,
        "phases": traced.phases,
        "share": shares,
        "blank_intervals": int((~estimated).sum()),
        "seconds": traced.seconds,
        "estimate": {
            "cycles": cycles,
            "cpi": cycles / instructions if instructions else None,
        },
        "frequent_branches": traced.frequent_branches,
        "sampled_again": {
            "intervals": len(traced.sampled_again),
            "cpi_off_percent": 100 * float(np.mean(traced.sampled_again)) if traced.sampled_again else None,
            "largest_off_percent": 100 * max(traced.sampled_again) if traced.sampled_again else None,
        },
    }
    if full is not None:
        about["validation"] = validation_of(traced, full, deviations(full.table, traced.table))
    return about


def validation_of(traced: Traced, full: Traced, compared: pd.DataFrame) -> dict[str, Any]:
    """What summary.json has of the deviation from the full simulation; ``compared``: what `deviations` gives."""
    return {
        "full_seconds": full.seconds,
        "speedup": full.seconds / traced.seconds,
        "metrics": {
            row["metric"]: {
                name: None if np.isnan(value) else float(value) for name, value in row.items() if name != "metric"
            }
            for row in compared.to_dict("records")
        },
        "events": {
            name: {"full": round(full_total), "estimated": total, "off_percent": 100 * (total / full_total - 1)}
            for name, (full_total, total) in event_totals(full.columns, traced.columns).items()
        },
    }


def _write_trace(
    job: Job, settings: TracerSettings, directory: Path, traced: Traced, full: Traced | None
) -> dict[str, Any] | None:
    """Write the trace's files; what summary.json has of the deviation from ``full``, if that is known."""
    actual = full.columns if full is not None else None
    from measure.cycle_close import trace_page

    results.write_table(directory, traced.columns, actual)
    about = summary_of(job, settings, traced, full)
    write_result(directory / SUMMARY_NAME, about)
    write_text_atomically(directory / "trace.html", trace_page.render_page(about, traced.columns, actual))
    return about.get("validation")


def _print(
    console: Console, directory: Path, traced: Traced, full: Traced | None, validation: Mapping[str, Any] | None,
    settings: TracerSettings, samples: int, picture: bool,
) -> None:  # fmt: skip
    """Print the size of the trace, its estimates' quality, and the deviation from the full simulation, if known."""
    shares = ", ".join(
        f"{100 * traced.share(category):.1f}% {category.name.lower()}"
        for category in (Category.SIMULATED, Category.MATCHED, Category.UNSAMPLED)
    )
    instructions = traced.instructions
    if traced.ending is not None:
        console.print(failed_after(instructions), style="red")
    console.print(
        f"{instructions / 1e6:,.1f} M instructions in {len(traced.columns['phase']):,} intervals, "
        f"{traced.phases} phase{'' if traced.phases == 1 else 's'}: {shares}; {traced.seconds:.2f} s, "
        f"{instructions / traced.seconds / 1e6:,.0f} M instructions/s"
    )
    for sentence, style in told_of(traced, settings, samples, full is not None):
        console.print(sentence, style=style)
    if full is not None and validation is not None:
        from measure.cycle_close import trace_page

        _print_deviations(console, deviations(full.table, traced.table))
        console.print(f"Events: {events_off(event_totals(full.columns, traced.columns))}", style="dim")
        if is_far_off(validation):
            console.print(about_worst(validation), style="yellow", markup=False)
        console.print(f"The full simulation took {trace_page.duration_text(validation)}.")
    files = {"Page": "trace.html", "Trace": "trace.parquet"} | ({"Picture": "trace.png"} if picture else {})
    console.print("   ".join(f"{what}: {directory / name}" for what, name in files.items()), style="dim")
    if traced.interrupted:
        console.print("Interrupted: the trace ends where the program was interrupted.", style="yellow")


def _print_deviations(console: Console, found: pd.DataFrame) -> None:
    """Print the deviation from the full simulation, a row a metric."""
    from rich.markup import escape

    names = ("metric", "all", "simulated", "matched", "unsampled", "whole run", "apart", "per 1000")
    rows = []
    for row in found.to_dict("records"):
        cells = [_percent_text(row[kind]) for kind in DEVIATIONS]
        absolute, accesses = row["absolute"], row["accesses_per_1000_instructions"]
        per_1000 = "-" if np.isnan(accesses) else f"{accesses:.3g}"
        difference = "-" if np.isnan(absolute) else f"{absolute:.2g}"
        rows.append((escape(SHORT_LABELS[row["metric"]]), *cells, difference, per_1000))
    print_table(console, "Deviation from the full simulation \\[%]", names, rows, right=range(1, len(names)))
    for row in found[found["metric"] == "cpi"].to_dict("records"):
        beyond, worst = (_percent_text(row[kind]) for kind in ("percentile_99_percent", "largest_percent"))
        console.print(f"CPI of single intervals: 1% of them are over {beyond}% off, the worst is {worst}%.")
    console.print(
        "All: mean of the intervals, for rates of those with a hit, or a branch predicted rightly, in 1000 "
        "instructions at least: relative to a rate near 0, a deviation says nothing. Apart: mean difference in the "
        "metric's own unit, of those with an access or branch in 1000 instructions. Per 1000: how many accesses or "
        "branches there are per 1000 instructions in the median interval; the rate of few says little about the "
        "program's time.",
        style="dim",
    )  # fmt: skip


def _percent_text(value: float) -> str:
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return "-" if np.isnan(value) else f"{value:.{decimals}f}"


def told_of(
    traced: Traced, settings: TracerSettings, samples: int, is_validated: bool = False
) -> list[tuple[str, str]]:  # fmt: skip
    """Sentences on the quality of a trace's estimates, which need no full simulation, each with its style in the
    terminal. ``samples``: of a phase, in two runs, else 0; ``is_validated``: whether there is a full simulation."""
    blank = about_blank(int(np.isnan(traced.columns["cpi"]).sum()), settings.unsampled)
    crowded = about_crowded_signatures(traced.frequent_branches, settings.dimensions)
    told = [(blank, ""), (crowded, "yellow"), (about_unsampled(traced.share(Category.UNSAMPLED)), "yellow")]
    if traced.sampled_again:
        told.append(_about_sampled_again(traced.sampled_again, settings, samples, bool(crowded)))
    elif not is_validated and traced.share(Category.SIMULATED) < 1:
        other = "" if samples else ", and --twice 1 of some intervals"
        told.append((f"{UNCHECKED} --validate tells{other}.", ""))
    return [(sentence, style) for sentence, style in told if sentence]


def _about_sampled_again(
    off: Sequence[float], settings: TracerSettings, samples: int, crowded: bool
) -> tuple[str, str]:  # fmt: skip
    """How good the estimates of intervals were that were simulated all the same, which stand for the others: a sentence
    and its style. ``samples``: of a phase, in two runs, else 0; ``crowded``: signatures have too few entries."""
    mean = float(np.mean(off))
    if len(off) >= ENOUGH_SAMPLED_AGAIN and mean > MUCH_OFF:
        other = f" or --twice {samples + 2}" if samples else "" if settings.roll_back else " or --roll-back"
        remedy = f"a lower --threshold{other}"
        if settings.signature == "hashed":
            remedy = "--signature balanced"
        elif crowded:
            remedy = "more --dimensions"
        return (
            f"Estimates may be far off: of {len(off)} intervals that were simulated although there was an estimate, it "
            f"was {100 * mean:.0f}% of CPI off on average. Signatures of code and waiting for memory do not "
            f"distinguish this program's intervals on this machine; --validate shows where. Where they differ in code "
            f"or waiting after all, {remedy} helps; where they differ in neither, nothing but --validate does.",
            "yellow",
        )
    drawn = "Drawn from the whole run, " if samples else ""
    bound = (
        "They were not drawn by chance, and say little of the others, and nothing of other metrics: --validate "
        "simulates all."
    )
    if samples:
        beyond = f"{100 * share_beyond(len(off)):.0f}%"
        bound = f"So few leave open whether up to {beyond} of all intervals are further off."
    return (
        f"{drawn}{len(off)} interval{' was' if len(off) == 1 else 's were'} simulated although there was an "
        f"estimate: it was {100 * mean:.1f}% of CPI off on average, at most {100 * max(off):.1f}%. {bound}",
        "dim",
    )


def share_beyond(draws: int) -> float:
    """The share of intervals that may be further off than the worst of ``draws`` drawn by chance, at a level of 95%:
    with a larger share, all draws miss it with a probability below 5%."""
    return float(1 - 0.05 ** (1 / draws))


def parse_warm_up(text: str) -> tuple[int, int]:
    """``M,B`` as two counts. Raises ValueError for other text."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdigit() for part in parts):
        raise ValueError(f"got '{text}', expected 'lines' or two counts M,B, such as 50000,50000")
    return int(parts[0]), int(parts[1])
