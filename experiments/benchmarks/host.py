"""What benchmarks ask of the host: its processor, QEMU under either name, and what a process takes."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

QEMU_NAMES = ("qemu-riscv64", "qemu-riscv64-static")


class Run(NamedTuple):
    """``processor_seconds``: user and system time of all threads."""

    wall_seconds: float
    processor_seconds: float
    output: bytes


def processor() -> str:
    """The host's, by the name that it gives itself."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def find_qemu() -> str:
    """QEMU's path; the benchmark ends where there is none."""
    found = next((path for name in QEMU_NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit(
            f"got neither {' nor '.join(QEMU_NAMES)} on the path, expected one: install qemu-user"
        )
    return found


def conditions(qemu: str) -> str:
    """Processor and versions, for the head of a page."""
    shown = subprocess.run(
        [qemu, "--version"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[0]
    n_processors = len(os.sched_getaffinity(0))
    return f"{processor()}, {n_processors} processors in use; Python {platform.python_version()}; {shown}"


def run(command: Sequence[str], environment: Mapping[str, str], stdin: Path | None = None) -> Run:
    """Run a process, which has to end with status 0."""
    with open(stdin or os.devnull, "rb") as given:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdin=given, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: ended with status {process.returncode}, expected 0")
    return Run(wall, used.ru_utime + used.ru_stime, output)
