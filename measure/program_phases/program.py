"""``measure phases`` for a program: its vectors, its full simulation, and the simulation of its points."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from common.interrupts import TERMINATED, Terminated
from emulator.errors import EmulatorError
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_file import load_machine
from measure.console.progress import Status, WorkBar
from measure.cycle_close.command import trace_job
from measure.cycle_close.job import Job, bad_ending, check_length, check_same_again, machine_for, program_file
from measure.cycle_close.rates import ENERGY, RATES, table_of
from measure.cycle_close.tracer import Category, Interval, TracerSettings
from measure.errors import CampaignError, MeasureError
from measure.program_phases.bbv import BasicBlockVectors
from measure.program_phases.points import SimulationPoints
from measure.program_phases.profile import profile_blocks

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console


def profile(
    job: Job, machine: Path | None, interval_instructions: int, wait_step: float, console: Console
) -> tuple[BasicBlockVectors, NDArray[np.float64] | None, pd.DataFrame | None, str | None]:
    """The vectors of a program, the waiting of its intervals (with ``machine`` and a ``wait_step``), its full
    simulation (with ``machine``), and why the guest failed, or None. Raises `CampaignError` for bad input."""
    try:
        elf = program_file(job.program, console)
        job.check_input()
        config = load_machine(machine, job.settings) if machine is not None else None
        core = InOrderCore(config, job.seed) if config is not None and wait_step else None
        clock_hz = config.clock_hz if config is not None else None
        with Status(console, "finding basic block vectors"), machine_for(job, elf, clock_hz) as emulated:
            found = profile_blocks(emulated, interval_instructions, core)
            emulated.save_translations()
            problem = bad_ending(emulated, job)
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    if found.vectors.n_intervals == 0:
        raise MeasureError(f"{job.program}: nothing was executed ({problem or 'it ended at once'})")
    check_length(job, interval_instructions, int(found.ends[-1]), problem)
    table = None
    if machine is not None:
        table = simulate(job, machine, interval_instructions, console, int(found.ends[-1]))[0]
        check_same_again(job, found.ends[1:], table["end_instructions"].to_numpy())
    return found.vectors, found.waits, table, problem


def simulate(
    job: Job, machine: Path, interval_instructions: int, console: Console, instructions: int | None = None
) -> tuple[pd.DataFrame, str | None]:
    """All intervals in detail, and why the guest failed. ``instructions``: of the whole program, if known.

    Raises `CampaignError` for bad input.
    """

    def show(interval: Interval) -> None:
        if instructions is not None:
            bar.advance(interval.end_instructions - interval.begin_instructions)
        status.update(f"simulating in detail: {interval.end_instructions / 1e6:,.1f} M instructions")

    try:
        elf = program_file(job.program, console)
        job.check_input()
        config = load_machine(machine, job.settings)
        full = TracerSettings(interval_instructions, everything=True)
        status = Status(console, "simulating in detail")
        with WorkBar(console, "simulating in detail", percent=True) as bar:
            if instructions is not None:
                bar.begin(instructions)
                traced = trace_job(replace(job, samples=0), elf, config, full, None, show)
            else:
                with status:
                    traced = trace_job(replace(job, samples=0), elf, config, full, None, show)
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    if traced.interrupted:
        raise Terminated if traced.interrupted == TERMINATED else KeyboardInterrupt
    return traced.table, traced.ending


def points_by_warm_up(
    job: Job, machine: Path, table: pd.DataFrame, points: SimulationPoints, warm_up: int, console: Console
) -> dict[str, pd.DataFrame]:
    """The points simulated separately, a row each, by warm-up; ``table``: all intervals in detail, ``warm_up``: one of
    the warm-ups, in instructions. Raises `CampaignError` for bad input."""
    from measure.program_phases.warmed import Bounds, simulate_warmed

    begins, ends = (table[f"{name}_instructions"].to_numpy()[points.intervals] for name in ("begin", "end"))
    try:
        elf, config = program_file(job.program, console), load_machine(machine, job.settings)
        with Status(console, "simulating the points with warm-up"):
            found = simulate_warmed(
                lambda: machine_for(job, elf, config.clock_hz), config, job.seed, Bounds(begins, ends), warm_up
            )
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    energy = config.energy.picojoules() if config.energy is not None else None
    return {
        name: table_of(
            [
                Interval(int(number), int(begin), int(end), int(phase), Category.SIMULATED, int(number), 0.0, one)
                for number, begin, end, phase, one in zip(
                    points.intervals, begins, ends, points.phases, events, strict=True
                )
            ],
            energy,
        )
        for name, events in found.items()
    }  # fmt: skip


def metrics_of(table: pd.DataFrame) -> pd.DataFrame:
    """The columns of a simulated table that are metrics with values."""
    return table[[name for name in (*RATES, ENERGY) if name in table and table[name].notna().any()]]
