"""``measure doctor``: what a bug report needs, and whether this installation works, tried out rather than looked up."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

DISTRIBUTION = "perturbation"
FEWEST_FREE_BYTES = 2 << 30
"""Traces of a long campaign and the cache of translations fit into this much."""

_OPTIONAL = {"qemu-riscv64": "comparisons in experiments", "gdb-multiarch": "`emulate --gdb`"}
_VARIABLES = (
    "XDG_CACHE_HOME", "PERTURBATION_CACHE_LIMIT", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "NUMBA_DISABLE_JIT",
    "NUMBA_CACHE_DIR", "OMP_NUM_THREADS", "LD_PRELOAD",
)  # fmt: skip
_PROGRAM = "#include <stdio.h>\nint main(void) { long s = 0; for (long i = 0; i < 30000; i++) s += i * i % 7; printf"
_PROGRAM += '("%ld\\n", s); return 0; }\n'
_PROGRAM_OUTPUT = str(sum(i * i % 7 for i in range(30_000)))


@dataclass(frozen=True)
class Check:
    """One line of the report. ``state``: *fails* means that commands do not work as they should; ``advice``: what to
    do about a warning or a failure."""

    name: str
    state: Literal["ok", "warning", "fails"]
    text: str
    advice: str = ""

    def report(self) -> str:
        """The check in lines of 80 characters, the advice last."""
        mark = {"ok": "ok   ", "warning": "warn ", "fails": "FAILS"}[self.state]
        parts = [f"{mark} {self.name}: {self.text}", *([f"{'':6}{self.advice}"] if self.advice else [])]
        return "\n".join(
            textwrap.fill(part, 80, subsequent_indent=" " * 6, break_long_words=False, break_on_hyphens=False)
            for part in parts
        )


def examine() -> Iterator[Check]:
    """All checks, one after the other; the last ones compile and run a small program."""
    for check in (_host, _python, _packages, _processors, _memory, _cache, _disk, _variables, _tools, _compiler):
        yield _guarded(check)


def _guarded(check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:  # whatever is broken here is what the user wants to know
        return Check(check.__name__.strip("_"), "fails", f"{type(error).__name__}: {error}")


def _host() -> Check:
    text = f"{platform.system()} {platform.release()} on {platform.machine()}"
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        return Check("host", "ok", text)
    return Check("host", "fails", text, "the emulator needs Linux on x86-64; reports of stored runs work elsewhere")


def _python() -> Check:
    return Check("python", "ok", f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}")


def _packages() -> Check:
    from packaging.requirements import Requirement

    installed, wrong = [f"{DISTRIBUTION} {metadata.version(DISTRIBUTION)}"], []
    for text in metadata.requires(DISTRIBUTION) or ():
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        installed.append(f"{requirement.name} {version}")
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} {version}, expected {requirement.specifier}")
    text = ", ".join(installed)
    if wrong:
        return Check(
            "packages", "fails", f"{'; '.join(wrong)}. All: {text}", "install into a fresh virtual environment"
        )
    return Check("packages", "ok", text)


def _processors() -> Check:
    usable, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    text = f"{usable} of {os.cpu_count()} usable, {_processor_name()}, load {load:.1f}"
    quota = cgroup_processors(Path("/sys/fs/cgroup"))
    if quota is not None and quota < usable:
        advice = f"the control group allows {quota:.1f} processors: `measure run --workers {max(1, int(quota))}`"
        return Check("processors", "warning", text, advice)
    if load > usable:
        return Check("processors", "warning", text, "others use the machine: work takes longer than on an idle one")
    return Check("processors", "ok", text)


def _processor_name() -> str:
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    return found[1] if found else "unknown model"


def cgroup_processors(root: Path) -> float | None:
    """Processors that the control group at ``root`` (version 2) allows; None without a limit."""
    try:
        quota, period = (root / "cpu.max").read_text("ascii").split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _memory() -> Check:
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB$", Path("/proc/meminfo").read_text("ascii"), re.MULTILINE))
    total, available = (int(fields[name]) / (1 << 20) for name in ("MemTotal", "MemAvailable"))
    text = f"{available:.1f} of {total:.1f} GiB available"
    if available < 1:
        return Check("memory", "warning", text, "a run takes up to 1 GiB: use `--workers 1`, or free some")
    return Check("memory", "ok", text)


def _cache() -> Check:
    from common.file_cache import cache_directory, limit_bytes
    from common.shared_folders import disk_usage

    place = cache_directory()
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=place):
        pass
    limit = f"translations, builds and compiler at most {limit_bytes() >> 20:,} MiB each"
    return Check("cache", "ok", f"{place}, {disk_usage(place).n_bytes >> 20:,} MiB ({limit})")


def _disk() -> Check:
    from common.file_cache import cache_directory

    places = {
        "the current directory": Path.cwd(),
        "the cache": cache_directory(),
        "temporary files": Path(tempfile.gettempdir()),
    }
    free = {name: shutil.disk_usage(place).free for name, place in places.items()}
    text = ", ".join(f"{n_bytes >> 30} GiB free for {name}" for name, n_bytes in free.items())
    if min(free.values()) < FEWEST_FREE_BYTES:
        return Check("disk", "warning", text, "a campaign that finds the disk full keeps its finished runs, and stops")
    return Check("disk", "ok", text)


def _variables() -> Check:
    set_ = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
    text = ", ".join(f"{name}={value}" for name, value in set_.items()) or "none of those that matter is set"
    if "NUMBA_DISABLE_JIT" in set_:
        return Check(
            "environment", "fails", text, "unset NUMBA_DISABLE_JIT: simulation would take a hundred times as long"
        )
    if "PYTHONDONTWRITEBYTECODE" in set_:
        advice = "unset PYTHONDONTWRITEBYTECODE: every command compiles all its modules, which takes 0.2 s and more"
        return Check("environment", "warning", text, advice)
    return Check("environment", "ok", text)


def _tools() -> Check:
    found = [f"{name}: {'yes' if shutil.which(name) else f'no ({use} needs it)'}" for name, use in _OPTIONAL.items()]
    return Check("optional tools", "ok", ", ".join(found))


def _compiler() -> Check:
    """Compile a program, run it on every engine, and compare what it prints."""
    from emulator.machine import Machine
    from instrumenter.building.program_build import build_program

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "doctor.c"
        source.write_text(_PROGRAM, "ascii")
        begin = time.perf_counter()
        elf = build_program([source]).elf_path
        seconds = {"built": time.perf_counter() - begin}
        for engine, options in {"oracle": {"engine": "oracle"}, "translated": {"optimise_executions": 100}}.items():
            begin = time.perf_counter()
            with Machine(elf, limit_instructions=100_000_000, **options) as machine:  # type: ignore[arg-type]
                machine.run()
                printed = machine.files.output(1).decode(errors="replace").strip()
            seconds[engine] = time.perf_counter() - begin
            if printed != _PROGRAM_OUTPUT:
                return Check(
                    "compiler and emulator", "fails", f"{engine} engine: got {printed!r}, expected {_PROGRAM_OUTPUT!r}",
                    "this is a defect of the emulator or of the compiler: report it with this page",
                )  # fmt: skip
    text = ", ".join(f"{name} in {taken:.2f} s" for name, taken in seconds.items())
    return Check("compiler and emulator", "ok", f"a program was {text}; all engines agree")
