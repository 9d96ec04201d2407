"""What runs inside a worker process of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure.cluster import shipment as files
from measure.errors import RunError
from measure.run_types import Run, RunSpec

if TYPE_CHECKING:
    from distributed import Worker

    from measure.cluster.alignment import Similarities
    from measure.perturbation.similarity import PreparedRun, SimilarityRule


def identity() -> dict[str, str]:
    """The identity of the worker's machine and environment."""
    from measure.cluster.identity import machine_identity

    return machine_identity()


def missing_files(hashes: Iterable[str], dask_worker: Worker) -> list[str]:
    """Those of ``hashes`` that the worker does not have."""
    return files.missing(_folder(dask_worker), hashes)


def store_files(contents: dict[str, bytes], dask_worker: Worker) -> None:
    """Store files, by hash, in the worker's own directory, which goes with it."""
    files.unpack(_folder(dask_worker), contents)


async def take_runs(resource: str, dask_worker: Worker) -> bool:
    """Let the worker take runs, one at a time."""
    await dask_worker.set_resources(**{resource: 1})
    return True


def prepare(target: str, machine: str) -> None:
    """Load and compile what a first run needs."""
    from measure.targets import target_named

    target_named(target).prepare(machine)


def execute(spec: RunSpec, shipment: files.Shipment) -> Run | RunError:
    """Make a run with the files that were stored for it; the run, or why it failed."""
    from distributed import get_worker

    from measure.runs.executor import make_run

    return make_run(files.unpacked_spec(spec, shipment, _folder(get_worker())))


def align(runs: Sequence[PreparedRun], couples: Sequence[tuple[int, int]], how: SimilarityRule) -> Similarities:
    """As `measure.cluster.alignment.align_tile`."""
    from measure.cluster.alignment import align_tile

    return align_tile(runs, couples, how)


def _folder(worker: Any) -> Path:
    return Path(worker.local_directory) / "perturbation"
