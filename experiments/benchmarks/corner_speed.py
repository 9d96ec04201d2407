"""Processor seconds, ours over QEMU's, where translations used to be left: rounding, patched code, contended locks.

    python -m experiments.benchmarks.corner_speed [--repeats 3] [--before CHECKOUT] [--out corner_speed.md]

Each kind is a loop of one of the programs in `corners/`. Every run is a whole process, user and system time of all its
threads; the time of the same program with nothing to do is taken off, for it starts in 0.3 s with us and 0.01 with
QEMU. ``whole`` is the ratio with it. Ours is run once before, so that translations are kept. Rounds are interleaved,
and the least counts. ``--before``: another checkout, whose emulator runs as much of the loop as takes it long enough.

What was measured is kept in a file beside ``--out`` (.json) and not measured again: a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from common.atomic_files import write_text
from experiments.benchmarks.host import described, required_qemu, run

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "corners"
BEFORE_SHARES = (1000, 100, 10, 1)  # of the loop, until one takes `ENOUGH_SECONDS`
ENOUGH_SECONDS = 0.25
# Program: its source, flags of the compiler, and how often each kind goes round.
LIBRARY = (
    "floor", "ceil", "trunc", "round", "rint", "nearbyint", "lrint", "lround", "floorf", "roundf", "nearbyintf",
    "lrintf", "hold", "fesetround", "fetestexcept",
)  # fmt: skip
PROGRAMS = {
    "libm": ("rounding", ["-fno-builtin"], dict.fromkeys(LIBRARY, 40_000)),
    "inline": ("rounding", [], dict.fromkeys(("floor", "round", "rint", "lround", "floorf"), 60_000)),
    "patching": ("patching", [], {"same": 50_000, "fresh": 20_000, "loop": 20_000}),
    "64 threads": (
        "contention", [], {"mutex": 20_000, "spin": 20_000, "condition": 200, "barrier": 500, "yield": 500},
    ),
}  # fmt: skip
Measured = dict[str, dict[str, float]]  # "program kind": seconds by engine, "start ..." with nothing to do


def build(name: str, folder: Path) -> Path:
    source, flags, _ = PROGRAMS[name]
    program = folder / name.replace(" ", "-")
    compiler = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        "riscv64-linux-musl",
        "-static",
        "-O2",
        *flags,
    ]
    subprocess.run([*compiler, "-o", str(program), str(SOURCES / f"{source}.c"), "-lm"], check=True)
    return program


class Engines:
    """How each engine runs a program; ``before``: the other checkout, may be None."""

    def __init__(self, qemu: str, before: Path | None, folder: Path) -> None:
        ours = [sys.executable, "-P", "-c", "from emulator.cli import main; main()", "--"]
        self.commands = {"qemu": ([qemu], {}), "ours": (ours, self._environment(ROOT, folder / "cache"))}
        if before is not None:
            self.commands["before"] = ours, self._environment(before, folder / "cache-before")

    @staticmethod
    def _environment(checkout: Path, cache: Path) -> dict[str, str]:
        return {"PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(cache)}

    def run(self, engine: str, program: Path, kind: str, turns: int) -> tuple[float, bytes]:
        command, environment = self.commands[engine]
        done = run([*command, str(program), kind, str(turns)], environment)
        return done.processor_seconds, done.output


def measure(engines: Engines, program: Path, kind: str, turns: int, repeats: int) -> dict[str, float]:
    """Least seconds of QEMU and ours."""
    found: dict[str, float] = {}
    engines.run("ours", program, kind, turns)
    for _ in range(repeats):
        outputs = {}
        for engine in ("qemu", "ours"):
            for what, n in (("start", 0), ("whole", turns)):
                seconds, outputs[engine] = engines.run(engine, program, kind, n)
                name = f"{what} {engine}"
                found[name] = min(found.get(name, seconds), seconds)
            found[engine] = max(0.0, found[f"whole {engine}"] - found[f"start {engine}"])
        if len(set(outputs.values())) != 1:
            raise SystemExit(f"{program.name} {kind}: QEMU's output is another one: {outputs}")
    return found


def measure_before(engines: Engines, program: Path, kind: str, turns: int) -> float:
    """Seconds of the other checkout's emulator, as of the whole loop."""
    engines.run("before", program, kind, 0)
    start, _ = engines.run("before", program, kind, 0)
    for share in BEFORE_SHARES:
        if turns // share:
            loop = engines.run("before", program, kind, turns // share)[0] - start
            if loop >= ENOUGH_SECONDS:
                break
    return max(0.0, loop) * share


def table(measured: Measured) -> list[str]:
    lines = [
        "| program | kind | QEMU s | ours s | ours / QEMU | before / QEMU | whole |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in measured.items():
        program, kind = name.rsplit(" ", 1)
        before = f"{found['before'] / found['qemu']:.1f}" if "before" in found else "-"
        lines.append(
            f"| {program} | {kind} | {found['qemu']:.2f} | {found['ours']:.2f} | {found['ours'] / found['qemu']:.2f} | "
            f"{before} | {found['whole ours'] / found['whole qemu']:.2f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3, help="rounds; the least counts (default: 3)")
    parser.add_argument("--before", type=Path, help="a checkout to compare with")
    parser.add_argument("--only", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--out", type=Path, default=Path("corner_speed.md"), help="where the page goes")
    options = parser.parse_args()
    qemu = required_qemu()
    kept = options.out.with_suffix(".json")
    measured: Measured = json.loads(kept.read_text()) if kept.exists() else {}
    with tempfile.TemporaryDirectory(prefix="corner-speed-") as name:
        engines = Engines(qemu, options.before, Path(name))
        for program_name in options.only:
            program = build(program_name, Path(name))
            for kind, turns in PROGRAMS[program_name][2].items():
                key = f"{program_name} {kind}"
                found = measured.get(key) or measure(engines, program, kind, turns, options.repeats)
                if options.before is not None and "before" not in found:
                    found["before"] = measure_before(engines, program, kind, turns)
                measured[key] = found
                write_text(kept, json.dumps(measured, indent=1))
                print(program_name, kind, {key: round(value, 3) for key, value in found.items()}, flush=True)
    head = f"Least of {options.repeats}; {described()}."
    write_text(options.out, "\n".join(["# Speed in corners", "", head, "", *table(measured)]) + "\n")
    print(options.out.read_text())


if __name__ == "__main__":
    main()
