"""What observing costs: plain emulation, signatures, warm-up queues, full simulation, cycle-close tracing.

    python experiments/benchmarks/cycleclose_cost.py [--size large] [--interval 200000] [--repeats 2] [--out results.md]

Seconds of the guest's execution in one process each, after a first process has left its translations, best of
several rounds; every round takes all ways one after the other.

``plain``       nothing is observed
``signatures``  blocks are counted, the signature is made and classified at every interval
``queues``      signatures, and the last 50,000 references and branches are kept at all times
``full``        everything is simulated in detail
``cycle-close`` the paper's way: predict, simulate what has no sample, warm up from the queues
``twice``       phases in a first run, samples in a second (`measure cycleclose --twice 1`)
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

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from emulator.machine import Machine  # noqa: E402
from emulator.timing.inorder import InOrderCore  # noqa: E402
from emulator.timing.load import load_machine  # noqa: E402
from instrumenter.build import build_program  # noqa: E402
from measure.cycleclose.rerun import profile, trace_in_two_runs  # noqa: E402
from measure.cycleclose.tracer import Settings, Tracer  # noqa: E402

PROGRAMS = ("bwtzip", "netsimplex", "chess", "ooosim", "nbody")
WAYS = ("plain", "signatures", "queues", "full", "cycle-close", "twice")


def run(way: str, elf: str, size: str, interval: int) -> dict[str, float]:
    """Seconds of one way, and the share of instructions that were simulated."""
    settings = Settings(interval_instructions=interval)
    core = InOrderCore(load_machine(ROOT / "configs" / "machines" / "strongarm.yaml"), 1)

    def make() -> Machine:
        return Machine(elf, [size], keep_translations=True)

    start = time.perf_counter()
    if way == "twice":
        found = trace_in_two_runs(make, core, settings, 1)
        seconds = time.perf_counter() - start
        simulated = sum(one.instructions for one in found if one.category == 1)
        return {"seconds": seconds, "simulated": simulated / found[-1].end_instructions}
    with make() as machine:
        simulated = 0
        if way == "plain":
            machine.run()
        elif way == "signatures":
            profile(machine, settings)
        else:
            # With no phase ever wanted in detail the tracer keeps its queues and simulates nothing.
            settings = replace(settings, everything=way == "full")
            tracer = Tracer(machine, core, settings)
            if way == "queues":
                tracer.wants_detail = lambda: False  # type: ignore[method-assign]
            simulated = sum(one.instructions for one in tracer.intervals() if one.category == 1)
        seconds = time.perf_counter() - start
        machine.save_translations()
        return {"seconds": seconds, "simulated": simulated / machine.instructions}


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
                    command = [sys.executable, __file__, "--size", options.size, "--interval", str(options.interval),
                               "--run", way, str(elf)]  # fmt: skip
                    done = subprocess.run(
                        command, env=environment, cwd=cache, stdout=subprocess.PIPE, check=True
                    )
                    told = json.loads(done.stdout)
                    if round_:  # the first one compiles
                        mine[way] = min(mine.get(way, math.inf), told["seconds"])
                        shares.setdefault(program, {})[way] = told["simulated"]
            print(program, mine, file=sys.stderr, flush=True)
    lines = [
        f"Size `{options.size}`, intervals of {options.interval:,} instructions, best of {options.repeats}.",
        "",
    ]
    lines += ["Seconds:", "", "| program | " + " | ".join(WAYS) + " | simulated: cycle-close | twice |"]
    lines.append("|---|" + "---|" * (len(WAYS) + 2))
    for program, mine in best.items():
        share = [f"{100 * shares[program][way]:.2f}%" for way in ("cycle-close", "twice")]
        lines.append(f"| {program} | " + " | ".join([*(f"{mine[way]:.2f}" for way in WAYS), *share]) + " |")
    lines += ["", "Over plain emulation:", "", "| program | " + " | ".join(WAYS[1:]) + " |"]
    lines.append("|---|" + "---|" * (len(WAYS) - 1))
    for program, mine in best.items():
        ratios = (f"{mine[way] / mine['plain']:.2f}" for way in WAYS[1:])
        lines.append(f"| {program} | " + " | ".join(ratios) + " |")
    means = (
        math.exp(sum(math.log(mine[way] / mine["plain"]) for mine in best.values()) / len(best))
        for way in WAYS[1:]
    )
    lines.append("| **geometric mean** | " + " | ".join(f"**{mean:.2f}**" for mean in means) + " |")
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
