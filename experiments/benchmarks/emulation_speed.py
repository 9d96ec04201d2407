"""Seconds of the workloads on the host itself, on our emulator (cold, warm, steady), on QEMU and on unicorn.

    python experiments/benchmarks/emulation_speed.py [--size large] [--repeats 3] [--out results.md]
    python experiments/benchmarks/emulation_speed.py --short ROOT usr/bin/python3 -S -c pass

Every figure but ``steady`` is a whole process, from start to exit, in wall-clock seconds; the best of several
rounds, and each round runs all engines one after the other, so that a busy moment of the host meets them all.

``native``  the same C, compiled for the host by the same compiler with the same flags
``scalar``  the same for any x86-64, without vectors or fused multiplication: the guest's program has neither
``first``   ``emulate`` with an empty cache directory: what the emulator compiles of itself, once, included
``cold``    ``emulate`` where nothing is kept of the program: all its translation included
``warm``    ``emulate`` again, with the cache that an earlier process left
``steady``  one process, warm: the median speed of the second half of the run, as seconds for the whole of it
``qemu``    ``qemu-riscv64`` (user mode), where it is installed
``script`` what one more execution takes in a shell script of the guest (``--short``, where there is a shell)
``unicorn`` unicorn's engine under our memory and system calls, where it is installed; once, it is slow

Ratios are to QEMU's time (below 1: faster than QEMU) and the means geometric. ``--short`` times any program under a
root (ROOT/usr/bin/python3), which has much code and little to do, instead.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common.atomic_files import write_text
from common.file_cache import PROGRAMS as PROGRAMS_KEPT
from experiments.benchmarks.host import QEMU_NAMES, described, qemu

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "experiments" / "workloads"
INTEGER_PROGRAMS = ("bwtzip", "netsimplex", "chess", "ooosim")
PROGRAMS = (*INTEGER_PROGRAMS, "nbody")
FLAGS = ("-O2", "-std=c11")
SCALAR = ".scalar"
SCALAR_FLAGS = ("-mcpu=x86_64", "-fno-vectorize", "-fno-slp-vectorize", "-ffp-contract=off")
ENGINES = ("native", "scalar", "first", "cold", "warm", "steady", "qemu", "unicorn")
SLICE_INSTRUCTIONS = 20_000_000
SCRIPT_LINES = 10
QEMU = qemu() or QEMU_NAMES[0]

Results = dict[str, dict[str, float]]  # program, engine: seconds (and "instructions")


def build(name: str, folder: Path) -> tuple[Path, Path]:
    """The workload for the host and for the guest; `SCALAR` beside the one for the host."""
    host, guest = folder / f"{name}.host", folder / f"{name}.guest"
    compiler = [sys.executable, "-m", "ziglang", "cc", *FLAGS, str(WORKLOADS / f"{name}.c"), "-lm"]
    subprocess.run([*compiler, "-o", str(host)], check=True)
    subprocess.run([*compiler, *SCALAR_FLAGS, "-o", str(host.with_suffix(SCALAR))], check=True)
    subprocess.run([*compiler, "-target", "riscv64-linux-musl", "-static", "-o", str(guest)], check=True)
    return host, guest


def seconds_of(command: list[str], cache: Path, expected: bytes | None) -> tuple[float, bytes]:
    """Wall-clock seconds of a process, and its output, which must be ``expected`` when that is known."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    seconds = time.perf_counter() - start
    if expected is not None and done.stdout != expected:
        raise SystemExit(f"{command}: another output than the native program's")
    return seconds, done.stdout


def forget_programs(cache: Path) -> None:
    """Remove what is kept of programs under a cache directory; what the emulator compiles of itself stays."""
    shutil.rmtree(cache / "perturbation" / PROGRAMS_KEPT, ignore_errors=True)


def ours(guest: Path, size: str) -> list[str]:
    return [sys.executable, "-c", "from emulator.cli import main; main()", "--", str(guest), size]


