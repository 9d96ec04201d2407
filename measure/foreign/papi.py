"""Reads the JSON of PAPI's high-level API, which PAPI_hl_region_begin/read/end leave in ``papi_hl_output`` (PAPI 6, 7).

A record is one execution of a region, or the part of it between two `PAPI_hl_read` calls (PAPI stores counts from the
beginning of the region, so differences are taken). Events of an inner region are also in the counts of the outer one.
So records come from one level of nesting, the one with the most records; the others are left out with a warning.
Threads, and the files of several ranks, are added up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from measure.foreign.content import read_text
from measure.foreign.errors import TraceFileError
from measure.foreign.trace import LARGEST, ForeignTrace

_NOT_EVENTS = ("name", "parent_region_id", "region_count")
_UNITS = {"real_time_nsec": "ns", "perf::TASK-CLOCK": "ns", "perf::CPU-CLOCK": "ns"}

Records = list[tuple[str, dict[str, float]]]  # region, and its events


def read_papi(path: Path) -> ForeignTrace:
    """Read one ``rank_*.json``, or a directory of them: the ranks of one run, added up. Raises `TraceFileError`."""
    files = sorted(path.glob("rank_*.json")) if path.is_dir() else [path]
    if not files:
        raise TraceFileError(
            f"{path}: no rank_*.json in this directory: expected PAPI's high-level output; name the "
            "files of other formats"
        )
    everything: list[Records] = []
    warnings: dict[str, None] = {}
    for file in files:
        for levels in _threads(file):
            most = max(levels, key=lambda level: len(levels[level]))
            everything.append(levels[most])
            for level in sorted(levels):
                if level != most:
                    names = ", ".join(dict.fromkeys(name for name, _ in levels[level]))
                    warnings[f"the regions {names} are at another level of nesting and left out."] = None
    if not everything or not everything[0]:
        raise TraceFileError(f"{path}: no regions: expected threads with regions that hold events")
    sequence = [name for name, _ in everything[0]]
    for records in everything[1:]:
        if [name for name, _ in records] != sequence:
            raise TraceFileError(
                f"{path}: threads or ranks of {len(sequence)} and {len(records)} records whose regions differ "
                "cannot be added up: expected the same regions in the same order; give one rank's file"
            )
    metrics = tuple(dict.fromkeys(event for records in everything for _, events in records for event in events))
    missing = float("nan")
    values = np.sum(
        [[[events.get(m, missing) for m in metrics] for _, events in records] for records in everything],
        axis=0,
    )
    if len(everything) > 1:
        warnings[f"{len(everything)} threads are added up, record by record."] = None
    units = {metric: _UNITS[metric] for metric in metrics if metric in _UNITS}
    return ForeignTrace(
        path,
        "papi",
        metrics,
        np.asarray(values, np.float64),
        units,
        interval="one region",
        warnings=tuple(warnings),
    )


def _threads(path: Path) -> Iterator[dict[int, Records]]:
    """For each thread, its records by level of nesting."""
    try:
        document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise TraceFileError(f"{path}:{error.lineno}: {error.msg}: expected JSON; is the file whole?") from None
    threads = document.get("threads") if isinstance(document, dict) else None
    if not isinstance(threads, dict):
        raise TraceFileError(f"{path}: no object `threads`: expected the output of PAPI's high-level API, version 6 on")
    instant = {
        name
        for name, definition in (document.get("event_definitions") or {}).items()
        if isinstance(definition, dict) and definition.get("type") == "instant"
    }
    for thread, content in threads.items():
        where = f"{path}: thread {thread}"
        regions = content.get("regions") if isinstance(content, dict) else None
        if not isinstance(regions, dict):
            raise TraceFileError(f"{where}: no object `regions`")
        levels: dict[int, Records] = {}
        for identifier in sorted(regions, key=lambda text: _integer(text, f"{where}: region")):
            region = regions[identifier]
            here = f"{where}: region {identifier}"
            if not isinstance(region, dict) or "name" not in region:
                raise TraceFileError(f"{here}: got {str(region)[:40]!r}, expected an object with a name")
            level = _level(region, regions, here)
            levels.setdefault(level, []).extend(_records(region, instant, here))
        if levels:
            yield levels


def _level(region: dict[str, Any], regions: dict[str, Any], where: str) -> int:
    """Number of regions that contain the region."""
    level, parent = 0, str(region.get("parent_region_id", "-1"))
    while parent != "-1":
        level += 1
        if parent not in regions or level > len(regions):
            raise TraceFileError(f"{where}: parent_region_id: got {parent!r}, expected the number of another region")
        parent = str(regions[parent].get("parent_region_id", "-1"))
    return level


def _records(region: dict[str, Any], instant: set[str], where: str) -> Records:
    """The region's records: one, and one more for each read in between."""
    columns: dict[str, list[float]] = {}
    for event, content in region.items():
        if event in _NOT_EVENTS:
            continue
        if not isinstance(content, dict):
            columns[event] = [float(_integer(content, f"{where}: {event}"))]
            continue
        order = sorted(
            (key for key in content if key.startswith("read_")),
            key=lambda key: _integer(key.removeprefix("read_"), f"{where}: {event}"),
        )
        if "region_value" not in content:
            raise TraceFileError(f"{where}: {event}: expected `region_value` beside the values read before")
        totals = [_integer(content[key], f"{where}: {event}: {key}") for key in (*order, "region_value")]
        columns[event] = [float(value) for value in (totals if event in instant else _steps(totals))]
    if not columns:
        raise TraceFileError(f"{where}: got no events, expected at least one: were any named in PAPI_EVENTS?")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise TraceFileError(f"{where}: got events read {sorted(lengths)} times, expected all equally often")
    return [
        (str(region["name"]), {event: column[n] for event, column in columns.items()}) for n in range(lengths.pop())
    ]


def _steps(totals: Sequence[int]) -> list[int]:
    """The counts between reads, as integers, since differences of large doubles would be rounded.

    They may be negative: a temperature falls, and so may a multiplexed count, which PAPI extrapolates at every read.
    """
    return [after - before for before, after in zip((0, *totals[:-1]), totals, strict=True)]


def _integer(text: object, where: str) -> int:
    try:
        value = int(str(text))
    except ValueError:
        raise TraceFileError(f"{where}: got {text!r}, expected a whole number") from None
    if abs(value) > LARGEST:
        raise TraceFileError(f"{where}: got {text}, expected a whole number of at most {LARGEST:g}")
    return value
