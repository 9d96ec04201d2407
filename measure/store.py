"""Results on disk: one Parquet file a run, a SQLite ledger, nothing ever half-written.

``DIR/traces/<key>.parquet`` holds the trace and, in its schema, what it is; the ledger says which runs were
made, which failed and why. A run is known by the hash of all it depends on, so a campaign that is started
again makes only what is missing.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from measure.errors import StoreError
from measure.types import Run, RunSpec, Trace

_FORMAT = "perturbation-trace-1"
_LEDGER = """
create table if not exists runs (
    key text primary key, run_group text, replicate integer, state text, reason text,
    finished_at real, seconds real
)"""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file beside ``path``, flush it to the disk, and move it there.

    Raises `StoreError` when the disk is full or not writable; nothing is left behind then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}; finished runs are kept. "
            "Make room or choose another directory with --out, then start again"
        ) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text_atomically(path: Path, text: str) -> None:
    """As `write_atomically`, of a text in UTF-8."""
    write_atomically(path, lambda to: to.write_text(text, encoding="utf-8"))


def remove_leftovers(directory: Path) -> None:
    """Remove what processes that were killed had half-written into ``directory``."""
    for leftover in directory.glob(".*.part"):
        leftover.unlink(missing_ok=True)


class Store:
    """The results of one campaign. One process at a time: `StoreError` when another one holds it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            (directory / "traces").mkdir(parents=True, exist_ok=True)
            self._lock = (directory / ".lock").open("w")
        except OSError as error:
            raise StoreError(f"{directory} cannot be used for results: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise StoreError(
                f"another process is working in {directory}: wait for it, or choose another directory with --out"
            ) from None
        try:
            self._ledger = sqlite3.connect(directory / "ledger.sqlite", isolation_level=None)
            self._ledger.execute(_LEDGER)
        except sqlite3.Error as error:
            self._lock.close()
            raise StoreError(
                f"{directory / 'ledger.sqlite'} is damaged ({error}): delete it; the traces are kept"
            ) from None
        remove_leftovers(directory / "traces")

    def close(self) -> None:
        """Let other processes have it."""
        self._ledger.close()
        self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def trace_path(self, key: str) -> Path:
        """Where the trace of a run is or will be."""
        return self.directory / "traces" / f"{key}.parquet"

    def save(self, key: str, run: Run) -> None:
        """Keep a finished run."""
        write_atomically(self.trace_path(key), lambda path: _write_parquet(path, run))
        self._note(key, run.spec, "done", None, run.seconds)

    def save_failure(self, key: str, spec: RunSpec, reason: str) -> None:
        """Keep the fact that a run failed."""
        self._note(key, spec, "failed", reason, None)

    def _note(self, key: str, spec: RunSpec, state: str, reason: str | None, seconds: float | None) -> None:
        row = (key, spec.group, spec.replicate, state, reason, time.time(), seconds)
        try:
            self._ledger.execute("insert or replace into runs values (?, ?, ?, ?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            raise StoreError(f"{self.directory / 'ledger.sqlite'} cannot be written: {error}") from error

    def load(self, key: str, spec: RunSpec) -> tuple[Run | None, str | None]:
        """The run if it is there and whole; otherwise None, and what is wrong with its file if there is one."""
        path = self.trace_path(key)
        if not path.exists():
            return None, None
        try:
            run = _read_parquet(path, spec)
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            return None, f"The trace {path} is damaged ({reason})"
        # A process that was killed between the two has left a trace that the ledger does not know.
        if not self._ledger.execute("select 1 from runs where key = ? and state = 'done'", (key,)).fetchone():
            self._note(key, spec, "done", None, run.seconds)
        return run, None


def _write_parquet(path: Path, run: Run) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    trace = run.trace
    columns: dict[str, Any] = {
        "begin_cycles": trace.boundaries_cycles[:-1],
        "end_cycles": trace.boundaries_cycles[1:],
        "begin_instructions": trace.boundaries_instructions[:-1],
        "end_instructions": trace.boundaries_instructions[1:],
    }
    columns |= {metric: trace.values[:, n] for n, metric in enumerate(trace.metrics)}
    about = {
        "format": _FORMAT, "metrics": list(trace.metrics), "spec": asdict(run.spec),
        "total_instructions": run.total_instructions, "total_cycles": run.total_cycles,
        "seconds": run.seconds, "stdout_tail": run.stdout_tail,
    }  # fmt: skip
    table = pa.table(columns).replace_schema_metadata({"perturbation": json.dumps(about)})
    pq.write_table(table, path, write_page_checksum=True)


def _read_parquet(path: Path, spec: RunSpec) -> Run:
    import pyarrow.parquet as pq

    table = pq.read_table(path, page_checksum_verification=True)
    about = json.loads((table.schema.metadata or {}).get(b"perturbation", b"{}"))
    if about.get("format") != _FORMAT:
        raise ValueError(f"got format {about.get('format')!r}, expected {_FORMAT!r}")
    metrics = tuple(about["metrics"])
    if metrics != spec.metrics:
        raise ValueError(f"got metrics {', '.join(metrics)}, expected {', '.join(spec.metrics)}")

    def column(name: str) -> np.ndarray:
        return table.column(name).to_numpy().astype(np.int64)

    def boundaries(unit: str) -> np.ndarray:
        begin, end = column(f"begin_{unit}"), column(f"end_{unit}")
        return np.concatenate([begin[:1], end])

    values = np.column_stack([column(metric) for metric in metrics])
    trace = Trace(boundaries("cycles"), boundaries("instructions"), values, metrics)
    return Run(
        spec,
        trace,
        about["total_instructions"],
        about["total_cycles"],
        about["seconds"],
        about["stdout_tail"],
    )
