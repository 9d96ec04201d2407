"""Values that cannot be what a trace of one run has: they are refused, or told."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import measure
from measure.foreign.errors import TraceFileError
from measure.foreign.formats import read_trace
from measure.foreign.gather import gather
from measure.foreign.trace import ForeignTrace

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
            return measure.perturb(others, [pd.DataFrame({"a": random.poisson(99, 30), **whole})], align=False).findings
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
        "column 'time_ms' goes up and down: it is taken for the length of each record, and not compared. If it is a "
        "metric, give it another name." in text
        for text in found
    )
    jitter = np.random.default_rng(1).normal(10, 0.1, 30).tolist()
    assert any("taken for the length" in text for text in read({"time_ms": jitter}))


@pytest.mark.parametrize("jitter", [0.0, 0.02])
def test_times_in_no_order_are_no_lengths(read: Read, jitter: float) -> None:
    """A permuted column of times was taken for the lengths of records."""
    random = np.random.default_rng(1)
    times = (0.5 * random.permutation(30) + jitter * 0.5 * random.normal(size=30)).tolist()
    with pytest.raises(TraceFileError, match=r"'time': .*got times that .* records are unsorted.*sort_values"):
        read({"time": times})


def test_large_whole_numbers_are_told() -> None:
    """Neighbours beyond 2^53 are one double: such a metric was called constant, without the reason."""

    def findings(least: int) -> list[str]:
        frames = [
            pd.DataFrame({"a": [least + n % values for n in range(30)], "b": [n % values for n in range(30)]})
            for values in (3, 4, 5)
        ]
        return [text for text in measure.perturb(frames[:2], frames[2:], align=False).findings if "2^53" in text]

    assert findings(2**60) == [
        "a has values of 2^53 or more in 3 of 3 traces, such as 1.15292e+18 in record 1 of baseline[0]: doubles round "
        "them, so that small differences between records are lost. If it is a running total, give the events of each "
        "interval, or subtract the first value from all."
    ]
    assert findings(2**53 - 5) == []


RANDOM = np.random.default_rng(2)
RUNS = [pd.DataFrame(RANDOM.poisson(99, (30, 2)), columns=["a", "b"]) for _ in range(6)]


def findings(before: Sequence[pd.DataFrame], after: Sequence[pd.DataFrame]) -> tuple[str, ...]:
    return tuple(text for text in measure.perturb(before, after, align=False).findings if "same numbers" in text)


def test_copies_within_a_group_are_told() -> None:
    """A baseline that was given twice made the spread between baselines too small."""
    found = findings([RUNS[0], RUNS[1], RUNS[0].copy(), RUNS[1]], [RUNS[2], RUNS[3]])
    assert found == (
        "2 traces of baseline have the same numbers as another of them (baseline[2] as baseline[0], baseline[3] as "
        "baseline[1]): copies are no runs of their own, and make the spread between runs look smaller than it is. "
        "Leave them out. If a simulator without noise made them, vary its set-up from run to run.",
    )
    (found_in_variant,) = findings(RUNS[:2], [RUNS[2]] * 6)
    assert found_in_variant.startswith("5 traces of instrumented have the same numbers as another of them (")
    assert "instrumented[3] as instrumented[0] and 2 more): " in found_in_variant


def test_copies_of_baselines_among_runs_are_told() -> None:
    assert findings(RUNS[:2], [RUNS[1].assign(calls=3), RUNS[3]]) == (
        "1 trace of instrumented has the same numbers as one of baseline (instrumented[0] as baseline[1]): a copy "
        "shows no change. Give the trace that each run has made. Only a deterministic simulator makes such traces in "
        "different runs.",
    )


def test_tables_that_hardly_vary_are_no_copies() -> None:
    rare = pd.DataFrame({"faults": [5, 1, *[0] * 28], "switches": [1, 2, *[0] * 28]})
    assert findings([rare, rare], [rare, rare]) == ()


def simulated(random: np.random.Generator, runs: int) -> list[pd.DataFrame]:
    """Runs of one program on a simulator without noise: only the host's seconds differ."""
    counts = pd.DataFrame(random.poisson(99, (30, 2)), columns=["loads", "misses"])
    return [counts.assign(host_seconds=random.gamma(50, 0.002, 30)) for _ in range(runs)]


