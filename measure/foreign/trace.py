"""A trace of another tool: events per interval, and how they were counted, as far as its file says.

The readers of the formats make it, the comparison uses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.foreign.content import command_on
from measure.foreign.errors import TraceFileError

NOT_A_COUNT = ("<not counted>", "<not supported>")
"""Text of `perf stat` in place of a count: nothing was measured, which differs from zero."""

_MISSING = ("", "nan", "-", "null", "none", "na", "n/a", *NOT_A_COUNT)

LARGEST = 1e100
"""Largest magnitude of a value: none that is measured comes near, and squares and sums of such values are finite."""

HAS_SEPARATORS = re.compile(r"[-+]?(\d+(,\d+)+(\.\d+)?|\d+(\.\d+)+,\d+|\d+(\.\d+){2,})(e[-+]?\d+)?", re.IGNORECASE)
"""A number as some locales write it: with a decimal comma, or with commas or several points between thousands."""

_WHOLE = 0.9
"""A last interval shorter than this fraction of the usual length is not whole."""


@dataclass(frozen=True)
class ForeignTrace:
    """One run.

    ``metrics``: (m,) names; ``values``: (n, m) events per interval, nan where nothing was measured;
    ``units``: metric to unit, for metrics with a unit; ``multiplexed``: metric to the smallest fraction of the time [%]
    during which it was really counted, for metrics that were not always counted; ``interval``: a record's length in
    words; ``interval_length``: its usual length, nan if unknown, in ``interval_unit``: "s", or the name of a column
    whose unit is unknown; ``totals``: events of the whole run, if the file has more than whole intervals; ``warnings``:
    sentences about this file, without its name; ``emulated_run``: the specification of a run of this project's
    emulated machine, as text, empty for other traces.
    """

    path: Path
    format: str
    metrics: tuple[str, ...]
    values: NDArray[np.float64]
    units: dict[str, str] = field(default_factory=dict)
    multiplexed: dict[str, float] = field(default_factory=dict)
    interval: str = "one interval"
    interval_length: float = float("nan")
    interval_unit: str = "s"
    totals: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    emulated_run: str = ""

    @property
    def n_records(self) -> int:
        return len(self.values)

    def columns(self, metrics: Sequence[str]) -> NDArray[np.float64]:
        """The columns of ``metrics``, (n, k)."""
        return self.values[:, [self.metrics.index(metric) for metric in metrics]]


def check_times(times: Any, where: Callable[[int], str]) -> None:
    """Raise `TraceFileError` for time stamps that go back.

    ``times``: (n,) numbers or numpy's times, with nan or NaT where unknown; ``where``: the place of a record, by its
    number from 0, for the message.
    """
    known = np.flatnonzero(times == times)  # nan and NaT differ from themselves
    falls = np.flatnonzero(times[known[1:]] < times[known[:-1]])
    if len(falls):
        before, after = known[falls[0] : falls[0] + 2].tolist()
        raise time_went_back(_shown(times[after]), _shown(times[before]), where(after))


def names_of_files(traces: Sequence[ForeignTrace]) -> dict[Path, str]:
    """Path to a name by which messages tell the traces apart: the file's, with as many directories before it as files
    of the same name need."""
    same: dict[str, list[Path]] = {}
    for path in dict.fromkeys(trace.path for trace in traces):
        same.setdefault(path.name, []).append(path)
    names: dict[Path, str] = {}
    for paths in same.values():
        tails = [
            [str(Path(*path.parts[-n:])) for path in paths] for n in range(1, max(len(p.parts) for p in paths) + 1)
        ]
        names |= zip(paths, next((tail for tail in tails if len(set(tail)) == len(paths)), tails[-1]), strict=True)
    return names


def _shown(time: Any) -> object:
    """A time as it is written: lengths of time as those of a clock."""
    return time.astype("timedelta64[us]").item() if isinstance(time, np.timedelta64) else time


def time_went_back(time: object, before: object, where: str) -> TraceFileError:
    """The error for a time stamp that is less than the one ``before``, as where several runs are in one trace."""
    return TraceFileError(
        f"{where}: got time {time}, expected at least {before} as before: are several runs in this trace, or its "
        "records in another order? Give each run a trace of its own, in the order of time"
    )


def is_measured(text: str) -> bool:
    """Whether ``text`` stands for a value, and not for one that was not measured."""
    return text.strip().lower() not in _MISSING


def number(text: str, path: Path, line: int, what: str) -> float:
    """``text`` as a number, nan if it stands for a value that was not measured.

    Raises `TraceFileError` for other text, infinities and values beyond `LARGEST`, naming file, line and ``what``.
    """
    stripped = text.strip()
    if not is_measured(stripped):
        return float("nan")
    try:
        value = float(stripped)
    except ValueError:
        value = float("inf")
    if HAS_SEPARATORS.fullmatch(stripped):
        raise separators_in_number(f"{path}:{line}: {what}", stripped, decimal_comma_advice(path))
    if np.isinf(value):
        raise TraceFileError(f"{path}:{line}: {what}: got {stripped!r}, expected a number")
    if abs(value) > LARGEST:
        raise TraceFileError(f"{path}:{line}: {what}: got {stripped}, expected a number of at most {LARGEST:g}")
    return value


def separators_in_number(where: str, text: str, advice: str) -> TraceFileError:
    """The error for a number with a decimal comma or with separators of thousands. ``advice``: what to do about decimal
    commas."""
    return TraceFileError(
        f"{where}: got {text!r}, expected a number with a decimal point, without separators of thousands: {advice}"
    )


def decimal_comma_advice(path: Path) -> str:
    """What to do about decimal commas in the text file ``path``."""
    return (
        "export the table so; where fields are separated by semicolons or tabs and commas are decimal commas, "
        f"`{command_on(path, 'tr , .')}` does it"
    )


_EVEN = 0.25
"""Whole intervals that differ by up to this fraction from the usual length count as of one length."""

LAST_LEFT_OUT = "the last interval, which ended with the program, is not whole and left out."


def seconds_text(seconds: float) -> str:
    """A length of time in words: ``"20 ms"``."""
    if not seconds > 0:
        return "one interval"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= factor:
            shown = seconds / factor
            return f"{shown:.0f} {unit}" if shown >= 10 else f"{shown:.2g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


@dataclass(frozen=True)
class Intervals:
    """The intervals of a trace.

    ``whole``: number of records without a last one that is not whole; ``length``: usual length, nan if unknown, in
    ``unit``, as in `ForeignTrace`; ``warnings``: sentences on intervals that are not whole or not of one length.
    """

    whole: int
    length: float = float("nan")
    unit: str = "s"
    warnings: tuple[str, ...] = ()

    @property
    def in_words(self) -> str:
        """The usual length: ``"20 ms"``."""
        known = self.length > 0 and self.unit != "s"
        return f"{self.length:.4g} by {self.unit}" if known else seconds_text(self.length)


def intervals_of(steps: NDArray[np.float64], unit: str = "s") -> Intervals:
    """What the lengths of intervals tell that a timer has made. ``steps``: (n,) lengths in ``unit``, nan where unknown.

    The last interval ends with the program and may be shorter. Then it has less of every event, so that it would
    correlate all metrics, and is not whole.
    """
    known = steps[~np.isnan(steps)]
    usual = float(np.median(known)) if len(known) else 0.0
    if not usual > 0:
        return Intervals(len(steps))
    is_cut = len(known) > 2 and bool(steps[-1] < _WHOLE * usual)
    whole = len(steps) - int(is_cut)
    warnings: tuple[str, ...] = (LAST_LEFT_OUT,) if is_cut else ()
    if (np.abs(steps[:whole] / usual - 1) > _EVEN).any():
        warnings += (
            f"some intervals are over {_EVEN:.0%} longer or shorter than the others: they have more or less of every "
            "event, which correlates all metrics.",
        )
    return Intervals(whole, usual, unit, warnings)


_UNIT = re.compile(r"^(?P<name>.*\S)\s*\[(?P<unit>[^\]]+)\]$")


def name_and_unit(heading: str) -> tuple[str, str]:
    """``"power [W]"`` as ``("power", "W")``; without brackets the unit is empty."""
    found = _UNIT.match(heading.strip())
    return (found["name"], found["unit"]) if found else (heading.strip(), "")
