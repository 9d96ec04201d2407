"""The target that runs programs on the processor that the command itself runs on.

The program has the sampler of ``instrumenter/runtime/host_sampler.c`` in it. Noise that a host allows comes from the
seed: code layout, sizes of environment and stack, start of the heap, phase of the first interval; the kernel's own
randomisation of addresses is off. Pages, caches and interrupts are as they come, so no two runs are the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from instrumenter.errors import InstrumenterError
from instrumenter.host_sampler_format import HostRecords, read_host_trace
from measure.errors import FewRecordsError, RunError, ended_with
from measure.host.description import HostDescription, parse_host
from measure.host.metrics import MIGRATIONS, PROCESSOR_TIME, SWITCHES, TICKS, events_of
from measure.host.processor import SAME_ADDRESSES
from measure.perturbation.analysis_types import FEWEST_RECORDS
from measure.run_types import Run, RunSpec, Trace
from measure.targets.program_file import program_of

_PAGE_BYTES = 4096
_TAIL_BYTES = 400
_LONGER_ELSEWHERE = 1.25  # processor time of all threads and children over that of the main thread


class HostTarget:
    """See the module."""

    def execute(self, spec: RunSpec) -> Run:
        """Run the spec's program once, on the processor that the spec's machine names."""
        started = time.perf_counter()
        host = parse_host(spec.machine)
        with tempfile.TemporaryDirectory(prefix="measure-") as name:
            folder = Path(name)
            output, used_seconds = _run_program(spec, host, folder)
            try:
                records = read_host_trace((folder / "trace").read_bytes())
            except (OSError, InstrumenterError) as error:
                raise RunError(f"the program left no trace: {error}") from None
        trace, instructions, time_ns = _trace_of(records, spec)
        if trace.n_records < FEWEST_RECORDS:
            raise FewRecordsError(
                f"the run has only {trace.n_records} records of {spec.interval / 1e6:g} ms, expected at least "
                f"{FEWEST_RECORDS}: sample at a shorter interval or give the program more work"
            )
        if used_seconds * 1e9 > _LONGER_ELSEWHERE * time_ns + 2e8:
            raise RunError(
                f"the program's main thread ran for {time_ns / 1e9:.2f} s, all its threads and processes for "
                f"{used_seconds:.2f} s: the sampler counts the main thread only; let the program use one thread"
            )
        return Run(spec, trace, instructions, time_ns, time.perf_counter() - started, output)

    def prepare(self, machine: str) -> None:
        """Does nothing."""


def _run_program(spec: RunSpec, host: HostDescription, folder: Path) -> tuple[str, float]:
    """Run the program in ``folder``; the end of its output, and its processor time with that of its children [s].

    Raises `RunError` when it fails.
    """
    program, work = folder / "started" / (spec.program_name or "program"), folder / "work"
    program.parent.mkdir()
    program.write_bytes(program_of(spec))
    program.chmod(0o700)
    work.mkdir()
    _lay_out_files(spec, work)
    environment = _environment(spec, host, folder / "trace")
    with (
        open(spec.stdin or os.devnull, "rb") as stdin,
        (folder / "stdout").open("w+b") as stdout,
        (folder / "stderr").open("w+b") as stderr,
    ):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen(
            [str(program), *spec.arguments], cwd=work, env=environment, stdin=stdin, stdout=stdout, stderr=stderr,
            start_new_session=True, preexec_fn=_Placement(host.processor),
        )  # fmt: skip
        try:
            process.wait(spec.limit_seconds)
        except subprocess.TimeoutExpired:
            raise RunError(
                f"the program still ran after {spec.limit_seconds:g} s: raise limits.seconds or give it less work"
            ) from None
        finally:
            _end_session(process)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != spec.exit_status:
        told = _failure(process.returncode, spec.exit_status, _tail(folder / "stderr"))
        raise RunError(told, program_status=process.returncode if process.returncode >= 0 else None)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return _tail(folder / "stdout"), used


class _Placement:
    """Called in the new process: puts it on one processor, and switches randomised addresses off."""

    def __init__(self, processor: int) -> None:
        self._processor = processor
        self._library = ctypes.CDLL(None)  # loaded before the fork

    def __call__(self) -> None:
        os.sched_setaffinity(0, {self._processor})
        self._library.personality(ctypes.c_ulong(SAME_ADDRESSES))


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End what the program has started and left, and the program itself if it runs."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(spec: RunSpec, host: HostDescription, trace: Path) -> dict[str, str]:
    """The environment of the program: the sampler's settings, and padding that moves the stack."""
    rng = np.random.default_rng([spec.seed, 7])
    noise = spec.noise
    # Drawn whether used or not, and as for an emulated machine: see `measure.targets.emulated.layout_of`.
    stack, heap, padding, phase = (
        int(rng.integers(0, 256)), int(rng.integers(0, 64)), int(rng.integers(0, 4096)), float(rng.random())
    )  # fmt: skip
    events = [f"{event.type}:{event.config}" for event in events_of(spec.hardware_metrics)]
    first = max(1, round(spec.interval * (phase if noise.timer_phase else 1.0)))
    heap_bytes = _PAGE_BYTES * heap * noise.heap_offset
    starter = f"{os.getpid():#010x}"  # of one length, as that of the environment moves the stack
    settings = [trace, first, spec.interval, heap_bytes, int(host.without_kernel), starter, *events]
    length = 16 * stack * noise.stack_offset + padding * noise.environment_size
    return {"MEASURE_HOST": " ".join(map(str, settings)), "MEASURE_PADDING": "x" * length}


