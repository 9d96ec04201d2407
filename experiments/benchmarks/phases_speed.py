"""Seconds and memory of choosing phases among 10,000 intervals for k = 1 to 30 from 5 starts, beside others.

    python experiments/benchmarks/phases_speed.py [--rounds 3] [--simpoint PATH/TO/simpoint] [--out results.md]

Each engine in a process of its own on one thread, the rounds interleaved and the fastest kept; processor seconds, so
that other work on the machine counts as little as can be. Data: 10,000 points in 15 dimensions in 12 groups that
overlap, the same without any groups, and the vectors of a real program, from its .bb file on. Ours is from the points
(or the file) to the phases, compiled before; scikit-learn is KMeans as it comes and does not choose k; SimPoint 3.2,
built by the user and named by --simpoint, reads the points from a text file.

The second table is of whole commands, from a .bb file to simulation points, weights and labels, everything that they
load included: `measure phases FILE.bb`, which tries every k, and `simpoint -maxK 30`, which bisects. Vectors are of an
interpreter, of compressors by modelling, by block sorting and by matching: what python, xz, bzip2 and gzip do.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from common.atomic_files import write_text

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

MAX_K, SEEDS, INTERVALS = 30, 5, 10_000
BAR_SHARE, BAR_MEGABYTES = 0.5, 50.0
DATA = ("12 groups", "no groups", "bwtzip")
WHOLE = {
    "lua": ("small", 5000),
    "brotli": ("small", 5000),
    "bwtzip": ("medium", 9000),
    "lz77": ("medium", 5000),
}
WHOLE_SHARE, WHOLE_MEGABYTES = 1.0, 150.0
OURS, SKLEARN, SIMPOINT = "ours", "scikit-learn", "SimPoint 3.2"


def make_data(folder: Path) -> None:
    """Write ``12 groups.npy``, ``no groups.npy`` and their text for SimPoint, and ``bwtzip.bb``."""
    for name, groups in (("12 groups", 12), ("no groups", 1)):
        rng = np.random.default_rng(1)
        centres = rng.normal(size=(groups, 15))
        points = centres[rng.integers(groups, size=INTERVALS)] + 0.5 * rng.normal(size=(INTERVALS, 15))
        np.save(folder / f"{name}.npy", points)
        rows = "".join(f"1 15: {' '.join(map(repr, row))}\n" for row in points.tolist())
        (folder / f"{name}.txt").write_text(f"{INTERVALS}:w\n{rows}")
    from emulator.machine import Machine
    from instrumenter.building.program_build import build_program
    from measure.program_phases.bbv_files import write_bb
    from measure.program_phases.profile import profile_blocks

    elf = build_program([ROOT / "experiments/workloads/bwtzip.c"], ["-O2"], libraries=["-lm"]).elf_path
    with Machine(elf, ("medium",)) as machine:
        vectors = profile_blocks(machine, 20_000).vectors
    write_bb(folder / "all.bb", vectors)
    with (folder / "all.bb").open() as whole, (folder / "bwtzip.bb").open("w") as first:
        first.writelines(line for line, _ in zip(whole, range(INTERVALS), strict=False))


def make_vectors(folder: Path) -> None:
    """Write ``NAME.whole.bb`` for each program of `WHOLE`, in about so many intervals."""
    from emulator.linux.vfs.files import VirtualFiles
    from emulator.machine import Machine
    from instrumenter.building.program_build import build_program
    from measure.program_phases.bbv_files import write_bb
    from measure.program_phases.profile import profile_blocks
    from measure.programs.catalogue import ensure_sources, load_catalogue

    catalogue = load_catalogue(ROOT / "configs/programs.yaml")
    for name, (size, intervals) in WHOLE.items():
        entry = catalogue[name]
        flags = ["-O2", *entry.compiler_flags()]
        elf = build_program(ensure_sources(entry), flags, libraries=entry.linker_flags()).elf_path
        stdin = entry.stdin.read_bytes() if entry.stdin else b""
        with Machine(elf, entry.arguments_for(size), files=VirtualFiles(stdin=stdin, seed=1)) as machine:
            write_bb(
                folder / f"{name}.whole.bb",
                profile_blocks(machine, entry.instructions[size] // intervals).vectors,
            )


def points_of(folder: Path, data: str) -> np.ndarray:
    """(10,000, 15) points; of a .bb file, projected."""
    if data != "bwtzip":
        return np.load(folder / f"{data}.npy")
    from measure.program_phases.bbv_files import read_bb
    from measure.program_phases.projection import project

    return project(read_bb(folder / "bwtzip.bb"))


def engine_work(engine: str, folder: Path, data: str) -> Callable[[], object]:
    """What to measure, everything imported and compiled."""
    if engine == OURS:
        from measure.program_phases.bbv import from_dense
        from measure.program_phases.choose import find_phases
        from measure.program_phases.projection import project

        find_phases(project(from_dense(np.eye(50, dtype=int))), max_k=9, seeds=1)
        return lambda: find_phases(points_of(folder, data), MAX_K, SEEDS)
    from sklearn.cluster import KMeans

    KMeans(3, n_init=1).fit(np.random.default_rng(1).normal(size=(50, 2)))

    def work() -> None:
        points = points_of(folder, data)
        for k in range(1, MAX_K + 1):
            KMeans(k, n_init=SEEDS, max_iter=100, random_state=1).fit(points)

    return work


def measure(engine: str, folder: Path, data: str) -> dict[str, float]:
    """Processor seconds, and peak megabytes beyond those before."""
    work = engine_work(engine, folder, data)
    before = peak_megabytes("self")
    start = time.process_time()
    work()
    seconds = time.process_time() - start
    return {"seconds": seconds, "megabytes": peak_megabytes("self") - before}


def peak_megabytes(process: int | str) -> float:
    """Of a process; what the system keeps of an ended one, and of children, counts the parent's memory, too."""
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    return max([0.0, *(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))])


