"""Files become comparable groups, and whatever is left out on the way is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from measure.foreign.errors import TraceFileError
from measure.foreign.gather import Gathered, gather, grouped, matching
from measure.foreign.trace import names_of_files
from measure.perturbation.analysis_types import FEWEST_RECORDS


def write(path: Path, columns: Mapping[str, Sequence[object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def trace(path: Path, **more: Sequence[object]) -> Path:
    return write(path, {"a": [5, 3, 8, 1, 9] * 4, "b": [2, 7, 1, 8, 2] * 4, **more})


def gathered(folder: Path, runs: list[Path], **options: object) -> Gathered:
    before = [trace(folder / f"base{n}.csv") for n in range(2)]
    return gather(before, {"runs": runs}, **options)  # type: ignore[arg-type]


def refused(folder: Path, runs: list[Path], **options: object) -> str:
    with pytest.raises(TraceFileError) as caught:
        gathered(folder, runs, **options)
    return str(caught.value).replace(f"{folder}/", "")


def test_files_that_a_shell_has_sorted_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """`base*.csv` is base1, base10, base2: in that order a drift over the runs was not found."""
    by_shell = [trace(tmp_path / f"run{n}.csv") for n in (1, 10, 11, 2, 3)]
    found = gathered(tmp_path, by_shell)
    assert [one.path.name for one in found.variant_traces["runs"]] == [f"run{n}.csv" for n in (1, 2, 3, 10, 11)]
    assert "Files are in the order of their numbers (run1.csv, run2.csv, ...), not in" in found.warnings[-1]
    chosen = [by_shell[n] for n in (1, 0, 2, 3, 4)]
    found = gathered(tmp_path, chosen)
    assert [one.path for one in found.variant_traces["runs"]] == chosen
    assert not any("order of their numbers" in text for text in found.warnings)
    hashes = [trace(tmp_path / f"{name}.csv") for name in ("10ab", "12cd", "3ef0")]
    assert [one.path for one in gathered(tmp_path, hashes).variant_traces["runs"]] == hashes


def test_patterns_and_names(tmp_path: Path) -> None:
    for name in ("run10.csv", "run2.csv", "odd=name.csv"):
        trace(tmp_path / name)
    assert [path.name for path in matching(f"{tmp_path}/run*.csv")] == ["run2.csv", "run10.csv"]
    groups = grouped([f"heavy={tmp_path}/run2.csv", f"heavy={tmp_path}/run10.csv", f"{tmp_path}/odd=name.csv"])
    assert {name: [path.name for path in paths] for name, paths in groups.items()} == {
        "heavy": ["run2.csv", "run10.csv"],
        "instrumented": ["odd=name.csv"],
    }
    with pytest.raises(TraceFileError, match="the name 'baseline' is taken by the runs of --baseline"):
        grouped([f"baseline={tmp_path}/run2.csv"])
    with pytest.raises(TraceFileError, match="--run heavy=: got a name without a file, expected NAME=FILE"):
        grouped(["heavy="])
    with pytest.raises(TraceFileError, match=r"no\*: no such file, and no file matches it as a pattern"):
        matching("no*")


def test_files_of_one_name_are_told_apart_by_their_directories(tmp_path: Path) -> None:
    """ "10 ms in b0.csv, 20 ms in b0.csv" did not say which is which."""

    def timed(path: Path, step: float) -> Path:
        return trace(path, time_ms=[step * n for n in range(20)], c=[-1, 2] * 10)

    before = [timed(tmp_path / f"base/{n}/t.csv", 10) for n in range(2)]
    found = gather(before, {"x": [timed(tmp_path / "run/0/t.csv", 20)], "y": [timed(tmp_path / "y.csv", 10)]})
    assert "(10 ms in base/0/t.csv, 20 ms in run/0/t.csv)" in found.warnings[0]
    assert any("in record 1 of base/0/t.csv: " in text for text in found.warnings)
    assert list(names_of_files(found.traces).values()) == ["base/0/t.csv", "base/1/t.csv", "run/0/t.csv", "y.csv"]


def test_metrics_are_intersected_with_a_warning(tmp_path: Path) -> None:
    run = trace(tmp_path / "run.csv", calls=[1, 2, 3, 4, 5] * 4, unseen=[""] * 20)
    result = gathered(tmp_path, [run])
    assert result.metrics == ("a", "b")
    assert result.warnings == ("calls was measured in 1 of 3 traces only: it is not compared.",)
    assert result.variants["runs"][0].shape == (20, 2)
    assert not any("measured" in text for text in result.invalidating)
    renamed = write(tmp_path / "renamed.csv", {"a": [6, 2, 4, 3] * 5, "x": [1, 2] * 10, "c": [2, 3, 3, 5] * 5})
    wide = [write(tmp_path / f"wide{n}.csv", {m: [n, 2, 4, 3] * 5 for m in "abc"}) for n in (5, 7)]
    result = gather(wide, {"runs": [renamed]})
    assert result.invalidating == (
        "b was measured in 2 of 3 traces only, in all baselines, but not in all runs: no verdict says anything about "
        "it. Has the column another name there?",
    )
    assert result.warnings == ("x was measured in 1 of 3 traces only: it is not compared.",)
    assert gather(wide, {"runs": [renamed]}, metrics=("a", "c")).invalidating == ()
    result = gathered(tmp_path, [run], metrics=("b", "a"))
    assert (result.metrics, result.warnings) == (("b", "a"), ())
    assert refused(tmp_path, [run], metrics=("a", "call")) == (
        "base0.csv: no metric 'call' was measured (got a, b): expected it in every trace"
    )
    other = write(tmp_path / "other.csv", {"b": [1, 2, 3, 4] * 5, "c": [4, 3, 2, 1] * 5})
    assert refused(tmp_path, [other]) == (
        "1 metric common to all traces (b), expected at least 2, since a correlation is of two; base0.csv has a, b, "
        "other.csv has b, c"
    )


def test_one_metric_only_names_each_file_once(tmp_path: Path) -> None:
    one = write(tmp_path / "one.csv", {"a": [1, 2, 3, 4] * 5})
    assert refused(tmp_path, [one]) == (
        "1 metric common to all traces (a), expected at least 2, since a correlation is of two; base0.csv has a, b, "
        "one.csv has a"
    )
    others = [write(tmp_path / f"other{n}.csv", {"a": [1, 2, 3, 4] * 5}) for n in range(2)]
    with pytest.raises(TraceFileError) as caught:
        gather(others, {"runs": [one]})
    assert str(caught.value) == (
        "1 metric common to all traces (a), expected at least 2, since a correlation is of two; "
        f"{tmp_path}/other0.csv has a"
    )
    assert refused(tmp_path, [trace(tmp_path / "run.csv")], metrics=("b", "b")) == (
        "1 metric chosen (b), expected at least 2, since a correlation is of two: choose more of a, b"
    )


def test_intervals_that_were_not_counted_are_dropped_not_zero(tmp_path: Path) -> None:
    missing: dict[str, list[object]] = {"a": [5, 3, "<not counted>", 1, 0] * 5, "b": [2, 7, 1, 8, 2] * 5}
    run = write(tmp_path / "run.csv", missing)
    result = gathered(tmp_path, [run])
    np.testing.assert_array_equal(result.variants["runs"][0], [[5, 2], [3, 7], [1, 8], [0, 2]] * 5)
    assert result.warnings == (
        "Intervals are left out in which something was not counted, most often a: 5 in all, in 1 of 3 traces, at "
        "most 5 of 25 in run.csv.",
    )
    missing["a"][3] = "nan"
    run = write(tmp_path / "run.csv", missing)
    assert refused(tmp_path, [run]) == (
        "run.csv: 19 of 25 intervals have every metric, expected at least 20; a is missing most often: name the "
        "others with --metrics"
    )


def test_a_trace_needs_as_many_records_as_a_run(tmp_path: Path) -> None:
    """`measure run` refuses shorter traces by the same rule."""
    few = FEWEST_RECORDS - 1
    run = write(tmp_path / "run.csv", {"a": list(range(few)), "b": [1, 2] * 9 + [3]})
    assert refused(tmp_path, [run]) == (
        "run.csv: 19 of 19 intervals have every metric, expected at least 20: sample at a shorter interval or give "
        "the program more work"
    )


def test_units_must_agree(tmp_path: Path) -> None:
    before = [write(tmp_path / f"b{n}.csv", {"a [J]": [1, 2, 1, 2], "b": [1, 2, 3, 1]}) for n in range(2)]
    run = write(tmp_path / "run.csv", {"a [kJ]": [1, 2, 1, 2], "b": [1, 2, 3, 1]})
    with pytest.raises(TraceFileError, match=r"run.csv: a has unit 'kJ', expected 'J' as in .*b0.csv"):
        gather(before, {"runs": [run]})


def test_multiplexing_is_told(tmp_path: Path) -> None:
    lines = "".join(
        f"  {n}.000000000,{5 + n % 3},,a,1000,{66.67 if n == 2 else 100:.2f},,\n"
        f"  {n}.000000000,{n % 7},,b,1000,100.00,,\n"
        for n in range(1, 22)
    )
    (tmp_path / "run.csv").write_text(lines)
    (told,) = gathered(tmp_path, [tmp_path / "run.csv"]).warnings
    assert told.startswith("a was multiplexed in 1 of 3 traces: counted for only 67% of an interval at worst")


def test_what_many_files_say_is_said_once(tmp_path: Path) -> None:
    for n in range(3):
        rows = "".join(
            f"  {k}.000000000,{k % 5},,a,9,100.00,,\n  {k}.000000000,{k % 3},,b,9,100.00,,\n"
            f"  {k}.000000000,<not supported>,,c,0,100.00,,\n"
            for k in range(1, 22)
        )
        (tmp_path / f"run{n}.csv").write_text(rows)
    paths = [tmp_path / f"run{n}.csv" for n in range(3)]
    assert gather(paths[:2], {"x": paths[2:]}).warnings == (
        "run0.csv and 2 more: c is <not supported> in every interval.",
    )


def test_intervals_of_different_lengths_are_told(tmp_path: Path) -> None:
    def perf(name: str, step: float) -> Path:
        rows = (
            f"  {k * step:.9f},{k % 3},,a,9,100.00,,\n  {k * step:.9f},{k % 4},,b,9,100.00,,\n" for k in range(1, 22)
        )
        (tmp_path / name).write_text("".join(rows))
        return tmp_path / name

    before = [perf("b0.csv", 0.01), perf("b1.csv", 0.0115)]
    assert gather(before, {"x": [perf("x.csv", 0.011)]}).warnings == ()
    assert gather(before, {"x": [perf("x.csv", 0.02)]}).warnings == (
        "Records are not of one length (10 ms in b0.csv, 20 ms in x.csv): this alone changes correlations; sample "
        "all runs alike.",
    )


def test_negative_values_of_tables_are_told(tmp_path: Path) -> None:
    """A table does not say whether a column is a count or a gauge."""
    runs = [
        trace(tmp_path / f"run{n}.csv", temperature=[-1, 2, 3, 4] * 5) if n else trace(tmp_path / "run0.csv")
        for n in range(2)
    ]
    assert not any("negative" in text for text in gathered(tmp_path, runs).warnings)
    runs.append(write(tmp_path / "run2.csv", {"a": [5, 3, -8, 1, 9] * 4, "b": [2, 7, 1, 8, 2] * 4}))
    assert [text for text in gathered(tmp_path, runs).warnings if "negative" in text] == [
        "a has negative values in 1 of 5 traces, such as -8 in record 3 of run2.csv: right for a gauge, such as a "
        "temperature. A count of events is negative only where it is damaged, or extrapolated by multiplexing: "
        "record it again, with fewer events at once."
    ]


def test_running_totals_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    paths = [
        write(
            tmp_path / f"t{n}.csv",
            {"a": np.cumsum(rng.poisson(9, 30)).tolist(), "b": rng.poisson(9, 30).tolist()},
        )
        for n in range(3)
    ]
    assert gather(paths[:2], {"runs": paths[2:]}).warnings == (
        "a never falls in any trace: if it is a running total, give events per interval instead, the differences of "
        "neighbouring records; how running totals relate says nothing of the events.",
    )


def test_too_few_or_the_same_files(tmp_path: Path) -> None:
    first, second = trace(tmp_path / "1.csv"), trace(tmp_path / "2.csv")
    with pytest.raises(TraceFileError, match="1 baseline trace, expected at least 2"):
        gather([first], {"runs": [second]})
    with pytest.raises(TraceFileError, match=r"2\.csv is given twice"):
        gather([first, second], {"runs": [second]})
