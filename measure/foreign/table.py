"""Reads tables, CSV and Parquet: one column per metric, one row per interval; time columns are not metrics."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.foreign.trace import (
    LARGEST,
    ForeignTrace,
    Intervals,
    TraceFileError,
    check_times,
    intervals_of,
    is_measured,
    name_and_unit,
    number,
    read_text,
)
from measure.perturbation.wording import counted
from measure.run_types import HOST

_SECONDS = {
    **dict.fromkeys(("s", "sec", "seconds"), 1.0), **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("us", "usec"), 1e-6), **dict.fromkeys(("ns", "nsec"), 1e-9),
}  # fmt: skip
"""Units of time that a heading may have, in seconds."""

_BOUNDARY = re.compile(
    r"^(|unnamed: 0|index|record|seconds|(t|time|elapsed|timestamp|begin|end|start|stop)"
    rf"(_({'|'.join(_SECONDS)}|time|cycles|instructions))?)$",
    re.IGNORECASE,
)
"""Columns with the time of an interval, such as those of this project's traces (``begin_cycles``) and frames
(``seconds``)."""

_IN_PARENTHESES = re.compile(rf"(?P<name>.*\S) *\((?P<unit>{'|'.join(_SECONDS)})\)", re.IGNORECASE)
"""A heading with a unit of time as other tools write it."""

_MAYBE_LENGTHS = re.compile(r"time(?!stamp)|seconds|elapsed|t\b|t_", re.IGNORECASE)
_OFTEN = 0.25  # of the steps of a column; where runs of 20 records follow one another, one step in 20 goes back

_MOSTLY = 0.75
_STEADY = 0.1
"""A timer has made the intervals if this share of their lengths differs by at most this fraction from the usual one.
Otherwise they may have equal numbers of instructions, and no common length."""

_LONGEST_EXAMPLE = 20  # characters of a cell in a message
_SEPARATORS = (",", ";", "\t", "|")


def is_boundary(heading: str) -> bool:
    """Whether a column has the time of an interval instead of a metric."""
    return _BOUNDARY.match(_time_and_unit(heading)[0]) is not None


def _time_and_unit(heading: str) -> tuple[str, str]:
    """As `name_and_unit`, also for a unit of time in parentheses."""
    found = _IN_PARENTHESES.fullmatch(heading.strip())
    return (found["name"], found["unit"].lower()) if found else name_and_unit(heading)


def time_warnings(heading: str, times: Any, where: Callable[[int], str]) -> tuple[str, ...]:
    """Sentences on a column of times. ``times`` and ``where`` as in `check_times`.

    Raises `TraceFileError` for time stamps that go back. A column that goes up and down all the time has the length of
    each record instead, if its name allows.
    """
    if _are_lengths(heading, times):
        return (f"column {heading!r} goes up and down: it is taken for the length of each record, and not compared.",)
    check_times(times, where)
    return ()


def _are_lengths(heading: str, times: Any) -> bool:
    """Whether a column of times has the length of each record."""
    known = times[times == times]
    falls = float(np.mean(known[1:] < known[:-1])) if len(known) > 1 else 0.0
    return _MAYBE_LENGTHS.match(heading.strip()) is not None and _OFTEN < falls < 1


def intervals_by(times: Mapping[str, Any], n_records: int) -> Intervals:
    """The intervals of a table by its clock, a column with a date or unit of time if there is one.

    ``times``: (n_records,) numbers or numpy's times by heading, as in `check_times`.
    """
    clocks = {heading: unit for heading in times if (unit := _clock_unit(heading, times[heading]))}
    if not clocks:
        return Intervals(n_records)

    def suits(heading: str) -> tuple[bool, bool]:
        return heading.lower().startswith(("begin", "start")), clocks[heading] not in _SECONDS

    heading = min(clocks, key=suits)
    unit, column = clocks[heading], times[heading]
    steps = column if _are_lengths(heading, column) else np.diff(column)
    if column.dtype.kind in "mM":
        steps = steps / np.timedelta64(1, "s")
    lengths = np.append(np.full(n_records - len(steps), np.nan), steps * _SECONDS.get(unit, 1.0))
    known = lengths[~np.isnan(lengths)]
    if not len(known):
        return Intervals(n_records)
    usual = np.median(known)
    if np.mean(np.abs(known - usual) <= _STEADY * usual) < _MOSTLY:
        return Intervals(n_records)
    return intervals_of(lengths, "s" if unit in _SECONDS else unit)


def _clock_unit(heading: str, times: Any) -> str:
    """The unit of a column that has the time of a clock: a key of `_SECONDS`, or the column in words; else empty."""
    name, unit = _time_and_unit(heading)
    if times.dtype.kind in "mM":
        return "s"
    for one in (unit, name.lower().rpartition("_")[2]):
        if one in _SECONDS:
            return one
    return f"column {heading!r}" if "time" in name.lower() else ""


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
    times: dict[str, NDArray[Any]] = {}
    for n, heading in enumerate(headings):
        if is_boundary(heading):
            times[heading] = _times([cells[n] for _, cells in cells_of_lines])
            places = [f"{path}:{at}: column {heading!r}" for at, _ in cells_of_lines]
            warnings.extend(time_warnings(heading, times[heading], places.__getitem__))
            continue
        labels = [cell for _, cells in cells_of_lines if is_measured(cell := cells[n])]
        if labels and all(label.strip()[0].isalpha() and not _is_infinite(label) for label in labels):
            warnings.append(_text_column(heading, labels[0].strip()))
        else:
            kept.append(n)
    rows = [[number(cells[n], path, at, f"column {headings[n]!r}") for n in kept] for at, cells in cells_of_lines]
    named = [name_and_unit(headings[n]) for n in kept]
    values = np.array(rows, np.float64).reshape(len(rows), len(named))
    return table_trace(path, "csv", named, values, times, warnings)


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
    columns.
    """
    intervals = intervals_by(times, len(values))
    metrics = tuple(name for name, _ in named)
    return ForeignTrace(
        path, format, metrics, values[:intervals.whole], {name: unit for name, unit in named if unit},
        interval=intervals.in_words, interval_length=intervals.length, interval_unit=intervals.unit,
        totals=dict(zip(metrics, values.sum(axis=0).tolist(), strict=True)),
        warnings=(*warnings, *intervals.warnings),
    )  # fmt: skip


