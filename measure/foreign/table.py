"""Reads tables, CSV and Parquet: one column per metric, one row per interval; time columns are not metrics."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.foreign.trace import (
    LARGEST,
    ForeignTrace,
    TraceFileError,
    check_times,
    is_measured,
    name_and_unit,
    number,
    read_text,
)
from measure.perturbation.wording import counted
from measure.run_types import HOST

_BOUNDARY = re.compile(
    r"^(|unnamed: 0|index|record|(time|timestamp|begin|end|start|stop)"
    r"(_(s|ms|us|ns|sec|msec|usec|nsec|seconds|time|cycles|instructions))?)$",
    re.IGNORECASE,
)
"""Columns with the time of an interval, such as those of this project's traces (``begin_cycles``)."""

_MAYBE_LENGTHS = re.compile(r"time(?!stamp)", re.IGNORECASE)
_OFTEN = 0.25  # of the steps of a column; where runs of 20 records follow one another, one step in 20 goes back

_LONGEST_EXAMPLE = 20  # characters of a cell in a message
_SEPARATORS = (",", ";", "\t", "|")


def is_boundary(heading: str) -> bool:
    """Whether a column has the time of an interval instead of a metric."""
    return _BOUNDARY.match(name_and_unit(heading)[0]) is not None


def time_warnings(heading: str, times: Any, where: Callable[[int], str]) -> tuple[str, ...]:
    """Sentences on a column of times. ``times`` and ``where`` as in `check_times`.

    Raises `TraceFileError` for time stamps that go back. A column that goes up and down all the time has the length of
    each record instead, if its name allows.
    """
    known = times[times == times]
    falls = float(np.mean(known[1:] < known[:-1])) if len(known) > 1 else 0.0
    if _MAYBE_LENGTHS.match(heading.strip()) and _OFTEN < falls < 1:
        return (f"column {heading!r} goes up and down: it is taken for the length of each record, and not compared.",)
    check_times(times, where)
    return ()


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
    lines = [
        (at, line)
        for at, line in enumerate(read_text(path).splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise TraceFileError(f"{path}: empty: expected a first row with the names of the metrics")
    first, top = lines[0]
    separator = max(_SEPARATORS, key=top.count)
    headings = [cell.strip() for cell in next(csv.reader([top], delimiter=separator))]
    _check_headings(headings, f"{path}:{first}")
    cells_of_lines = []
    for at, line in lines[1:]:
        cells = next(csv.reader([line], delimiter=separator))
        if len(cells) != len(headings):
            raise TraceFileError(
                f"{path}:{at}: got {counted(len(cells), 'column')}, expected {len(headings)} as in line {first}; is "
                "the file whole?"
            )
        cells_of_lines.append((at, cells))
    kept: list[int] = []
    warnings: list[str] = []
    for n, heading in enumerate(headings):
        if is_boundary(heading):
            times = np.array([_time(cells[n]) for _, cells in cells_of_lines])
            places = [f"{path}:{at}: column {heading!r}" for at, _ in cells_of_lines]
            warnings.extend(time_warnings(heading, times, places.__getitem__))
            continue
        labels = [cell for _, cells in cells_of_lines if is_measured(cell := cells[n])]
        if labels and all(label.strip()[0].isalpha() and not _is_infinite(label) for label in labels):
            warnings.append(_text_column(heading, labels[0].strip()))
        else:
            kept.append(n)
    rows = [[number(cells[n], path, at, f"column {headings[n]!r}") for n in kept] for at, cells in cells_of_lines]
    named = [name_and_unit(headings[n]) for n in kept]
    values = np.array(rows, np.float64).reshape(len(rows), len(named))
    units = {name: unit for name, unit in named if unit}
    return ForeignTrace(path, "csv", tuple(name for name, _ in named), values, units, warnings=tuple(warnings))


def _time(cell: str) -> float:
    """A number, or a date and time in seconds; nan for other text, such as a time of the day, which begins anew."""
    try:
        return float(cell)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(cell.strip())
    except ValueError:
        return float("nan")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _is_infinite(cell: str) -> bool:
    """Whether a cell is a word for infinity: a number that cannot be used, no label."""
    return cell.strip().lower() in ("inf", "infinity")


def _text_column(heading: str, example: str) -> str:
    return f"column {heading!r} has text ({example[:_LONGEST_EXAMPLE]!r}), no numbers: it is not compared."


def read_parquet(path: Path) -> ForeignTrace:
    """Read a Parquet table, such as a trace of `measure run`. Raises `TraceFileError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def is_number(kind: Any) -> bool:
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))

    try:
        table = pq.read_table(path, page_checksum_verification=True)
    except (OSError, pa.ArrowInvalid) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TraceFileError(f"{path} is not a whole Parquet file: {reason}") from None
    _check_headings(table.column_names, str(path))
    chosen: list[str] = []
    warnings: list[str] = []
    for heading in table.column_names:
        kind = table.schema.field(heading).type
        if is_boundary(heading):
            if is_number(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_duration(kind):
                times = table.column(heading).to_numpy()
                warnings.extend(time_warnings(heading, times, row_of(f"{path}: column {heading!r}")))
            continue
        if pa.types.is_temporal(kind):
            continue
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
            labels = table.column(heading).drop_null()
            warnings.append(_text_column(heading, str(labels[0].as_py()) if len(labels) else ""))
            continue
        chosen.append(heading)
        if not (is_number(kind) or pa.types.is_boolean(kind)):
            raise TraceFileError(f"{path}: column {heading!r}: got values of type {kind}, expected numbers")
    columns = [table.column(heading).cast("float64", safe=False).to_numpy() for heading in chosen]
    for heading, column in zip(chosen, columns, strict=True):
        check_magnitude(column, row_of(f"{path}: column {heading!r}"))
    named = [name_and_unit(heading) for heading in chosen]
    units = {name: unit for name, unit in named if unit}
    values = np.column_stack(columns) if columns else np.empty((table.num_rows, 0))
    interval, totals, emulated_run = _about_run(table.schema)
    return ForeignTrace(
        path, "parquet", tuple(name for name, _ in named), values, units, interval=interval, totals=totals,
        warnings=tuple(warnings), emulated_run=emulated_run,
    )  # fmt: skip


def _about_run(schema: Any) -> tuple[str, dict[str, float], str]:
    """The interval in words, totals of the run, and the specification of an emulated run as text, as far as a trace of
    this project has them in its metadata."""
    about = json.loads((schema.metadata or {}).get(b"perturbation", b"{}"))
    spec = about.get("spec", {})
    if not {"interval", "interval_unit"} <= set(spec):
        return "one interval", {}, ""
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
