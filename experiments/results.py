"""Runs of reproductions: doing one, keeping it in a file, finding it again.

A result is one file for a program and a setting, under ``<directory>/<kind>/``. It says what made it; one that
other code, another program or another machine made is done again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
import zipfile
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common.source_digest import source_digest
from emulator.events import TraceSelection
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import Event
from emulator.timing.machine_file import load_machine
from experiments.reproduction import Kind, Reproduction, Task
from instrumenter.building.program_build import DEFAULT_FLAGS, build_program
from measure.cycle_close.command import Job, machine_for, trace_job
from measure.cycle_close.rates import ENERGY, RATES, table_of
from measure.cycle_close.rerun import profile
from measure.cycle_close.tracer import Category, CoreObserver, Interval
from measure.errors import MeasureError
from measure.program_phases.bbv import BasicBlockVectors
from measure.program_phases.profile import profile_blocks
from measure.programs.catalogue import ensure_sources, load_catalogue
from measure.result_files import write_atomically

ROOT = Path(__file__).resolve().parent.parent
_CODE = ("common", "emulator", "measure/cycle_close", "measure/program_phases", "experiments/results.py")
_PLACE = ("begin_instructions", "end_instructions", "phase", "category", "source", "distance")
_EVENTS = tuple(
    dict.fromkeys(
        event.name.lower() for above, below, _ in RATES.values() for event in (Event.INSTRUCTIONS, above, below)
    )
)
_COLUMNS = (*_PLACE, *RATES, ENERGY, *_EVENTS)
_SMALLEST_FIRST = ("tiny", "small")


class ResultError(MeasureError):
    """A result that is asked for is not there."""


@dataclass(frozen=True)
class Vectors:
    """Basic block vectors; ``ends``: (n + 1,) instructions at the intervals' boundaries, the first 0; ``waits``: (n,)
    cycles an instruction waits for the campaign's machine's memory, about."""

    blocks: BasicBlockVectors
    ends: NDArray[np.int64]
    waits: NDArray[np.float64]


@dataclass(frozen=True)
class Results:
    """The results in ``directory``, for one campaign."""

    directory: Path
    campaign: Reproduction

    def full(self, program: str, length: int) -> pd.DataFrame:
        """Every interval simulated in detail; ``attrs["seconds"]``: what that took."""
        return pd.read_parquet(self._file("full", program, length))

    def trace(self, program: str, length: int, threshold: float, configuration: str) -> pd.DataFrame:
        """The cycle-close trace; ``attrs``: ``seconds``, ``phases``."""
        return pd.read_parquet(self._file("trace", program, length, threshold, configuration))

    def online(self, program: str, length: int, threshold: float, configuration: str) -> pd.DataFrame:
        """Each interval's phase by its signature; ``attrs``: ``seconds`` of emulation with signatures, ``phases``."""
        return pd.read_parquet(self._file("online", program, length, threshold, configuration))

    def vectors(self, program: str, length: int) -> Vectors:
        """Basic block vectors."""
        with np.load(self._file("vectors", program, length)) as kept:
            blocks = BasicBlockVectors(
                kept["data"], kept["indices"], kept["indptr"], len(kept["block_ids"]), kept["block_ids"]
            )
            return Vectors(blocks, kept["ends"], kept["waits"])

    def _file(self, kind: Kind, program: str, length: int, threshold: float = 0.0, configuration: str = "") -> Path:
        about = self.campaign
        task = Task(kind, program, about.programs[program], about.catalogue, about.machine, (length,))
        if configuration:
            samples = about.samples(configuration) if kind == "trace" else 0
            task = replace(task, settings=about.settings(configuration, length, threshold), samples=samples)
        path = file_of(task, length, self.directory)
        if not path.is_file():
            raise ResultError(f"there is no {path} for '{task.name}': run this folder's `run` first")
        return path


