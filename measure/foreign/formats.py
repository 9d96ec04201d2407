"""Recognises the format of a trace file by its content, and selects its reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from measure.foreign.content import encoding_of, read_content
from measure.foreign.errors import TraceFileError
from measure.foreign.likwid import HEADER, looks_like_values, read_likwid
from measure.foreign.papi import read_papi
from measure.foreign.perf import is_without_intervals, looks_like_perf_csv, read_perf_csv, read_perf_json
from measure.foreign.table import read_csv, read_parquet
from measure.foreign.trace import ForeignTrace

READERS: dict[str, Callable[[Path], ForeignTrace]] = {
    "csv": read_csv,
    "parquet": read_parquet,
    "perf-csv": read_perf_csv,
    "perf-json": read_perf_json,
    "papi": read_papi,
    "likwid": read_likwid,
}

_LOOK_AT_BYTES = 1 << 16


def read_trace(path: Path, format: str | None = None) -> ForeignTrace:
    """Read ``path`` as ``format``, by default the recognised one. Raises `TraceFileError`."""
    return READERS[format or format_of(path)](path)


def format_of(path: Path) -> str:
    """The format of a file by its content, not by its name. Raises `TraceFileError` for unreadable files."""
    if path.is_dir():
        return "papi"
    head = read_content(path, _LOOK_AT_BYTES)
    if head[:4] == b"PAR1":
        return "parquet"
    lines = head.decode(encoding_of(head), errors="replace").splitlines()
    if any(HEADER.match(line) for line in lines):
        return "likwid"
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    if first.lstrip().startswith("{"):
        return "perf-json" if _is_object(first) or "counter-value" in first else "papi"
    if looks_like_values(first):  # whose header is missing, as its reader says
        return "likwid"
    if looks_like_perf_csv(first):
        return "perf-csv"
    if is_without_intervals(first):
        raise TraceFileError(
            f"{path}: got perf's counts of a whole run, expected those of each interval: add `-I 10` to `perf stat`, "
            "for intervals of 10 ms"
        )
    if " counts unit events" in "".join(lines[:5]):
        raise TraceFileError(
            f"{path}: got perf's human-readable table, expected its CSV or JSON: add `-x \\;` or `-j` to `perf stat`"
        )
    return "csv"


def _is_object(line: str) -> bool:
    """Whether a line is a complete object of perf; PAPI's document has many lines, or the key `threads`."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return False
    return isinstance(row, dict) and "threads" not in row
