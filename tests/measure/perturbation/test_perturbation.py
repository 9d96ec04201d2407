"""Verdicts, pairs and findings of inner and outer perturbation on cases whose answer is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import spearmanr

from measure.alignment.setting import AlignmentSetting
from measure.perturbation.missing_runs import forecast
from measure.perturbation.perturbation import Memo, Pair, Perturbation, inner_perturbation, outer_perturbation
from measure.perturbation.wording import beside, rho_text, rhos_text
from measure.stats.correlation import Correlations, fisher_z, spearman
from measure.stats.synthetic import Disturbance, synthetic_program

Table = NDArray[np.float64]

UNEVEN_PACE = AlignmentSetting(step_penalty=0.3)
"""The made-up programs advance more unevenly than real ones, for which the default was chosen."""


def correlated(rng: np.random.Generator, rho: float, n: int = 400, extra: int = 1) -> Table:
    """Independent records: two metrics that correlate at ``rho`` and ``extra`` that do not."""
    table = rng.normal(size=(n, 2 + extra))
    table[:, 1] = rho * table[:, 0] + np.sqrt(1 - rho**2) * table[:, 1]
    return table


def analysed(tables: Sequence[Table], names: Sequence[str] = ("cycles", "misses", "branches")) -> list[Correlations]:
    return [spearman(table, names) for table in tables]


def inner(baseline: Sequence[Table], runs: Sequence[Table], **options: object) -> Perturbation:
    return inner_perturbation(analysed(baseline), analysed(runs), seed=0, **options)  # type: ignore[arg-type]


def made(
    seed: int, counts: tuple[int, int], rhos: tuple[float, float], n: int = 400
) -> tuple[list[Table], list[Table]]:
    rng = np.random.default_rng(seed)
    return [correlated(rng, rhos[0], n) for _ in range(counts[0])], [
        correlated(rng, rhos[1], n) for _ in range(counts[1])
    ]


@pytest.mark.parametrize("counts", [(20, 5), (20, 1), (26, 1), (8, 3)])
def test_a_large_change_is_found_in_its_pair_only(counts: tuple[int, int]) -> None:
    result = inner(*made(1, counts, (0.8, 0.5)))
    assert result.verdict == "perturbed"
    worst = result.pairs[0]
    assert (worst.a, worst.b, worst.verdict) == ("cycles", "misses", "perturbed")
    assert worst.delta_z == pytest.approx(np.arctanh(0.5) - np.arctanh(0.8), abs=0.12)
    assert worst.baseline_rho == pytest.approx(0.79, abs=0.05)
    assert worst.run_rho == pytest.approx(0.48, abs=0.1)
    assert worst.ci[0] < worst.delta_z < worst.ci[1] < 0
    assert worst.statistic < 0
    assert result.p_value == worst.p_adjusted <= 0.05
    assert {pair.verdict for pair in result.pairs[1:]} <= {"equivalent", "inconclusive"}
    assert result.exploratory == (counts[0] < 19)
    assert result.extra_runs_needed is None
    assert result.findings[0].startswith("cycles - misses: rho went from 0.7")


def test_no_change_and_enough_records_are_equivalent() -> None:
    result = inner(*made(2, (20, 5), (0.8, 0.8), n=3000))
    assert result.verdict == "equivalent"
    assert all(pair.verdict == "equivalent" and -0.2 < pair.ci[0] < pair.ci[1] < 0.2 for pair in result.pairs)
    assert result.findings[0].startswith("Every change is shown to be within 0.2 in z")


def test_a_significant_change_within_delta_is_equivalent_not_perturbed() -> None:
    result = inner(*made(3, (20, 5), (0.80, 0.84), n=20_000), delta=0.3)
    assert result.p_value < 0.01
    assert result.verdict == "equivalent"


def test_too_little_data_is_inconclusive_and_says_how_much_more_is_needed() -> None:
    baseline, runs = made(4, (8, 1), (0.5, 0.5), n=100)
    result = inner(baseline, runs)
    assert result.verdict == "inconclusive"
    assert result.exploratory
    assert result.extra_runs_needed is not None
    assert result.too_few
    assert any("allow no p-value below 0.11" in finding for finding in result.findings)
    assert not any("All of them involve" in finding for finding in result.findings)  # every pair is open
    assert any(f"About {result.extra_runs_needed} more baselines" in finding for finding in result.findings)
    rng = np.random.default_rng(5)
    more = [correlated(rng, 0.5, 100) for _ in range(2 * result.extra_runs_needed)]
    settled = inner(baseline + more[::2], runs + more[1::2])
    assert settled.verdict == "equivalent"
    assert not settled.too_few


def test_more_runs_than_anybody_makes_are_not_advised() -> None:
    """A finding that asked for 819 more baselines beside 10 named no other way."""
    result = inner(*made(4, (10, 10), (0.5, 0.5), n=6), delta=0.1)
    assert result.extra_runs_needed is not None
    assert result.extra_runs_needed > 90
    (told,) = (finding for finding in result.findings if "number of further runs" in finding)
    assert told.startswith(f"No reasonable number of further runs would settle it: about {result.extra_runs_needed} ")
    assert "What does: fewer hardware metrics, as all of 3 pairs must be settled" in told


def test_a_forecast_says_how_uncertain_it_is() -> None:
    """The number of runs follows the variance of z, and ten runs tell that to within 0.47 to 3.33 times."""
    few, many = forecast(30, 10), forecast(30, 1000)
    assert (few.low, few.high) == (9, 124)  # 40 * 0.473 - 10 and 40 * 3.333 - 10
    assert (forecast(1, 10).low, forecast(90, 10).affordable, forecast(91, 10).affordable) == (1, True, False)
    assert (forecast(140, 20).affordable, forecast(141, 20).affordable) == (True, False)
    assert many.low <= 30 < many.high < 200
    assert few.range_text == "9 to 124, as 10 runs tell the variance of z roughly"


def test_one_run_needs_nineteen_baselines_to_be_significant() -> None:
    for n_baseline, possible in ((18, False), (19, True)):
        result = inner(*made(6, (n_baseline, 1), (0.8, -0.8)))
        assert result.p_value == pytest.approx(1 / (n_baseline + 1))
        assert (result.verdict == "perturbed") is possible
        assert result.exploratory is not possible


def test_a_metric_that_becomes_constant_is_a_perturbation() -> None:
    baseline, runs = made(7, (20, 5), (0.6, 0.6))
    for table in runs:
        table[:, 2] = 9.0
    result = inner(baseline, runs)
    assert result.verdict == "perturbed"
    fired = [pair for pair in result.pairs if pair.verdict == "perturbed"]
    assert {(pair.a, pair.b) for pair in fired} == {("cycles", "branches"), ("misses", "branches")}
    assert all(np.isnan(pair.delta_z) and np.isnan(pair.run_z) for pair in fired)
    assert fired[0].note.endswith("in 0 of 20 baselines and 5 of 5 runs")
    assert "branches is constant in 0 of 20 baselines and 5 of 5 runs" in " ".join(result.findings)
    assert inner(runs[:4] + runs, baseline[:5]).pairs[0].note.endswith("in 9 of 9 baselines and 0 of 5 runs")


def test_a_metric_that_is_constant_in_one_baseline_is_no_perturbation_and_not_equivalent() -> None:
    baseline, runs = made(8, (20, 5), (0.6, 0.6), n=3000)
    baseline[3][:, 2] = 1.0
    result = inner(baseline, runs)
    assert result.verdict == "inconclusive"
    by_name = {pair.name: pair for pair in result.pairs}
    assert by_name["cycles - misses"].verdict == "equivalent"
    assert by_name["cycles - branches"].verdict == "inconclusive"
    assert np.isfinite(by_name["cycles - branches"].delta_z)
    involved = "All of them involve branches, and no pair of the other metrics is open: to leave it out of the metrics"
    assert any(finding.startswith(involved) for finding in result.findings)


def test_a_metric_that_is_always_constant_is_left_out_and_named() -> None:
    baseline, runs = made(9, (20, 5), (0.6, 0.6), n=3000)
    for table in baseline + runs:
        table[:, 2] = 0.0
    result = inner(baseline, runs)
    assert [pair.name for pair in result.pairs] == ["cycles - misses"]
    assert result.verdict == "equivalent"
    assert "Constant in every run, so without correlations, and left out: branches." in result.findings
    for table in baseline + runs:
        table[:, :2] = 0.0
    nothing = inner(baseline, runs)
    assert nothing.verdict == "inconclusive"
    assert nothing.pairs == ()
    assert nothing.findings[0].startswith("No correlation is defined in any run")


def test_identical_baselines_give_effects_without_p_values() -> None:
    baseline, runs = made(10, (1, 5), (0.8, 0.1))
    result = inner(baseline * 20, runs)
    assert result.verdict == "inconclusive"
    assert np.isnan(result.p_value)
    assert all(np.isnan([pair.p_adjusted, pair.q_value, *pair.ci]).all() for pair in result.pairs)
    assert result.pairs[0].delta_z < -0.5
    assert result.findings[0].startswith("The baselines do not differ from one another")
    alone = inner(baseline, runs)
    assert np.isnan(alone.p_value)
    assert alone.findings[0].startswith("One baseline gives no scale of noise")


def test_perfect_correlations_are_not_assessable_and_their_loss_is_a_perturbation() -> None:
    rng = np.random.default_rng(11)
    baseline = [correlated(rng, 1.0, 3000) for _ in range(20)]
    kept = inner(baseline, [correlated(rng, 1.0, 3000) for _ in range(5)])
    at_ceiling = {pair.name: pair for pair in kept.pairs}["cycles - misses"]
    assert at_ceiling.verdict == "not assessable"
    assert at_ceiling.note == (
        "rho is at the ceiling of 0.99 in 100% of baselines or of runs, where changes and spread count as none"
    )
    assert kept.verdict == "equivalent"
    assert beside(kept) == "1 of 3 pairs is not assessable"
    assert any(finding.startswith("Not assessable, so no absence of change is shown") for finding in kept.findings)
    lost = inner(baseline, [correlated(rng, 0.9) for _ in range(5)])
    assert lost.pairs[0].name == "cycles - misses"
    assert lost.pairs[0].verdict == "perturbed"
    assert "cycles - misses: rho went from 0.99 or more to 0.8" in lost.findings[0]
    assert rho_text(-1.0) == "-0.99 or less"
    assert rhos_text(0.71, 0.25) == "0.71 to 0.25"
    assert rhos_text(0.9874, 0.9866) == "0.9874 to 0.9866"  # were both 0.99
    assert rhos_text(0.5, 0.5) == "0.5000 to 0.5000"


def test_baselines_whose_spread_the_ceiling_hides_do_not_make_runs_scatter_more() -> None:
    """A spread of z at 0.995 is that of values that are cut off: none. Runs at 0.988 show theirs."""

    for paired in (False, True):
        rng = np.random.default_rng(5)
        before, after = ([correlated(rng, rho, 200) for _ in range(20)] for rho in (0.997, 0.988))
        result = inner(before, after, paired=paired)
        capped = next(pair for pair in result.pairs if pair.name == "cycles - misses")
        assert np.isnan(capped.p_spread)
        assert capped.baseline_z_sd < 0.02 < capped.run_z_sd
        assert not any("scatter more" in text for text in result.findings)
        assert np.isfinite([pair.p_spread for pair in result.pairs if pair is not capped]).all()


def test_ties_short_and_unequal_traces_are_told() -> None:
    rng = np.random.default_rng(12)
    tables = [np.round(0.5 * correlated(rng, 0.5, n)) for n in rng.integers(20, 45, 25)]
    result = inner(tables[:20], tables[20:])
    assert "is tied: one value in " in result.pairs[0].note
    assert any(finding.startswith("The shortest trace has 2") for finding in result.findings)


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(4)), st.integers(0, 1000))
def test_inner_does_not_depend_on_the_order_of_metrics(order: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ("a", "b", "c", "d")
    tables = [np.round(3 * correlated(rng, 0.7, 40, extra=2)) for _ in range(9)]

    def analyse(columns: Sequence[int]) -> Perturbation:
        chosen = [names[k] for k in columns]
        found = [spearman(table[:, columns], chosen) for table in tables]
        return inner_perturbation(found[:6], found[6:], seed=seed)

    def facts(pair: Pair) -> list[float]:
        return [
            pair.delta_z,
            pair.baseline_z,
            pair.run_z,
            pair.statistic,
            pair.p_adjusted,
            pair.q_value,
            *pair.ci,
        ]

    plain, shuffled = analyse(range(4)), analyse(order)
    assert plain.verdict == shuffled.verdict
    assert plain.extra_runs_needed == shuffled.extra_runs_needed
    ours = {frozenset((pair.a, pair.b)): facts(pair) for pair in plain.pairs}
    theirs = {frozenset((pair.a, pair.b)): facts(pair) for pair in shuffled.pairs}
    assert ours.keys() == theirs.keys()
    for key, values in ours.items():
        np.testing.assert_allclose(values, theirs[key], atol=1e-9)
        assert 0 < values[4] <= 1
        assert 0 < values[5] <= 1


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize(("counts", "references"), [((20, 5), None), ((20, 1), None), ((12, 5), 6)])
def test_outer_finds_the_disturbed_metric(held_out: bool, counts: tuple[int, int], references: int | None) -> None:
    program = synthetic_program(3, n_records=150, n_metrics=4)
    rng = np.random.default_rng(1)
    baseline = [program.run(rng) for _ in range(counts[0])]
    disturbed = [program.run(rng, Disturbance(noise=1.5)) for _ in range(counts[1])]
    seen: list[tuple[int, int]] = []
    result = outer_perturbation(
        baseline,
        disturbed,
        program.metrics,
        held_out=held_out,
        alignment=UNEVEN_PACE,
        max_reference_runs=references,
        seed=0,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert result.kind == ("outer-held-out" if held_out else "outer-joint")
    assert result.verdict == "perturbed"
    assert result.pairs[0].a == result.pairs[0].b == "metric_0"
    assert result.pairs[0].delta_z < -0.2
    assert result.pairs[0].run_rho < result.pairs[0].baseline_rho
    assert result.n_references == (references or 0)
    assert result.n_baseline == counts[0] - (references or 0)
    pairs = references * (sum(counts) - references) if references else sum(counts) * (sum(counts) - 1) // 2
    assert seen[-1] == (pairs * (4 if held_out else 1),) * 2
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_outer_equivalence_of_undisturbed_runs_of_other_lengths() -> None:
    program = synthetic_program(4, n_records=400, n_metrics=3, noise=0.1)
    rng = np.random.default_rng(2)
    baseline = [program.run(rng) for _ in range(12)]
    slower = [program.run(rng, Disturbance(slowdown=0.4)) for _ in range(6)]
    result = outer_perturbation(
        baseline, slower, program.metrics, held_out=False, delta=0.3, alignment=UNEVEN_PACE, seed=0
    )  # fmt: skip
    assert result.verdict == "equivalent"
    assert any("Instrumented traces have 5" in finding for finding in result.findings)
    # A step penalty that does not suit the program makes a bad merged trace, and the verdict says so.
    stiff = outer_perturbation(baseline, slower, program.metrics, held_out=False, delta=0.3, seed=0)
    assert stiff.verdict == "not assessable"


def test_outer_rise_is_a_finding_and_no_perturbation() -> None:
    program = synthetic_program(5, n_records=150, n_metrics=2)
    rng = np.random.default_rng(3)
    noisy = [program.run(rng, Disturbance(noise=1.0, n_metrics=2)) for _ in range(20)]
    clean = [program.run(rng) for _ in range(6)]
    result = outer_perturbation(noisy, clean, program.metrics, held_out=False, delta=0.12, seed=0)
    assert result.verdict == "not assessable"  # baselines as noisy as these are hardly alike
    assert any("more alike with the baselines" in finding for finding in result.findings)


def test_outer_constant_metrics() -> None:
    program = synthetic_program(6, n_records=120, n_metrics=3)
    rng = np.random.default_rng(4)
    baseline, runs = [program.run(rng) for _ in range(20)], [program.run(rng) for _ in range(3)]
    for table in baseline:
        table[:, 1] = 5.0
    for table in baseline + runs:
        table[:, 2] = 0.0
    result = outer_perturbation(baseline, runs, program.metrics, held_out=True, seed=0)
    assert [pair.a for pair in result.pairs] == ["metric_1", "metric_0"]
    assert result.pairs[0].verdict == "perturbed"
    assert result.pairs[0].note.endswith("in 20 of 20 baselines and 0 of 3 runs")


def test_many_baselines_are_split_into_references_and_standard() -> None:
    program = synthetic_program(7, n_records=40, n_metrics=2)
    rng = np.random.default_rng(5)
    tables = [program.run(rng) for _ in range(50)]
    result = outer_perturbation(tables[:45], tables[45:], program.metrics, held_out=False, seed=0)
    assert (result.n_references, result.n_baseline) == (12, 33)
    assert "12 of 45 baselines served as references to align to, and the other 33 as the standard." in result.findings


def test_few_baselines_are_never_given_away_as_references() -> None:
    program = synthetic_program(7, n_records=30, n_metrics=2)
    rng = np.random.default_rng(5)
    tables = [program.run(rng) for _ in range(46)]
    result = outer_perturbation(tables[:20], tables[20:], program.metrics, held_out=False, seed=0)
    assert (result.n_references, result.n_baseline) == (0, 20)


def test_one_baseline_cannot_be_compared_with_others() -> None:
    program = synthetic_program(7, n_records=30, n_metrics=2)
    rng = np.random.default_rng(5)
    tables = [program.run(rng) for _ in range(4)]
    for count in (1, 2):
        result = outer_perturbation(tables[:count], tables[2:], program.metrics, held_out=False, seed=0)
        assert result.verdict == "not assessable"
        assert result.exploratory
        assert all(np.isnan(pair.ci).all() for pair in result.pairs)


def test_outer_is_the_same_whatever_the_order_of_metrics_and_the_sum_of_its_parts() -> None:
    program = synthetic_program(8, n_records=80, n_metrics=3)
    rng = np.random.default_rng(6)
    tables = [program.run(rng) for _ in range(9)]
    order = [2, 0, 1]
    for held_out in (False, True):
        plain = outer_perturbation(tables[:6], tables[6:], program.metrics, held_out=held_out, seed=0)
        turned = outer_perturbation(
            [table[:, order] for table in tables[:6]],
            [table[:, order] for table in tables[6:]],
            [program.metrics[k] for k in order],
            held_out=held_out,
            seed=0,
        )
        first = {pair.a: pair.delta_z for pair in plain.pairs}
        assert first == pytest.approx({pair.a: pair.delta_z for pair in turned.pairs}, abs=1e-6)


def test_outer_remembers_alignments_and_gives_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    program = synthetic_program(9, n_records=60, n_metrics=3)
    rng = np.random.default_rng(7)
    tables = [program.run(rng) for _ in range(10)]
    memo: Memo = {}

    def analyse(runs: Sequence[Table], memo: Memo | None) -> Perturbation:
        return outer_perturbation(tables[:6], runs, program.metrics, held_out=True, seed=0, memo=memo)

    first = analyse(tables[6:8], memo)
    assert len(memo) == 8 * 7 // 2 + 1  # and the assay
    assert repr(analyse(tables[6:8], None)) == repr(first)  # nan equals nan as text
    analyse(tables[8:], memo)
    assert len(memo) == 8 * 7 // 2 + 2 * 6 + 1 + 1  # the baselines were not aligned again
    monkeypatch.setattr("measure.perturbation.similarity.similarity", None)
    assert repr(analyse(tables[6:8], memo)) == repr(first)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b, r: inner(b, []), "20 baselines and 0 runs: expected at least one of each"),
        (lambda b, r: inner(b, r, delta=0.0), "delta 0.0, alpha 0.05: expected delta above 0"),
        (
            lambda b, r: inner(b, r, alpha=0.7),
            "delta 0.2, alpha 0.7: expected delta above 0 and alpha between",
        ),
        (
            lambda b, r: inner_perturbation(analysed(b), analysed(r, ("cycles", "misses", "stalls")), seed=0),
            "run 0 has metrics cycles, misses, stalls: expected cycles, misses, branches",
        ),
        (
            lambda b, r: outer_perturbation(b, [r[0][:3]], "abc", held_out=False, seed=0),
            "run 0 has 3 records: expected at least 4 to align and correlate",
        ),
        (
            lambda b, r: outer_perturbation([b[0], b[1] * np.nan], r, "abc", held_out=False, seed=0),
            "baseline 1: metric 'a' is nan at record 0",
        ),
        (lambda b, r: outer_perturbation(b, [], "abc", held_out=False, seed=0), "20 baselines and 0 runs"),
        (
            lambda b, r: outer_perturbation([t[:, :1] for t in b], [t[:, :1] for t in r], "a", held_out=True, seed=0),
            "aligning on the other metrics needs at least two metrics",
        ),
        (
            lambda b, r: outer_perturbation(b, r, "abc", held_out=True, max_reference_runs=0, seed=0),
            "max_reference_runs is 0: expected at least 1",
        ),
    ],
)
def test_bad_arguments_are_refused(call: object, message: str) -> None:
    baseline, runs = made(13, (20, 2), (0.5, 0.5), n=30)
    with pytest.raises(ValueError, match=message):
        call(baseline, runs)  # type: ignore[operator]


def test_traces_that_correspond_are_compared_as_they_are() -> None:
    program = synthetic_program(3, n_records=80, n_metrics=3)
    rng = np.random.default_rng(0)
    traces = [program.run(rng)[:70] for _ in range(24)]
    result = outer_perturbation(traces[:20], traces[20:], program.metrics, held_out=False, aligned=True, seed=1)
    own = np.array([[fisher_z(spearmanr(a[:, 0], b[:, 0]).statistic) for b in traces[:20]] for a in traces[20:]])
    pair = next(pair for pair in result.pairs if pair.a == program.metrics[0])
    assert pair.run_z == pytest.approx(own.mean())
    with pytest.raises(ValueError, match="traces of 60 to 70 records are not aligned"):
        outer_perturbation(traces[:2], [traces[2][:60]], program.metrics, held_out=False, aligned=True, seed=1)


def test_copies_of_one_metric_are_not_identical_baselines() -> None:
    rng = np.random.default_rng(14)
    tables = [np.repeat(rng.normal(size=(60, 1)), 2, axis=1) for _ in range(25)]
    result = inner_perturbation(analysed(tables[:20], "ab"), analysed(tables[20:], "ab"), seed=0)
    assert not any("do not differ" in finding for finding in result.findings)


def test_the_number_of_labellings_of_many_runs_is_no_overflow() -> None:
    rng = np.random.default_rng(18)
    tables = [rng.normal(size=(5, 2)) for _ in range(25)]
    for seed in range(18, 22):
        tables = [np.random.default_rng((seed, n)).normal(size=(5, 2)) for n in range(25)]
        assert inner_perturbation(analysed(tables[:20], "ab"), analysed(tables[20:], "ab"), seed=0).pairs


def test_outer_integers_beyond_the_precision_of_floats_keep_their_differences() -> None:
    program = synthetic_program(8, n_records=50, n_metrics=3)
    rng = np.random.default_rng(6)
    tables = [program.run(rng).astype(np.int64) for _ in range(6)]
    small, large = (
        outer_perturbation([t + add for t in tables[:4]], [t + add for t in tables[4:]], "abc", held_out=True, seed=0)
        for add in (0, 2**61)
    )
    assert [pair.delta_z for pair in large.pairs] == pytest.approx([pair.delta_z for pair in small.pairs], abs=1e-9)
