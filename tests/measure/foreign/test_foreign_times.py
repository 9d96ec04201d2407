"""Columns of times tell how long the records of a table are, as the times of perf and LIKWID do."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import measure
from measure.foreign.errors import TraceFileError
from measure.foreign.formats import read_trace
from measure.foreign.gather import gather
from measure.foreign.trace import LAST_LEFT_OUT, ForeignTrace
from measure.library.comparisons import _trace as trace_of_frame

RANDOM = np.random.default_rng(3)
UNEVEN = "some intervals are over 25% longer or shorter than the others"
NOON = datetime.datetime(2026, 11, 29, 12)
EVEN = [1.0] * 30
Read = Callable[[pd.DataFrame], ForeignTrace]


def counts(n_records: int, *names: str) -> pd.DataFrame:
    return pd.DataFrame(RANDOM.poisson(99, (n_records, len(names))), columns=list(names))


@pytest.fixture(params=["csv", "parquet", "frame"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Read:
    def trace(frame: pd.DataFrame) -> ForeignTrace:
        if request.param == "frame":
            return trace_of_frame(frame, "frame")
        if request.param == "csv":
            frame.to_csv(tmp_path / "trace", index=False)
        else:
            frame.to_parquet(tmp_path / "trace")
        return read_trace(tmp_path / "trace")

    return trace


@pytest.mark.parametrize(
    ("steps", "n_whole", "told"),
    [
        (EVEN, 30, ()),
        ([*EVEN[1:], 0.95], 30, ()),
        ([*EVEN[1:], 0.3], 29, (LAST_LEFT_OUT,)),
        ([*EVEN[:9], 51.0, *EVEN[10:]], 30, (UNEVEN,)),
        ([*EVEN[:9], 51.0, *EVEN[11:], 0.3], 29, (LAST_LEFT_OUT, UNEVEN)),
        (2 + np.sin(np.arange(30)), 30, ()),  # records of equal instructions, which take as long as they take
        ([0.0, 1.0] * 15, 30, ()),  # a clock of seconds, for records of half a second
    ],
)
def test_records_that_are_not_whole_or_not_of_one_length(
    read: Read, steps: Sequence[float], n_whole: int, told: tuple[str, ...]
) -> None:
    frame = counts(30, "a", "b")
    for offset in (0.0, 1e9):
        trace = read(frame.assign(time_ms=offset + 10 * np.cumsum(steps)))
        np.testing.assert_array_equal(trace.values, frame[:n_whole])
        assert trace.totals == frame.sum().to_dict()
        assert [text.partition(":")[0] for text in trace.warnings] == [text.partition(":")[0] for text in told]


def test_only_a_clock_tells_lengths(read: Read) -> None:
    ends = np.cumsum([*EVEN[1:], 0.3])
    for heading in ("begin_cycles", "end_instructions", "record", "end"):
        trace = read(counts(30, "a", "b").assign(**{heading: ends}))
        assert (trace.n_records, trace.warnings, trace.interval) == (30, (), "one interval")


@pytest.mark.parametrize(
    ("heading", "times", "interval"),
    [
        ("time_s", 0.01 * np.arange(30), "10 ms"),
        ("seconds", 0.01 * np.arange(30), "10 ms"),
        ("timestamp [us]", 10_000 * np.arange(30), "10 ms"),
        ("Time (ms)", 10 * np.arange(30), "10 ms"),
        ("elapsed_s", 0.01 * np.arange(30), "10 ms"),
        ("elapsed (s)", [0.01, 0.0101, 0.0099] * 10, "10 ms"),
        ("t", 10 * np.arange(30), "one interval"),
        ("t_us", 10_000 * np.arange(30), "10 ms"),
        ("time_ns", 10**18 + 10**7 * np.arange(30), "10 ms"),
        ("time", 10 * np.arange(30), "10 by column 'time'"),
        ("time", [NOON + datetime.timedelta(milliseconds=10 * n) for n in range(30)], "10 ms"),
        ("time_ms", [10, 10.1, 9.9] * 10, "10 ms"),
        ("seconds", [0.01, 0.0101, 0.0099] * 10, "10 ms"),
    ],
)
def test_the_unit_of_a_clock(read: Read, heading: str, times: Sequence[Any], interval: str) -> None:
    trace = read(counts(30, "a", "b").assign(**{heading: times}))
    assert (trace.interval, trace.metrics) == (interval, ("a", "b"))


CLOCK = [f"12:00:{n // 100:02d}.{n % 100:02d}" for n in range(0, 120, 4)]
MIDNIGHT = [f"{n // 60 % 24:02d}:{n % 60:02d}:00" for n in range(24 * 60 - 10, 24 * 60 + 20)]


@pytest.mark.parametrize(
    ("times", "interval"),
    [
        (CLOCK, "40 ms"),
        ([text.replace(".", ",") for text in CLOCK], "40 ms"),
        (MIDNIGHT, "60 s"),
        ([f"0 days {text}0000" for text in CLOCK], "40 ms"),
        ([f"2026-11-30 {text}" for text in CLOCK], "40 ms"),
        ([f"2026-11-30T{text.replace('.', ',')}Z" for text in CLOCK], "40 ms"),
        ([*CLOCK[:4], None, *CLOCK[5:]], "40 ms"),
        ([f"{0.01 * n:.2f}" for n in range(30)], "0.01 by column 'time'"),
        ([datetime.time(12, 0, n) for n in range(30)], "1 s"),
        ([decimal.Decimal(n) / 100 for n in range(30)], "0.01 by column 'time'"),
    ],
)
def test_times_of_text_are_read(read: Read, times: Sequence[Any], interval: str) -> None:
    """Times of the day, and times that pandas had read as text, were ignored, and all checks with them."""
    trace = read(counts(30, "a", "b").assign(time=times))
    assert (trace.metrics, trace.interval, trace.warnings) == (("a", "b"), interval, ())
    if times[4] is not None and times is not MIDNIGHT:
        with pytest.raises(TraceFileError, match=r"column 'time': (row 15: )?got time .*, expected at least"):
            read(counts(30, "a", "b").assign(time=[*times[:15], *times[:15]]))


def test_a_time_of_the_day_that_goes_back_is_shown_as_one(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("time,a\n12:00:02,1\n12:00:01.5,2\n")
    with pytest.raises(
        TraceFileError, match=r"bad:3: column 'time': got time 12:00:01.500000, expected at least 12:00:02 as"
    ):
        read_trace(tmp_path / "bad")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("0,2905", "got '0,2905', expected a number with a decimal point, without separators of thousands: "),
        (
            "30.11.2026 12:00",
            "got '30.11.2026 12:00', expected a number, a date and time such as 2026-11-30 12:00:01.5",
        ),
        ("12:61:00", "got '12:61:00', expected a number, a date and time such as 2026-11-30 12:00:01.5, or a time of"),
        ("inf", "got 'inf', expected a number, a date"),
        ("2026-11-30", "got '2026-11-30', expected a time written as '0' before"),
    ],
)
def test_times_that_cannot_be_read_are_refused(read: Read, cell: str, message: str) -> None:
    """A column of them was left out without a word, so that a last record that was not whole was kept."""
    with pytest.raises(TraceFileError) as caught:
        read(counts(30, "a", "b").assign(time=[*map(str, range(29)), cell]))
    where, _, found = str(caught.value).partition("column 'time': ")
    assert where.rpartition("/")[2] in ("trace:31: ", "trace: ", "frame: ")
    assert found.removeprefix("row 29: ").startswith(message)


def test_a_last_record_that_is_not_whole_is_left_out_by_a_clock(read: Read) -> None:
    assert read(counts(30, "a", "b").assign(time=[*CLOCK[:-1], f"{CLOCK[-2]}5"])).warnings == (LAST_LEFT_OUT,)


@pytest.mark.parametrize("heading", ["record", "index"])
def test_labels_of_records_are_told(read: Read, heading: str) -> None:
    trace = read(counts(30, "a", "b").assign(**{heading: [f"step {n}" for n in range(30)]}))
    assert trace.warnings == (f"column {heading!r} has text ('step 0'), no numbers: it is not compared.",)


def test_the_end_of_a_record_is_preferred_to_its_begin(read: Read) -> None:
    ends = 10 * np.cumsum([*EVEN[1:], 0.3])
    assert read(counts(30, "a", "b").assign(begin_ms=[0, *ends[:-1]], end_ms=ends)).n_records == 29


def test_records_of_different_lengths_are_told(tmp_path: Path) -> None:
    """Runs of steps of 0.02 s were called perturbed against baselines of 0.01 s, without a word."""

    def written(name: str, heading: str, step: float) -> Path:
        times = step * np.arange(1, 31)
        counts(30, "a", "b").assign(**{heading: times}).to_csv(tmp_path / name, index=False)
        return tmp_path / name

    before = [written(f"b{n}.csv", "time", 0.01) for n in range(2)]
    assert gather(before, {"x": [written("x.csv", "time", 0.011)]}).warnings == ()
    assert gather(before, {"x": [written("x.csv", "time", 0.02)]}).warnings == (
        "Records are not of one length (0.01 by column 'time' in b0.csv, 0.02 by column 'time' in x.csv): this alone "
        "changes correlations; sample all runs alike.",
    )
    assert gather(before, {"x": [written("x.csv", "time_ms", 10)]}).warnings == ()
    before = [written(f"b{n}.csv", "time_s", 0.01) for n in range(2)]
    assert gather(before, {"x": [written("x.csv", "time_ms", 10)]}).warnings == ()
    assert "10 ms in b0.csv, 20 ms in x.csv" in gather(before, {"x": [written("x.csv", "time_ms", 20)]}).warnings[0]


INDICES = [
    pd.Index(0.01 * np.arange(30), name="seconds"),  # as of `Result.trace`
    pd.Index([*range(7), *range(8, 31)]),  # of rows that were chosen
    pd.Index(range(30, 0, -1), name="sample"),
    pd.date_range(NOON, periods=30, freq="10ms", tz="UTC"),
    pd.timedelta_range(0, periods=30, freq="10ms", name="elapsed"),
    pd.MultiIndex.from_product([range(6), range(5)], names=["core", None]),
    pd.Index([f"step {n}" for n in range(30)]),
]


@pytest.mark.parametrize("index", INDICES)
def test_the_index_of_a_frame_is_no_metric(tmp_path: Path, index: Any) -> None:
    frame = counts(30, "a", "b").set_index(index)
    frame.to_parquet(tmp_path / "trace")
    for trace in (read_trace(tmp_path / "trace"), trace_of_frame(frame, "frame")):
        assert trace.metrics == ("a", "b")
        is_time = index.name == "seconds" or index.dtype.kind in "mM"
        assert trace.interval == ("10 ms" if is_time else "one interval")


def test_frames_of_a_result_can_be_compared_with_their_times_as_a_column() -> None:
    frames = [counts(30, "a", "b").set_index(INDICES[0]).reset_index() for _ in range(3)]
    assert measure.perturb(frames[:2], frames[2:], align=False).report.hardware_metrics == ("a", "b")


def test_periods_are_times(tmp_path: Path) -> None:
    periods = pd.period_range("2026-11-30", periods=30, freq="10ms")
    assert trace_of_frame(counts(30, "a", "b").set_index(periods), "frame").interval == "10 ms"
    frame = counts(30, "a", "b").assign(time=periods)
    assert trace_of_frame(frame, "frame").interval == "10 ms"
    frame.assign(time=pd.Series([[1]] * 30, dtype=object)).to_parquet(tmp_path / "bad")
    with pytest.raises(TraceFileError, match=r"bad: column 'time': got values of type list<.*, expected times"):
        read_trace(tmp_path / "bad")


def test_a_level_of_an_index_that_has_times_is_checked() -> None:
    index = pd.MultiIndex.from_product([range(2), 0.01 * np.arange(15)], names=["run", "time"])
    with pytest.raises(TraceFileError, match=r"frame: column 'time': row 15: got time 0\.0, expected at least 0\.14"):
        trace_of_frame(counts(30, "a", "b").set_index(index), "frame")
