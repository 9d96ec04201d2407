"""What `measure phases` does: vectors, phases, simulation points, and how well they stand for the program."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from emulator.errors import EmulatorError
from emulator.timing.load import load_machine
from measure.cycleclose.command import Job, machine_for, program_file, trace_job
from measure.cycleclose.metrics import ENERGY, RATES
from measure.cycleclose.tracer import Settings
from measure.errors import CampaignError
from measure.simpoint.cluster import Phases, estimate, find_phases, similarity
from measure.simpoint.formats import BlockVectors, read_bb, write_bb, write_columns
from measure.simpoint.profile import profile_blocks
from measure.store import write_atomically

if TYPE_CHECKING:
    from rich.console import Console

SUMMARY_FORMAT = "perturbation-phases-1"


@dataclass(frozen=True)
class Search:
    """How to look for phases."""

    interval_instructions: int = 10_000_000
    max_k: int = 30
    starts: int = 5
    threshold: float = 0.9
    dimensions: int = 15
    seed: int = 1


def homogeneity(table: pd.DataFrame, labels: NDArray[np.int64]) -> pd.DataFrame:
    """Mean, standard deviation and coefficient of variation of each metric in each phase and in the whole
    program (phase -1), intervals weighted by instructions."""
    rows = []
    metrics = [name for name in (*RATES, ENERGY) if name in table and table[name].notna().any()]
    for phase in (-1, *np.unique(labels).tolist()):
        mine = table if phase < 0 else table[labels == phase]
        weights = mine["instructions"].to_numpy()
        row: dict[str, Any] = {
            "phase": phase,
            "intervals": len(mine),
            "share": weights.sum() / table["instructions"].sum(),
        }
        for name in metrics:
            values = mine[name].to_numpy()
            known = np.isfinite(values)
            if not known.any():
                continue
            mean = float(np.average(values[known], weights=weights[known]))
            deviation = float(np.sqrt(np.average((values[known] - mean) ** 2, weights=weights[known])))
            row |= {
                f"{name}_mean": mean,
                f"{name}_sd": deviation,
                f"{name}_cov": deviation / abs(mean) if mean else 0.0,
            }
        rows.append(row)
    return pd.DataFrame(rows)


def estimates(table: pd.DataFrame, found: Phases) -> dict[str, dict[str, float]]:
    """CPI of the whole program by simulation points, by the first N intervals and by N after the first tenth,
    where N is the number of points: the same cost. With the error of each in percent."""
    cycles, instructions = table["cycles"].to_numpy(), table["instructions"].to_numpy()
    truth = cycles.sum() / instructions.sum()
    n = len(found.points)
    skip = min(len(table) // 10, len(table) - n)

    def stretch(first: int) -> float:
        mine = slice(first, first + n)
        return float(cycles[mine].sum() / instructions[mine].sum())

    guesses = {
        "simulation points": float(estimate((cycles / instructions)[:, None], found)[0]),
        "first N": stretch(0),
        "skip, then N": stretch(skip),
    }
    return {
        name: {"cpi": guess, "error_percent": float(100 * abs(guess - truth) / truth)}
        for name, guess in {**guesses, "full simulation": float(truth)}.items()
    }


def run_phases(job: Job, machine: Path | None, search: Search, directory: Path, console: Console) -> None:
    """Find the phases of a program or of a file of vectors, write what was found to ``directory``, and print."""
    table = None
    started = time.perf_counter()
    try:
        if ".bb" in job.program.suffixes:
            if machine is not None:
                raise CampaignError(f"{job.program} is a file of vectors, --machine needs the program")
            vectors = read_bb(job.program)
        else:
            elf = program_file(job.program, console)
            with machine_for(job, elf) as emulated:
                vectors, _ = profile_blocks(emulated, search.interval_instructions)
                emulated.save_translations()
            if machine is not None:
                config = load_machine(machine)
                with console.status("simulating everything in detail"):
                    full = Settings(search.interval_instructions, everything=True)
                    table = trace_job(replace(job, samples=0), elf, config, full, None).table
    except EmulatorError as error:
        raise CampaignError(str(error)) from None
    profiled = time.perf_counter() - started
    found = find_phases(
        vectors, max_k=search.max_k, starts=search.starts, threshold=search.threshold,
        dimensions=search.dimensions, seed=search.seed,
    )  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory, job, search, vectors, found, table)
    about = _summary(job, search, vectors, found, table)
    text = json.dumps(about, indent=1, allow_nan=False)
    write_atomically(directory / "summary.json", lambda path: _write_text(path, text))
    console.print(
        f"{vectors.n_intervals:,} intervals, {vectors.n_blocks:,} blocks: {found.clustering.k} phases "
        f"(vectors {profiled:.2f} s, phases {time.perf_counter() - started - profiled:.2f} s)"
    )
    for phase, (point, weight) in enumerate(zip(found.points, found.weights, strict=True)):
        console.print(
            f"  phase {phase}: {100 * weight:5.1f}% of the instructions, simulation point: interval {point:,}"
        )
    for name, one in about.get("estimates", {}).items():
        console.print(f"  CPI by {name}: {one['cpi']:.3f} ({one['error_percent']:.2f}% off)")
    console.print(f"Results: {directory}", style="dim")


def _summary(
    job: Job, search: Search, vectors: BlockVectors, found: Phases, table: pd.DataFrame | None
) -> dict[str, Any]:
    about: dict[str, Any] = {
        "format": SUMMARY_FORMAT,
        "program": str(job.program),
        "interval_instructions": search.interval_instructions,
        "intervals": vectors.n_intervals,
        "blocks": vectors.n_blocks,
        "k": found.clustering.k,
        "scores": [float(score) for score in found.scores],
        "phases": [
            {"phase": n, "simulation_point": int(point), "weight": float(weight)}
            for n, (point, weight) in enumerate(zip(found.points, found.weights, strict=True))
        ],
    }
    if table is not None:
        about["estimates"] = estimates(table, found)
    return about


def _write(
    directory: Path,
    job: Job,
    search: Search,
    vectors: BlockVectors,
    found: Phases,
    table: pd.DataFrame | None,
) -> None:
    from measure.simpoint.figure import phases_figure

    name = job.program.name.split(".")[0]
    if ".bb" not in job.program.suffixes:
        write_bb(directory / f"{name}.bb", vectors)
    points = found.points.tolist()
    write_columns(directory / f"{name}.simpoints", [(point, n) for n, point in enumerate(points)])
    write_columns(
        directory / f"{name}.weights", [(f"{w:.6g}", n) for n, w in enumerate(found.weights.tolist())]
    )
    labelled = zip(found.labels.tolist(), found.distances.tolist(), strict=True)
    write_columns(directory / f"{name}.labels", [(label, f"{distance:.6g}") for label, distance in labelled])
    if table is not None:
        shown = table.assign(phase=found.labels)
        write_atomically(directory / "trace.parquet", lambda path: shown.to_parquet(path))
        uniform = homogeneity(table, found.labels)
        write_atomically(directory / "homogeneity.csv", lambda path: uniform.to_csv(path, index=False))
    distances, rows = similarity(vectors)
    figure = phases_figure(distances, rows, found, vectors.instructions, table, name)
    write_atomically(directory / "phases.png", lambda path: figure.savefig(path, dpi=110, format="png"))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
