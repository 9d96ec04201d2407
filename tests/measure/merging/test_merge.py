"""Merging: counts conserved, known warps undone, identical runs left as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from measure.merging.merge_runs import MergeError, align_run, merge_runs
from measure.merging.page import shift_of
from measure.merging.spread import Spread, even_spread_of_path, spread_of_path, spread_of_progress
from measure.merging.variant_verdict import VariantVerdict
from measure.run_types import BASELINE, CounterPlace, Run, RunSpec, Trace
from measure.truth_checks.merge_truth import Algorithm, alignment_error, true_positions

MACHINE = (Path(__file__).parents[3] / "configs" / "machines" / "desktop.yaml").read_text()
HARDWARE = ("PAPI_TOT_INS", "PAPI_LD_INS", "PAPI_BR_MSP")


def make_run(
    hardware: NDArray[np.int64],
    software: dict[str, NDArray[np.int64]] | None = None,
    *,
    variant: str = BASELINE,
    replicate: int = 0,
    instructions: NDArray[np.int64] | None = None,
) -> Run:
    """A run with these columns; ``instructions``: at the boundaries, default: those of the first metric."""
    software = software or {}
    spec = RunSpec(
        variant=variant, replicate=replicate, seed=1, build_key=variant, binary="", arguments=(), stdin=None, files=(),
        machine=MACHINE, machine_name="desktop.yaml", hardware_metrics=HARDWARE,
        counters=tuple(CounterPlace(name, "counters", 8 * n) for n, name in enumerate(software)), sampling_mode="ideal",
        interval=1000, interval_unit="cycles",
    )  # fmt: skip
    values = np.column_stack([hardware, *software.values()]).astype(np.int64)
    cycles = np.arange(len(values) + 1, dtype=np.int64) * 1000
    if instructions is None:
        instructions = np.concatenate([[0], np.cumsum(hardware[:, 0])]).astype(np.int64)
    trace = Trace(cycles, instructions, values, spec.metrics)
    return Run(spec, trace, int(instructions[-1]), int(cycles[-1]), 0.0, "")


def signal(n: int, seed: int = 3) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    walk = np.cumsum(rng.normal(size=(n, 3)), axis=0)
    return np.round(2000 + 100 * walk - 100 * walk.min()).astype(np.int64)


def stretched(times: NDArray[np.int64]) -> tuple[Run, Run]:
    """A baseline, and a run where record i takes ``times[i]`` records; its metric ``work`` counts i + 1 in it."""
    hardware = signal(len(times))
    index = np.repeat(np.arange(len(times)), times)
    work = np.zeros(len(index), np.int64)
    work[np.cumsum(times) - 1] = np.arange(len(times)) + 1
    return make_run(hardware), make_run(hardware[index], {"work": work}, variant="variant")


paths = st.lists(st.sampled_from([(1, 1), (0, 1), (1, 0)]), max_size=60).map(
    lambda steps: np.concatenate([[[0, 0]], np.cumsum(np.reshape(steps, (-1, 2)), axis=0)]).astype(np.int64)
)
bounds = st.lists(st.integers(0, 700), min_size=2, max_size=30).map(lambda cuts: np.sort(np.array(cuts)) / 7)


def check_spread(spread: Spread, values: NDArray[np.int64]) -> None:
    merged = spread.counts(values)
    assert merged.shape == (spread.n_rows, values.shape[1])
    assert (merged.sum(axis=0) == values.sum(axis=0)).all()
    assert (merged >= 0).all()
    assert (np.diff(spread.rows) >= 0).all()
    assert (np.diff(spread.columns) >= 0).all()
    assert (np.diff(spread.positions()) >= -1e-9).all()
    assert spread.records().sum() == pytest.approx(spread.n_columns)
    assert np.array_equal(np.unique(spread.columns), np.arange(spread.n_columns))
    # At the end of every baseline record the running totals are within half an event of an even spread, for each
    # record of the run that is cut there: at most one.
    first = np.append(True, np.diff(spread.columns) > 0)
    shares = spread.upto - np.where(first, 0.0, np.append(0.0, spread.upto[:-1]))
    even = np.zeros(merged.shape)
    np.add.at(even, spread.rows, values[spread.columns] * shares[:, None])
    assert np.abs(np.cumsum(even, axis=0) - np.cumsum(merged, axis=0)).max() <= 0.5 + 1e-6


@given(paths, st.integers(0, 2**32))
def test_counts_are_conserved_along_any_path(path: NDArray[np.int64], seed: int) -> None:
    rng = np.random.default_rng(seed)
    check_spread(spread_of_path(path), rng.integers(0, 50, (int(path[-1, 1]) + 1, 3)))


@given(paths, st.integers(0, 2**32))
def test_counts_are_conserved_along_an_even_path(path: NDArray[np.int64], seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = int(path[-1, 1]) + 1
    found = even_spread_of_path(path, rng.random(m) < 0.2)
    check_spread(found, rng.integers(0, 50, (m, 3)))
    assert np.abs(found.positions() - spread_of_path(path).positions()).max() <= 1.5


def test_runs_that_drift_apart_have_the_same_events_in_all_records() -> None:
    """Every tenth record had the events of two, which changed relations by more than delta."""
    rows = np.arange(200)
    path = np.array([(row, column) for row in rows for column in range(row * 11 // 10, (row + 1) * 11 // 10)])
    found = even_spread_of_path(path, np.zeros(220, np.bool_))
    assert spread_of_path(path).records().max() == 2
    assert np.abs(found.records()[10:-10] - 1.1).max() < 0.02
    before = [(n, n) for n in range(50)]
    jump = np.array([*before, *((49, n) for n in range(50, 54)), *((n, n + 4) for n in range(50, 90))])
    found = even_spread_of_path(jump, np.zeros(94, np.bool_))
    assert found.records().tolist() == spread_of_path(jump).records().tolist()
    step = np.array([*before, *((n, n + 1) for n in range(49, 90))])
    idle = np.arange(91) == 50
    assert even_spread_of_path(step, idle).records().tolist() == spread_of_path(step).records().tolist()
    assert even_spread_of_path(step, idle & False).records().max() < 1.1


@given(bounds, bounds, st.integers(0, 2**32))
def test_counts_are_conserved_along_progress(
    baseline: NDArray[np.float64], run: NDArray[np.float64], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    check_spread(spread_of_progress(baseline, run), rng.integers(0, 50, (len(run) - 1, 2)))


@given(st.integers(2**53, 2**62), st.integers(1, 9))
def test_large_counts_are_conserved_to_the_last_event(count: int, pieces: int) -> None:
    path = np.column_stack([np.arange(pieces), np.zeros(pieces, np.int64)])
    merged = spread_of_path(path).counts(np.array([[count]], np.int64))
    assert sum(merged[:, 0].tolist()) == count


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=5, max_size=40), st.sampled_from(["dtw", "progress"]))
def test_merged_totals_are_the_runs_own(times: list[int], align: str) -> None:
    baseline, run = stretched(np.array(times))
    merged = merge_runs(baseline, [run], align=align)  # type: ignore[arg-type]
    own = run.trace.values[:, run.trace.metrics.index("work")].sum()
    assert merged.values[:, merged.metrics.index("work")].sum() == own == merged.sources[-1].total


@pytest.mark.parametrize("align", ["dtw", "progress"])
def test_identical_runs_merge_to_themselves(align: str) -> None:
    hardware = signal(80)
    work = np.arange(80) % 7
    run = make_run(hardware, {"work": work}, variant="variant")
    merged = merge_runs(make_run(hardware), [run], align=align)  # type: ignore[arg-type]
    assert np.array_equal(merged.values, run.trace.values)
    assert merged.metrics == (*HARDWARE, "work")
    assert merged.runs[0].distance == 0
    assert np.allclose(merged.runs[0].records, 1)
    assert [one[:21] for one in merged.warnings] == ["progress is estimated"] * (align == "progress")


def test_a_stretched_run_is_put_back_and_warned_of() -> None:
    times = np.ones(60, np.int64)
    times[20], times[41] = 3, 6
    baseline, run = stretched(times)
    merged = merge_runs(baseline, [run])
    assert merged.values[:, -1].tolist() == list(range(1, 61))
    assert merged.runs[0].stretched == ((20, 21), (41, 42))
    assert merged.runs[0].stretched_fraction == pytest.approx(2 / 60)
    (warning,) = [text for text in merged.warnings if "stretches" in text]
    assert warning.startswith("work from variant/0: the alignment stretches 3.3% of the baseline's records")
    assert "worst at record 41 (cycles 41,000 to 42,000), made of 6 of the run's records;" in warning
    emptied = replace(merged.runs[0], records=np.where(np.arange(60) == 41, 0.0, merged.runs[0].records))
    assert "made of none of the run's records;" in replace(merged, runs=(emptied,)).warnings[-1]


@pytest.mark.parametrize("align", ["dtw", "progress"])
def test_records_in_which_nothing_ran_are_not_called_stretched(align: str) -> None:
    hardware = signal(60)
    hardware[30:34] = 0  # a wait of four intervals
    longer = np.insert(hardware, 30, 0, axis=0)  # and one of five
    work = np.where(longer[:, 0] > 0, 2, 0)
    run = make_run(longer, {"work": work}, variant="variant")
    merged = merge_runs(make_run(hardware), [run], align=align)  # type: ignore[arg-type]
    assert [one[:21] for one in merged.warnings] == ["progress is estimated"] * (align == "progress")
    assert merged.values[:, -1].tolist() == np.where(hardware[:, 0] > 0, 2, 0).tolist()


def test_one_record_that_spreads_over_many_is_shared_out() -> None:
    times = np.ones(30, np.int64)
    times[10] = 4
    long, short = stretched(times)[::-1]
    work = np.full(30, 10)
    merged = merge_runs(
        make_run(long.trace.values[:, :3]), [make_run(short.trace.values[:, :3], {"work": work}, variant="v")]
    )
    assert sorted(merged.values[10:14, -1].tolist()) == [2, 2, 3, 3]
    assert merged.runs[0].stretched == ((10, 14),)


def test_progress_takes_the_counters_instructions_off() -> None:
    hardware = np.full((50, 3), 1000)
    events = np.where(np.arange(50) < 25, 100, 0)
    # Five instructions an event: the first half of the run takes half as many records again.
    own = np.concatenate([np.full(25, 1000 - 500), np.full(25, 1000)])
    total = int(own.sum())
    baseline = make_run(hardware[: total // 1000])
    run = make_run(hardware, {"work": events}, variant="variant")
    run = replace(run, total_instructions=baseline.total_instructions + 5 * int(events.sum()))
    aligned = align_run(baseline, run, align="progress")
    assert aligned.records[:12].tolist() == [2.0] * 12
    expected = (np.cumsum(own) - own / 2) / 1000 - 0.5
    assert true_positions(baseline, run)[:24] == pytest.approx(expected[:24])


def test_each_metric_comes_from_the_run_that_aligns_best() -> None:
    hardware = signal(60)
    noisy = hardware + np.random.default_rng(1).integers(0, 300, hardware.shape)
    a, b = np.arange(60), np.arange(60)[::-1]
    worse = make_run(noisy, {"a": a * 2, "b": b}, variant="worse")
    better = make_run(hardware, {"a": a}, variant="better", replicate=4)
    merged = merge_runs(make_run(hardware), [worse, better])
    about = merged.metadata()["metrics"]
    assert (about["a"]["run"], about["b"]["run"]) == ("better/4", "worse/0")
    assert merged.values[:, 3].tolist() == a.tolist()
    assert about["b"]["distance"] > about["a"]["distance"] == 0


def test_ranks_and_single_channels_align_too() -> None:
    baseline, run = stretched(np.array([1, 2, 1, 3, 1, 1, 2, 1] * 4))
    merged = merge_runs(baseline, [run], scale="rank", channels=["PAPI_LD_INS"])
    assert merged.runs[0].channels == ("PAPI_LD_INS",)
    assert merged.values[:, -1].sum() == run.trace.values[:, -1].sum()


def test_runs_that_do_not_belong_together_are_refused() -> None:
    baseline, run = stretched(np.ones(30, np.int64))
    other = replace(run, spec=replace(run.spec, arguments=("7",)))
    with pytest.raises(MergeError, match="variant/0 and baseline/0 differ in their arguments"):
        merge_runs(baseline, [other])
    with pytest.raises(MergeError, match="none of the 1 runs has a metric that baseline/0 lacks"):
        merge_runs(baseline, [baseline])
    with pytest.raises(MergeError, match="got PAPI_FP_INS to align variant/0 on, expected some of PAPI_TOT_INS"):
        merge_runs(baseline, [run], channels=["PAPI_FP_INS"])
    foreign = replace(
        run,
        spec=replace(run.spec, hardware_metrics=("other",)),
        trace=replace(run.trace, metrics=("x", "y", "z", "work")),
    )
    with pytest.raises(MergeError, match="no hardware metric in common"):
        merge_runs(baseline, [foreign])


def test_input_files_are_the_same_by_their_content(tmp_path: Path) -> None:
    """A copy of a campaign in another folder has other paths, and its runs were refused."""
    paths = [tmp_path / name for name in ("one", "copy", "other")]
    for path, text in zip(paths, ("a", "a", "b"), strict=True):
        path.write_text(text)
    first, run = stretched(np.ones(30, np.int64))

    def reading(one: Run, path: Path) -> Run:
        return replace(one, spec=replace(one.spec, stdin=str(path), files=(("/in", str(path)),)))

    assert merge_runs(reading(first, paths[0]), [reading(run, paths[1])]).metrics[-1] == "work"
    for path in (paths[2], tmp_path / "none"):
        with pytest.raises(MergeError, match="differ in their stdin"):
            merge_runs(reading(first, paths[0]), [reading(run, path)])
    more = replace(run, spec=replace(run.spec, files=(("/in", str(paths[0])),)))
    with pytest.raises(MergeError, match="differ in their files"):
        merge_runs(first, [more])


def test_records_that_are_cut_otherwise_are_told_first() -> None:
    baseline, run = stretched(np.ones(40, np.int64))
    merged = merge_runs(baseline, [run], verdicts={"variant": VariantVerdict("perturbed")})
    assert len(merged.warnings) == 1
    other = replace(run, spec=replace(run.spec, interval=20_000, interval_unit="instructions", sampling_mode="signal"))
    merged = merge_runs(
        baseline, [other], verdicts={"variant": VariantVerdict("perturbed")}, notes=["Read this first."]
    )
    assert merged.warnings[:3] == (
        "Read this first.",
        "Records are not of one length (1,000 cycles in baseline/0, 20,000 instructions in variant/0): this alone "
        "changes correlations; sample all runs alike.",
        "Records are not taken in one way (mode ideal in baseline/0 and signal in variant/0): a handler of signals is "
        "in the traces of one of them only, which alone changes correlations; sample all runs alike.",
    )
    assert merged.table().attrs["warnings"] == list(merged.warnings)
    assert merged.values[:, -1].sum() == run.trace.values[:, -1].sum()


def test_alignment_error_knows_the_truth() -> None:
    times = np.ones(60, np.int64)
    times[20:30] = 2
    hardware = signal(60)
    index = np.repeat(np.arange(60), times)
    # Each record of the stretched part does half of the baseline's instructions.
    share = (hardware[:, 0] / times)[index]
    instructions = np.concatenate([[0], np.cumsum(share)]).round().astype(np.int64)
    run = make_run(hardware[index], {"work": np.zeros(70, np.int64)}, variant="v", instructions=instructions)
    table = alignment_error(make_run(hardware), [run])
    table = table.set_index(["algorithm", "channels"])
    largest, bias, mean = (table[f"{name}_records"] for name in ("largest", "bias", "mean"))
    assert set(table.index.get_level_values("algorithm")) == set(get_args(Algorithm))
    # Matched records are at most half a record from the truth; record by record ends up ten too late.
    assert largest["full", "all"] <= 0.5
    assert largest["none", ""] == pytest.approx(10, abs=0.6)
    assert bias["none", ""] > 3
    assert mean["linear", ""] > 1
    with pytest.raises(MergeError, match="got algorithm 'best', expected some of full"):
        alignment_error(make_run(hardware), [run], algorithms=["best"])  # type: ignore[list-item]


def test_the_shift_of_a_run_is_where_it_takes_longer() -> None:
    times = np.ones(40, np.int64)
    times[20] = 11
    baseline, run = stretched(times)
    shift = shift_of(align_run(baseline, run))
    assert shift[-1] == pytest.approx(0)
    proportion = 50 / 40
    assert shift[19] == pytest.approx(20 * (1 - proportion), abs=0.6)
    assert shift[20] - shift[19] > 8
    assert np.allclose(shift_of(align_run(baseline, baseline)), 0)