@pytest.mark.parametrize("align", [False, True])
def test_one_simulated_run_with_a_column_of_the_host_is_no_group_of_runs(align: bool) -> None:
    """Another draw of the same process was *perturbed*, p = 0.0001, and nothing said that all runs were one."""
    random = np.random.default_rng(1)
    found = measure.perturb(simulated(random, 20), simulated(random, 10), align=align)
    told = [text for text in found.report.invalidating if "the same numbers as another of them" in text]
    assert len(told) == 2
    assert told[0].startswith(
        "19 traces of baseline have the same numbers as another of them in loads, misses, but not in host_seconds "
        "(baseline[1] as baseline[0], "
    )
    for comparison in found.verdicts["comparison"]:
        without_noise = found.pairs("instrumented", comparison).query("a != 'host_seconds' and b != 'host_seconds'")
        assert set(without_noise["verdict"]) == {"inconclusive"}
        assert without_noise[["p", "ci_low", "ci_high"]].isna().all(axis=None)
        result = found.perturbation("instrumented", comparison)
        assert result.verdict == "inconclusive"
        assert result.extra_runs_needed is None
        assert any("did not vary between baselines at all" in text for text in result.findings)
    rest = found.pairs("instrumented").query("b == 'host_seconds'")
    assert (rest["p"] > 0.001).all()
    assert found.perturbation("instrumented").p_value == rest["p"].min()


def test_a_change_of_pairs_with_noise_is_shown_beside_pairs_without() -> None:
    random = np.random.default_rng(1)
    baselines, runs = simulated(random, 20), simulated(random, 10)
    moved = [run.assign(host_seconds=run["loads"] + random.normal(0, 2, 30)) for run in runs]
    pairs = measure.perturb(baselines, moved, align=False).pairs("instrumented").set_index(["a", "b"])["verdict"]
    assert pairs["loads", "host_seconds"] == "perturbed"
    assert pairs["loads", "misses"] == "inconclusive"


def test_a_metric_alone_or_tied_metrics_may_be_the_same() -> None:
    random = np.random.default_rng(1)
    rare = [1, 2, *[0] * 28]
    runs = [
        pd.DataFrame({"a": range(30), "faults": rare, "switches": rare, "b": random.poisson(99, 30)}) for _ in range(4)
    ]
    assert findings(runs[:2], runs[2:]) == ()
    assert (
        len(findings([runs[0].assign(c=range(30)), runs[1].assign(c=range(30))], [run.assign(c=9) for run in runs]))
        == 1
    )


def test_copied_files_are_told_but_emulated_runs_may_be_the_same(tmp_path: Path) -> None:
    """Counters that change nothing leave the emulated run as its baseline is, which shares its noise."""
    paths = [tmp_path / f"{n}.parquet" for n in range(4)]

    def copied(*specs: dict[str, object]) -> tuple[str, ...]:
        for path, frame, spec in zip(paths, (RUNS[0], RUNS[1], RUNS[0], RUNS[1]), specs, strict=True):
            spec = {"interval": 10, "interval_unit": "cycles", **spec}
            table = pa.Table.from_pandas(frame, preserve_index=False)
            pq.write_table(table.replace_schema_metadata({"perturbation": json.dumps({"spec": spec})}), path)
        return gather(paths[:2], {"counted": paths[2:]}).invalidating

    def spec(n: int, variant: str, target: str = "emulated") -> dict[str, object]:
        return {"variant": variant, "replicate": n, "target": target}

    baselines = [spec(0, "baseline"), spec(1, "baseline")]
    assert copied(*baselines, spec(0, "counted"), spec(1, "counted")) == ()
    (found,) = copied(*baselines, *baselines)
    assert found.startswith(
        f"2 traces of counted have the same numbers as one of baseline ({paths[2]} as {paths[0]}, {paths[3]} as "
    )
    on_host = [spec(n % 2, "baseline" if n < 2 else "counted", "host") for n in range(4)]
    assert copied(*on_host) == (found,)


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


def test_one_metric_alone_is_not_told_to_be_collected_with_fewer_others() -> None:
    """`measure run` left this advice out for a single metric; here it was given."""
    random = np.random.default_rng(1)

    def frame(noise: float, *collected: str) -> pd.DataFrame:
        course = random.normal(1000, 100, 60)
        table = {"loads": course, "misses": course + noise * random.normal(0, 100, 60)}
        return pd.DataFrame({**table, **{name: random.poisson(99, 60) for name in collected}})

    baselines = [frame(0.3) for _ in range(20)]
    start = "within a run: Do not reason about the pairs that changed within such a run"
    for collected, advice in ((("a",), f"{start}."), (("a", "b"), f"{start}; spread the software metrics over")):
        found = measure.perturb(baselines, [frame(3.0, *collected) for _ in range(10)], align=False)
        assert found.verdicts["verdict"][0] == "perturbed"
        assert any(advice in text for text in found.findings)
