"""How far cycle-close traces are off where intervals of the same code differ in one thing that signatures do not show.

    python -m experiments.cycle_close.limits

`programs/limits.c` says what each case is. Machines are those of `configs/machines` and of `machines`, with changes
that the case needs. Intervals of 200,000 instructions.
"""

from __future__ import annotations

from pathlib import Path

from experiments.cycle_close.walks import CONFIGURATIONS, deviations
from instrumenter.building.program_build import build_program

SOURCE = Path(__file__).parent / "programs" / "limits.c"
SMALL_PREDICTOR = (
    "branch_predictor.kind=bimodal", "branch_predictor.entries=512", "pipeline.mispredict_penalty_cycles=20"
)  # fmt: skip
LARGE_PAGES = ("memory.page_bytes=2097152", "dtlb.entries=4", "dtlb.associativity=4")
CASES = (
    ("code", "60", "strongarm", ()),
    ("code", "60", "desktop", ()),
    ("branches", "100", "desktop", ()),
    ("branches", "100", "desktop", SMALL_PREDICTOR),
    ("targets", "60", "strongarm", ()),
    ("targets", "60", "server", ()),
    ("fft", "12", "strongarm", ()),
    ("fft", "12", "desktop", ()),
    ("columns", "16", "desktop", ()),
    ("columns", "16", "desktop", ("l2.size_bytes=1048576", "memory.page_bytes=2097152")),
    ("recall", "600", "desktop", ()),
    ("recall", "600", "desktop", ("l2.replacement=lru",)),
    ("pages", "300", "desktop", LARGE_PAGES),
    ("gathers", "200", "desktop", ()),
    ("gathers", "200", "server", ()),
)
"""Case, turns, machine, and changes of the machine."""


def machine_path(name: str) -> Path:
    """The file of a machine of ours, or of the experiment."""
    ours = Path(f"configs/machines/{name}.yaml")
    return ours if ours.exists() else Path(__file__).parent / "machines" / f"{name}.yaml"


def main() -> None:
    print("| case | machine | " + " | ".join(CONFIGURATIONS) + " |")
    print("|---|---|" + "---|" * len(CONFIGURATIONS))
    elf = build_program([SOURCE], ["-O2"]).elf_path
    for case, turns, machine, settings in CASES:
        rows = deviations(elf, (case, turns), machine_path(machine), 200_000, settings)
        cells = [f"{mean:.1f}%, {whole:.1f}% ({part:.1f}%)" for mean, whole, part in rows.values()]
        changed = f", {', '.join(settings)}" if settings else ""
        print(f"| {case} | {machine}{changed} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