def measure(name: str, size: str, repeats: int, engines: list[str], folder: Path) -> dict[str, float]:
    """The best seconds of every engine on one workload."""
    host, guest = build(name, folder)
    cache, scratch, empty = folder / "cache", folder / "scratch", folder / "empty"
    # Bytecode and page cache are the installation's, not the emulator's: everything runs once before.
    _, output = seconds_of([str(host), size], scratch, None)
    seconds_of(ours(guest, size), scratch, output)
    seconds_of(ours(guest, size), cache, output)
    seconds_of(ours(guest, size), cache, output)
    found: dict[str, float] = {}
    for round_ in range(repeats):
        for engine in engines:
            if engine == "steady" or (engine == "unicorn" and round_):
                continue
            where = cache
            if engine == "native":
                command = [str(host), size]
            elif engine == "scalar":
                command = [str(host.with_suffix(SCALAR)), size]
            elif engine == "qemu":
                command = [QEMU, str(guest), size]
            elif engine == "unicorn":
                command = [sys.executable, __file__, "--run-unicorn", str(guest), size]
            else:
                command = ours(guest, size)
                if engine == "cold":
                    forget_programs(scratch)
                    where = scratch
                elif engine == "first":
                    shutil.rmtree(empty, ignore_errors=True)
                    where = empty
            seconds, _ = seconds_of(command, where, output)
            found[engine] = min(seconds, found.get(engine, math.inf))
        if "steady" in engines:
            command = [sys.executable, __file__, "--run-steady", str(guest), size]
            _, answer = seconds_of(command, cache, None)
            told = json.loads(answer)
            found["instructions"] = told["instructions"]
            found["steady"] = min(told["seconds"], found.get("steady", math.inf))
    return found


def measure_short(root: Path, command: list[str], repeats: int, folder: Path) -> Results:
    """The best seconds of a program under ``root`` whose first word is its path there."""
    program, *arguments = command
    path = str(root / program)
    emulate = [sys.executable, "-c", "from emulator.cli import main; main()", "--root", str(root), "--", path]
    by_qemu = [QEMU, "-L", str(root), path, *arguments]
    cache = folder / "cache"
    first, output = seconds_of([*emulate, *arguments], cache, None)
    found = {"first": first, "cold": math.inf, "warm": math.inf, "script": math.nan, "qemu": math.inf}
    shell = root / "usr" / "bin" / "sh"
    line = shlex.join(["/" + program, *arguments]) + "\n"
    scripts = {times: [*emulate[:-1], str(shell), "-c", times * line] for times in (1, 1 + SCRIPT_LINES)}
    took = dict.fromkeys(scripts, math.inf)
    for _ in range(repeats):
        for times, script in scripts.items() if shell.exists() else ():
            seconds, _ = seconds_of(script, cache, times * output)
            took[times] = min(took[times], seconds)
        for engine in ("cold", "warm", "warm", "qemu") if qemu() else ("cold", "warm", "warm"):
            if engine == "cold":
                forget_programs(cache)
            seconds, _ = seconds_of(by_qemu if engine == "qemu" else [*emulate, *arguments], cache, output)
            found[engine] = min(found[engine], seconds)
    if shell.exists():
        found["script"] = (took[1 + SCRIPT_LINES] - took[1]) / SCRIPT_LINES
    return {" ".join(command): found}


