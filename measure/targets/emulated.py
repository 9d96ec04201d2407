"""The target that runs programs on the emulated machine."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.counterfactual.core import CounterfactualCore, CounterfactualSettings
from emulator.counterfactual.progress_clock import ProgressClock
from emulator.counterfactual.progress_sampling import sample_by_progress
from emulator.engine.translator import OPTIMISE_EXECUTIONS
from emulator.errors import EmulatorError, InstructionLimit
from emulator.execution.counter_totals import CounterTotals
from emulator.first_use import compile_ahead
from emulator.linux.abi.numbers import PID
from emulator.linux.loader.elf import load_image
from emulator.linux.loader.process_image import Layout
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from emulator.pmu import CONTROL_ENABLE, Pmu
from emulator.probes import EventCounter
from emulator.sampling import Samples, sample_ideal
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_file import parse_machine
from instrumenter.errors import InstrumenterError
from instrumenter.sampler_format import TRACE_PATH, read_sampler_trace
from instrumenter.spec.counter_layout import SYMBOL
from measure.errors import FewRecordsError, RunError, ended_with, wanted_status
from measure.perturbation.analysis_types import FEWEST_RECORDS
from measure.run_types import Run, RunSpec, Trace
from measure.targets.program_file import files_of, program_of
from measure.targets.second_run import MeasuredRun, clock_of, count_in_second_run

_PAGE_BYTES = 4096
_MOST_PATHS = 4  # in a message
_TAIL_BYTES = 400
_ONCE_OPTIMISE_EXECUTIONS = 1_000_000
"""Hotness threshold of a program in a layout of its own, or with few runs: no or hardly any other run will find what is
compiled for it. A region takes LLVM about 30 ms, and saves some 2 ns an instruction where the timing core takes most of
the time."""
AnyCore = InOrderCore | CounterfactualCore


class EmulatedTarget:
    """See the module."""

    def execute(self, spec: RunSpec) -> Run:
        """Run the spec's program from a fresh machine whose noise comes from the spec's seed."""
        started = time.perf_counter()
        try:
            return self._execute(spec, started)
        except EmulatorError as error:
            raise run_error(error) from error

    def prepare(self, machine: str) -> None:
        """Compile the kernels of emulator and timing models."""
        compile_ahead(parse_machine(machine, "the campaign's machine"))

    def _execute(self, spec: RunSpec, started: float) -> Run:
        """Run the program on a new machine, and make its trace."""
        config = parse_machine(spec.machine, spec.machine_name)
        rng = np.random.default_rng([spec.seed, 7])
        layout, phase = layout_of(spec, rng)
        core = _observed_core(core_of(spec, config), spec)
        pmu = Pmu(core, spec.hardware_metrics)
        signal_mode = spec.sampling_mode == "signal"
        files = files_of(spec)
        probes = _Probes(spec, pmu)
        program = program_of(spec)
        clock = clock_of(load_image(program), spec.second_run) if spec.second_run is not None else None
        machine = Machine(
            program, spec.arguments, name=spec.program_name, files=files, layout=layout, core=core,
            consumers=[*probes.consumers, *filter(None, [clock])],
            counters=probes if signal_mode else pmu,
            clock_hz=config.clock_hz, seed=spec.seed, timer_phase=phase,
            limit_instructions=spec.limit_instructions,
            # The core is the bottleneck; in the foreground every run makes the same translations, which the
            # next run then finds on the disk.
            background=False,
            optimise_executions=hotness_threshold(spec),
        )  # fmt: skip
        with machine:
            if signal_mode:
                probes.follow_counters(machine, spec)
                self._run_through(machine, core, spec, rng)
            else:
                between = probes.before(_interrupts(core, spec, rng))
                samples = _sample(machine, pmu, core, spec, phase, _marking(clock, between))
            tail = files.output(1)[-_TAIL_BYTES:].decode("utf-8", "replace")
            check_ending(machine, files, spec.exit_status)
            if signal_mode and machine.ending is not None and machine.ending.signal is not None:
                raise RunError(
                    "the program is ended by a signal, before the sampler in it could write its last records: expected "
                    "sampling mode ideal, which needs nothing in the program"
                )
            if signal_mode and machine.kernel.scheduler.processes[PID].has_executed:
                raise RunError(
                    "the program executes another in its place (execve), and the sampler of that one begins the trace "
                    "anew: expected sampling mode ideal, which needs nothing in the program"
                )
            captured = files.captured() if signal_mode else {}
            totals = machine.timed_instructions, core.cycles
            starts_tasks = machine.kernel.scheduler.has_started_tasks
            other_programs = tuple(machine.kernel.system.other_programs)
            outputs = files.output(1), files.output(2)
            measured = MeasuredRun(program, machine, clock, outputs) if clock is not None else None
        second = None
        if measured is not None:
            second = count_in_second_run(spec, layout, measured, hotness_threshold(spec))
        trace = _trace_of_signal(captured, spec, probes) if signal_mode else _trace_of(samples, spec, probes, second)
        if trace.n_records < FEWEST_RECORDS:
            raise FewRecordsError(
                f"the run has only {trace.n_records} records of {spec.interval} {spec.interval_unit}, expected at "
                f"least {FEWEST_RECORDS}: sample at a shorter interval or give the program more work"
            )
        return Run(spec, trace, *totals, time.perf_counter() - started, tail, starts_tasks, other_programs)

    @staticmethod
    def _run_through(machine: Machine, core: AnyCore, spec: RunSpec, rng: np.random.Generator) -> None:
        mean = spec.noise.interrupts
        if not mean:
            machine.run()
            return
        disturb = _interrupts(core, spec, rng)
        assert disturb is not None
        target = 0
        count = 0
        while machine.advance_to_cycles(target, max(1, mean // 256)):
            disturb(count)
            count += 1
            target += mean


@dataclass(frozen=True)
class PartTiming:
    """What the first part of a run took. ``set_up_seconds``: to link and to start it; ``seconds``: for its
    instructions; ``ended``: whether it was the whole run."""

    instructions: int
    cycles: int
    set_up_seconds: float
    seconds: float
    ended: bool


def time_part(spec: RunSpec, instructions: int) -> PartTiming:
    """Execute the first ``instructions`` of a run on its machine, without taking records.

    Times are the processor's, which other work on the machine does not make longer. Raises `RunError` when the
    program fails before.
    """
    started = _processor_seconds()
    try:
        config = parse_machine(spec.machine, spec.machine_name)
        layout, phase = layout_of(spec, np.random.default_rng([spec.seed, 7]))
        core, files = core_of(spec, config), files_of(spec)
        with Machine(
            program_of(spec), spec.arguments, name=spec.program_name, files=files, layout=layout, core=core,
            counters=Pmu(core, spec.hardware_metrics), clock_hz=config.clock_hz, seed=spec.seed, timer_phase=phase,
            background=False, optimise_executions=hotness_threshold(spec),
        ) as machine:  # fmt: skip
            set_up = _processor_seconds()
            machine.advance_to_instructions(instructions)
            if machine.ending is not None:
                check_ending(machine, files, spec.exit_status)
            ended, end = machine.ending is not None, _processor_seconds()
            return PartTiming(machine.instructions, core.cycles, set_up - started, end - set_up, ended)
    except EmulatorError as error:
        raise run_error(error) from error


def _processor_seconds() -> float:
    """Processor time of this process, and of the linkers that it has started."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def hotness_threshold(spec: RunSpec) -> int:
    """The hotness threshold of the spec's program, in executions."""
    return _ONCE_OPTIMISE_EXECUTIONS if spec.seldom or spec.layout_seed is not None else OPTIMISE_EXECUTIONS


