"""Columns of a table that have the times of its records: how they are named, read and checked, and the intervals that
they tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.foreign.errors import TraceFileError
from measure.foreign.trace import (
    HAS_SEPARATORS,
    Intervals,
    check_times,
    intervals_of,
    is_measured,
    name_and_unit,
    separators_in_number,
)

_SECONDS = {
    **dict.fromkeys(("s", "sec", "seconds"), 1.0), **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("us", "usec"), 1e-6), **dict.fromkeys(("ns", "nsec"), 1e-9),
}  # fmt: skip
"""Units of time that a heading may have, in seconds."""

_ROW_NUMBERS = "|unnamed: 0|index|record"
_IS_ROW_NUMBERS = re.compile(rf"^({_ROW_NUMBERS})$", re.IGNORECASE)
"""Columns with the number of an interval, or a label of it."""

_BOUNDARY = re.compile(
    rf"^({_ROW_NUMBERS}|seconds|(t|time|elapsed|timestamp|begin|end|start|stop)"
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

_CLOCK = re.compile(
    r"((?P<days>\d+) days? \+?)?(?P<hours>\d{1,3}):(?P<minutes>[0-5]\d):(?P<seconds>[0-5]\d)([.,](?P<fraction>\d+))?"
)
"""A time of the day, or a length of time as pandas writes it."""

_DAY = timedelta(days=1)
_LONGEST_EXAMPLE = 20  # characters of a cell in a message

Time = float | datetime | timedelta


def is_boundary(heading: str) -> bool:
    """Whether a column has the time of an interval instead of a metric."""
    return _BOUNDARY.match(_time_and_unit(heading)[0]) is not None


def _time_and_unit(heading: str) -> tuple[str, str]:
    """As `name_and_unit`, also for a unit of time in parentheses."""
    found = _IN_PARENTHESES.fullmatch(heading.strip())
    return (found["name"], found["unit"].lower()) if found else name_and_unit(heading)


def text_warning(heading: str, cells: Sequence[str]) -> str | None:
    """A sentence on a column whose measured ``cells`` are all text that begins with a letter; None for others."""
    labels = [cell.strip() for cell in cells if is_measured(cell)]
    if not labels or not all(
        label[0].isalpha() and label.lower() not in ("inf", "infinity")  # a number that cannot be used, no label
        for label in labels
    ):
        return None
    return text_column(heading, labels[0])


def text_column(heading: str, example: str) -> str:
    """A sentence on a column of text, such as ``example``."""
    return f"column {heading!r} has text ({example[:_LONGEST_EXAMPLE]!r}), no numbers: it is not compared."


def read_times(
    heading: str, cells: Sequence[str], where: Callable[[int], str], advice: str
) -> tuple[NDArray[Any] | None, tuple[str, ...]]:
    """A column of text as (n,) times, with nan or NaT where unknown, and sentences on it, as of `time_warnings`.

    Numbers are read as such; dates and times (ISO 8601) as datetime64 in UTC; times of the day as timedelta64 since
    midnight before the first one. A column of row numbers that has labels instead has no times: None, and a sentence.
    ``where``: the place of a cell by its number; ``advice``: as of `separators_in_number`. Raises `TraceFileError` for
    other text, for cells of several of these kinds, and for times that go back.
    """
    if _IS_ROW_NUMBERS.match(heading.strip()) and (sentence := text_warning(heading, cells)):
        return None, (sentence,)
    found: list[Time | None] = []
    first: tuple[int, Time] | None = None
    for n, cell in enumerate(cells):
        time = _time(cell.strip(), where(n), advice) if is_measured(cell) else None
        found.append(time)
        if time is None:
            continue
        first = first or (n, time)
        if type(time) is not type(first[1]):
            raise TraceFileError(
                f"{where(n)}: got {cell.strip()!r}, expected a time written as {cells[first[0]].strip()!r} before"
            )
    if first is None or isinstance(first[1], float):
        times = np.array(found, np.float64)
    elif isinstance(first[1], datetime):
        times = np.array(found, "datetime64[us]")
    else:
        times = np.array(_over_midnight(found), "timedelta64[us]")
    return times, time_warnings(heading, times, where)


def _time(cell: str, where: str, advice: str) -> Time:
    """A number, a date and time in UTC, or a time of the day. Raises `TraceFileError` for other text."""
    try:
        value = float(cell)
    except ValueError:
        value = float("nan")
    if np.isfinite(value):
        return value
    if HAS_SEPARATORS.fullmatch(cell):
        raise separators_in_number(where, cell, advice)
    clock = _CLOCK.fullmatch(cell)
    if clock:
        hours, minutes, seconds = (int(clock[name]) for name in ("hours", "minutes", "seconds"))
        return timedelta(
            int(clock["days"] or 0), seconds, hours=hours, minutes=minutes, microseconds=_microseconds(clock)
        )
    try:
        moment = datetime.fromisoformat(cell)
    except ValueError:
        raise TraceFileError(
            f"{where}: got {cell[:60]!r}, expected a number, a date and time such as 2026-11-30 12:00:01.5, or a time "
            "of the day such as 12:00:01.5: write all times so, or leave the column out"
        ) from None
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _microseconds(clock: re.Match[str]) -> float:
    return float(f"0.{clock['fraction'] or 0}") * 1e6


def _over_midnight(times: Sequence[Any]) -> list[timedelta | None]:
    """Times of the day as time since the first midnight: one that falls by over half a day is of the next day."""
    found: list[timedelta | None] = []
    days, before = timedelta(), None
    for time in times:
        if time is not None and before is not None and before < _DAY and before - time > _DAY / 2:
            days += _DAY
        found.append(None if time is None else time + days)
        before = before if time is None else time
    return found


def time_warnings(heading: str, times: Any, where: Callable[[int], str]) -> tuple[str, ...]:
    """Sentences on a column of times. ``times`` and ``where`` as in `check_times`.

    Raises `TraceFileError` for time stamps that go back. A column that goes up and down all the time has the length of
    each record instead, if its name allows, unless its values are those of a clock in another order.
    """
    if _are_lengths(heading, times):
        if _are_unsorted(times):
            fall = int(np.flatnonzero(times[1:] < times[:-1])[0]) + 1
            raise TraceFileError(
                f"{where(fall)}: got times that go up and down, and that are evenly spaced when sorted: the records "
                f"are unsorted, expected them in the order of time. Sort them by {heading!r}, with "
                f"`DataFrame.sort_values({heading!r})`, say"
            )
        return (
            f"column {heading!r} goes up and down: it is taken for the length of each record, and not compared. If it "
            "is a metric, give it another name.",
        )
    check_times(times, where)
    return ()


def _are_lengths(heading: str, times: Any) -> bool:
    """Whether a column of times has the length of each record."""
    known = times[times == times]
    falls = float(np.mean(known[1:] < known[:-1])) if len(known) > 1 else 0.0
    return _MAYBE_LENGTHS.match(heading.strip()) is not None and _OFTEN < falls < 1


def _are_unsorted(times: Any) -> bool:
    """Whether times that go up and down are those of a clock that ticks evenly, in another order."""
    steps = np.diff(np.sort(times[times == times]))
    if steps.dtype.kind == "m":
        steps = steps / np.timedelta64(1, "us")
    usual = float(np.median(steps))
    return usual > 0 and float(np.mean(np.abs(steps - usual) <= _STEADY * usual)) >= _MOSTLY


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
