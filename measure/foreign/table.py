"""Reads tables, CSV and Parquet: one column per metric, one row per interval; time columns are not metrics."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.foreign.content import is_compressed, read_content, read_text
from measure.foreign.errors import TraceFileError
from measure.foreign.thousands import check_thousands
from measure.foreign.times import (
    intervals_by,
    is_boundary,
    read_times,
    text_column,
    text_warning,
    time_warnings,
)
from measure.foreign.trace import LARGEST, ForeignTrace, decimal_comma_advice, name_and_unit, number
from measure.perturbation.wording import counted
from measure.run_types import HOST

_SEPARATORS = (",", ";", "\t", "|")


def check_magnitude(column: NDArray[np.float64], where: Callable[[int], str]) -> None:
    """Raise `TraceFileError` for infinities and values beyond `LARGEST`. ``where``: a row's place by its number."""
    beyond = np.abs(column) > LARGEST
    if beyond.any():
        row = int(beyond.argmax())
        raise TraceFileError(f"{where(row)}: got {column[row]:g}, expected a number of at most {LARGEST:g}")


def row_of(where: str) -> Callable[[int], str]:
    """A function of a row's number to its place in the column ``where``."""
    return lambda number: f"{where}: row {number}"


def read_csv(path: Path) -> ForeignTrace:
    """Read a text table with names in the first row, separated by commas, semicolons, tabs or bars.

    Lines that start with ``#`` are comments. Empty cells, ``nan`` and perf's ``<not counted>`` stand for values that
    were not measured. ``name [unit]`` in the first row gives a unit. Columns of text are left out, with a warning.
    Raises `TraceFileError`.
    """
    headings, places, columns = _csv_columns(path)
    named: list[tuple[str, str]] = []
    values: list[list[float]] = []
    warnings: list[str] = []
    times: dict[str, NDArray[Any]] = {}
    for heading, cells in zip(headings, columns, strict=True):
        where = _places_of(path, places, heading)
        if is_boundary(heading):
            check_thousands(cells, where)
            found, told = read_times(heading, cells, where, decimal_comma_advice(path))
            warnings += told
            if found is not None:
                times[heading] = found
        elif sentence := text_warning(heading, cells):
            warnings.append(sentence)
        else:
            check_thousands(cells, where)
            what = f"column {heading!r}"
            values.append([number(cell, path, at, what) for cell, at in zip(cells, places, strict=True)])
            named.append(name_and_unit(heading))
    return table_trace(path, "csv", named, np.array(values, np.float64).reshape(len(named), -1).T, times, warnings)