def run_simpoint(program: Path, folder: Path, data: str) -> dict[str, float]:
    """The same of SimPoint 3.2, from its file to its labels."""
    loading = ["-loadFVFile", "bwtzip.bb"] if data == "bwtzip" else ["-loadVectorsTxtFmt", f"{data}.txt"]
    command = [str(program), *loading, "-fixedLength", "on", "-k", f"1:{MAX_K}", "-numInitSeeds", str(SEEDS)]
    return run_command([*command, "-saveLabels", "labels", "-saveSimpoints", "simpoints"], folder)


def run_whole(engine: str, program: Path | None, folder: Path, name: str) -> dict[str, float]:
    """A whole command on the vectors of a program of `WHOLE`."""
    file = f"{name}.whole.bb"
    if engine == OURS:
        code = f"from measure.cli import main; main(['phases', '--out', 'ours', '{file}'])"
        return run_command([sys.executable, "-c", code], folder)
    saved = ["-saveLabels", "labels", "-saveSimpoints", "simpoints", "-saveSimpointWeights", "weights"]
    return run_command([str(program), "-loadFVFile", file, "-maxK", str(MAX_K), *saved], folder)


def run_command(command: list[str], folder: Path) -> dict[str, float]:
    """Processor seconds and peak megabytes of a command."""
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    peak, ended = 0.0, 0
    while not ended:
        time.sleep(0.005)
        peak = max(peak, peak_megabytes(process.pid))
        ended, failure, used = os.wait4(process.pid, os.WNOHANG)
    if failure:
        raise SystemExit(f"{command[0]} ended with status {failure}")
    return {"seconds": used.ru_utime + used.ru_stime, "megabytes": peak}


def whole_table(told: dict[tuple[str, str], list[dict[str, float]]]) -> list[str]:
    """Lines of the table of whole commands, and whether their bar was met."""
    lines = ["| vectors | command | seconds | ours over it | memory [MB] |", "|---|---|---|---|---|"]
    met = True
    for name in WHOLE:
        ours = statistics.median(one["seconds"] for one in told[OURS, name])
        for engine in (OURS, SIMPOINT):
            if (engine, name) not in told:
                continue
            seconds = statistics.median(one["seconds"] for one in told[engine, name])
            megabytes = max(one["megabytes"] for one in told[engine, name])
            share = "" if engine == OURS else f"{ours / seconds:.2f}"
            lines.append(f"| {name} | {engine} | {seconds:.2f} | {share} | {megabytes:.1f} |")
            met &= megabytes < WHOLE_MEGABYTES if engine == OURS else ours <= WHOLE_SHARE * seconds
    bar = f"at most SimPoint's time, under {WHOLE_MEGABYTES:.0f} MB"
    return [*lines, "", f"Bar: {bar}: {'met' if met else 'NOT met'}."]


