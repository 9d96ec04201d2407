"""The target of cycle-close traces, and of the full simulations that they are compared with."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from emulator.errors import EmulatorError
from emulator.first_use import compile_ahead
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from emulator.pmu import select_metrics
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import parse_machine
from measure.cycle_close.rerun import trace_in_two_runs
from measure.cycle_close.rollback import RollBackTracer
from measure.cycle_close.tracer import Category, Interval, Tracer, TracerSettings
from measure.errors import RunError
from measure.perturbation.analysis_types import FEWEST_RECORDS
from measure.run_types import Run, RunSpec, Trace
from measure.targets.emulated import check_ending, core_of, layout_of, run_error
from measure.targets.program_file import program_of


class CycleCloseTarget:
    """See the module. ``spec.cycleclose``: fields of `TracerSettings`, and ``samples`` for two runs (0: one)."""

    def prepare(self, machine: str) -> None:
        """Compile the kernels of emulator and timing models."""
        compile_ahead(parse_machine(machine, "the campaign's machine"))

    def execute(self, spec: RunSpec) -> Run:
        """Run the spec's program; its noise comes from the spec's seed, as on every other target."""
        started = time.perf_counter()
        options: dict[str, Any] = dict(spec.cycleclose)
        samples = options.pop("samples", 0)
        settings = TracerSettings(interval_instructions=spec.interval, **options)
        config = parse_machine(spec.machine, spec.machine_name)
        machines: list[Machine] = []

        def make() -> Machine:
            layout, _ = layout_of(spec, np.random.default_rng([spec.seed, 7]))
            stdin = Path(spec.stdin).read_bytes() if spec.stdin else b""
            files = VirtualFiles(mapped={guest: Path(host) for guest, host in spec.files}, stdin=stdin, seed=spec.seed)
            # An instruction takes a cycle of the guest's time: the program does the same whatever is simulated.
            machines.append(
                Machine(
                    program_of(spec), spec.arguments, files=files, layout=layout, seed=spec.seed,
                    clock_hz=config.clock_hz, name=spec.program_name, limit_instructions=spec.limit_instructions,
                    background=False,
                )
            )  # fmt: skip
            return machines[-1]

        try:
            core = core_of(spec, config)
            if samples:
                intervals = trace_in_two_runs(make, core, settings, samples)
            else:
                with make() as machine:
                    tracer: Tracer | RollBackTracer
                    if settings.roll_back:
                        tracer = RollBackTracer(machine, core, settings)
                    else:
                        tracer = Tracer(machine, core, settings, defer_estimates=True)
                    intervals = tracer.reestimated(list(tracer.intervals()))
            check_ending(machines[0], machines[0].files, spec.exit_status)
        except EmulatorError as error:
            raise run_error(error) from error
        tail = machines[0].files.output(1)[-400:].decode("utf-8", "replace")
        trace, cycles = _trace(intervals, spec, config)
        return Run(spec, trace, intervals[-1].end_instructions, cycles, time.perf_counter() - started, tail)


def _trace(intervals: list[Interval], spec: RunSpec, config: Any) -> tuple[Trace, int]:
    """The trace of whole intervals with an estimate: the first ones may have none, and the last is cut short."""
    whole = [one for one in intervals if np.isfinite(one.events).all()][:-1]
    if len(whole) < FEWEST_RECORDS:
        raise RunError(
            f"the trace has only {len(whole)} estimated intervals, expected at least {FEWEST_RECORDS}: use shorter "
            "intervals or give the program more work"
        )
    events = np.array([one.events for one in whole])
    metrics = select_metrics(spec.hardware_metrics, config, by_counters=False)
    values = np.array([sum(events[:, event] * factor for event, factor in metric.terms) for metric in metrics])
    cycles = np.concatenate([[0.0], np.cumsum(events[:, Event.CYCLES])])
    boundaries = [whole[0].begin_instructions, *(one.end_instructions for one in whole)]
    simulated = sum(one.instructions for one in intervals if one.category is Category.SIMULATED)
    share = simulated / intervals[-1].end_instructions
    trace = spec.trace(
        np.rint(cycles).astype(np.int64), np.array(boundaries, np.int64), hardware=np.rint(values.T).astype(np.int64),
        software=np.zeros((len(whole), 0), np.int64),
        # The fraction of instructions that were simulated, in every record.
        extra=np.full((len(whole), 1), round(1e6 * share)),
    )  # fmt: skip
    return trace, round(cycles[-1])
