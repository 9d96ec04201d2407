"""Stores results on disk: one Parquet file a run, and a SQLite ledger; files are never half-written.

``DIR/traces/<key>.parquet`` holds the trace and, in its schema, its specification; the ledger has the state of every
run and the reasons of failures. The key of a run is the hash of everything that it depends on, so a campaign that is
started again makes only the missing runs.
"""

from __future__ import annotations

import fcntl
import json
import math
import sqlite3
import time
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import IO, Any

import numpy as np

from common.atomic_files import remove_leftovers
from measure.errors import StoreError
from measure.result_files import TRACES, is_writable, write_atomically
from measure.run_types import Run, RunSpec, Trace, standard_error

_FORMAT = "perturbation-trace-2"
LOCK_NAME, LEDGER_NAME = ".lock", "ledger.sqlite"
_LEDGER = """
create table if not exists runs (
    key text primary key, variant text, replicate integer, state text, reason text,
    finished_at real, seconds real
)"""


def trace_name(key: str) -> str:
    """Name of the file of a run's trace."""
    return f"{key}.parquet"


class Store:
    """The results of one campaign; where ``only_read``, their directory need not be writable.

    Raises `StoreError` when another process has the directory open.
    """

    def __init__(self, directory: Path, *, only_read: bool = False) -> None:
        self.directory = directory
        writes = not only_read or is_writable(directory)
        with ExitStack() as stack:
            try:
                if writes:
                    (directory / TRACES).mkdir(parents=True, exist_ok=True)
                if writes or (directory / LOCK_NAME).exists():
                    self._lock(stack.enter_context((directory / LOCK_NAME).open("w" if writes else "r")), writes)
            except OSError as error:
                raise StoreError(f"{directory} cannot be used for results: {error.strerror}") from None
            try:
                ledger = directory / LEDGER_NAME
                self._ledger = sqlite3.connect(ledger, isolation_level=None) if writes else _in_memory(ledger)
                stack.callback(self._ledger.close)
                self._ledger.execute(_LEDGER)
            except sqlite3.Error as error:
                raise StoreError(
                    f"{directory / 'ledger.sqlite'} is damaged ({error}): delete it; the traces are kept"
                ) from None
            if writes:
                remove_leftovers(directory / TRACES)
            self._open = stack.pop_all()

    def _lock(self, file: IO[str], alone: bool) -> None:
        """Lock the directory by its ``file``. Raises `StoreError` when another process has it."""
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(
                f"another process is working in {self.directory}: wait for it, or choose another directory with --out"
            ) from None

    def close(self) -> None:
        """Release the directory for other processes."""
        self._open.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def trace_path(self, key: str) -> Path:
        """Path of the trace of a run."""
        return self.directory / TRACES / trace_name(key)

    def save(self, key: str, run: Run) -> None:
        """Store a finished run."""
        write_atomically(self.trace_path(key), lambda path: _write_parquet(path, run))
        self._record(key, run.spec, "done", None, run.seconds)

    def save_failure(self, key: str, spec: RunSpec, reason: str) -> None:
        """Store the fact that a run failed."""
        self._record(key, spec, "failed", reason, None)

    def _record(self, key: str, spec: RunSpec, state: str, reason: str | None, seconds: float | None) -> None:
        row = (key, spec.variant, spec.replicate, state, reason, time.time(), seconds)
        try:
            self._ledger.execute("insert or replace into runs values (?, ?, ?, ?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            raise StoreError(f"{self.directory / 'ledger.sqlite'} cannot be written: {error}") from error

    def finished(self) -> tuple[int, float]:
        """Number of finished runs, and their median duration in seconds, which a slow first one does not change; nan
        without any."""
        seconds = [row[0] for row in self._ledger.execute("select seconds from runs where state = 'done'")]
        known = [one for one in seconds if one is not None]
        return len(seconds), median(known) if known else math.nan

    def failures(self) -> dict[str, str]:
        """By key of each run that failed: the reason."""
        return dict(self._ledger.execute("select key, reason from runs where state = 'failed'"))

    def load(self, key: str, spec: RunSpec) -> tuple[Run | None, str | None]:
        """The run and None; without a whole file, None and the damage of its file, if there is one."""
        path = self.trace_path(key)
        if not path.exists():
            return None, None
        try:
            run = read_run(path, spec)
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            return None, f"The trace {path} is damaged ({reason})"
        # A process killed between the two writes leaves a trace that is not in the ledger.
        if not self._ledger.execute("select 1 from runs where key = ? and state = 'done'", (key,)).fetchone():
            self._record(key, spec, "done", None, run.seconds)
        return run, None


def _in_memory(ledger: Path) -> sqlite3.Connection:
    """A copy of the ledger, which can be changed where the file cannot; an empty one if there is no file."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    if ledger.is_file():
        with closing(sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as kept:
            kept.backup(copy)
    return copy


def _write_parquet(path: Path, run: Run) -> None:
    """Write the trace as a table, with the run's specification and totals in the metadata of the schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    trace = run.trace
    columns: dict[str, Any] = trace.boundary_columns()
    columns |= {metric: trace.values[:, n] for n, metric in enumerate(trace.metrics)}
    about = {
        "format": _FORMAT, "metrics": list(trace.metrics), "spec": asdict(run.spec),
        "total_instructions": run.total_instructions, "total_cycles": run.total_cycles,
        "seconds": run.seconds, "stdout_tail": run.stdout_tail, "starts_tasks": run.starts_tasks,
        "other_programs": run.other_programs,
        "standard_error": {metric: standard_error(period) for metric, period in run.spec.sampled},
    }  # fmt: skip
    table = pa.table(columns).replace_schema_metadata({"perturbation": json.dumps(about)})
    pq.write_table(table, path, write_page_checksum=True)


def read_run(path: Path, spec: RunSpec) -> Run:
    """Read a run from its file. Raises OSError, ValueError, KeyError or TypeError for a damaged or foreign file."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, page_checksum_verification=True)
    about = json.loads((table.schema.metadata or {}).get(b"perturbation", b"{}"))
    if about.get("format") != _FORMAT:
        raise ValueError(f"got format {about.get('format')!r}, expected {_FORMAT}")
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
        about.get("starts_tasks", False),
        tuple(about.get("other_programs", ())),
    )
