"""A merged trace as a file: Parquet, CSV, or counters of a Chrome trace, which Perfetto shows.

Parquet and CSV get ``NAME.metadata.json`` beside them; in Parquet it is in pandas' ``attrs`` as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, get_args

from measure.errors import CampaignError
from measure.merging.merge_runs import Merged
from measure.result_files import write_atomically, write_text_atomically

Format = Literal["parquet", "csv", "chrome"]
ENDINGS: dict[str, Format] = {".parquet": "parquet", ".csv": "csv", ".json": "chrome"}


def format_of(path: Path) -> Format:
    """The format for the file's ending. Raises `CampaignError` for an unknown one."""
    if path.suffix not in ENDINGS:
        raise CampaignError(
            f"{path}: got the ending '{path.suffix}', expected one of {', '.join(ENDINGS)}; or give --format"
        )
    return ENDINGS[path.suffix]


def write_merged(merged: Merged, path: Path, kind: Format, clock_hz: int) -> None:
    """Write ``path``, whole or not at all. ``clock_hz``: of the machine. Raises `StoreError`."""
    assert kind in get_args(Format)
    about: Any = merged.metadata() | {"clock_hz": clock_hz}
    if kind == "chrome":
        text = json.dumps(chrome_trace(merged, clock_hz), allow_nan=False)
        write_text_atomically(path, text)
        return
    table = merged.table()
    table.attrs = about
    if kind == "parquet":
        write_atomically(path, lambda to: table.to_parquet(to, index=False))
    else:
        write_atomically(path, lambda to: table.to_csv(to, index=False))
    text = json.dumps(about, indent=1, allow_nan=False)
    write_text_atomically(path.with_suffix(".metadata.json"), text)


def chrome_trace(merged: Merged, clock_hz: int) -> dict[str, Any]:
    """Counter events of the Trace Event Format ("C"): a process each run, a track each metric, ``ts`` in microseconds.

    A counter holds until the next event, so each record's count is given at its beginning, and 0 at the very end.
    """
    boundaries = merged.baseline.trace.boundaries_cycles
    times = (boundaries * (1e6 / clock_hz)).tolist()
    names = [merged.metadata()["baseline"], *(aligned.name for aligned in merged.runs)]
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}
        for number, name in enumerate(names, 1)
    ]
    for n, source in enumerate(merged.sources):
        process = 1 if source.run is None else 2 + source.run
        for time, count in zip(times, [*merged.values[:, n].tolist(), 0], strict=True):
            events.append(
                {
                    "ph": "C",
                    "name": source.metric,
                    "pid": process,
                    "tid": 0,
                    "ts": time,
                    "args": {"count": count},
                }
            )
    about = merged.metadata() | {"clock_hz": clock_hz}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}
