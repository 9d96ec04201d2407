"""How far cycle-close traces are off of programs whose waiting for memory depends on data: matrices and mixtures.

    python -m experiments.cycle_close.mixtures

`programs/matrices.c` multiplies and transposes matrices of sizes and row lengths that are drawn, and sorts;
`programs/mixtures.c` is one loop that reads from four arrays in shares that jump or drift. Some 0.5 to 1.5 G
instructions each; intervals of 200,000 instructions.
"""

from __future__ import annotations

from pathlib import Path

from experiments.cycle_close.walks import CONFIGURATIONS, MACHINES, deviations
from instrumenter.building.program_build import build_program

PROGRAMS = Path(__file__).parent / "programs"
KINDS = ("pages", "far pages", "lines", "all", "large", "second level")
CASES = {
    "matrices": ("matrices", ("150",)),
    **{f"{kind}, {change}": ("mixtures", (kind, "400", change)) for kind in KINDS for change in ("jumps", "drifts")},
}
"""By name: the program and its arguments."""


def main() -> None:
    print("| program | machine | " + " | ".join(CONFIGURATIONS) + " |")
    print("|---|---|" + "---|" * len(CONFIGURATIONS))
    for name, (program, arguments) in CASES.items():
        elf = build_program([PROGRAMS / f"{program}.c"], ["-O2"]).elf_path
        for machine in MACHINES:
            rows = deviations(elf, arguments, Path(f"configs/machines/{machine}.yaml"), 200_000)
            cells = [f"{mean:.1f}%, {whole:.1f}% ({part:.1f}%)" for mean, whole, part in rows.values()]
            print(f"| {name} | {machine} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