def layout_of(spec: RunSpec, rng: np.random.Generator) -> tuple[Layout, float]:
    """The memory layout of the process and the phase of the sampling timer, from the spec's noise."""
    noise = spec.noise
    # Drawn whether used or not: switching one source of noise off does not change the others.
    stack, heap, padding, phase = (
        int(rng.integers(0, 256)), int(rng.integers(0, 64)), int(rng.integers(0, 4096)), float(rng.random())
    )  # fmt: skip
    if spec.redrawn == "phase":
        phase = float(np.random.default_rng([spec.seed, 9]).random())
    layout = Layout(
        stack_offset_bytes=16 * stack if noise.stack_offset else 0,
        heap_offset_bytes=_PAGE_BYTES * heap if noise.heap_offset else 0,
        environment_padding_bytes=padding if noise.environment_size else 0,
        seed=spec.seed,
    )
    return layout, phase if noise.timer_phase else 0.0


def core_of(spec: RunSpec, config: MachineConfig) -> InOrderCore:
    """The timing core in the initial state that the spec's noise requires."""
    return InOrderCore(
        config,
        spec.seed if spec.redrawn != "memory" else int(np.random.default_rng([spec.seed, 10]).integers(1 << 31)),
        place_pages=spec.noise.page_placement,
        initial_state="random" if spec.noise.cache_state else "cold",
    )