def run_steady(guest: str, size: str) -> None:
    """Run in slices; print the instructions and the seconds that the whole takes at the later speed."""
    from emulator.machine import Machine

    speeds = []
    with Machine(guest, [size]) as machine:
        while machine.ending is None:
            before, start = machine.instructions, time.perf_counter()
            machine.advance(SLICE_INSTRUCTIONS)
            speeds.append((machine.instructions - before) / (time.perf_counter() - start))
        later = speeds[len(speeds) // 2 : -1]
        speed = statistics.median(later)
        print(json.dumps({"instructions": machine.instructions, "seconds": machine.instructions / speed}))


def run_unicorn(guest: str, size: str, watch: Callable[[Any], None] = lambda engine: None) -> None:
    """Run under unicorn, with our guest memory mapped into it and our kernel behind its ecall. ``watch`` gets the
    engine before it starts, to add hooks."""
    import unicorn
    from unicorn import riscv_const as riscv

    from emulator.engine.hart_state import Hart
    from emulator.linux.kernel.hart_protocol import GuestExit
    from emulator.linux.linux_kernel import LinuxKernel
    from emulator.linux.loader.elf import load_image
    from emulator.linux.loader.process_image import build_process
    from emulator.linux.vfs.files import VirtualFiles
    from emulator.memory import ADDRESS_SPACE_BYTES, PAGE_BYTES, GuestMemory

    memory, hart = GuestMemory(), Hart()
    process = build_process(memory, load_image(guest), [guest, size])
    files = VirtualFiles(stdin=0, stdout=1, stderr=2)
    kernel = LinuxKernel(memory, process, files, lambda: int(time.perf_counter() * 1e9))
    engine = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV64)
    engine.mem_map_ptr(
        PAGE_BYTES, ADDRESS_SPACE_BYTES - PAGE_BYTES, unicorn.UC_PROT_ALL,
        ctypes.c_void_p(memory.base + PAGE_BYTES),
    )  # fmt: skip
    floating_point_on = 3 << 13
    engine.reg_write(riscv.UC_RISCV_REG_MSTATUS, engine.reg_read(riscv.UC_RISCV_REG_MSTATUS) | floating_point_on)
    engine.reg_write(riscv.UC_RISCV_REG_SP, process.stack_pointer)
    ending: list[int] = []
    arguments = range(10, 18)

    def trap(uc: unicorn.Uc, number: int, _: object) -> None:
        environment_call = 8
        if number != environment_call:
            raise SystemExit(f"unicorn: trap {number} at {uc.reg_read(riscv.UC_RISCV_REG_PC):#x}")
        for n in arguments:
            hart.x[n] = uc.reg_read(riscv.UC_RISCV_REG_X0 + n)
        try:
            kernel.syscall(hart)
        except GuestExit as exit_:
            ending.append(exit_.status)
            uc.emu_stop()
        uc.reg_write(riscv.UC_RISCV_REG_A0, int(hart.x[10]))

    engine.hook_add(unicorn.UC_HOOK_INTR, trap)
    watch(engine)
    engine.emu_start(process.entry, 0)
    raise SystemExit(ending[0])


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def table(results: Results, engines: list[str]) -> Iterator[str]:
    """The results as lines of Markdown."""
    reference = next(engine for engine in ("qemu", "native", engines[0]) if engine in engines)
    ratios = [engine for engine in engines if engine != reference]
    yield "Seconds:"
    yield ""
    yield f"| program | G instructions | {' | '.join(engines)} |"
    yield "|---" * (len(engines) + 2) + "|"
    for name, found in results.items():
        cells = " | ".join(f"{found[engine]:.2f}" for engine in engines)
        count = f"{found['instructions'] / 1e9:.2f}" if "instructions" in found else "-"
        yield f"| {name} | {count} | {cells} |"
    yield ""
    yield f"Time over {reference}'s:"
    yield ""
    yield f"| program | {' | '.join(ratios)} |"
    yield "|---" * (len(ratios) + 1) + "|"
    for name, found in results.items():
        yield f"| {name} | " + " | ".join(f"{found[e] / found[reference]:.2f}" for e in ratios) + " |"
    for title, names in (("integer programs", INTEGER_PROGRAMS), ("all", PROGRAMS)):
        measured = [results[name] for name in names if name in results]
        if measured:
            means = [geometric_mean([found[e] / found[reference] for found in measured]) for e in ratios]
            yield f"| **geometric mean, {title}** | " + " | ".join(f"**{mean:.2f}**" for mean in means) + " |"


@contextmanager
def working_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="emulation-speed-") as name:
        yield Path(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", default="large", help="size argument of the workloads (default: large)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; the best counts (default: 3)")
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--short", nargs=argparse.REMAINDER, metavar="ROOT PROGRAM", help="time this; the last option")
    parser.add_argument("--out", type=Path, help="write the tables as Markdown, too")
    parser.add_argument("--run-steady", nargs=2, metavar=("GUEST", "SIZE"), help=argparse.SUPPRESS)
    parser.add_argument("--run-unicorn", nargs=2, metavar=("GUEST", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_steady:
        return run_steady(*options.run_steady)
    if options.run_unicorn:
        return run_unicorn(*options.run_unicorn)
    present = {"qemu": qemu() is not None, "unicorn": find_spec("unicorn") is not None}
    engines = [engine for engine in options.engines if present.get(engine, True)]
    results: Results = {}
    with working_folder() as folder:
        if options.short:
            root, *command = options.short
            engines = ["first", "cold", "warm", "script", *(["qemu"] if present["qemu"] else [])]
            results = measure_short(Path(root).resolve(), command, options.repeats, folder)
        for name in () if options.short else options.programs:
            results[name] = measure(name, options.size, options.repeats, engines, folder)
            print(name, {key: round(value, 3) for key, value in results[name].items()}, flush=True)
    about = "A short program" if options.short else f"Size `{options.size}`"
    lines = [f"{about}, best of {options.repeats}. {described()}.", ""]
    lines += list(table(results, engines))
    print("\n" + "\n".join(lines))
    if options.out is not None:
        write_text(options.out, "# Speed of emulation\n\n" + "\n".join(lines) + "\n")
    return None


if __name__ == "__main__":
    main()
