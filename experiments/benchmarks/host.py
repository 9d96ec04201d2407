"""What a benchmark says about the machine that it runs on, where it finds QEMU, and what a process takes.

Every recorded page names the processor: figures that hold on one kind may not hold on another.
"""

from __future__ import annotations

import os
import platform
import re
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


def qemu() -> str | None:
    """The command of QEMU's user mode for riscv64, under the first of its names that is installed."""
    return next((name for name in QEMU_NAMES if shutil.which(name)), None)


def required_qemu() -> str:
    """QEMU's command; the benchmark ends where it is not installed."""
    command = qemu()
    if command is None:
        raise SystemExit(f"got neither {' nor '.join(QEMU_NAMES)} on the path, expected one: install qemu-user")
    return command


def qemu_version() -> str | None:
    """The first line of ``qemu-riscv64 --version``; None where it is not installed or does not start."""
    command = qemu()
    if command is None:
        return None
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else None


def processor() -> str:
    """The processor as Linux and LLVM name it: virtual machines often hide the model from the one or the other."""
    import llvmlite.binding as llvm

    return f"{_model_name()}, {llvm.get_host_cpu_name()} to LLVM"


def _model_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        text = cpuinfo.read_text("utf-8")
    except OSError:
        return platform.processor() or "unknown processor"
    fields = {
        name: found[1].strip()
        for name in ("model name", "cpu family", "model")
        if (found := re.search(rf"^{name}\s*:(.*)$", text, re.MULTILINE))
    }
    named = fields.get("model name", "unknown processor")
    if "cpu family" in fields and "model" in fields:
        named += f" (family {fields['cpu family']}, model {fields['model']})"
    return named


def described() -> str:
    """A line for a recorded page: the processor, and the versions that figures depend on."""
    import llvmlite
    import llvmlite.binding as llvm

    parts = [
        f"{os.cpu_count()} processors ({processor()})",
        f"Python {platform.python_version()}",
        f"llvmlite {llvmlite.__version__}",
        f"LLVM {'.'.join(str(number) for number in llvm.llvm_version_info)}",
    ]
    version = qemu_version()
    return "; ".join([*parts, version] if version else parts)


def run(command: Sequence[str], environment: Mapping[str, str], stdin: Path | None = None) -> Run:
    """Run a process, which has to end with status 0.

    Python keeps what it compiles of its modules, as it does for users, also where `PYTHONDONTWRITEBYTECODE` is set:
    without, each process would compile all of them, 0.2 s.
    """
    variables = {**os.environ, **environment}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    with open(stdin or os.devnull, "rb") as given:
        start = time.perf_counter()
        process = subprocess.Popen(command, env=variables, stdin=given, stdout=subprocess.PIPE)
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: ended with status {process.returncode}, expected 0")
    return Run(wall, used.ru_utime + used.ru_stime, output)
