"""Counts from a second run: a program with counters is executed without a timing model, and its counters are read where
its progress is that of the measured run at the boundaries of its records.

The counters are in no program that is timed. Both runs have the same input, seed and environment, and progress is
counted in instructions that both programs execute equally often (`measure.program_code.shared_code` finds them).
What library code executes depends on how data are aligned: the second program is linked with its data where the
measured one, in its layout, has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emulator.counterfactual.progress_clock import Places, ProgressClock, places_in_other_run, run_targets
from emulator.linux.loader.elf import ElfImage, load_image
from emulator.linux.loader.process_image import Layout
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from measure.errors import RunError, TakesTurnsError, ended_with
from measure.run_types import RunSpec, SecondRun
from measure.targets.program_file import files_of, second_program_of

_FEWEST_STEPS = 8  # of the clock in a record
_MOST_DRIFT = 0.1  # of a record's progress, by which the whole runs may differ
_SAME = "a counter in the measured program can count this, a second run (`method: second_run`) cannot"


class NoCounters:
    """A performance-monitoring unit where nothing is timed: nothing counts."""

    def read_csr(self, number: int) -> int | None:
        """Every counter is 0."""
        return 0

    def write_control(self, value: int) -> None:
        """Nothing to start or stop."""


def takes_turns() -> TakesTurnsError:
    """The error of a second run of a program that starts threads or processes."""
    return TakesTurnsError(
        "the program starts threads or processes, which take turns otherwise in a second run: its counts have no "
        f"place in the records; {_SAME}"
    )


def clock_of(image: ElfImage, second: SecondRun) -> ProgressClock:
    """The clock of the measured run, whose program is ``image``, in its own layout. Raises `RunError`."""
    return ProgressClock(
        _ticks(image, [(code.function, code.size_bytes, code.offsets) for code in second.clock]), with_addresses=True
    )


def _ticks(image: ElfImage, clock: Iterable[tuple[str, int, Sequence[int]]]) -> list[int]:
    """Addresses in ``image`` of the instructions of a clock: functions with their sizes [bytes], and offsets there."""
    ticks: list[int] = []
    for function, size_bytes, offsets in clock:
        symbol = image.find_symbol(function)
        if symbol is None or symbol.size_bytes != size_bytes:
            raise RunError(f"the function {function} is not what it was when its program was built; {_SAME}")
        ticks += [symbol.address + offset for offset in offsets]
    return ticks


class MeasuredRun:
    """What the second run is compared with. ``program``: contents of its executable, in its layout; ``clock``: of the
    run, with a mark at each boundary of a record; ``output``: standard output and standard error."""

    def __init__(self, program: bytes, machine: Machine, clock: ProgressClock, output: Sequence[bytes]) -> None:
        self.program = program
        self.progress, self.places, self.output = clock.progress, clock.places(), tuple(output)
        self.instructions = machine.instructions
        self.has_started_tasks = machine.kernel.scheduler.has_started_tasks


def count_in_second_run(
    spec: RunSpec, layout: Layout, measured: MeasuredRun, threshold: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Events of the second run's metrics in each record of the measured run, (n_records, n_metrics), and the column
    `PLACE_GAP`, (n_records,).

    ``layout``: of the process; ``threshold``: hotness threshold. Raises `RunError` when the runs are not the same run
    of one program: where it starts threads or processes, whose turns differ, ends otherwise, prints something else, or
    does more or less.
    """
    second = spec.second_run
    assert second is not None
    if measured.has_started_tasks:
        raise takes_turns()
    program = second_program_of(Path(second.binary), spec.layout_seed, measured.program)
    shared = [(code.function, code.second_size_bytes, code.second_offsets) for code in second.clock]
    clock = ProgressClock(_ticks(load_image(program), shared), run_targets(measured.places.progress))
    files = files_of(spec)
    with _machine(spec, program, layout, files, [clock], threshold) as machine:
        machine.run()
        machine.drain()
        _check_ending(machine, files, spec, measured)
        if clock.instructions != machine.instructions:
            raise RunError(f"a fault interrupts a block of the second run, so that its progress is unknown; {_SAME}")
    n_records = max(len(measured.places.progress) - 1, 1)
    if measured.progress < _FEWEST_STEPS * n_records:
        raise RunError(
            f"the programs of both runs share code with {measured.progress / n_records:.1f} steps in a record, "
            f"expected at least {_FEWEST_STEPS} to place counts by; {_SAME}, or sample at a longer interval"
        )
    _check_instructions(spec, layout, measured, _MOST_DRIFT * measured.instructions / n_records, threshold)
    drift = abs(clock.progress - measured.progress)
    if drift > _MOST_DRIFT * measured.progress / n_records:
        raise RunError(
            f"the second run makes {clock.progress:,} steps of shared code, the measured one {measured.progress:,}, "
            f"{_layout_name(spec)}: what the program does depends on time or on addresses of code, so that counts have "
            f"no place in the records; {_SAME}"
        )
    counts = _read_at(spec, program, layout, places_in_other_run(measured.places, clock), threshold)
    return np.diff(counts, axis=0), _gaps(measured.places, drift, measured.progress)[1:]


