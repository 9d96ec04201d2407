"""Seconds of whole processes over QEMU's, from the first run with nothing kept to the fifth.

    python -m experiments.benchmarks.process_speed [--repeats 2] [--processors 0] [--out process_speed.md]

``tuned``: the programs of `emulation_speed`, on which the emulator was tuned; ``held out``: programs of the catalogue
on which it was not, with inputs that no other benchmark uses, of 0.5 to 1.6 G instructions. Each repeat begins with
what the emulator has compiled of itself and nothing kept of the program, runs it `RUNS` times one after the other, QEMU
before and after; the least counts. Wall-clock seconds, which is what a user waits, and processor seconds of all
threads. ``--processors``: which ones may be used (0: one; 0,1: two).

What was measured is kept in a file beside ``--out`` (.json) and not measured again: a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common.atomic_files import write_text
from common.file_cache import PROGRAMS as PROGRAMS_KEPT
from experiments.benchmarks.host import described, required_qemu, run
from measure.programs.catalogue import ensure_sources, load_catalogue

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT / "configs" / "programs.yaml"
RUNS = 5
# Arguments by program; those of the held-out ones are no size of the catalogue.
SETS: dict[str, dict[str, list[str]]] = {
    "tuned": {name: ["large"] for name in ("bwtzip", "netsimplex", "chess", "ooosim", "nbody")},
    "held out": {
        "lua": ["-", "45"], "sqlite": ["17000"], "picosat": ["170", "9"], "zopfli": ["90000"],
        "brotli": ["200000", "10"],
    },
}  # fmt: skip
Measured = dict[str, dict[str, list[float]]]  # program: wall and processor seconds by engine, least of each run


def build(name: str, folder: Path) -> tuple[Path, Path | None]:
    """The program for the guest, and its standard input."""
    spec = load_catalogue(CATALOGUE)[name]
    program = folder / name
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "riscv64-linux-musl", "-static", "-O2"]
    sources = [str(path) for path in ensure_sources(spec)]
    command = [*compiler, *spec.compiler_flags(), "-o", str(program), *sources, *spec.linker_flags()]
    subprocess.run(command, check=True)
    return program, spec.stdin


def environment_for(cache: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)}


def measure(name: str, arguments: list[str], qemu: str, repeats: int, folder: Path) -> dict[str, list[float]]:
    program, stdin = build(name, folder)
    cache = folder / "cache"
    emulate = [sys.executable, "-c", "from emulator.cli import main; main()", "--"]
    guest = [str(program), *arguments]
    found: dict[str, list[float]] = {}

    def once(engine: str, place: int, command: list[str]) -> bytes:
        done = run([*command, *guest], environment_for(cache), stdin)
        for kind, value in ((engine, done.wall_seconds), (f"{engine} processor", done.processor_seconds)):
            least = found.setdefault(kind, [math.inf] * (RUNS if engine == "ours" else 1))
            least[place] = min(least[place], value)
        return done.output

    for _ in range(repeats):
        shutil.rmtree(cache / "perturbation" / PROGRAMS_KEPT, ignore_errors=True)
        outputs = {once("qemu", 0, [qemu])}
        outputs |= {once("ours", n, emulate) for n in range(RUNS)}
        outputs.add(once("qemu", 0, [qemu]))
        if len(outputs) != 1:
            raise SystemExit(f"{name}: QEMU's output is another one")
    return found


def table(measured: Measured, suffix: str) -> list[str]:
    heads = [f"run {n + 1}" for n in range(RUNS)]
    lines = [f"| set | program | QEMU s | {' | '.join(heads)} |", "|---" * (RUNS + 3) + "|"]
    for set_name, programs in SETS.items():
        rows = [(name, measured[name]) for name in programs if name in measured]
        for name, found in rows:
            qemu = found[f"qemu{suffix}"][0]
            cells = " | ".join(f"{value / qemu:.2f}" for value in found[f"ours{suffix}"])
            lines.append(f"| {set_name} | {name} | {qemu:.2f} | {cells} |")
        if rows:
            means = [
                statistics.geometric_mean([one[f"ours{suffix}"][n] / one[f"qemu{suffix}"][0] for _, one in rows])
                for n in range(RUNS)
            ]
            lines.append(f"| **{set_name}** | geometric mean | | {' | '.join(f'**{mean:.2f}**' for mean in means)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=2, help="rounds; the least counts (default: 2)")
    parser.add_argument("--processors", help="which ones may be used, such as 0 or 0,1 (default: all)")
    parser.add_argument("--only", nargs="+", choices=[name for one in SETS.values() for name in one])
    parser.add_argument("--out", type=Path, default=Path("process_speed.md"), help="where the page goes")
    options = parser.parse_args()
    qemu = required_qemu()
    if options.processors:
        os.sched_setaffinity(0, {int(number) for number in options.processors.split(",")})
    kept = options.out.with_suffix(".json")
    measured: Measured = json.loads(kept.read_text()) if kept.exists() else {}
    with tempfile.TemporaryDirectory(prefix="process-speed-") as name:
        folder = Path(name)
        for program, arguments in (pair for one in SETS.values() for pair in one.items()):
            if program in measured or (options.only and program not in options.only):
                continue
            if not (folder / "cache").exists():  # what the emulator compiles of itself is no program's
                first, stdin = build("bwtzip", folder)
                command = [
                    sys.executable,
                    "-c",
                    "from emulator.cli import main; main()",
                    "--",
                    str(first),
                    "tiny",
                ]
                run(command, environment_for(folder / "cache"), stdin)
            measured[program] = measure(program, arguments, qemu, options.repeats, folder)
            write_text(kept, json.dumps(measured, indent=1))
            print(program, measured[program], flush=True)
    lines = [
        "# Whole processes over QEMU's time, first to fifth run", "",
        f"Least of {options.repeats}; {described()}.",
        "", "Wall-clock seconds:", "", *table(measured, ""),
        "", "Processor seconds:", "", *table(measured, " processor"),
    ]  # fmt: skip
    write_text(options.out, "\n".join(lines) + "\n")
    print(options.out.read_text())


if __name__ == "__main__":
    main()
