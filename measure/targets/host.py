"""The target that runs programs on the processor that the command itself runs on.

The program has the sampler of ``instrumenter/runtime/host_sampler.c`` in it. Noise that a host allows comes from the
seed: code layout, sizes of environment and stack, start of the heap, phase of the first interval; the kernel's own
randomisation of addresses is off. Pages, caches and interrupts are as they come, so no two runs are the same.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrumenter.errors import InstrumenterError
from instrumenter.host_sampler_format import HostRecords, read_host_trace
from measure.errors import FewRecordsError, RunError, ended_with
from measure.host import supervisor
from measure.host.description import HostDescription, parse_host
from measure.host.disturbances import MOST_UNCOUNTED
from measure.host.metrics import MIGRATIONS, PROCESSOR_TIME, SWITCHES, TICKS, events_of
from measure.host.processor import SAME_ADDRESSES
from measure.perturbation.analysis_types import FEWEST_RECORDS
from measure.run_types import Run, RunSpec, Trace
from measure.targets.program_file import program_of

_PAGE_BYTES = 4096
_TAIL_BYTES = 400
_DELIVERY_NS = 100_000  # from the end of counting to the sampler: some microseconds, in virtual machines up to this
_MOST_ELSEWHERE = 0.25  # processor time that is in no record, over that of the records


class HostTarget:
    """See the module."""

    def execute(self, spec: RunSpec) -> Run:
        """Run the spec's program once, on the processor that the spec's machine names."""
        started = time.perf_counter()
        host = parse_host(spec.machine)
        with tempfile.TemporaryDirectory(prefix="measure-") as name:
            folder = Path(name)
            output, left = _run_program(spec, host, folder)
            try:
                records = read_host_trace((folder / "trace").read_bytes())
            except (OSError, InstrumenterError) as error:
                raise RunError(f"the program left no trace: {error}") from None
        _check_complete(records, spec)
        trace, instructions, time_ns = _trace_of(records, spec, left)
        if trace.n_records < FEWEST_RECORDS:
            raise FewRecordsError(
                f"the run has only {trace.n_records} records of {spec.interval / 1e6:g} ms, expected at least "
                f"{FEWEST_RECORDS}: sample at a shorter interval or give the program more work"
            )
        return Run(spec, trace, instructions, time_ns, time.perf_counter() - started, output)

    def prepare(self, machine: str) -> None:
        """Does nothing."""


def _run_program(spec: RunSpec, host: HostDescription, folder: Path) -> tuple[str, int]:
    """Run the program in ``folder``; the end of its output, and how many processes that it left had to be ended.

    Raises `RunError` when it fails.
    """
    program, work = folder / "started" / (spec.program_name or "program"), folder / "work"
    program.parent.mkdir()
    program.write_bytes(program_of(spec))
    program.chmod(0o700)
    work.mkdir()
    _lay_out_files(spec, work)
    for output in ("stdout", "stderr"):
        (folder / output).touch()
    ended = _supervised(
        {
            "arguments": [str(program), *spec.arguments], "environment": _environment(spec, host, folder / "trace"),
            "directory": str(work), "stdin": str(Path(spec.stdin or os.devnull).absolute()),
            "stdout": str(folder / "stdout"), "stderr": str(folder / "stderr"), "processor": host.processor,
            "personality": SAME_ADDRESSES, "limit_seconds": spec.limit_seconds,
        },
        folder / "supervisor",
    )  # fmt: skip
    status, left, remaining = ended["status"], ended["left"], ended["remaining"]
    if remaining:
        raise RunError(
            f"{remaining} processes that the program started cannot be ended, and share the processor with what runs "
            "next: end them, and let the program start none as another user"
        )
    if status is None:
        raise RunError(
            f"the program still ran after {spec.limit_seconds:g} s: raise limits.seconds or give it less work"
        )
    if status != spec.exit_status:
        told = _failure(status, spec.exit_status, _tail(folder / "stderr"))
        raise RunError(told, program_status=status if status >= 0 else None)
    return _tail(folder / "stdout"), left


def _supervised(task: dict[str, Any], errors: Path) -> dict[str, Any]:
    """The answer of `measure.host.supervisor` to ``task``; ``errors``: a new file for what it says when it fails.

    The supervisor ends all processes of the run when this one is interrupted or ends. Raises `RunError` without answer.
    """
    command = [sys.executable, "-I", "-S", supervisor.__file__]
    with errors.open("wb") as stderr, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.read()
        finally:
            process.stdin.close()
            process.wait()
    if process.returncode or not answer:
        raise RunError(f"the program's supervisor {ended_with(process.returncode, 0)}: {_tail(errors)}")
    return dict(json.loads(answer))


def _check_complete(records: HostRecords, spec: RunSpec) -> None:
    """Check that the records hold most of what the program did. Raises `RunError`."""
    if not records.complete or not len(records.time_ns):
        raise RunError(
            "the program ended without the sampler in it, which writes the last records: it replaced itself by another "
            "program (exec), or left by a system call of its own. Expected an end by return from main, exit or _exit"
        )
    uncounted_ns = _uncounted_ns(records)
    time_ns = int(records.main_thread_ns.sum() - uncounted_ns.sum())
    elsewhere = {
        "other threads": int(records.other_threads_ns[-1]),
        "processes that it started": int(records.children_ns[-1]),
        "its main thread while it blocked SIGPROF, the sampler's signal, or handled it itself": int(uncounted_ns.sum()),
    }
    ends_uncounted = uncounted_ns[-1] > MOST_UNCOUNTED * time_ns
    if ends_uncounted or sum(elsewhere.values()) > _MOST_ELSEWHERE * time_ns:
        parts = [f"{ns / 1e9:.3f} s of {what}" for what, ns in elsewhere.items() if ns > 0.01 * time_ns]
        most = f"at most {_MOST_ELSEWHERE:.0%} of that time elsewhere"
        expected = "records until the program ends" if ends_uncounted else most
        raise RunError(
            f"the program's records hold {time_ns / 1e9:.3f} s of its main thread, and not {', '.join(parts)}; "
            f"expected {expected}: the sampler counts the main thread only. Let the program work in one thread and "
            "leave SIGPROF alone, or measure on an emulated machine"
        )


def _uncounted_ns(records: HostRecords) -> NDArray[np.int64]:
    """Processor time of the main thread that a record has and its hardware counts do not, beyond what it takes to stop
    the program, (n,)."""
    return np.maximum(records.main_thread_ns - records.time_ns - _DELIVERY_NS, 0)


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
    # The supervisor puts the number of the program's process in.
    settings = [trace, first, spec.interval, heap_bytes, int(host.without_kernel), "{process}", *events]
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


def _trace_of(records: HostRecords, spec: RunSpec, left: int) -> tuple[Trace, int, int]:
    """The trace without the first and the last record, which are no whole intervals; instructions of the whole program,
    0 if they are not counted, and its processor time [ns]. ``left``: processes that it left."""
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
    other_threads = np.diff(records.other_threads_ns, prepend=0)
    flags = np.column_stack(
        [switches, migrated, not_running, records.forks, other_threads, _uncounted_ns(records), np.full(n, left)]
    )
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
        if -status == signal.SIGPROF:
            lost = (
                ", the signal by which the sampler in it takes records: the program replaced itself by exec, or took "
                "the sampler's handler of SIGPROF away. Expected a program that does neither, or an emulated machine"
            )
        return f"the program was ended by {signal.Signals(-status).name}{lost}{last}"
    return f"the program {ended_with(status, expected)}{last}"


def _tail(path: Path) -> str:
    return path.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace").strip()