def _check_instructions(
    spec: RunSpec, layout: Layout, measured: MeasuredRun, most: float, threshold: int
) -> None:  # fmt: skip
    """Raises `RunError` when the measured program executes more than ``most`` instructions more or fewer with timing
    than without. In its own layout: what library code executes depends on how that aligns data."""
    assert spec.second_run is not None
    if abs(measured.instructions - spec.second_run.instructions) <= most:
        return
    with _machine(spec, measured.program, layout, files_of(spec), (), threshold) as machine:
        machine.run()
        untimed = machine.instructions
    if abs(measured.instructions - untimed) > most:
        raise RunError(
            f"the measured run executes {measured.instructions:,} instructions, one of the same program without timing "
            f"{untimed:,}, both {_layout_name(spec)}: what the program does depends on time, so that a second run "
            f"counts something else; {_SAME}"
        )


def _layout_name(spec: RunSpec) -> str:
    """The layout of the run, in messages."""
    if spec.layout_seed is None:
        return "in the code layout of the build"
    return f"in the code layout of seed {spec.layout_seed}"


def _gaps(places: Places, drift: int, progress: int) -> NDArray[np.int64]:
    """Instructions within which each place is uncertain: between two steps of the clock, and as the runs differ."""
    whole = int(places.instructions[-1]) if len(places.instructions) else 0
    return np.asarray(places.gap_instructions + round(drift * whole / max(progress, 1)))


def _read_at(
    spec: RunSpec, program: bytes, layout: Layout, instructions: NDArray[np.int64], threshold: int
) -> NDArray[np.int64]:
    """The second run's counters at the first block boundary at or after so many ``instructions``, (n, n_metrics)."""
    second = spec.second_run
    assert second is not None
    with _machine(spec, program, layout, files_of(spec), (), threshold) as machine:
        addresses = _addresses(machine.image, spec, second)
        totals = machine.counter_totals([addresses[metric] for metric in second.metrics])
        found = []
        for target in instructions.tolist():
            machine.advance_to_instructions(target)
            found.append(totals.read())
        return np.array(found, np.int64).reshape(len(instructions), len(second.metrics))


def _addresses(image: ElfImage, spec: RunSpec, second: SecondRun) -> Mapping[str, int]:
    found = {}
    for metric, symbol, offset in spec.counters:
        if metric in second.metrics:
            place = image.find_symbol(symbol)
            if place is None:
                raise RunError(f"the program has no symbol {symbol}: its counters cannot be read")
            found[metric] = place.address + offset
    return found


def _machine(
    spec: RunSpec, program: bytes, layout: Layout, files: VirtualFiles, consumers: Sequence[ProgressClock],
    threshold: int,
) -> Machine:  # fmt: skip
    return Machine(
        program, spec.arguments, files=files, layout=layout, consumers=consumers,
        counters=NoCounters(), name=spec.program_name, seed=spec.seed,
        limit_instructions=2 * spec.limit_instructions, background=False, optimise_executions=threshold,
    )  # fmt: skip


def _check_ending(machine: Machine, files: VirtualFiles, spec: RunSpec, measured: MeasuredRun) -> None:
    """Raises `RunError` when the second run failed, or did something else than the measured one."""
    ending = machine.ending
    assert ending is not None
    if ending.status != spec.exit_status:
        if ending.message is not None:
            raise RunError(f"in the second run, which counts: {ending.message}")
        told = f"in the second run, which counts, the program {ended_with(ending.status, spec.exit_status)}"
        raise RunError(told, program_status=ending.status)
    for number, name, output in zip((1, 2), ("output", "error"), measured.output, strict=True):
        if files.output(number) != output:
            raise RunError(
                f"the second run, which counts, writes something else to standard {name} than the measured one: what "
                f"the program does depends on time or addresses; {_SAME}"
            )