def _lay_out_files(spec: RunSpec, work: Path) -> None:
    """Copy the program's files to where it looks for them, below ``work``, where it runs. Raises `RunError`."""
    for guest, source in spec.files:
        if guest.startswith("/"):
            if Path(guest).resolve() == Path(source).resolve():
                continue
            raise RunError(
                f"files: {guest}: a program on the host sees the host's own files under absolute names: expected one "
                f"relative to where the program runs, such as {Path(guest).name}, or a machine file"
            )
        place = work / guest
        if not place.resolve().is_relative_to(work.resolve()):
            raise RunError(f"files: {guest}: leads out of the directory in which the program runs")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)


def _trace_of(records: HostRecords, spec: RunSpec) -> tuple[Trace, int, int]:
    """The trace without the first and the last record, which are no whole intervals; instructions of the whole program,
    0 if they are not counted, and its processor time [ns]."""
    counted = iter(records.events.T)
    switches = np.diff(records.switches, prepend=records.switches[:1])
    migrated = (np.diff(records.processor, prepend=records.processor[:1]) != 0).astype(np.int64)
    known: dict[str, NDArray[np.int64]] = {
        PROCESSOR_TIME: records.time_ns, TICKS: records.ticks, SWITCHES: switches, MIGRATIONS: migrated,
    }  # fmt: skip
    columns = {name: known[name] if name in known else next(counted) for name in spec.hardware_metrics}
    n = len(records.time_ns)
    instructions = columns.get("PAPI_TOT_INS", np.zeros(n, np.int64))
    not_running = np.diff(records.enabled_ns - records.running_ns, prepend=0)
    software = np.diff(records.software, axis=0, prepend=0)
    whole = slice(1, max(1, n - 1))
    hardware = np.column_stack([columns[name] for name in spec.hardware_metrics])
    flags = np.column_stack([switches, migrated, not_running, records.forks])
    trace = spec.trace(
        np.cumsum(records.time_ns)[: max(1, n - 1)], np.cumsum(instructions)[: max(1, n - 1)],
        hardware=hardware[whole], software=software[whole], extra=flags[whole],
    )  # fmt: skip
    return trace, int(instructions.sum()), int(records.time_ns.sum())


def _failure(status: int, expected: int, words: str) -> str:
    """Why the program failed, in a sentence."""
    last = f"; its last words on stderr: {words}" if words else ""
    if status < 0:
        lost = " before the sampler in it could write its last records" if expected == 128 - status else ""
        return f"the program was ended by {signal.Signals(-status).name}{lost}{last}"
    return f"the program {ended_with(status, expected)}{last}"


def _tail(path: Path) -> str:
    return path.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace").strip()