def file_of(task: Task, length: int, directory: Path) -> Path:
    """Where the result of one length of a task is or will be."""
    digest = hashlib.sha256(json.dumps(task.identity(length), sort_keys=True).encode()).hexdigest()[:12]
    ending = "npz" if task.kind == "vectors" else "parquet"
    return directory / task.kind / f"{task.program}-{task.size}-{length}-{digest}.{ending}"


def missing(task: Task, directory: Path, keep: bool = False) -> Task | None:
    """What of a task has still to be run, if anything. ``keep``: take results of other code too."""
    made_by = provenance(task)
    lengths = []
    for length in task.lengths:
        path = file_of(task, length, directory)
        if not path.is_file() or (not keep and _made_by(path) != made_by):
            lengths.append(length)
    return replace(task, lengths=tuple(lengths)) if lengths else None


def perform(task: Task, directory: Path) -> None:
    """Run a task and keep its results. Raises what the emulator, the instrumenter and `measure` raise."""
    elf = elf_of(task.catalogue, task.program)
    provenance(task)  # of the code that is loaded, not of what it may have become when the run ends
    config = load_machine(task.machine)
    job = _job(task, elf, task.size)
    _warm(task, elf, config)
    if task.kind == "vectors":
        _keep_vectors(task, job, elf, config, directory)
    elif task.kind == "online":
        _keep_online(task, job, elf, config, directory)
    elif task.kind == "trace":
        assert task.settings is not None
        traced = trace_job(job, elf, config, task.settings, None)
        if traced.interrupted:
            raise KeyboardInterrupt
        if traced.ending is not None:
            raise MeasureError(f"{task.name}: the program ended badly: {traced.ending}")
        _keep_table(task, traced.table, directory, traced.seconds, traced.phases)
    else:
        started = time.perf_counter()
        tables = full_traces(job, elf, config, task.lengths)
        seconds = time.perf_counter() - started
        for length, table in tables.items():
            _keep_table(replace(task, lengths=(length,)), table, directory, seconds, 0)