def _csv_columns(path: Path) -> tuple[list[str], list[int], list[list[str]]]:
    """The headings of a text table, the lines of its rows, and its columns of text. Raises `TraceFileError`."""
    text = read_text(path)
    lines = [
        (at, line) for at, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        got = "nothing but comments" if text.strip() else "an empty file"
        raise TraceFileError(f"{path}: got {got}, expected a first row with the names of the metrics, and values")
    first, top = lines[0]
    separator = max(_SEPARATORS, key=top.count)
    headings = [cell.strip() for cell in next(csv.reader([top], delimiter=separator))]
    _check_headings(headings, f"{path}:{first}")
    columns: list[list[str]] = [[] for _ in headings]
    for at, line in lines[1:]:
        cells = next(csv.reader([line], delimiter=separator))
        if len(cells) != len(headings):
            raise TraceFileError(
                f"{path}:{at}: got {counted(len(cells), 'column')}, expected {len(headings)} as in line {first}; is "
                "the file whole?"
            )
        for column, cell in zip(columns, cells, strict=True):
            column.append(cell.strip())
    return headings, [at for at, _ in lines[1:]], columns


def _places_of(path: Path, lines: Sequence[int], heading: str) -> Callable[[int], str]:
    """A function of a row's number to its place in a column of a text table."""
    return lambda row: f"{path}:{lines[row]}: column {heading!r}"


def table_trace(
    path: Path,
    format: str,
    named: Sequence[tuple[str, str]],
    values: NDArray[np.float64],
    times: Mapping[str, Any],
    warnings: Sequence[str],
) -> ForeignTrace:
    """A table as a trace, without a last record that is not whole.

    ``named``: name and unit of each metric; ``values``: (n, m); ``times``: as in `intervals_by`; ``warnings``: on
    columns. Raises `TraceFileError` for a table without rows.
    """
    if not len(values):
        names = ", ".join(name for name, _ in named)
        raise TraceFileError(f"{path}: got no rows below the headings {names}, expected one for each record")
    intervals = intervals_by(times, len(values))
    metrics = tuple(name for name, _ in named)
    return ForeignTrace(
        path, format, metrics, values[:intervals.whole], {name: unit for name, unit in named if unit},
        interval=intervals.in_words, interval_length=intervals.length, interval_unit=intervals.unit,
        totals=dict(zip(metrics, values.sum(axis=0).tolist(), strict=True)),
        warnings=(*warnings, *intervals.warnings),
    )  # fmt: skip


def read_parquet(path: Path) -> ForeignTrace:
    """Read a Parquet table, such as a trace of `measure run`. Raises `TraceFileError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = pa.BufferReader(read_content(path)) if is_compressed(path) else path
    try:
        table = pq.read_table(source, page_checksum_verification=True)
    except (OSError, pa.ArrowInvalid) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TraceFileError(f"{path} is not a whole Parquet file: {reason}") from None
    indices = _index_columns(table.schema)
    _check_headings([heading for heading in table.column_names if heading not in indices], str(path))
    chosen: list[str] = []
    warnings: list[str] = []
    times: dict[str, NDArray[Any]] = {}
    for heading in table.column_names:
        kind = table.schema.field(heading).type
        is_moment = pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_duration(kind)
        if is_boundary(heading) or (heading in indices and is_moment):
            found, told = _parquet_times(heading, table.column(heading), f"{path}: column {heading!r}")
            warnings += told
            if found is not None:
                times[heading] = found
        elif heading in indices:
            pass
        elif pa.types.is_temporal(kind):
            warnings.append(
                f"column {heading!r} has times, no numbers: it is not compared; if they are the times of the records, "
                "call it 'time'."
            )
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
            labels = [str(label) for label in table.column(heading).drop_null().unique().to_pylist()]
            warnings.append(text_column(heading, labels[0] if labels else ""))
        elif _is_number(kind) or pa.types.is_boolean(kind):
            chosen.append(heading)
        else:
            raise TraceFileError(f"{path}: column {heading!r}: got values of type {kind}, expected numbers")
    columns = [table.column(heading).cast("float64", safe=False).to_numpy() for heading in chosen]
    for heading, column in zip(chosen, columns, strict=True):
        check_magnitude(column, row_of(f"{path}: column {heading!r}"))
    named = [name_and_unit(heading) for heading in chosen]
    values = np.column_stack(columns) if columns else np.empty((table.num_rows, 0))
    trace = table_trace(path, "parquet", named, values, times, warnings)
    interval, totals, emulated_run = _about_run(table.schema)
    return replace(trace, interval=interval or trace.interval, totals=trace.totals | totals, emulated_run=emulated_run)


def _is_number(kind: Any) -> bool:
    """Whether a type of Parquet's is one of numbers, or of a column in which all are unknown."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind))


def _parquet_times(heading: str, column: Any, where: str) -> tuple[NDArray[Any] | None, tuple[str, ...]]:
    """A column of a Parquet table as `read_times` gives those of text. Raises `TraceFileError`."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_duration(kind):
        times = column.to_numpy()
    elif _is_number(kind):
        times = column.cast("float64", safe=False).to_numpy()
    else:  # text, or times of the day
        try:
            cells = [cell or "" for cell in column.cast(pa.string()).to_pylist()]
        except pa.ArrowNotImplementedError:
            raise TraceFileError(f"{where}: got values of type {kind}, expected times") from None
        return read_times(heading, cells, row_of(where), "write its numbers so")
    return times, time_warnings(heading, times, row_of(where))


def _index_columns(schema: Any) -> set[str]:
    """The columns in which pandas keeps the index of a frame."""
    about = schema.pandas_metadata or {}
    return {name for name in about.get("index_columns", ()) if isinstance(name, str)}


def _about_run(schema: Any) -> tuple[str, dict[str, float], str]:
    """The interval in words, totals of the run, and the specification of an emulated run as text, as far as a trace of
    this project has them in its metadata; otherwise empty."""
    about = json.loads((schema.metadata or {}).get(b"perturbation", b"{}"))
    spec = about.get("spec", {})
    if not {"interval", "interval_unit"} <= set(spec):
        return "", {}, ""
    totals = {"PAPI_TOT_INS": about.get("total_instructions"), "PAPI_TOT_CYC": about.get("total_cycles")}
    known = {metric: float(total) for metric, total in totals.items() if total is not None}
    return (
        f"{spec['interval']:,} {spec['interval_unit']}",
        known,
        "" if spec.get("target") == HOST else json.dumps(spec, sort_keys=True),
    )


def _check_headings(headings: Sequence[str], where: str) -> None:
    """Raise `TraceFileError` for headings without metrics, with numbers, or with a metric given twice."""
    metrics = [name_and_unit(heading)[0] for heading in headings if not is_boundary(heading)]
    twice = sorted({name for name in metrics if metrics.count(name) > 1})
    if twice:
        raise TraceFileError(f"{where}: {', '.join(twice)} named more than once: expected one column a metric")
    if not metrics:
        raise TraceFileError(
            f"{where}: no column holds a metric (got {', '.join(headings) or 'none'}): expected names of metrics"
        )
    if all(re.fullmatch(r"[-+.\deE]+", name) for name in metrics):
        raise TraceFileError(
            f"{where}: got numbers ({', '.join(metrics[:3])}), expected the names of the metrics in the first row"
        )
