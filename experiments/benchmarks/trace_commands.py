"""Seconds of a cycle-close trace over plain emulation, whole commands, on programs that nothing was tuned on.

    python -m experiments.benchmarks.trace_commands [--repeats 5] [--out trace_commands.md]

For each program and machine: `emulate PROGRAM` and `measure cycleclose --machine M PROGRAM` as a user types them, both
after two runs that left translations, in turn, the least of some repeats. ``short``: a program of 12 M instructions,
which shows what a trace takes at least. ``bare``: on strongarm with `--warm-up 0,0 --wait-step 0`, which follows
nothing and begins its samples cold: what counting and samples take alone.

What a trace cannot do without is measured in one process, after the same warm-up, as a ratio over running the program
without any observer: ``counting``: executions of blocks, from which an interval's signature is made; ``caches``: also
what the machine's caches and TLBs hold, and their misses, the default.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from common.atomic_files import write_text
from emulator.events import TraceSelection
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_file import load_machine
from experiments.benchmarks.host import described, run
from experiments.cycle_close.held_out import HELD_OUT, INTERVAL, job_of
from instrumenter.building.program_build import build_program
from measure.cycle_close.job import Job, machine_for
from measure.cycle_close.live_counts import Following
from measure.cycle_close.tracer import profile_selection

ROOT = Path(__file__).parents[2]
MACHINES = ("strongarm", "desktop")
BARE = "bare"
WAYS: dict[str, tuple[str, list[str]]] = {
    **{machine: (machine, []) for machine in MACHINES}, BARE: ("strongarm", ["--warm-up", "0,0", "--wait-step", "0"])
}  # fmt: skip
"""Of tracing: the machine, and options of the command."""
WARM_UP_RUNS = 2  # which leave translations
SHORT = """
int main(void) { volatile unsigned sum = 0; for (unsigned i = 0; i < 2000000; i++) sum += i * i; return 0; }
"""


Row = tuple[str, float, dict[str, float], list[float] | None]  # program, plain, traces, ratios of recording


def short_job(folder: Path) -> Job:
    source = folder / "short.c"
    source.write_text(SHORT)
    return Job(build_program([source], ["-O2"]).elf_path, (), Path())


def command_seconds(job: Job, repeats: int, folder: Path) -> tuple[float, dict[str, float]]:
    """Least seconds of plain emulation, and of a trace in each of `WAYS`."""
    guest = [str(job.program), *job.arguments]
    commands = {"plain": [sys.executable, "-c", "from emulator.cli import main; main()", *guest]}
    stdin = ["--stdin", str(job.stdin)] if job.stdin else []
    for way, (machine, extra) in WAYS.items():
        file = ROOT / "configs" / "machines" / f"{machine}.yaml"
        out = folder / f"{job.program.parent.name}-{way}"  # a folder of another program's results is refused
        options = ["cycleclose", "--machine", str(file), "--out", str(out), *extra, *stdin]
        commands[way] = [sys.executable, "-c", "from measure.cli import main; main()", *options, *guest]
    least = dict.fromkeys(commands, float("inf"))
    for repeat in range(-WARM_UP_RUNS, repeats):
        for name, command in commands.items():
            done = run(command, {"PYTHONPATH": str(ROOT)}, job.stdin)
            if repeat >= 0:
                least[name] = min(least[name], done.wall_seconds)
    return least.pop("plain"), least


def recording_ratios(job: Job, repeats: int) -> list[float]:
    """Seconds with each selection over those without any, least of ``repeats``."""
    core = InOrderCore(load_machine(ROOT / "configs" / "machines" / "strongarm.yaml"), 1)
    kinds: list[Callable[[Machine], TraceSelection]] = [
        lambda machine: TraceSelection(counts=True), lambda machine: profile_selection(Following(machine, core)),
    ]  # fmt: skip
    least = [float("inf")] * (1 + len(kinds))
    for repeat in range(-WARM_UP_RUNS, repeats):
        for place, select in enumerate([None, *kinds]):
            with machine_for(job, job.program) as machine:
                start = time.perf_counter()
                if select is None:
                    machine.run()
                else:
                    machine.observe(select(machine))
                    while machine.ending is None:
                        machine.run_intervals(INTERVAL, 64)
                seconds = time.perf_counter() - start
                machine.save_translations()
            if repeat >= 0:
                least[place] = min(least[place], seconds)
    return [one / least[0] for one in least[1:]]


def table_of(rows: list[Row]) -> str:
    """The table of the page: a line a program, and the means."""
    head = ["program", "plain [s]", *(f"{way} [s]" for way in WAYS), *(f"{way}, over plain" for way in WAYS)]
    head += ["counting", "caches"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, plain, traces, ratios in rows:
        cells = [name, f"{plain:.2f}", *(f"{traces[way]:.2f}" for way in WAYS)]
        cells += [f"{traces[way] / plain:.1f}" for way in WAYS]
        cells += [f"{one:.2f}" for one in ratios] if ratios else ["-"] * 2
        lines.append("| " + " | ".join(cells) + " |")
    measured = [[traces[way] / plain for way in WAYS] + ratios for _, plain, traces, ratios in rows if ratios]
    means = [statistics.geometric_mean(column) for column in zip(*measured, strict=True)]
    blank, bold = " |" * (1 + len(WAYS)), " | ".join(f"**{one:.2f}**" for one in means)
    lines.append(f"| **geometric mean, without short** |{blank} {bold} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="(default: 5)")
    parser.add_argument("--programs", default=",".join(HELD_OUT), help=f"of {', '.join(HELD_OUT)} (default: all)")
    parser.add_argument("--out", type=Path, help="a file for the page")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs = {"short": short_job(folder)} | {one: job_of(one, None) for one in options.programs.split(",")}
        for program, job in jobs.items():
            plain, traces = command_seconds(job, options.repeats, folder)
            ratios = None
            if program != "short":
                machine = ROOT / "configs" / "machines" / "strongarm.yaml"
                ratios = recording_ratios(replace(job, machine=machine), options.repeats)
            rows.append((program, plain, traces, ratios))
            print(rows[-1], flush=True)
    text = f"{described()}\n\n{table_of(rows)}\n"
    print(text)
    if options.out:
        write_text(options.out, text)


if __name__ == "__main__":
    main()
