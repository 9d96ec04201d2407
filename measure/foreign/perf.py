"""Reads `perf stat -I MS -x SEP` and `perf stat -I MS -j`, the CSV and JSON formats of perf-stat(1).

Counts of one interval that are separate by CPU, core, socket or thread (`-A`, `--per-socket`) are added up; control
groups stay separate. Of an event that is counted several times in an interval, as in two groups of events, the first
count is taken, and a warning says so. Derived metrics ("insn per cycle") and final summaries are left out, since they
are not events per interval.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from measure.foreign.content import read_text
from measure.foreign.errors import TraceFileError
from measure.foreign.trace import HAS_SEPARATORS, NOT_A_COUNT, ForeignTrace, intervals_of, number, time_went_back

ALWAYS_COUNTED_PERCENT = 99.995  # perf prints two decimals

_TIME = re.compile(r"^\s*\d+\.\d{6,}$")
_RUN_TIME = re.compile(r"^\d+$")
_NO_NUMBER = re.compile(r":\s*-?(nan|inf)\b")  # perf writes C's nan for a derived metric without a value
_PERCENT = re.compile(r"^\d{1,3}\.\d\d$")
_PERCENT_WITH_COMMA = re.compile(r"(?P<separator>[^\w.])\d+(?P=separator)\d{1,3},\d\d((?P=separator)|$)")
_TIME_WITH_COMMA = re.compile(r"^\s*\d+,\d{6,}(?P<separator>[^\w.]).*[A-Za-z]")
_WITHOUT_TIME = re.compile(
    r"^\s*(\d+([.,]\d+)?|<not \w+>)(?P<separator>[^\w.])\w*(?P=separator)[A-Za-z].*(?P=separator)\d+(?P=separator)"
    r"\d{1,3}[.,]\d\d((?P=separator)|$)"
)
_JSON_NUMBER_WITH_COMMA = re.compile(r":\s*-?\d+,\d+\s*[,}]")
_COUNTED_BY = ("cpu", "core", "cluster", "cache", "die", "socket", "node", "thread")
"""Members of perf's objects that say what has counted (`-A`, `--per-core`, `--per-thread`)."""


@dataclass
class _Counts:
    """Counts read so far: (time, event) to its counts by the CPU, core, socket or thread, empty for all together.

    ``repeated``: event to the first line that counts it once more.
    """

    path: Path
    format: str
    counts: dict[tuple[float, str], dict[str, float]] = field(default_factory=dict)
    times: dict[float, None] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    repeated: dict[str, int] = field(default_factory=dict)

    def add(self, line: int, time: float, event: str, text: str, unit: str, percent: float, counted_by: str) -> None:
        """Add a count of ``event``; ``percent``: of the time that it was counted; ``counted_by``: the CPU, core, socket
        or thread. Raises `TraceFileError`."""
        if HAS_SEPARATORS.fullmatch(text.strip()):
            raise _decimal_commas(self.path, line, text)
        value = number(text, self.path, line, f"count of {event}")
        if value < 0:
            raise TraceFileError(
                f"{self.path}:{line}: count of {event}: got {text.strip()}, expected 0 or more: perf writes no "
                "negative counts; was the file edited, or is it damaged?"
            )
        if self.times and time < (before := next(reversed(self.times))):
            raise time_went_back(time, before, f"{self.path}:{line}")
        if self.units.setdefault(event, unit) != unit:
            raise TraceFileError(
                f"{self.path}:{line}: {event} got unit {unit!r}, expected {self.units[event]!r} as before"
            )
        self.times[time] = None
        counts = self.counts.setdefault((time, event), {})
        if counted_by in counts:
            self.repeated.setdefault(event, line)
            if not np.isnan(counts[counted_by]):
                return
        counts[counted_by] = value
        if text.strip() in NOT_A_COUNT:
            self.unmeasured.setdefault(event, text.strip())
        elif percent < ALWAYS_COUNTED_PERCENT:
            self.running[event] = min(percent, self.running.get(event, percent))

    def trace(self) -> ForeignTrace:
        """The trace of all counts. Raises `TraceFileError` without any."""
        if not self.counts:
            raise TraceFileError(
                f"{self.path}: no counts with a time: expected the output of `perf stat -I MILLISECONDS` with "
                f"{'-j' if self.format == 'perf-json' else '-x SEPARATOR'}, without --metric-only"
            )
        metrics = tuple(dict.fromkeys(event for _, event in self.counts))
        times = tuple(self.times)
        # nan stays nan in a sum: a sum over CPUs is unknown if one of them was not counted.
        sums = {key: sum(counts.values()) for key, counts in self.counts.items()}
        missing = float("nan")
        values = np.array([[sums.get((time, m), missing) for m in metrics] for time in times], np.float64)
        never = [m for n, m in enumerate(metrics) if np.isnan(values[:, n]).all()]
        warnings = tuple(f"{m} is {self.unmeasured.get(m, 'not there')} in every interval." for m in never)
        warnings += tuple(
            f"{event} is counted more than once in an interval (line {line}), as where it is in two groups of events: "
            "its first count is taken."
            for event, line in self.repeated.items()
        )
        intervals = intervals_of(np.diff([0.0, *times]))
        units = {event: unit for event, unit in self.units.items() if unit}
        totals = dict(zip(metrics, values.sum(axis=0).tolist(), strict=True))
        return ForeignTrace(
            self.path, self.format, metrics, values[:intervals.whole], units, self.running, intervals.in_words,
            intervals.length, totals=totals, warnings=warnings + intervals.warnings,
        )  # fmt: skip


