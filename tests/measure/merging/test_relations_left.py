"""What is left of relations in a merged trace: the figure is that of a naive computation and of the truth, and a merge
that destroys relations is not praised."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from measure.alignment.setting import DEFAULT_ALIGNMENT
from measure.merging.merge_runs import Merged, is_stretched, merge_runs
from measure.merging.page import render_page
from measure.merging.relations_left import WEAKENED, held_out_spreads, relations_left, relations_left_of_two
from measure.merging.spread import Spread, even_spread_of_path, spread_of_progress
from measure.merging.variant_verdict import VariantVerdict, verdict_in_summary
from measure.run_types import Run
from tests.measure.merging.test_merge import HARDWARE, make_run, signal

GOOD = VariantVerdict("equivalent", "equivalent", "equivalent")


def read_lines(*, cost: float, phases: float, n: int = 600) -> tuple[Run, Run, NDArray[np.float64]]:
    """A baseline, a run whose counter makes one kind of work take ``cost`` times as long, and the run's metric ``work``
    in the baseline's records.

    The program alternates between four kinds of work, several times a record, so that what a record has depends on
    where it is cut; ``phases``: standard deviation of slow changes beside that, as a share of all events.
    """
    rng = np.random.default_rng(5)
    lengths = rng.integers(4, 8, n * 40 // 5)
    kinds = np.repeat(np.arange(len(lengths)) % 4, lengths)[: n * 40]
    time = np.arange(len(kinds))[:, None]
    slow = 1 + phases * (
        np.sin(time / 280) * np.array([1, -0.6, 0.5, 0.8]) + np.sin(time / 700) * np.array([0, 1, 1, 0]) / 2
    )
    rates = np.array([[50, 15, 6, 20], [20, 14, 2, 4], [40, 3, 9, 6], [30, 8, 1, 12]])  # events of a step
    fine = np.concatenate([np.zeros((1, 4)), np.cumsum(rates[kinds] * slow, axis=0)])

    def cut(step_cycles: NDArray[np.float64]) -> NDArray[np.int64]:
        """The events of records of 40 cycles, ``(records, 4)``."""
        cycles = np.append(0, np.cumsum(step_cycles))
        ends = np.arange(0, cycles[-1] + 1, 40)
        return np.diff([np.round(np.interp(ends, cycles, of)) for of in fine.T]).T.astype(np.int64)

    plain, counted = (cut(np.where(kinds == 0, factor, 1.0)) for factor in (1.0, cost))
    run = make_run(counted[:, :3], {"work": counted[:, 3]}, variant="v")
    return make_run(plain[:, :3]), run, plain[:, 3].astype(np.float64)


def true_share(merged: Merged, work: NDArray[np.float64]) -> float:
    """The share of the relations of ``work`` to the hardware metrics that the merged trace has."""
    hardware = merged.values[:, :3]
    known, shown = ([spearmanr(column, of)[0] for column in hardware.T] for of in (work, merged.values[:, -1]))
    return float(np.dot(known, shown) / np.dot(known, known))


def naive(baseline: Run, run: Run, spreads: dict[str, Spread]) -> float:
    """`relations_left`, pair by pair."""
    above = below = 0.0
    for a in HARDWARE:
        for b in spreads:
            if a != b:
                own, other = ([one.trace.columns((m,))[:, 0] for m in (a, b)] for one in (baseline, run))
                known = (spearmanr(*own)[0] + spearmanr(*other)[0]) / 2
                moved = spreads[b].counts(run.trace.counts((b,)))[:, 0]
                above += known * spearmanr(own[0], moved)[0]
                below += known**2
    return min(max(above / below, 0.0), 1.0)


@pytest.mark.parametrize("cost", [1.0, 1.3, 2.0])
def test_the_share_is_that_of_a_naive_computation(cost: float) -> None:
    baseline, run, _ = read_lines(cost=cost, phases=0, n=200)
    ends = np.linspace(0, baseline.trace.n_records, run.trace.n_records + 1)
    spread = spread_of_progress(np.arange(baseline.trace.n_records + 1.0), ends)
    for moved in (HARDWARE, HARDWARE[1:]):
        spreads = dict.fromkeys(moved, spread)
        expected = naive(baseline, run, spreads)
        assert relations_left(baseline.trace, run.trace, HARDWARE, spreads).share == pytest.approx(expected)


def test_a_relation_of_two_metrics_of_two_runs_is_that_of_a_naive_computation() -> None:
    """The share was that of one moved metric, and of a mean, which tells nothing of a weak relation."""
    baseline, first, _ = read_lines(cost=1.3, phases=0.2)
    _, second, _ = read_lines(cost=1.6, phases=0.2)
    runs = [first, replace(second, spec=replace(second.spec, variant="w"))]
    merged = merge_runs(baseline, [runs[0], with_metric(runs[1], "other")], verdicts={"v": GOOD, "w": GOOD})
    ends = [np.linspace(0, baseline.trace.n_records, run.trace.n_records + 1) for run in runs]
    spreads = [
        dict.fromkeys(HARDWARE, spread_of_progress(np.arange(baseline.trace.n_records + 1.0), end)) for end in ends
    ]
    found = relations_left_of_two(runs[0].trace, spreads[0], runs[1].trace, spreads[1])
    known, shown, names = [], [], []
    for a, b in permutations(HARDWARE, 2):
        inside = [[run.trace.columns((m,))[:, 0] for m in (a, b)] for run in runs]
        known.append(np.mean([spearmanr(*pair)[0] for pair in inside]))
        moved = [
            spread[m].counts(run.trace.counts((m,)))[:, 0] for run, spread, m in zip(runs, spreads, (a, b), strict=True)
        ]
        shown.append(spearmanr(*moved)[0])
        names.append((a, b))
    off = np.abs(np.subtract(shown, known))
    assert found.share == pytest.approx(np.dot(known, shown) / np.dot(known, known))
    assert found.error == pytest.approx(np.sqrt((off**2).mean()))
    assert (found.worst, found.known, found.shown) == (
        names[off.argmax()], pytest.approx(known[off.argmax()]), pytest.approx(shown[off.argmax()]),
    )  # fmt: skip
    one, two = sorted(merged.runs, key=lambda run: run.name)
    assert one.left_of_two.share == pytest.approx(two.left_of_two.share)
    assert one.left_of_two.share < max(one.left.share, two.left.share)
    about = merged.metadata()["metrics"]["work"]
    assert about["relations_left_of_two"] == one.left_of_two.share
    assert about["relations_off"] == max(one.left.error, one.left_of_two.error)
    (warning,) = [text for text in merged.warnings if text.startswith("work from v/0: ") and "single relations" in text]
    assert f"a correlation below about {2 * one.worse.error:.1f} may be absent here, or of the other sign" in warning
    assert one.worse.worst_in_words in warning
    page = render_page(merged, [Path("r")], Path("m.parquet"))
    assert f"Single ones are off by {max(one.worse.error, two.worse.error):.2f}, at worst " in page


def with_metric(run: Run, name: str) -> Run:
    """``run`` with its software metric under another name."""
    metrics = (*run.trace.metrics[:-1], name)
    return replace(run, trace=replace(run.trace, metrics=metrics))


def test_all_is_left_between_equal_runs_and_nothing_is_said_without_relations() -> None:
    baseline, run, _ = read_lines(cost=1, phases=0)
    merged = merge_runs(baseline, [run])
    assert merged.runs[0].left.share > 0.98
    assert not merged.runs[0].left_of_two.is_known
    assert not [text for text in merged.warnings if "single relations" in text]
    rng = np.random.default_rng(1)
    unrelated = rng.poisson(1000, (600, 3))
    merged = merge_runs(make_run(unrelated), [make_run(unrelated, {"work": unrelated[:, 0]}, variant="v")])
    assert np.isnan(merged.runs[0].left.share)
    assert merged.metadata()["metrics"]["work"]["relations_left"] is None
    constant = unrelated.copy()
    constant[:, 1:] = 7
    merged = merge_runs(make_run(constant), [make_run(constant, {"work": unrelated[:, 0]}, variant="v")])
    assert np.isnan(merged.runs[0].left.share)
    short = make_run(signal(3)), make_run(signal(3), {"work": np.arange(3)}, variant="v")
    assert np.isnan(merge_runs(short[0], [short[1]]).runs[0].left.share)


@pytest.mark.parametrize("align", ["dtw", "progress"])
def test_relations_that_the_merge_destroys_are_not_praised(align: str) -> None:
    """A merge of a text reader showed correlations of -0.6 as -0.03, and said that all metrics may be related."""
    baseline, run, work = read_lines(cost=1.3, phases=0)
    merged = merge_runs(baseline, [run], align=align, verdicts={"v": GOOD})  # type: ignore[arg-type]
    left = merged.runs[0].left.share
    assert left < WEAKENED
    if align == "dtw":
        assert left == pytest.approx(true_share(merged, work), abs=0.2)
    (warning,) = [one for one in merged.warnings if "weakens relations" in one]
    assert f"about {left:.0%} is left when one of both is taken from v/0" in warning
    assert f"a correlation of 0.50 shows as about {left / 2:.2f}" in warning
    page = render_page(merged, [Path("r")], Path("m.parquet"))
    assert "all may be related" not in page
    assert "Relations to metrics of other runs may be weaker here than they are, of work: see the warnings." in page
    assert "method: second_run" in page.split("Warnings")[0]


@pytest.mark.parametrize("align", ["dtw", "progress"])
def test_relations_of_slow_changes_stay_and_are_praised(align: str) -> None:
    baseline, run, work = read_lines(cost=1.1, phases=0.5)
    merged = merge_runs(baseline, [run], align=align, verdicts={"v": GOOD})  # type: ignore[arg-type]
    assert true_share(merged, work) > 0.9
    assert merged.runs[0].left.share > 0.85
    assert merged.runs[0].left.error < 0.15
    assert not [one for one in merged.warnings if "weakens relations" in one]
    page = render_page(merged, [Path("r")], Path("m.parquet"))
    assert "all may be related to each other. Of known relations between metrics of different runs, about" in page


def test_a_metric_that_is_aligned_on_itself_does_not_count() -> None:
    """Warping makes channels of unrelated runs alike; a metric that is no channel stays unrelated."""
    rng = np.random.default_rng(2)

    def noise() -> NDArray[np.int64]:
        return np.round(rng.normal(5000, 500, (300, 3))).astype(np.int64)

    first, second = noise(), noise()
    none = np.zeros(300, np.bool_)
    spreads = held_out_spreads(first.astype(float), second.astype(float), HARDWARE, DEFAULT_ALIGNMENT, none)
    for number, name in enumerate(HARDWARE):
        others = [n for n in range(3) if n != number]
        tables = [
            np.ascontiguousarray(((table - table.mean(axis=0)) / table.std(axis=0)).T)[others]
            for table in (first, second)
        ]
        path = DEFAULT_ALIGNMENT.align(tables[0], tables[1]).path
        assert spreads[name].records() == pytest.approx(even_spread_of_path(path, none).records())
    assert (
        held_out_spreads(first[:, :1].astype(float), second[:, :1].astype(float), HARDWARE[:1], DEFAULT_ALIGNMENT, none)
        == {}
    )


def test_a_variant_that_is_not_assessable_across_runs_is_not_praised() -> None:
    """The comparison across runs, on which a merge relies, was not asked: the verdict said *equivalent*."""
    summary = {
        "verdict": "equivalent",
        "inner": {"verdict": "equivalent"},
        "outer_held_out": {"verdict": "not assessable"},
    }
    found = verdict_in_summary(summary)
    assert str(found) == "equivalent, but not assessable across runs"
    hardware = signal(80)
    run = make_run(hardware, {"work": np.arange(80) % 7}, variant="v")
    better = make_run(hardware + np.arange(80)[:, None] % 3, {"work": np.arange(80) % 7}, variant="w")
    merged = merge_runs(make_run(hardware), [run], verdicts={"v": found})
    assert merged.metadata()["metrics"]["work"]["verdict"] == "equivalent"
    assert merged.metadata()["metrics"]["work"]["caveat"] == "not assessable across runs"
    assert any(
        "work from v/0: this variant is equivalent, but not assessable across runs" in one for one in merged.warnings
    )
    page = render_page(merged, [Path("r")], Path("m.parquet"))
    assert "all may be related" not in page
    assert "Relations to metrics of other runs may be weaker here than they are, of work" in page
    assert merge_runs(make_run(hardware), [run, better], verdicts={"v": found, "w": GOOD}).runs[0].name == "w/0"
    assert verdict_in_summary(summary | {"outer_held_out": None}).caveat == "not compared across runs"
    assert verdict_in_summary(summary | {"outer_held_out": summary["inner"]}).caveat == ""
    within = verdict_in_summary(
        {"verdict": "equivalent", "inner": summary["outer_held_out"], "outer_held_out": summary["inner"]}
    )
    assert within.caveat == "not assessable within a run"
    assert verdict_in_summary(summary | {"verdict": "perturbed"}).caveat == ""


def test_a_record_of_two_among_records_of_one_is_shaded() -> None:
    """Such records draw spikes of twice the events; only those of three were shaded."""
    records = np.full(80, 1.1)
    records[30], records[31], records[40], records[50:70] = 2, 2, 0.5, 2  # from 50 on the run is slow: no spike
    assert np.flatnonzero(is_stretched(records)).tolist() == [30, 31, 40]
    records[60] = 3
    assert np.flatnonzero(is_stretched(records)).tolist() == [30, 31, 40, 60]
    assert not is_stretched(np.full(3, 2.5)).any()
    assert is_stretched(np.zeros(3)).all()
