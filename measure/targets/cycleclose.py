"""Runs whose trace is a cycle-close one, or the full simulation that it is compared with."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from emulator.errors import EmulatorError
from emulator.first_use import compile_ahead
from emulator.linux.files import VirtualFiles
from emulator.machine import Machine
from emulator.pmu import select_metrics
from emulator.timing.counters import Event
from emulator.timing.load import parse_machine
from measure.cycleclose.rerun import trace_in_two_runs
from measure.cycleclose.rollback import RollBackTracer
from measure.cycleclose.tracer import Category, Interval, Settings, Tracer
from measure.errors import RunError
from measure.perturbation_types import FEWEST_RECORDS
from measure.targets.emulated import check_ending, core_of, layout_of, program_of
from measure.types import Run, RunSpec, Trace


class CycleCloseTarget:
    """See the module. ``spec.cycleclose``: settings of `Settings`, and ``samples`` for two runs (0: one)."""

    def prepare(self, machine: str) -> None:
        """Compile the kernels of emulator and timing models."""
        compile_ahead(parse_machine(machine, "the campaign's machine"))

    def execute(self, spec: RunSpec) -> Run:
        """Run the spec's program; its noise comes from the spec's seed, as for every other target."""
        started = time.perf_counter()
        options: dict[str, Any] = dict(spec.cycleclose)
        samples = options.pop("samples", 0)
        settings = Settings(interval_instructions=spec.interval, **options)
        config = parse_machine(spec.machine, spec.machine_name)
        machines: list[Machine] = []

        def make() -> Machine:
            layout, _ = layout_of(spec, np.random.default_rng([spec.seed, 7]))
            stdin = Path(spec.stdin).read_bytes() if spec.stdin else b""
            files = VirtualFiles(
                mapped={guest: Path(host) for guest, host in spec.files}, stdin=stdin, seed=spec.seed
            )
            # Virtual time is a cycle an instruction: the program does the same whatever is simulated.
            machines.append(
                Machine(
                    program_of(spec), spec.arguments, files=files, layout=layout, seed=spec.seed,
                    limit_instructions=spec.limit_instructions, background=False,
                )
            )  # fmt: skip
            return machines[-1]

        try:
            core = core_of(spec, config)
            if samples:
                found = trace_in_two_runs(make, core, settings, samples)
            else:
                with make() as machine:
                    tracer: Tracer | RollBackTracer
                    if settings.roll_back:
                        tracer = RollBackTracer(machine, core, settings)
                    else:
                        tracer = Tracer(machine, core, settings, only_settled=True)
                    found = tracer.settled(list(tracer.intervals()))
            check_ending(machines[0], machines[0].files)
        except EmulatorError as error:
            raise RunError(str(error)) from error
        tail = machines[0].files.output(1)[-400:].decode("utf-8", "replace")
        trace, cycles = _trace(found, spec, config)
        return Run(spec, trace, found[-1].end_instructions, cycles, time.perf_counter() - started, tail)


def _trace(found: list[Interval], spec: RunSpec, config: Any) -> tuple[Trace, int]:
    """Whole intervals that have an estimate: the first ones may have none, and the last is cut short."""
    whole = [one for one in found if np.isfinite(one.events).all()][:-1]
    if len(whole) < FEWEST_RECORDS:
        raise RunError(
            f"the trace has only {len(whole)} estimated intervals, expected at least {FEWEST_RECORDS}: use shorter "
            "intervals or give the program more work"
        )
    events = np.array([one.events for one in whole])
    metrics = select_metrics(spec.hardware_metrics, config)
    values = np.array(
        [sum(events[:, event] * factor for event, factor in metric.terms) for metric in metrics]
    )
    cycles = np.concatenate([[0.0], np.cumsum(events[:, Event.CYCLES])])
    boundaries = [whole[0].begin_instructions, *(one.end_instructions for one in whole)]
    simulated = sum(one.instructions for one in found if one.category is Category.SIMULATED)
    share = simulated / found[-1].end_instructions
    values = np.vstack([values, np.full(len(whole), round(1e6 * share))])
    return (
        Trace(
            np.rint(cycles).astype(np.int64), np.array(boundaries, np.int64), np.rint(values.T).astype(np.int64),
            spec.metrics,  # the last one: the share of instructions that were simulated, in every record
        ),
        round(cycles[-1]),
    )  # fmt: skip