def _decimal_commas(path: Path, line: int, text: str) -> TraceFileError:
    return TraceFileError(
        f"{path}:{line}: got {text.strip()[:80]!r}, with decimal commas, expected decimal points: perf writes numbers "
        "by the locale; record again with `LC_ALL=C perf stat ...`"
    )


def looks_like_perf_csv(line: str) -> str | None:
    """The separator if ``line`` is a line of `perf stat -I -x`, of any locale, otherwise None."""
    found = re.match(r"^\s*\d+\.\d{6,}(?P<separator>\D)", line)
    if found is None and _PERCENT_WITH_COMMA.search(line):
        found = _TIME_WITH_COMMA.match(line)
    if found is None or found["separator"] == " ":
        return None
    separator = found["separator"]
    return separator if len(line.split(separator)) >= 4 else None


def is_without_intervals(line: str) -> bool:
    """Whether ``line`` is a line of `perf stat -x`, of any locale, without `-I`: a count without a time."""
    return _WITHOUT_TIME.match(line) is not None


def read_perf_csv(path: Path) -> ForeignTrace:
    """Read the output of `perf stat -I MS -x SEP`, for any separator of one character. Raises `TraceFileError`."""
    read = _Counts(path, "perf-csv")
    separator = None
    for at, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.lstrip().startswith("summary"):
            continue
        separator = separator or looks_like_perf_csv(line)
        if separator is None:
            raise TraceFileError(
                f"{path}:{at}: got {line.strip()[:60]!r}, expected a time stamp first, as of `perf stat -I MS -x SEP`"
            )
        fields = _joined(line.split(separator), separator)
        if _TIME_WITH_COMMA.match(line):
            raise _decimal_commas(path, at, line)
        if not _TIME.match(fields[0]):
            raise TraceFileError(f"{path}:{at}: got {fields[0].strip()!r}, expected a time in seconds")
        _add_line(read, at, float(fields[0]), [text.strip() for text in fields[1:]], separator)
    return read.trace()


def _joined(fields: list[str], separator: str) -> list[str]:
    """Join events such as ``cpu/event=0x3,umask=1/`` that a comma separator has cut: perf does not quote them."""
    whole: list[str] = []
    for text in fields:
        if whole and whole[-1].count("/") == 1 and re.match(r"^[\w.]+/", whole[-1]):
            whole[-1] += separator + text
        else:
            whole.append(text)
    return whole


def _add_line(read: _Counts, at: int, time: float, fields: list[str], separator: str) -> None:
    """Parse a line without its time: [where [, CPUs]], count, unit, event [, control group], run time, percent, ..."""
    end = next(
        (n for n in range(3, len(fields) - 1) if _RUN_TIME.match(fields[n]) and _PERCENT.match(fields[n + 1])),
        None,
    )
    if end is None:
        if not any(fields[:4]):
            return  # a further derived metric of the event above: all earlier fields are empty
        if _PERCENT_WITH_COMMA.search(separator.join(fields)):
            raise _decimal_commas(read.path, at, separator.join(fields))
        raise TraceFileError(
            f"{read.path}:{at}: got {separator.join(fields)[:80]!r}, expected count, unit, event, run time and "
            "percentage of time counted; is the line whole?"
        )
    begin = next((n for n in (0, 1, 2) if n <= end - 3 and _is_count_before_unit(fields, n)), None)
    if begin is None:
        raise TraceFileError(f"{read.path}:{at}: got {fields[0]!r}, expected a count or {' or '.join(NOT_A_COUNT)}")
    text, unit, event = fields[begin : begin + 3]
    group = fields[begin + 3 : end]
    if not event:
        raise TraceFileError(f"{read.path}:{at}: a count without the name of its event")
    read.add(at, time, " ".join([event, *group]), text, unit, float(fields[end + 1]), separator.join(fields[:begin]))


def _is_count_before_unit(fields: list[str], n: int) -> bool:
    """Whether field ``n`` is the count: a number (like the number of CPUs before it), followed by unit and event."""
    if not (fields[n] in NOT_A_COUNT or re.fullmatch(r"-?\d+(\.\d+)?", fields[n])):
        return False
    followed = fields[n + 1]
    return not (followed in NOT_A_COUNT or re.fullmatch(r"-?\d+(\.\d+)?", followed))


def read_perf_json(path: Path) -> ForeignTrace:
    """Read the output of `perf stat -I MS -j`: one object per line. Raises `TraceFileError`."""
    read = _Counts(path, "perf-json")
    for at, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            row = json.loads(_NO_NUMBER.sub(": null", line))
        except json.JSONDecodeError as error:
            if _JSON_NUMBER_WITH_COMMA.search(line):
                raise _decimal_commas(path, at, line) from None
            raise TraceFileError(
                f"{path}:{at}: got {line.strip()[:60]!r}, expected one JSON object ({error.msg}); is the line whole?"
            ) from None
        if not isinstance(row, dict):
            raise TraceFileError(f"{path}:{at}: got {line.strip()[:60]!r}, expected an object")
        if "counter-value" not in row or "interval" not in row:
            continue  # a derived metric alone, or the final summary
        try:
            time, event = float(row["interval"]), str(row["event"])
            percent = float(row.get("pcnt-running", 100.0))
        except (KeyError, TypeError, ValueError) as error:
            raise TraceFileError(
                f"{path}:{at}: expected `interval` and `pcnt-running` as numbers and `event` ({error})"
            ) from None
        group = str(row.get("cgroup") or "")
        name = f"{event} {group}" if group else event
        counted_by = ";".join(str(row.get(key, "")) for key in _COUNTED_BY)
        read.add(at, time, name, str(row["counter-value"]), str(row.get("unit", "")), percent, counted_by)
    return read.trace()