def table_of(told: dict[tuple[str, str], list[dict[str, float]]], simpoint: bool) -> list[str]:
    """Lines of a table in Markdown, and whether the bar was met."""
    engines = [OURS, SKLEARN, *([SIMPOINT] if simpoint else [])]
    engines = [engine for engine in engines if (engine, DATA[0]) in told]
    lines = [
        "| data | engine | seconds | ours over it | memory [MB] |",
        "|---|---|---|---|---|",
    ]
    met = True
    for data in DATA:
        ours = min(one["seconds"] for one in told[OURS, data])
        for engine in engines:
            seconds = min(one["seconds"] for one in told[engine, data])
            megabytes = max(one["megabytes"] for one in told[engine, data])
            share = "" if engine == OURS else f"{ours / seconds:.2f}"
            lines.append(f"| {data} | {engine} | {seconds:.2f} | {share} | {megabytes:.1f} |")
            met &= megabytes < BAR_MEGABYTES if engine == OURS else ours <= BAR_SHARE * seconds
    verdict = "met" if met else "NOT met"
    lines += [
        "",
        f"Bar: at most {BAR_SHARE} of each other's time, under {BAR_MEGABYTES:.0f} MB more than before: {verdict}.",
    ]
    return lines


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--simpoint", type=Path, help="the executable of SimPoint 3.2")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--whole", action="store_true", help="whole commands alone")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        engine, folder, data = options.one
        sys.stdout.write(json.dumps(measure(engine, Path(folder), data)))
        return
    engines = [OURS, *([SKLEARN] if importlib.util.find_spec("sklearn") else [])]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    told: dict[tuple[str, str], list[dict[str, float]]] = {}
    whole: dict[tuple[str, str], list[dict[str, float]]] = {}
    simpoint = options.simpoint.resolve() if options.simpoint else None
    with tempfile.TemporaryDirectory() as name:
        make_vectors(Path(name))
        run_whole(OURS, None, Path(name), "lz77")  # compiles what is compiled once
        for _ in range(options.rounds):
            for program in WHOLE:
                for engine in (OURS, SIMPOINT) if simpoint else (OURS,):
                    whole.setdefault((engine, program), []).append(run_whole(engine, simpoint, Path(name), program))
        if options.whole:
            sys.stdout.write("\n".join(whole_table(whole)) + "\n")
            return
        make_data(Path(name))
        for round_number in range(options.rounds):
            for data in DATA:
                for engine in engines:
                    command = [sys.executable, __file__, "--one", engine, name, data]
                    done = subprocess.run(command, env={**os.environ, **threads}, stdout=subprocess.PIPE, check=True)
                    told.setdefault((engine, data), []).append(json.loads(done.stdout))
                if options.simpoint and round_number == 0:  # a minute's work, and never close
                    told[SIMPOINT, data] = [run_simpoint(options.simpoint.resolve(), Path(name), data)]
    lines = table_of(told, options.simpoint is not None)
    lines += ["", f"Whole commands, median of {options.rounds}:", "", *whole_table(whole)]
    sys.stdout.write("\n".join(lines) + "\n")
    if options.out:
        shown = f" --rounds {options.rounds}" + (" --simpoint simpoint" if options.simpoint else "")
        title = f"{INTERVALS:,} intervals, k = 1 to {MAX_K}, {SEEDS} starts, one thread; processor seconds"
        call = f"python experiments/benchmarks/phases_speed.py{shown} --out results.md"
        write_text(options.out, "\n".join([f"`{call}`", "", f"{title}, best of {options.rounds}.", "", *lines, ""]))


if __name__ == "__main__":
    main()