def _observed_core(core: InOrderCore, spec: RunSpec) -> AnyCore:
    """``core``, behind an editor of the record if the spec has an intervention."""
    change = spec.intervention
    if change is None:
        return core
    return CounterfactualCore(
        core,
        CounterfactualSettings(
            change.instructions, change.free, change.uncached, change.code_moves, change.data_moves,
            change.progress_at,
        ),
    )  # fmt: skip


def _sample(
    machine: Machine, pmu: Pmu, core: AnyCore, spec: RunSpec, phase: float, between: Callable[[int], None] | None
) -> Samples:
    """Run to the end, and take records by the spec's interval, or where its intervention says."""
    addresses = _addresses(machine, spec)
    change = spec.intervention
    assert spec.interval_unit != "nanoseconds"  # of the host; see `measure.runs.machine_kind`
    if isinstance(core, CounterfactualCore) and change is not None:
        if change.boundaries:
            return sample_by_progress(machine, pmu, core, change.boundaries, addresses, between)
        if change.free and spec.interval_unit == "instructions":  # those that the machine sees
            boundaries = range(int(phase * spec.interval), spec.limit_instructions, spec.interval)
            return sample_by_progress(machine, pmu, core, boundaries, addresses, between)
    return sample_ideal(machine, pmu, spec.interval, spec.interval_unit, addresses, phase, between)


_OVERFLOWED = "has overflowed"  # in the emulator's words, `emulator.execution.faults`
_BY_A_COUNTER = (
    ". This program has counters: those of event `exit`, and those with `local: true`, count after a call by which a "
    "function returns, which then needs stack. If the program recurses deeply by such calls, count its entries "
    "instead, without `local:`, or compile it with -O2"
)


def check_ending(machine: Machine, files: VirtualFiles, expected: int) -> None:
    """Raises `RunError` when the program ended with another exit status than ``expected``, which is 128 + N for an end
    by signal N."""
    ending = machine.ending
    assert ending is not None
    if ending.status == expected:
        return
    if ending.message is not None:
        what, newline, where = ending.message.partition("\n")
        if _OVERFLOWED in what and machine.image.find_symbol(SYMBOL) is not None:
            what += _BY_A_COUNTER
        raise RunError(f"{what}{wanted_status(expected)}{_last_words(files)}{newline}{where}")
    told = f"the program {ended_with(ending.status, expected)}{explanation(files)}"
    raise RunError(told, program_status=ending.status)


def run_error(error: EmulatorError) -> RunError:
    """The failure of a run in which the emulator raised ``error``."""
    return RunError(str(error), at_limit=isinstance(error, InstructionLimit))


def explanation(files: VirtualFiles) -> str:
    """What may explain how a program ended: its last words, the files that it did not find, and those that it was not
    let change; empty without any."""
    return _last_words(files) + _not_found(files) + _refused(files)


def _last_words(files: VirtualFiles) -> str:
    """The end of what the program wrote to standard error, or else to standard output."""
    for number, name in ((2, "stderr"), (1, "stdout")):
        words = files.output(number)[-_TAIL_BYTES:].decode("utf-8", "replace").strip()
        if words:
            return f"; its last words on {name}: {words}"
    return ""


def _not_found(files: VirtualFiles) -> str:
    """The files that the program looked for last and did not find; which one it needs, it alone knows."""
    paths = files.not_found()[-_MOST_PATHS:]
    return f"\nFiles that it looked for last and that are not there: {', '.join(paths)}" if paths else ""


def _refused(files: VirtualFiles) -> str:
    """The given files that the program tried to change: an output of an earlier run, which its arguments name."""
    paths = files.refused_writes()[:_MOST_PATHS]
    return (
        f"\nGiven files that it tried to change, which it may only read: {', '.join(paths)}. Name an output that does "
        "not exist here: it is made in memory"
        if paths
        else ""
    )


def _addresses(machine: Machine, spec: RunSpec) -> dict[str, int]:
    found = {}
    for counter in spec.first_counters:
        place = machine.image.find_symbol(counter.symbol)
        if place is None:
            raise RunError(f"the program has no symbol {counter.symbol}: its counters cannot be read")
        found[counter.metric] = place.address + counter.offset_bytes
    return found


def _interrupts(core: AnyCore, spec: RunSpec, rng: np.random.Generator) -> Callable[[int], None] | None:
    """A function to call after each record, which evicts lines as often as the mean interval requires; or None."""
    mean = spec.noise.interrupts
    if not mean:
        return None
    chance = min(1.0, spec.interval / mean)

    def between(record: int) -> None:
        if rng.random() < chance:
            core.disturb(int(rng.integers(1 << 31)), spec.noise.interrupt_lines)

    return between


