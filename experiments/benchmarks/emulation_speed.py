"""Speed of the emulator on the workloads, beside native code and QEMU user mode, in one run.

    python experiments/benchmarks/emulation_speed.py [--size large] [--repeat 3] [--markdown FILE]

For each program, whole processes from start to end, medians of ``--repeat`` rounds in which all contenders take
turns: native (zig cc for the host), QEMU (where ``qemu-riscv64`` is installed), ours cold (an empty cache
directory: everything is translated) and ours warm (the same directory again). The figures are seconds and ratios
to QEMU; only ratios within one run mean anything. Binaries are made by the instrumenter's toolchain.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from instrumenter.build import build_program

ROOT = Path(__file__).parents[2]
PROGRAMS = ("bwtzip", "netsimplex", "chess", "ooosim", "nbody")


def seconds(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> float:
    """Wall-clock seconds of a command that must succeed."""
    started = time.perf_counter()
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=environment
    )
    return time.perf_counter() - started


def measure(program: str, size: str, repeat: int, qemu: str | None) -> dict[str, float]:
    """Median seconds of each contender."""
    source = ROOT / "experiments" / "workloads" / f"{program}.c"
    native = build_program([source], ["-O2"], libraries=["-lm"], target=None).elf_path
    guest = build_program([source], ["-O2"], libraries=["-lm"]).elf_path
    emulate = [sys.executable, "-c", "from emulator.cli import main; main()", "--", str(guest), size]
    times: dict[str, list[float]] = {"native": [], "qemu": [], "cold": [], "warm": []}
    for _ in range(repeat):
        times["native"].append(seconds([native, size]))
        if qemu:
            times["qemu"].append(seconds([qemu, str(guest), size]))
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "XDG_CACHE_HOME": cache}
            times["cold"].append(seconds(emulate, environment))
            times["warm"].append(seconds(emulate, environment))
    return {name: statistics.median(values) for name, values in times.items() if values}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="large")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    qemu = shutil.which("qemu-riscv64")
    reference = "qemu" if qemu else "native"
    columns = ["native", *(["qemu"] if qemu else []), "cold", "warm"]
    head = ["program", *(f"{name}, s" for name in columns), f"cold/{reference}", f"warm/{reference}"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    ratios: dict[str, list[float]] = {"cold": [], "warm": []}
    for program in PROGRAMS:
        found = measure(program, arguments.size, arguments.repeat, qemu)
        for name, values in ratios.items():
            values.append(found[name] / found[reference])
        cells = [program, *(f"{found[name]:.2f}" for name in columns)]
        cells += [f"{values[-1]:.2f}" for values in ratios.values()]
        lines.append("| " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    means = [f"{math.exp(statistics.fmean(map(math.log, values))):.2f}" for values in ratios.values()]
    lines.append("| geometric mean | " + " | ".join([""] * len(columns) + means) + " |")
    text = "\n".join(lines)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
