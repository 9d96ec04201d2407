"""What `measure cycleclose` does: trace a program, show it as it runs, and write what was found."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.errors import EmulatorError
from emulator.gdb.debugger import Killed
from emulator.linux.files import VirtualFiles
from emulator.machine import Machine
from emulator.timing.config import MachineConfig
from emulator.timing.counters import Event
from emulator.timing.inorder import InOrderCore
from emulator.timing.load import load_machine
from instrumenter.build import build_program
from instrumenter.errors import InstrumenterError
from measure.cycleclose.metrics import ENERGY, RATES, deviations, table_of
from measure.cycleclose.rerun import profile, trace_again
from measure.cycleclose.rollback import RollBackTracer
from measure.cycleclose.tracer import Category, Interval, Settings, Tracer
from measure.cycleclose.watch import Watch
from measure.errors import CampaignError, MeasureError
from measure.store import write_atomically

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

SUMMARY_FORMAT = "perturbation-cycleclose-1"


@dataclass(frozen=True)
class Job:
    """A program to trace; ``stdin``: host file. ``samples``: 0 to sample as phases are predicted, while the
    program runs; otherwise the program is run twice and each phase simulated so many times."""

    program: Path
    arguments: tuple[str, ...]
    machine: Path
    stdin: Path | None = None
    seed: int = 1
    samples: int = 0


@dataclass(frozen=True)
class Traced:
    """A trace and what it took."""

    table: pd.DataFrame
    phases: int
    seconds: float
    interrupted: bool
    ending: str | None  # what ended the guest, when that was no success


def program_file(program: Path, console: Console) -> Path:
    """The executable itself, or the one that a C source compiles to."""
    if program.suffix != ".c":
        return program
    if not program.exists():
        raise CampaignError(f"no such file: {program}")
    try:
        return build_program(
            [program], ["-O2", "-g"], libraries=["-lm"], notify=lambda text: console.print(text, style="dim")
        ).elf_path
    except InstrumenterError as error:
        raise CampaignError(str(error)) from None


def trace_job(job: Job, elf: Path, config: MachineConfig, settings: Settings, watch: Watch | None) -> Traced:
    """Run the program once under ``settings``. Ctrl-C, and gdb's ``kill``, end the run and keep what there is."""
    core = InOrderCore(config, job.seed)
    if job.samples and not settings.everything:
        return _trace_twice(job, elf, core, settings)
    found: list[Interval] = []
    interrupted = False
    started = time.perf_counter()
    with machine_for(job, elf) as machine:
        rolls_back = settings.roll_back and not settings.everything
        tracer = (RollBackTracer if rolls_back else Tracer)(machine, core, settings)
        try:
            for interval in tracer.intervals():
                found.append(interval)
                if watch is not None and not watch.show(machine, interval, config):
                    interrupted = True
                    break
        except (KeyboardInterrupt, Killed):
            interrupted = True
        finally:
            if watch is not None:
                watch.leave()
        seconds = time.perf_counter() - started
        machine.save_translations()
        problem = _bad_ending(machine)
    if not found:
        raise MeasureError(f"{job.program}: nothing was executed ({problem or 'interrupted'})")
    return Traced(_table(tracer.settled(found), config), tracer.table.phases, seconds, interrupted, problem)


def _trace_twice(job: Job, elf: Path, core: InOrderCore, settings: Settings) -> Traced:
    started = time.perf_counter()
    with machine_for(job, elf) as machine:
        known = profile(machine, core.config, settings)
        machine.save_translations()
        problem = _bad_ending(machine)
    with machine_for(job, elf) as machine:
        found = list(trace_again(machine, core, settings, known, job.samples))
    seconds = time.perf_counter() - started
    return Traced(_table(found, core.config), len(np.unique(known.phases)), seconds, False, problem)


def machine_for(job: Job, elf: Path) -> Machine:
    """A fresh machine that runs the program of ``job``."""
    stdin = job.stdin.read_bytes() if job.stdin is not None else b""
    files = VirtualFiles(stdin=stdin, seed=job.seed)
    return Machine(elf, job.arguments, files=files, seed=job.seed, keep_translations=True)


def _bad_ending(machine: Machine) -> str | None:
    """What ended the guest, when that was no success."""
    ending = machine.ending
    if ending is None or ending.status == 0:
        return None
    words = machine.files.output(2)[-400:].decode("utf-8", "replace").strip()
    return ending.message or f"exit status {ending.status}" + (f": {words}" if words else "")


def _table(found: list[Interval], config: MachineConfig) -> pd.DataFrame:
    return table_of(found, config.energy.picojoules() if config.energy is not None else None)


