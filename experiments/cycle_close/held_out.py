"""Cycle-close traces of programs that nothing was tuned on, on several machines: how far off, and how biased.

    python -m experiments.cycle_close.held_out                        # the six held-out programs, both machines
    python -m experiments.cycle_close.held_out --replacement --size medium --programs tuned

Each program is simulated in full once for all machines, and traced by each sampling configuration as `measure
cycleclose` has it by default. Rows go to held_out.csv as they are found; a row of an earlier run is kept
(with --again, made anew). Full simulations are kept in results/cycle_close_held_out, to be removed when the timing
model changes. The table of README.md:

    python -m experiments.cycle_close.held_out --table
"""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from emulator.events import TraceSelection
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import load_machine
from experiments.benchmarks.host import processor
from experiments.results import elf_of
from measure.cycle_close.command import Job, machine_for, trace_job
from measure.cycle_close.rates import pointwise_deviation
from measure.cycle_close.tracer import BY_DEFAULT, CoreObserver
from measure.programs.catalogue import load_catalogue

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = ROOT / "configs" / "programs.yaml"
MACHINES = ("strongarm", "desktop")
OTHER_MACHINES = ("controller", "server", "mixed")  # written when all else was done, and never tuned on
REPLACEMENT = ("lru", "fifo", "random")
INTERVAL = 200_000
TUNED = ("bwtzip", "netsimplex", "chess", "ooosim", "nbody", "jpegish", "lz77")
# Some 0.7 to 0.9 G instructions each, which full simulation takes several seconds for.
HELD_OUT = {
    "sqlite": ("16000",),
    "lua": ("-", "40"),
    "zopfli": ("80000",),
    "brotli": ("60000", "11"),
    "picosat": ("180", "8"),
    "zstd": ("850000", "12"),
}
DEFAULT = replace(BY_DEFAULT, interval_instructions=INTERVAL)
CONFIGURATIONS = {
    "default": (DEFAULT, 0),
    "roll back": (replace(DEFAULT, roll_back=True), 0),
    "two runs": (DEFAULT, 1),
}
KEPT = Path("results") / "cycle_close_held_out"  # full simulations, which take longest
HERE = Path(__file__).resolve().parent
KEY = ["program", "arguments", "machine", "replacement", "configuration"]


@dataclass(frozen=True)
class Machine:
    """A machine of configs/machines or of this folder's, with all caches of one replacement policy, or "own"."""

    name: str
    replacement: str

    def config(self) -> MachineConfig:
        folder = HERE if self.name in OTHER_MACHINES else ROOT / "configs"
        config = load_machine(folder / "machines" / f"{self.name}.yaml")
        if self.replacement == "own":
            return config
        caches = {level: getattr(config, level) for level in ("l1i", "l1d", "l2")}
        changed = {
            level: cache.model_copy(update={"replacement": self.replacement})
            for level, cache in caches.items()
            if cache is not None
        }
        return config.model_copy(update=changed)


def job_of(program: str, size: str | None) -> Job:
    """The program with the arguments of ``size``, or its own ones."""
    spec = load_catalogue(CATALOGUE)[program]
    arguments = HELD_OUT[program] if size is None else spec.arguments_for(size)
    return Job(elf_of(CATALOGUE, program), tuple(arguments), Path(), spec.stdin)


def full(job: Job, machines: list[Machine]) -> tuple[NDArray[np.int64], dict[Machine, NDArray[np.float64]]]:
    """All intervals in detail on each machine: where they end, (n + 1,), and events, (n, N_EVENTS). Those that are
    not in KEPT come from one run."""
    arguments = hashlib.sha256(" ".join(job.arguments).encode()).hexdigest()[:12]
    files = {
        machine: KEPT / f"{job.program.parent.name[:12]}-{arguments}-{machine.name}-{machine.replacement}.npz"
        for machine in machines
    }
    missing = [machine for machine, file in files.items() if not file.exists()]
    cores = {machine: InOrderCore(machine.config(), job.seed) for machine in missing}
    ends, counters = [0], {machine: [core.snapshot()] for machine, core in cores.items()}
    if missing:
        with machine_for(job, job.program) as guest:
            guest.observe(TraceSelection(counts=True), [CoreObserver(core) for core in cores.values()])
            while guest.ending is None:
                ran = guest.run_intervals(INTERVAL, 1)
                guest.drain()
                if len(ran):
                    ends.append(int(ran.ends[0]))
                    for machine, core in cores.items():
                        core.follow(guest.hart.pc)
                        counters[machine].append(core.snapshot())
            guest.save_translations()
    KEPT.mkdir(parents=True, exist_ok=True)
    for machine, mine in counters.items():
        np.savez(files[machine], ends=np.array(ends), events=np.diff(np.array(mine), axis=0))
    found = {machine: np.load(file) for machine, file in files.items()}
    return found[machines[0]]["ends"], {machine: one["events"].astype(float) for machine, one in found.items()}