def _times(cells: Sequence[str]) -> NDArray[Any]:
    """A column of dates if it has some, otherwise of numbers; NaT or nan for other text, such as a time of the day,
    which begins anew."""
    found = [_time(cell) for cell in cells]
    if any(isinstance(time, datetime) for time in found):
        return np.array([time if isinstance(time, datetime) else None for time in found], "datetime64[us]")
    return np.array(found, np.float64)


def _time(cell: str) -> float | datetime | None:
    """A number, or a date and time in UTC; None for other text."""
    try:
        return float(cell)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(cell.strip())
    except ValueError:
        return None
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


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
    indices = _index_columns(table.schema)
    _check_headings([heading for heading in table.column_names if heading not in indices], str(path))
    chosen: list[str] = []
    warnings: list[str] = []
    times: dict[str, NDArray[Any]] = {}
    for heading in table.column_names:
        kind = table.schema.field(heading).type
        is_moment = pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_duration(kind)
        if is_boundary(heading) or (heading in indices and is_moment):
            if is_number(kind) or is_moment:
                times[heading] = table.column(heading).to_numpy()
                warnings.extend(time_warnings(heading, times[heading], row_of(f"{path}: column {heading!r}")))
            continue
        if heading in indices or pa.types.is_temporal(kind):
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
    values = np.column_stack(columns) if columns else np.empty((table.num_rows, 0))
    trace = table_trace(path, "parquet", named, values, times, warnings)
    interval, totals, emulated_run = _about_run(table.schema)
    return replace(trace, interval=interval or trace.interval, totals=trace.totals | totals, emulated_run=emulated_run)


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
