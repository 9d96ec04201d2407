"""How fast the timing model runs the workloads: guest instructions a second in the whole machine.

    python experiments/benchmarks/timing_speed.py [--size small] [--repeats 3] [--out results.md]

Each figure is one run of a workload on a machine, the guest, its record and the timing core together, after a
first run has compiled everything; the best of several rounds. Beside it, in the same round: the machine that
records everything and times nothing, so that the ratio is what the timing model costs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from common.atomic_files import write_text

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from emulator.events import FULL_RECORD, BlockFacts  # noqa: E402
from emulator.machine import Machine  # noqa: E402
from emulator.timing.inorder import InOrderCore  # noqa: E402
from emulator.timing.machine_file import load_machine  # noqa: E402
from instrumenter.building.program_build import build_program  # noqa: E402

PROGRAMS = ("bwtzip", "netsimplex", "chess", "ooosim", "nbody")
MACHINES = ("strongarm", "desktop")
BAR = 60.0  # million instructions a second


class RecordOnly:
    """An observer that asks for the whole record and does nothing with it."""

    selection = FULL_RECORD

    def consume(self, facts: BlockFacts, stream: Any) -> None:
        pass


def speed(elf: Path, size: str, machine_name: str | None) -> tuple[float, float]:
    """Million instructions a second, and cycles an instruction (0 without a timing core)."""
    core = None
    if machine_name is not None:
        core = InOrderCore(load_machine(ROOT / "configs" / "machines" / f"{machine_name}.yaml"), 1)
    with Machine(elf, [size], core=core, consumers=() if core else (RecordOnly(),), background=False) as machine:
        start = time.perf_counter()
        machine.run()
        seconds = time.perf_counter() - start
        return machine.instructions / seconds / 1e6, machine.cycles / machine.instructions


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", default="small", help="size argument of the workloads (default: small)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds; the best counts (default: 3)")
    parser.add_argument("--out", type=Path, help="write the table as Markdown, too")
    options = parser.parse_args()
    lines = [
        f"Million guest instructions a second, size `{options.size}`, best of {options.repeats}; bar: {BAR:.0f}.",
        "",
        "| program | record only | " + " | ".join(f"{name} | CPI" for name in MACHINES) + " |",
        "|---|---|" + "---|---|" * len(MACHINES),
    ]
    slowest = float("inf")
    for program in PROGRAMS:
        source = ROOT / "experiments" / "workloads" / f"{program}.c"
        elf = build_program([source], ["-O2"], libraries=["-lm"]).elf_path
        best: dict[str | None, tuple[float, float]] = {}
        for _ in range(options.repeats + 1):  # the first one compiles
            for name in (None, *MACHINES):
                best[name] = max(best.get(name, (0.0, 0.0)), speed(elf, options.size, name))
        cells = [f"{best[name][0]:.0f} | {best[name][1]:.2f}" for name in MACHINES]
        lines.append(f"| {program} | {best[None][0]:.0f} | " + " | ".join(cells) + " |")
        slowest = min(slowest, *(best[name][0] for name in MACHINES))
        print(lines[-1], file=sys.stderr, flush=True)
    lines += ["", f"Slowest: {slowest:.0f}, {slowest / BAR:.2f} of the bar."]
    print("\n".join(lines))
    if options.out:
        write_text(options.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
