"""What observing costs: plain emulation, signatures, warm-up state, full simulation, cycle-close tracing.

    python experiments/benchmarks/cycleclose_cost.py [--size large] [--interval 200000] [--repeats 2] [--out results.md]

Processor seconds of the guest's execution in one process each, after a first process has left its translations and
after a tiny run in the same process has loaded the kernels, best of several rounds; every round takes all ways one
after the other.

``plain``        nothing is observed
``signatures``   blocks are counted; a signature is made and classified for every interval, some hundred at a time
``+ caches``     and what caches and TLBs hold, and their misses
``+ queues``     signatures, and the last 50,000 references and branches are kept at all times, as in the paper
``full``         everything is simulated in detail
``predicting``   cycle-close, one run, `--wait-step 0`: signatures, caches, samples of phases that are predicted
``data``         the same with waiting, the default of `measure cycleclose`
``roll back``    `--roll-back`, ``two runs`` `--twice 1`: both with waiting
``paper``        cycle-close as the paper has it: queues
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from common.atomic_files import write_text

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))


from emulator.events import TraceSelection  # noqa: E402
from emulator.machine import Machine  # noqa: E402
from emulator.timing.inorder import InOrderCore  # noqa: E402
from emulator.timing.machine_file import load_machine  # noqa: E402
from instrumenter.building.program_build import build_program  # noqa: E402
from measure.cycle_close.live_counts import Following  # noqa: E402
from measure.cycle_close.rerun import trace_in_two_runs  # noqa: E402
from measure.cycle_close.rollback import RollBackTracer  # noqa: E402
from measure.cycle_close.tracer import (  # noqa: E402
    BY_DEFAULT,
    Tracer,
    TracerSettings,
    follows_caches,
    profile_selection,
    signatures_for,
    table_for,
)

PROGRAMS = ("bwtzip", "netsimplex", "chess", "ooosim", "nbody", "jpegish", "lz77")
LINES = replace(BY_DEFAULT, wait_step=0.0)
WAYS = {
    "plain": None,
    "signatures": replace(LINES, warm_up="queues", warm_references=0, warm_branches=0),
    "+ caches": BY_DEFAULT,
    "+ queues": TracerSettings(),
    "full": TracerSettings(everything=True),
    "predicting": LINES,
    "data": BY_DEFAULT,
    "roll back": replace(BY_DEFAULT, roll_back=True),
    "two runs": BY_DEFAULT,
    "paper": TracerSettings(),
}
SWITCHES = 3000
ONLY_WATCHED = ("signatures", "+ caches")


def run(way: str, elf: str, size: str, interval: int) -> dict[str, float]:
    """Seconds of one way, and the share of instructions that were simulated."""
    config = load_machine(ROOT / "configs" / "machines" / "strongarm.yaml")
    core = InOrderCore(config, 1)

    def make() -> Machine:
        return Machine(elf, [size], keep_translations=True)

    settings = WAYS[way]
    simulated, instructions = 0, 1
    start = time.process_time()
    if settings is None:
        with make() as machine:
            machine.run()
            seconds = time.process_time() - start
            machine.save_translations()
            return {"seconds": seconds, "simulated": 0.0}
    settings = replace(settings, interval_instructions=interval)
    if way in ONLY_WATCHED:
        with make() as machine:
            watch(machine, core, settings)
            seconds = time.process_time() - start
            machine.save_translations()
            return {"seconds": seconds, "simulated": 0.0}
    if way == "two runs":
        found = trace_in_two_runs(make, core, settings, 1)
        seconds = time.process_time() - start
    else:
        with make() as machine:
            tracer = (
                RollBackTracer(machine, core, settings)
                if settings.roll_back
                else Tracer(machine, core, settings, defer_estimates=True)
            )
            if way == "+ queues":
                tracer.wants_detail = lambda: False  # type: ignore[union-attr,method-assign]
            found = tracer.reestimated(list(tracer.intervals()))
            seconds = time.process_time() - start
            machine.save_translations()
    simulated = sum(one.instructions for one in found if one.category == 1)
    instructions = found[-1].end_instructions
    return {"seconds": seconds, "simulated": simulated / instructions}


def watch(machine: Machine, core: InOrderCore, settings: TracerSettings) -> None:
    """Signatures, phases and what else ``settings`` ask for, many intervals at a time."""
    table, maker = table_for(settings), signatures_for(settings)
    following = Following(machine, core) if follows_caches(settings) else None
    machine.observe(profile_selection(following))
    while machine.ending is None:
        ran = machine.run_intervals(settings.interval_instructions)
        if len(ran) == 0:
            break
        for signature in maker.make(machine.facts, ran):
            table.classify(signature)


def switching(elf: str, size: str) -> float:
    """Microseconds that changing what is observed takes at a boundary, with all translations made before."""
    core = InOrderCore(load_machine(ROOT / "configs" / "machines" / "strongarm.yaml"), 1)
    seconds = {}
    with Machine(elf, [size], keep_translations=True) as machine:
        followed = profile_selection(Following(machine, core))
        kinds = [TraceSelection(), followed, TraceSelection(blocks=True, addresses=True)]
        for switched in (False, True, False, True):  # the first two rounds translate
            start = time.process_time()
            for number in range(SWITCHES):
                machine.observe(kinds[number % 3 if switched else number * 3 // SWITCHES])
                machine.advance_to_instructions(machine.instructions + 10_000)
                machine.drain()
            seconds[switched] = time.process_time() - start
    return 1e6 * (seconds[True] - seconds[False]) / SWITCHES


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", default="large", help="size argument of the workloads (default: large)")
    parser.add_argument("--interval", type=int, default=200_000, help="[instructions] (default: 200000)")
    parser.add_argument("--repeats", type=int, default=2, help="rounds; the best counts (default: 2)")
    parser.add_argument("--out", type=Path, help="write the tables as Markdown, too")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        way, elf = options.run
        run(way, elf, "tiny", 20_000)  # kernels are loaded, which takes half a second once a process
        print(json.dumps(run(way, elf, options.size, options.interval)))
        return
    best: dict[str, dict[str, float]] = {}
    shares: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        for program in PROGRAMS:
            source = ROOT / "experiments" / "workloads" / f"{program}.c"
            elf = build_program([source], ["-O2"], libraries=["-lm"]).elf_path
            mine = best.setdefault(program, {})
            for round_ in range(options.repeats + 1):
                for way in WAYS:
                    if way == "full" and round_ != 1:
                        continue  # long, and nothing that another time would improve
                    command = [sys.executable, __file__, "--size", options.size, "--interval", str(options.interval),
                               "--run", way, str(elf)]  # fmt: skip
                    done = subprocess.run(command, env=environment, cwd=cache, stdout=subprocess.PIPE, check=True)
                    told = json.loads(done.stdout)
                    if round_:  # the first one compiles
                        mine[way] = min(mine.get(way, math.inf), told["seconds"])
                        shares.setdefault(program, {})[way] = told["simulated"]
            print(program, mine, file=sys.stderr, flush=True)
    elf = build_program([ROOT / "experiments" / "workloads" / "chess.c"], ["-O2"], libraries=["-lm"]).elf_path
    lines = tables(options, best, shares)
    lines += [
        "",
        f"Changing what is observed at a boundary: {switching(str(elf), options.size):.1f} microseconds.",
    ]
    text = "\n".join(lines)
    print(text)
    if options.out:
        write_text(options.out, text + "\n")


def tables(
    options: argparse.Namespace, best: dict[str, dict[str, float]], shares: dict[str, dict[str, float]]
) -> list[str]:
    """Seconds, ratios to plain emulation, and what a trace costs beyond its watching and its samples."""
    head = f"Size `{options.size}`, intervals of {options.interval:,} instructions, strongarm, "
    head += f"best of {options.repeats}."
    lines = [
        head,
        "",
        "Processor seconds:",
        "",
        "| program | " + " | ".join(WAYS) + " |",
        "|---|" + "---|" * len(WAYS),
    ]
    for program, mine in best.items():
        lines.append(f"| {program} | " + " | ".join(f"{mine[way]:.2f}" for way in WAYS) + " |")
    others = [way for way in WAYS if way != "plain"]
    lines += [
        "",
        "Over plain emulation:",
        "",
        "| program | " + " | ".join(others) + " |",
        "|---|" + "---|" * len(others),
    ]
    for program, mine in best.items():
        lines.append(f"| {program} | " + " | ".join(f"{mine[way] / mine['plain']:.2f}" for way in others) + " |")
    means = (math.exp(sum(math.log(mine[way] / mine["plain"]) for mine in best.values()) / len(best)) for way in others)
    lines.append("| **geometric mean** | " + " | ".join(f"**{mean:.2f}**" for mean in means) + " |")
    traces = {
        "predicting": "+ caches", "data": "+ caches", "roll back": "+ caches", "two runs": "+ caches",
    }  # fmt: skip
    lines += [
        "", "Tracing without its samples (the share simulated of full simulation's time), over watching alone, and the",
        "share simulated:", "", "| program | " + " | ".join(traces) + " |", "|---|" + "---|" * len(traces),
    ]  # fmt: skip
    ratios: dict[str, list[float]] = {way: [] for way in traces}
    for program, mine in best.items():
        cells = []
        for way, watching in traces.items():
            share = shares[program][way]
            ratios[way].append((mine[way] - share * mine["full"]) / mine[watching])
            cells.append(f"{ratios[way][-1]:.2f} ({100 * share:.2f}%)")
        lines.append(f"| {program} | " + " | ".join(cells) + " |")
    means = (math.exp(sum(map(math.log, each)) / len(each)) for each in ratios.values())
    lines.append("| **geometric mean** | " + " | ".join(f"**{mean:.2f}**" for mean in means) + " |")
    return lines


if __name__ == "__main__":
    main()
