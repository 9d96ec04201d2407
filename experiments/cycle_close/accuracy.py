"""How far cycle-close traces are from full simulation: the cycle-close paper's Figures 3, 5 and 6 on our programs.

    python experiments/cycle_close/accuracy.py [--size medium] [--out DIR]

The strongarm machine, intervals of 200,000 instructions. For each program and way: intervals simulated and
unsampled [%], and the average point-wise deviation from full simulation [%] of CPI, energy and hit rates.
Writes accuracy.csv and accuracy.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

import pandas as pd  # noqa: E402

from emulator.machine import Machine  # noqa: E402
from emulator.timing.inorder import InOrderCore  # noqa: E402
from emulator.timing.load import load_machine  # noqa: E402
from instrumenter.build import build_program  # noqa: E402
from measure.cycleclose.metrics import deviations, table_of  # noqa: E402
from measure.cycleclose.rerun import trace_in_two_runs  # noqa: E402
from measure.cycleclose.tracer import Settings, Tracer  # noqa: E402

PROGRAMS = ("bwtzip", "netsimplex", "chess", "ooosim", "nbody")
PAPER = Settings()
WAYS = {
    "paper, 25% of 2L": (PAPER, 0),
    "paper, 25% of L": (replace(PAPER, base="L"), 0),
    "paper, 12.5% of L": (replace(PAPER, base="L", threshold=0.125), 0),
    "twice, 25% of L": (replace(PAPER, base="L"), 1),
    "twice, 12.5% of L": (replace(PAPER, base="L", threshold=0.125), 1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", default="medium", help="size argument of the workloads (default: medium)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="directory of the results")
    options = parser.parse_args()
    config = load_machine(ROOT / "configs" / "machines" / "strongarm.yaml")
    assert config.energy is not None
    energy = config.energy.picojoules()
    rows = []
    for program in PROGRAMS:
        source = ROOT / "experiments" / "workloads" / f"{program}.c"
        elf = build_program([source], ["-O2"], libraries=["-lm"]).elf_path

        def make(elf: Path = elf) -> Machine:
            return Machine(elf, [options.size], keep_translations=True)

        def trace(settings: Settings, samples: int) -> tuple[pd.DataFrame, float]:
            start = time.perf_counter()
            core = InOrderCore(config, 1)
            if samples:
                found = trace_in_two_runs(make, core, settings, samples)
            else:
                with make() as machine:
                    found = list(Tracer(machine, core, settings).intervals())
                    machine.save_translations()
            return table_of(found, energy), time.perf_counter() - start

        actual, full_seconds = trace(replace(PAPER, everything=True), 0)
        for way, (settings, samples) in WAYS.items():
            table, seconds = trace(settings, samples)
            row: dict[str, object] = {
                "program": program, "way": way, "intervals": len(table), "phases": table["phase"].nunique(),
                "simulated_percent": 100 * (table["category"] == "simulated").mean(),
                "unsampled_percent": 100 * (table["category"] == "unsampled").mean(),
                "full_over_way": full_seconds / seconds,
            }  # fmt: skip
            compared = deviations(actual, table).set_index("metric")
            row |= {f"{name}_apd": value for name, value in compared["deviation_percent"].items()}
            row["cpi_whole_run"] = compared["whole_run_percent"]["cpi"]
            rows.append(row)
            print(
                {name: round(v, 2) if isinstance(v, float) else v for name, v in row.items()}, file=sys.stderr
            )
    results = pd.DataFrame(rows)
    results.to_csv(options.out / "accuracy.csv", index=False, float_format="%.4g")
    numbers = [name for name in results.columns if name not in ("program", "way")]
    means = results.groupby("way", sort=False)[numbers].mean().reset_index().assign(program="**mean**")
    shown = pd.concat([results, means[results.columns]])
    lines = ["| " + " | ".join(results.columns) + " |", "|" + "---|" * len(results.columns)]
    for record in shown.to_dict("records"):
        cells = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in record.values()]
        lines.append("| " + " | ".join(cells) + " |")
    (options.out / "accuracy.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
