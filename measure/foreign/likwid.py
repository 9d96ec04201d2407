"""Reads LIKWID's timeline, the output of ``likwid-perfctr -t 100ms``.

``# GID|MetricsCount|CpuCount|Total runtime [s]|name|...`` (``EventCount`` for raw events), then lines of numbers:
group, number of metrics, number of hardware threads, seconds since the beginning, and for each metric the value of
each thread. Events of several threads are added up; of derived metrics (rates, CPI) the mean is taken.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from measure.foreign.content import read_text
from measure.foreign.errors import TraceFileError
from measure.foreign.trace import ForeignTrace, check_times, intervals_of, name_and_unit, number

HEADER = re.compile(r"^#?\s*GID\s*[|,]\s*(?P<kind>Metrics|Event)s?Count\s*[|,]\s*CpuCount\s*[|,]", re.IGNORECASE)
_LINE = re.compile(r"^\s*\d+[\s,|]+\d+[\s,|]+\d+[\s,|]+\d+(\.\d*)?(e[-+]?\d+)?[\s,|]", re.IGNORECASE)
_TEMPERATURE = "TEMP_"  # the only events of LIKWID that may be negative
_FIXED = 4  # columns before the metrics


def looks_like_values(line: str) -> bool:
    """Whether a line is one of a timeline's values: as many as it says that it has metrics and hardware threads.

    Only by blanks, as likwid-perfctr separates them: with commas it may be a row of any table."""
    fields = line.split()
    return (
        _LINE.match(line) is not None
        and all(field.isdigit() for field in fields[1:3])
        and len(fields) == _FIXED + int(fields[1]) * int(fields[2])
    )


def read_likwid(path: Path) -> ForeignTrace:
    """Read one timeline of one group of events; other lines, such as the program's output, are skipped.

    Raises `TraceFileError` without a header, for lines of different lengths, and for several groups in turns (whose
    intervals differ).
    """
    names: list[str] = []
    events = True
    group, threads = "", 1
    times: list[float] = []
    places: list[int] = []  # lines of the times
    rows: list[list[float]] = []
    without_header = 0  # the first line of values before any header
    for at, line in enumerate(read_text(path).splitlines(), 1):
        header = HEADER.match(line)
        if header:
            headings = [text.strip() for text in re.split(r"[|,]", line.lstrip("# "))][_FIXED:]
            if names and headings != names:
                raise TraceFileError(
                    f"{path}:{at}: got a second group of events, expected one: groups that take turns count "
                    "different intervals; measure each in runs of its own"
                )
            names, events = headings, header["kind"].lower() == "event"
            continue
        if not names or not _LINE.match(line):
            if not names and not without_header and looks_like_values(line):
                without_header = at
            continue
        fields = [text for text in re.split(r"[\s,|]+", line.strip()) if text]
        metrics, threads = int(fields[1]), int(fields[2])
        if metrics != len(names) or threads < 1 or len(fields) != _FIXED + metrics * threads:
            raise TraceFileError(
                f"{path}:{at}: got {metrics} metrics, {threads} hardware threads and {len(fields) - _FIXED} values, "
                f"expected {len(names)} metrics as the header says and a value for each thread; is the line whole?"
            )
        if group not in ("", fields[0]):
            raise TraceFileError(f"{path}:{at}: got group {fields[0]}, expected {group} as before: give it a file")
        group = fields[0]
        places.append(at)
        times.append(number(fields[3], path, at, "time"))
        row = [number(text, path, at, names[n // threads]) for n, text in enumerate(fields[_FIXED:])]
        for n, value in enumerate(row):
            name = names[n // threads]
            if events and value < 0 and not name.startswith(_TEMPERATURE):
                raise TraceFileError(
                    f"{path}:{at}: {name}: got {value:g}, expected 0 or more, since it counts events; was the file "
                    "edited, or is it damaged?"
                )
        if rows and len(row) != len(rows[0]):
            raise TraceFileError(
                f"{path}:{at}: got {threads} hardware threads, expected {len(rows[0]) // metrics} as before"
            )
        rows.append(row)
    check_times(np.array(times), lambda n: f"{path}:{places[n]}")
    if without_header and not names:
        raise TraceFileError(
            f"{path}:{without_header}: got a line of LIKWID's timeline without a header, expected before it the line "
            "that likwid-perfctr writes, `# GID|EventCount|CpuCount|Total runtime [s]|...` with the names of the "
            "events (MetricsCount for derived metrics): add it"
        )
    if names and not rows:
        raise TraceFileError(
            f"{path}: got a header of LIKWID's timeline without lines of values below it, expected one for each "
            "interval: did the program end before the first one? Choose a shorter `-t`"
        )
    if not rows:
        raise TraceFileError(
            f"{path}: no timeline: expected `# GID|MetricsCount|CpuCount|Total runtime [s]|...` and lines of numbers, "
            "as `likwid-perfctr -t 100ms` writes them"
        )
    table = np.array(rows, np.float64).reshape(len(rows), len(names), threads)
    named = [name_and_unit(name) for name in names]
    twice = sorted({name for name, _ in named if [other for other, _ in named].count(name) > 1})
    if twice:
        raise TraceFileError(f"{path}: {', '.join(twice)} named more than once in the header")
    how = "added up" if events else "their mean is taken, for derived metrics cannot be added"
    values = table.sum(axis=2) if events else table.mean(axis=2)
    chosen = tuple(name for name, _ in named)
    intervals = intervals_of(np.diff([0.0, *times]))
    totals = dict(zip(chosen, values.sum(axis=0).tolist(), strict=True))
    warnings = (f"the values of {threads} hardware threads: {how}.",) if threads > 1 else ()
    return ForeignTrace(
        path, "likwid", chosen, values[:intervals.whole], {name: unit for name, unit in named if unit},
        interval=intervals.in_words, interval_length=intervals.length, totals=totals,
        warnings=warnings + intervals.warnings,
    )  # fmt: skip