def row_of(
    job: Job, machine: Machine, configuration: str, ends: NDArray[np.int64], truth: NDArray[np.float64]
) -> dict[str, object]:
    """How far one trace is off, in percent."""
    settings, samples = CONFIGURATIONS[configuration]
    config = machine.config()
    traced = trace_job(replace(job, samples=samples), job.program, config, settings, None)
    table = traced.table
    if table["end_instructions"].tolist() != ends[1:].tolist():
        raise SystemExit(f"{job.program}: the intervals of the trace are others than those of full simulation")
    estimated = table[[event.name.lower() for event in Event]].to_numpy()
    simulated = (table["category"] == "simulated").to_numpy()
    lengths = np.diff(ends)
    actual_cpi, cpi = truth[:, Event.CYCLES] / lengths, estimated[:, Event.CYCLES] / lengths
    energy = config.energy.picojoules() if config.energy is not None else np.full(len(Event), np.nan)

    def total(events: NDArray[np.float64], of: NDArray[np.float64]) -> float:
        return float(np.nansum(events @ of)) if np.isfinite(of).all() else np.nan

    cycles = np.eye(len(Event))[Event.CYCLES]
    return {
        "instructions": int(ends[-1]), "intervals": len(lengths),
        "simulated_percent": 100 * simulated.mean(),
        "cpi_deviation_percent": pointwise_deviation(actual_cpi, cpi),
        "cpi_error_percent": 100 * (total(estimated, cycles) / total(truth, cycles) - 1),
        "energy_error_percent": 100 * (total(estimated, energy) / total(truth, energy) - 1),
        "simulated_cpi_bias_percent":
            100 * (total(estimated[simulated], cycles) / total(truth[simulated], cycles) - 1),
        "simulated_energy_bias_percent":
            100 * (total(estimated[simulated], energy) / total(truth[simulated], energy) - 1),
    }  # fmt: skip


def table_of(rows: pd.DataFrame) -> str:
    """Markdown: a line for each set of programs, machine and configuration."""
    lines = [
        "| programs | machine, replacement | configuration | simulated | deviation of CPI, mean (largest) | bias of "
        "what was simulated, mean (largest) | energy of the whole run off, mean (largest) |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = rows.assign(set=np.where(rows["program"].isin(list(HELD_OUT)), "held out", "tuned"))
    for key, mine in rows.groupby(["set", "machine", "replacement", "configuration"], sort=False):
        name, machine, replacement, configuration = key
        deviation, bias = mine["cpi_deviation_percent"], mine["simulated_cpi_bias_percent"]
        energy, worst = mine["energy_error_percent"].abs(), bias.iloc[int(bias.abs().argmax())]
        energies = "-" if energy.isna().all() else f"{energy.mean():.1f}% ({energy.max():.1f}%)"
        lines.append(
            f"| {len(mine)} {name} | {machine}, {replacement} | {configuration} "
            f"| {mine['simulated_percent'].mean():.1f}% | {deviation.mean():.1f}% ({deviation.max():.1f}%) "
            f"| {bias.mean():+.2f}% ({worst:+.2f}%) | {energies} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", help="names with commas between them, or 'tuned' (default: the held-out ones)")
    parser.add_argument("--size", help="of the catalogue (default: the held-out programs' own arguments)")
    parser.add_argument(
        "--configurations",
        default="default,two runs",
        help=f"of {', '.join(CONFIGURATIONS)} (default: default,two runs)",
    )
    parser.add_argument("--replacement", action="store_true", help="every replacement policy, not the machines' own")
    parser.add_argument("--others", action="store_true", help="the machines in this folder, not those of configs")
    parser.add_argument("--again", action="store_true", help="measure what is in the table already, too")
    parser.add_argument("--table", action="store_true", help="print what is in the table")
    parser.add_argument("--out", type=Path, default=HERE / "held_out.csv", help="(default: held_out.csv beside this)")
    options = parser.parse_args()
    rows = pd.read_csv(options.out, dtype={"arguments": str}) if options.out.exists() else pd.DataFrame(columns=KEY)
    if options.table:
        print(table_of(rows))
        return
    names = TUNED if options.programs == "tuned" else (options.programs or ",".join(HELD_OUT)).split(",")
    machines = OTHER_MACHINES if options.others else MACHINES
    policies = REPLACEMENT if options.replacement else ("own",)
    for name in names:
        job = job_of(name, options.size)
        wanted = {
            (machine, configuration): dict(
                zip(KEY, (name, " ".join(job.arguments), machine.name, machine.replacement, configuration), strict=True)
            )
            for machine in (Machine(each, policy) for each in machines for policy in policies)
            for configuration in options.configurations.split(",")
        }
        kept = {tuple(row) for row in rows[KEY].itertuples(index=False)} if not options.again else set()
        missing = {place: key for place, key in wanted.items() if tuple(key.values()) not in kept}
        if not missing:
            continue
        ends, truth = full(job, list(dict.fromkeys(machine for machine, _ in missing)))
        for (machine, configuration), key in missing.items():
            found = {**key, **row_of(job, machine, configuration, ends, truth[machine]), "processor": processor()}
            print(found, flush=True)
            old = (rows[KEY] == pd.Series(key)[KEY]).all(axis=1)
            rows = pd.concat([rows[~old], pd.DataFrame([found])], ignore_index=True)
            rows = rows.astype({"instructions": int, "intervals": int})
            rows.to_csv(options.out, index=False, float_format="%.4f")


if __name__ == "__main__":
    main()
