"""Values that cannot be what a trace of one run has: they are refused, or told."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import measure
from measure.foreign.formats import read_trace
from measure.foreign.trace import ForeignTrace, TraceFileError

Read = Callable[[dict[str, Sequence[Any]]], tuple[str, ...]]
"""Takes columns to the warnings on them."""


def as_csv(folder: Path, columns: dict[str, Sequence[Any]]) -> ForeignTrace:
    pd.DataFrame(columns).to_csv(folder / "bad", index=False)
    return read_trace(folder / "bad")


def as_parquet(folder: Path, columns: dict[str, Sequence[Any]]) -> ForeignTrace:
    pd.DataFrame(columns).to_parquet(folder / "bad", index=False)
    return read_trace(folder / "bad")


@pytest.fixture(params=["csv", "parquet", "frame"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Read:
    """Reads columns as a file or as a DataFrame, which all have 30 records and a metric ``b``."""

    def warnings(columns: dict[str, Sequence[Any]]) -> tuple[str, ...]:
        random = np.random.default_rng(1)
        whole: dict[str, Sequence[Any]] = {**columns, "b": random.poisson(99, 30).tolist()}
        if request.param == "frame":
            others = [pd.DataFrame({name: random.poisson(99, 30) for name in ("a", "b")}) for _ in range(2)]
            return measure.compare(others, [pd.DataFrame({"a": random.poisson(99, 30), **whole})], align=False).findings
        return (as_csv if request.param == "csv" else as_parquet)(tmp_path, whole).warnings

    return warnings


NOON = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC)
SECONDS = [*range(20), *range(10)]


@pytest.mark.parametrize(
    ("heading", "times"),
    [
        ("time", SECONDS),
        ("time [s]", [n / 10 for n in SECONDS]),
        ("begin_cycles", [10**18 + 1000 * n for n in SECONDS]),
        ("timestamp", [NOON + datetime.timedelta(seconds=n) for n in SECONDS]),
        ("index", [5, 2, 3] * 10),
        ("time", range(30, 0, -1)),
    ],
)
def test_times_that_go_back_are_refused(read: Read, heading: str, times: Sequence[Any]) -> None:
    """Several runs in one table were compared as one; traces of perf were refused."""
    with pytest.raises(
        TraceFileError, match=r"column .*: got time .*, expected at least .* as before: are several runs"
    ):
        read({heading: times})


def test_the_first_time_that_goes_back_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError) as caught:
        as_csv(tmp_path, {"time": [0, 1, 2, None, 2, 1.5, 3], "a": range(7)})
    assert str(caught.value) == (
        f"{tmp_path}/bad:7: column 'time': got time 1.5, expected at least 2.0 as before: are several runs in this "
        "trace, or its records in another order? Give each run a trace of its own, in the order of time"
    )
    likwid = "# GID|EventCount|CpuCount|Total runtime [s]|cycles\n1 1 1 0.2 5\n1 1 1 0.1 7\n"
    (tmp_path / "bad").write_text(likwid)
    with pytest.raises(TraceFileError, match=r"bad:3: got time 0\.1, expected at least 0\.2 as before"):
        read_trace(tmp_path / "bad")


def test_times_that_do_not_go_back_are_fine(read: Read) -> None:
    times = [NOON + datetime.timedelta(seconds=n // 2) for n in range(30)]
    assert not any("time" in text for text in read({"time": times, "begin": [None, *range(29)]}))


def test_a_column_that_goes_up_and_down_is_taken_for_lengths(read: Read) -> None:
    found = read({"time_ms": [10, 11, 9] * 10})
    assert any(
        "column 'time_ms' goes up and down: it is taken for the length of each record, and not compared." in text
        for text in found
    )


def test_large_whole_numbers_are_told() -> None:
    """Neighbours beyond 2^53 are one double: such a metric was called constant, without the reason."""

    def findings(least: int) -> list[str]:
        frames = [
            pd.DataFrame({"a": [least + n % values for n in range(30)], "b": [n % values for n in range(30)]})
            for values in (3, 4, 5)
        ]
        return [text for text in measure.compare(frames[:2], frames[2:], align=False).findings if "2^53" in text]

    assert findings(2**60) == [
        "a has values of 2^53 or more in 3 of 3 traces, such as 1.15292e+18 in record 1 of baseline[0]: doubles round "
        "them, so that small differences between records are lost. If it is a running total, give the events of each "
        "interval, or subtract the first value from all."
    ]
    assert findings(2**53 - 5) == []


@pytest.mark.parametrize("value", [1e308, -1e200])
def test_values_whose_squares_overflow_are_refused(read: Read, value: float) -> None:
    """numpy's warnings of overflows stood among the verdicts."""
    with pytest.raises(TraceFileError, match=r"column 'c': .*got -?1e\+\d+, expected a number of at most 1e\+100$"):
        read({"c": [1.0] * 29 + [value]})


def test_counts_of_papi_have_a_limit(tmp_path: Path) -> None:
    for digits in (400, 5000):
        region = {"name": "step", "parent_region_id": "-1", "cycles": "9" * digits}
        (tmp_path / "bad").write_text(json.dumps({"threads": {"0": {"regions": {"0": region}}}}))
        with pytest.raises(TraceFileError, match=r"thread 0: region 0: cycles: got '?9+'?, expected a whole number"):
            read_trace(tmp_path / "bad", "papi")