def full_traces(job: Job, elf: Path, config: MachineConfig, lengths: tuple[int, ...]) -> dict[int, pd.DataFrame]:
    """The whole program simulated in detail once, cut into intervals of each of ``lengths``.

    The intervals are those of `trace_job`: each ends where a block does, at or after a multiple of its length.
    """
    core = InOrderCore(config, job.seed)
    ends, targets = {length: [0] for length in lengths}, {length: length for length in lengths}
    counters = {length: [core.snapshot()] for length in lengths}
    with machine_for(job, elf) as machine:
        machine.observe(TraceSelection(blocks=True, addresses=True), [CoreObserver(core)])
        running = True
        while running:
            running = machine.advance_to_instructions(min(targets.values()))
            machine.drain()
            core.follow(machine.hart.pc)
            now, counted = machine.instructions, core.snapshot()
            for length in lengths:
                if now >= targets[length] or (not running and now > ends[length][-1]):
                    targets[length] = (now // length + 1) * length
                    ends[length].append(now)
                    counters[length].append(counted)
        machine.save_translations()
        status = machine.ending.status if machine.ending is not None else 0
    if status:
        raise MeasureError(f"{job.program.name} ended with status {status}")
    energy = config.energy.picojoules() if config.energy is not None else None
    return {
        length: table_of(_intervals(ends[length], np.diff(counters[length], axis=0).astype(float)), energy)
        for length in lengths
    }


def _intervals(ends: list[int], events: NDArray[np.float64]) -> list[Interval]:
    return [Interval(n, ends[n], ends[n + 1], 0, Category.SIMULATED, n, 0.0, events[n]) for n in range(len(events))]


def _keep_online(task: Task, job: Job, elf: Path, config: MachineConfig, directory: Path) -> None:
    assert task.settings is not None
    started = time.perf_counter()
    with machine_for(job, elf) as machine:
        found = profile(machine, InOrderCore(config, job.seed), task.settings)
        machine.save_translations()
    seconds = time.perf_counter() - started
    table = pd.DataFrame({"end_instructions": found.ends[1:], "phase": found.phases, "distance": found.distances})
    _keep_table(task, table, directory, seconds, len(np.unique(found.phases)))


def _keep_table(task: Task, table: pd.DataFrame, directory: Path, seconds: float, phases: int) -> None:
    kept = table[[name for name in _COLUMNS if name in table]].copy()
    kept.attrs = {"seconds": seconds, "phases": phases, "made_by": provenance(task)}
    path = file_of(task, task.lengths[0], directory)
    write_atomically(path, lambda to: kept.to_parquet(to, compression="zstd", index=False))


def _keep_vectors(task: Task, job: Job, elf: Path, config: MachineConfig, directory: Path) -> None:
    (length,) = task.lengths
    with machine_for(job, elf) as machine:
        profile = profile_blocks(machine, length, InOrderCore(config, job.seed))
        machine.save_translations()
    blocks, ends = profile.vectors, profile.ends
    arrays: dict[str, Any] = {
        "data": blocks.data, "indices": blocks.indices, "indptr": blocks.indptr, "block_ids": blocks.block_ids,
        "ends": ends, "waits": profile.waits, "made_by": np.array(json.dumps(provenance(task))),
    }  # fmt: skip

    def write(to: Path) -> None:
        with to.open("wb") as file:
            np.savez_compressed(file, **arrays)

    write_atomically(file_of(task, length, directory), write)


def _made_by(path: Path) -> dict[str, str]:
    """What made a result; nothing when the file is damaged, so that it is made again."""
    try:
        if path.suffix == ".npz":
            with np.load(path) as kept:
                return dict(json.loads(str(kept["made_by"])))
        import pyarrow.parquet as pq

        return dict(json.loads(pq.read_schema(path).metadata[b"PANDAS_ATTRS"])["made_by"])
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
        return {}


def provenance(task: Task) -> dict[str, str]:
    """Digests of all that a result depends on beside its setting: our code, the program, the machine."""
    machine = task.machine if task.kind != "online" else None
    return {
        "code": _code_digest(),
        "program": _digest(elf_of(task.catalogue, task.program)),
        "input": _input_digest(task.catalogue, task.program, task.size),
        "machine": _digest(machine) if machine is not None else "",
    }


@functools.cache
def _code_digest() -> str:
    return source_digest(ROOT / part for part in _CODE)[:16]


@functools.cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


@functools.cache
def _input_digest(catalogue: Path, program: str, size: str) -> str:
    spec = load_catalogue(catalogue)[program]
    stdin = spec.stdin.read_bytes() if spec.stdin is not None else b""
    return hashlib.sha256("\0".join(spec.arguments_for(size)).encode() + b"\0" + stdin).hexdigest()[:16]


@functools.cache
def elf_of(catalogue: Path, program: str) -> Path:
    """The program, fetched and compiled when that has not been done before."""
    spec = load_catalogue(catalogue)[program]
    flags = [*DEFAULT_FLAGS, *spec.compiler_flags()]
    return build_program(ensure_sources(spec), flags, libraries=spec.linker_flags()).elf_path


def _job(task: Task, elf: Path, size: str) -> Job:
    spec = load_catalogue(task.catalogue)[task.program]
    return Job(elf, spec.arguments_for(size), task.machine, spec.stdin, samples=task.samples)


_warmed: set[tuple[str, str, bool]] = set()


def _warm(task: Task, elf: Path, config: MachineConfig) -> None:
    """Run a small size once, so that what is timed is not the translation of a program never seen before."""
    run = (task.program, task.kind, task.samples > 0)
    sizes = load_catalogue(task.catalogue)[task.program].arguments
    small = next((size for size in _SMALLEST_FIRST if size in sizes), task.size)
    if task.kind == "vectors" or run in _warmed or small == task.size:
        return
    _warmed.add(run)
    job = _job(task, elf, small)
    if task.settings is None:
        full_traces(job, elf, config, task.lengths)
    elif task.kind == "online":
        with machine_for(job, elf) as machine:
            profile(machine, InOrderCore(config, job.seed), task.settings)
            machine.save_translations()
    else:
        trace_job(job, elf, config, task.settings, None)