def run_cycleclose(
    job: Job, settings: Settings, directory: Path, validate: bool, console: Console, gdb_port: int = 0
) -> tuple[bool, str | None]:
    """Trace, validate if asked, write DIR/trace.parquet, trace.png and summary.json, and print.

    ``gdb_port``: where the live view lets gdb in, 0 for any port.
    Returns whether it was interrupted, and what ended the guest when that was no success.
    """
    try:
        config = load_machine(job.machine)
        elf = program_file(job.program, console)
        if job.stdin is not None and not job.stdin.is_file():
            raise CampaignError(f"no such file: {job.stdin}")
        directory.mkdir(parents=True, exist_ok=True)
        if console.is_terminal:
            with Watch(console, gdb_port=gdb_port) as watch:
                traced = trace_job(job, elf, config, settings, watch)
        else:
            traced = trace_job(job, elf, config, settings, None)
        full = None
        if validate and not traced.interrupted:
            with console.status("simulating everything, to compare"):
                full = trace_job(job, elf, config, _full(settings), None)
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    _write(job, settings, directory, traced, full)
    _print(console, directory, traced, full)
    return traced.interrupted, traced.ending


def _full(settings: Settings) -> Settings:
    from dataclasses import replace

    return replace(settings, everything=True)


def summary_of(job: Job, settings: Settings, traced: Traced, full: Traced | None) -> dict[str, Any]:
    """What summary.json holds."""
    table = traced.table
    instructions = int(table["end_instructions"].iloc[-1])
    shares = {
        category.name.lower(): float((table["category"] == category.name.lower()).mean())
        for category in Category
    }
    known = table[table["cpi"].notna()]
    about: dict[str, Any] = {
        "format": SUMMARY_FORMAT,
        "program": str(job.program),
        "arguments": list(job.arguments),
        "machine": str(job.machine),
        "seed": job.seed,
        "samples_per_phase": job.samples or None,
        "settings": {name: value for name, value in asdict(settings).items() if name != "everything"},
        "complete": not traced.interrupted and traced.ending is None,
        "intervals": len(table),
        "instructions": instructions,
        "phases": traced.phases,
        "share": shares,
        "seconds": traced.seconds,
        "estimate": {
            "cycles": float(known["cycles"].sum()),
            "cpi": float(known["cycles"].sum() / known["instructions"].sum()) if len(known) else None,
        },
    }
    if full is not None:
        compared = deviations(full.table, table)
        about["validation"] = {
            "full_seconds": full.seconds,
            "speedup": full.seconds / traced.seconds,
            "metrics": {
                row["metric"]: {
                    name: None if np.isnan(value) else float(value)
                    for name, value in row.items()
                    if name != "metric"
                }
                for row in compared.to_dict("records")
            },
        }
    return about


def _write(job: Job, settings: Settings, directory: Path, traced: Traced, full: Traced | None) -> None:
    from measure.cycleclose.figure import trace_figure

    table = traced.table
    if full is not None:
        actual = full.table[[name for name in (*RATES, ENERGY) if name in full.table]].add_prefix("actual_")
        actual["actual_cycles"] = full.table[Event.CYCLES.name.lower()]
        table = table.join(actual)
    write_atomically(directory / "trace.parquet", lambda path: table.to_parquet(path))
    figure = trace_figure(traced.table, full.table if full is not None else None, f"{job.program.stem}")
    write_atomically(directory / "trace.png", lambda path: figure.savefig(path, dpi=110, format="png"))
    text = json.dumps(summary_of(job, settings, traced, full), indent=1, allow_nan=False)

    def write_text(path: Path) -> None:
        path.write_text(text, encoding="utf-8")

    write_atomically(directory / "summary.json", write_text)


def _print(console: Console, directory: Path, traced: Traced, full: Traced | None) -> None:
    from rich.table import Table

    table = traced.table
    shares = ", ".join(
        f"{100 * (table['category'] == name).mean():.1f}% {name}"
        for name in ("simulated", "matched", "unsampled")
    )
    instructions = int(table["end_instructions"].iloc[-1])
    console.print(
        f"{instructions / 1e6:,.1f} M instructions in {len(table):,} intervals, {traced.phases} phases: {shares}; "
        f"{traced.seconds:.2f} s, {instructions / traced.seconds / 1e6:,.0f} M instructions/s"
    )
    if full is not None:
        shown = Table(title="Deviation from the full simulation [%]", title_justify="left")
        for name in ("metric", "point-wise", "simulated", "matched", "unsampled", "whole run"):
            shown.add_column(name, justify="left" if name == "metric" else "right")
        for row in deviations(full.table, table).itertuples(index=False):
            cells = ["-" if np.isnan(value) else f"{value:.2f}" for value in row[1:]]
            shown.add_row(str(row[0]).replace("_", " "), *cells)
        console.print(shown)
        console.print(
            f"The full simulation took {full.seconds:.2f} s: {full.seconds / traced.seconds:.1f} times as long."
        )
    console.print(f"Trace: {directory / 'trace.parquet'}   Picture: {directory / 'trace.png'}", style="dim")
    if traced.interrupted:
        console.print("Interrupted: the trace ends where the program was.", style="yellow")
    if traced.ending is not None:
        console.print(f"The program ended badly: {traced.ending}", style="red")


def parse_warm_up(text: str) -> tuple[int, int]:
    """``M,B`` as two counts. Raises ValueError."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdigit() for part in parts):
        raise ValueError(f"got '{text}', expected 'lines' or two counts M,B, such as 50000,50000")
    return int(parts[0]), int(parts[1])