class _Probes:
    """The spec's probes, read at every boundary of the trace.

    If the guest samples itself, this object replaces the performance-monitoring unit: a record is taken when the
    guest stops the counters.
    """

    def __init__(self, spec: RunSpec, pmu: Pmu) -> None:
        self._pmu = pmu
        uncounted = {ends for probe in spec.probes for ends in probe.uncounted_code}
        self._counter = EventCounter([(probe.instructions, probe.stores) for probe in spec.probes], uncounted)
        self._totals: list[NDArray[np.int64]] = []
        self._counters: CounterTotals | None = None
        self._counts: list[list[int]] = []
        self._n_counters = len(spec.counters)
        self.consumers = [self._counter] if spec.probes else []

    def before(self, between: Callable[[int], None] | None) -> Callable[[int], None] | None:
        """A function that reads the probes, then calls ``between``."""
        if not self.consumers:
            return between

        def read(record: int) -> None:
            self._totals.append(self._counter.totals())
            if between is not None:
                between(record)

        return read

    def follow_counters(self, machine: Machine, spec: RunSpec) -> None:
        """Also read the counters of ``spec`` of all processes of ``machine`` when the guest stops the counters.

        The guest's sampler reads those of its own process, and those of ``spec.unread`` not at all.
        """
        addresses = _addresses(machine, spec)
        self._counters = machine.counter_totals([addresses[counter.metric] for counter in spec.counters])

    def counts(self, n_boundaries: int) -> NDArray[np.int64]:
        """Events that the counters of `follow_counters` counted in each record, ``(n_boundaries - 1, n_counters)``."""
        totals = self._counts[:n_boundaries]
        return np.diff(np.array(totals, np.int64).reshape(len(totals), self._n_counters), axis=0)

    def read_csr(self, number: int) -> int | None:
        return self._pmu.read_csr(number)

    def write_control(self, value: int) -> None:
        if not value & CONTROL_ENABLE:
            self._totals.append(self._counter.totals())
            if self._counters is not None:
                self._counts.append(self._counters.read())
        self._pmu.write_control(value)

    def columns(self, n_boundaries: int) -> NDArray[np.int64]:
        """Events in each record and before it, ``(n_boundaries - 1, 2 n_probes)``."""
        n_records = max(n_boundaries - 1, 0)
        if not self.consumers:
            return np.zeros((n_records, 0), np.int64)
        totals = np.array(self._totals[:n_boundaries], np.int64)
        pairs = np.stack([np.diff(totals, axis=0), totals[:-1]], axis=2)
        return pairs.reshape(n_records, -1)


def _marking(
    clock: ProgressClock | None, between: Callable[[int], None] | None
) -> Callable[[int], None] | None:  # fmt: skip
    """A function that marks each boundary of a record on ``clock``, then calls ``between``."""
    if clock is None:
        return between

    def mark(record: int) -> None:
        clock.mark()
        if between is not None:
            between(record)

    return mark


def _trace_of(
    samples: Samples, spec: RunSpec, probes: _Probes, second: tuple[NDArray[np.int64], NDArray[np.int64]] | None
) -> Trace:  # fmt: skip
    """The trace. ``second``: what `count_in_second_run` returns."""
    probed = probes.columns(len(samples.boundaries_cycles))
    software, extra = samples.software, None
    if second is not None and spec.second_run is not None:
        counted = dict(zip([counter.metric for counter in spec.first_counters], software.T, strict=True))
        counted |= dict(zip(spec.second_run.metrics, second[0].T, strict=True))
        software = np.column_stack([counted[counter.metric] for counter in spec.counters])
        extra = second[1][:, None]
    return spec.trace(
        samples.boundaries_cycles, samples.boundaries_instructions,
        hardware=samples.hardware, software=software, extra=extra, probes=probed,
    )  # fmt: skip


def _trace_of_signal(captured: dict[str, bytes], spec: RunSpec, probes: _Probes) -> Trace:
    """The records that the in-guest sampler took, without the first and the last.

    Those two are no whole intervals: one is shortened by the timer's phase, one by the program's end. Software metrics
    are what the machine read of all processes when the sampler stopped the counters; the sampler's own columns have the
    first process only.
    """
    try:
        _, records = read_sampler_trace(captured.get(TRACE_PATH, b""))
    except InstrumenterError as error:
        raise RunError(str(error)) from error
    records = np.asarray(records[:-1], np.int64)
    hardware: NDArray[np.int64] = records[1:, 2 : 2 + len(spec.hardware_metrics)].astype(np.int64)
    return spec.trace(
        np.cumsum(records[:, 0]), np.cumsum(records[:, 1]),
        hardware=hardware, software=probes.counts(len(records)), probes=probes.columns(len(records)),
    )  # fmt: skip
