"""The five verdicts, pairs of runs, the shared error budget and the number of missing runs, on correlations that are
drawn with a known change of z."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from measure.perturbation.analysis_types import VERDICTS, Perturbation, gravest
from measure.perturbation.findings import _change
from measure.perturbation.missing_runs import OpenVerdict, extra_runs
from measure.perturbation.perturbation import inner_perturbation, outer_perturbation
from measure.perturbation.verdict import overall_verdict
from measure.perturbation.wording import beside, in_words
from measure.stats.correlation import Correlations
from measure.stats.intervals import Difference
from measure.stats.synthetic import Disturbance, synthetic_program

Table = NDArray[np.float64]


def correlations(z: Table, m: int, ties: float = 0.0) -> list[Correlations]:
    """A run for each row of ``z`` ``(n, m (m - 1) / 2)``."""
    rows, columns = np.triu_indices(m, 1)
    runs = []
    for row in z:
        rho = np.eye(m)
        rho[rows, columns] = rho[columns, rows] = np.tanh(row)
        names = tuple(f"m{index}" for index in range(m))
        runs.append(Correlations(names, rho, np.zeros(m, np.bool_), np.full(m, ties), 3000))
    return runs


def campaign(
    seed: int,
    sizes: tuple[int, int],
    change: float,
    *,
    sd: float = 0.05,
    spread: float = 1.0,
    m: int = 3,
    **options: object,
) -> Perturbation:
    """Runs whose first pair changed by ``change``."""
    rng = np.random.default_rng((seed, *sizes))
    b, r = sizes
    z = 0.4 + sd * rng.normal(size=(b + r, m * (m - 1) // 2))
    z[b:] = 0.4 + spread * (z[b:] - 0.4)
    z[b:, 0] += change
    runs = correlations(z, m)
    return inner_perturbation(runs[:b], runs[b:], n_permutations=999, seed=seed, **options)  # type: ignore[arg-type]


def test_a_small_change_of_a_tied_metric_has_no_open_size_that_further_runs_would_show() -> None:
    rng = np.random.default_rng(1)
    z = 0.4 + 0.02 * rng.normal(size=(25, 3))
    z[20:, 0] += 0.1
    tied = correlations(z, 3, ties=0.9)
    result = inner_perturbation(tied[:20], tied[20:], n_permutations=999, seed=1)
    assert result.verdict == result.pairs[0].verdict == "changed"
    assert result.extra_runs_needed is None
    told = " ".join(result.findings)
    assert "measured as less than 0.2. That size cannot be relied on" in told
    assert "not whether it exceeds" not in told
    assert "would probably" not in told
    z[20:, 1] += 0.2  # the size of this one is open
    both = inner_perturbation((runs := correlations(z, 3, ties=0.9))[:20], runs[20:], n_permutations=999, seed=1)
    told = " ".join(both.findings)
    assert "not whether it exceeds 0.2" in told
    assert "That size cannot be relied on" in told
    assert "would probably" not in told  # the tied pair stays changed with any number of runs


def test_a_change_is_perturbed_changed_or_equivalent_by_where_its_interval_lies() -> None:
    perturbed = campaign(1, (20, 5), 0.6)
    assert perturbed.verdict == "perturbed"
    assert perturbed.pairs[0].simultaneous[0] > 0.2
    changed = campaign(1, (20, 5), 0.22)
    assert changed.verdict == "changed"
    pair = changed.pairs[0]
    assert pair.p_adjusted <= 0.05
    assert pair.simultaneous[0] < 0.2 < pair.ci[1]
    assert f"A change is shown in {changed.pairs[0].name}, but not whether it exceeds 0.2" in " ".join(changed.findings)
    assert in_words(changed).startswith("changed measurably, perhaps by more than delta")
    small = campaign(1, (20, 5), 0.1, sd=0.03)
    assert small.verdict == "equivalent"
    assert small.p_value <= 0.05  # measurable, and of no matter
    assert in_words(small).startswith("changed measurably, by less than delta")


@pytest.mark.parametrize("share", [0.75, 0.9, 1.0])
@pytest.mark.parametrize("paired", [False, True])
def test_a_change_within_delta_is_seldom_called_perturbed(share: float, paired: bool) -> None:
    sizes = (10, 10) if paired else (20, 5)
    called = [campaign(seed, sizes, share * 0.2, paired=paired).verdict == "perturbed" for seed in range(200)]
    assert sum(called) <= binom.ppf(0.999, 200, 0.05)


def test_runs_that_only_scatter_more_are_a_finding_and_no_shift() -> None:
    found = [campaign(seed, (20, 5), 0.0, sd=0.1, spread=2.0, m=8) for seed in range(60)]
    assert sum(result.verdict == "perturbed" for result in found) <= 3
    assert sum(result.verdict == "changed" for result in found) <= 9
    told = [any("scatter more than baselines" in text for text in result.findings) for result in found]
    assert sum(told) >= 38
    assert min(pair.p_spread for pair in found[0].pairs) <= 0.05
    plain = [campaign(seed, (20, 5), 0.0, sd=0.1, m=8) for seed in range(60)]
    told = [any("scatter more than baselines" in text for text in result.findings) for result in plain]
    assert sum(told) <= binom.ppf(0.999, 60, 0.05)


@pytest.mark.parametrize("sizes", [(10, 10), (20, 10), (20, 5)])
def test_a_change_of_the_mean_is_no_change_of_spread(sizes: tuple[int, int]) -> None:
    def told(change: float) -> int:
        found = [campaign(seed, sizes, change, sd=0.07, m=4) for seed in range(80)]
        return sum(any("scatter more than baselines" in text for text in result.findings) for result in found)

    assert max(told(0.0), told(0.4)) <= binom.ppf(0.999, 80, 0.05)


def test_a_spread_that_is_three_times_as_large_is_found_beside_a_change_of_the_mean() -> None:
    found = [campaign(seed, (20, 10), 0.4, sd=0.07, spread=3.0, m=4) for seed in range(40)]
    assert sum(any("scatter more than baselines" in text for text in result.findings) for result in found) >= 38


def test_pairs_find_what_shared_noise_hides() -> None:
    rng = np.random.default_rng(3)
    noise = 0.3 * rng.normal(size=(10, 3))
    before = 0.4 + noise + 0.02 * rng.normal(size=(10, 3))
    after = 0.4 + noise + 0.02 * rng.normal(size=(10, 3)) + [0.3, 0, 0]
    baseline, runs = correlations(before, 3), correlations(after, 3)
    paired = inner_perturbation(baseline, runs, paired=True, seed=0)
    assert paired.verdict == "perturbed"
    assert paired.paired
    assert [pair.verdict for pair in paired.pairs] == ["perturbed", "equivalent", "equivalent"]
    assert paired.p_value == pytest.approx(2 / 1024)
    assert inner_perturbation(baseline, runs, seed=0).verdict == "inconclusive"
    further = correlations(rng.normal(size=(5, 3)), 3)
    assert repr(inner_perturbation([*baseline, *further], runs, paired=True, seed=0)) == repr(paired)


def test_five_pairs_allow_nothing_significant_and_six_do() -> None:
    for pairs, possible in ((5, False), (6, True)):
        result = campaign(2, (pairs, pairs), 0.8, m=2, paired=True)
        assert (result.p_value <= 0.05) is possible
        assert (result.verdict == "perturbed") is possible
        assert result.exploratory is not possible
    assert "allow no p-value below 0.062" in " ".join(campaign(2, (5, 5), 0.3, sd=0.2, m=2, paired=True).findings)
    with pytest.raises(ValueError, match="4 baselines and 5 runs: expected a baseline for each run"):
        campaign(2, (4, 5), 0.0, paired=True)


def test_paired_false_alarms_are_at_most_five_percent() -> None:
    alarms = sum(campaign(seed, (8, 8), 0.0, m=4, paired=True).p_value <= 0.05 for seed in range(200))
    assert alarms <= binom.ppf(0.999, 200, 0.05)


@pytest.mark.parametrize("counts", [(8, 8), (12, 8), (30, 16)])
def test_outer_pairs_find_the_disturbed_metric(counts: tuple[int, int]) -> None:
    """With as many baselines as runs, with further ones, and with so many that these serve as references."""
    program = synthetic_program(3, n_records=80, n_metrics=3)
    rng = np.random.default_rng(1)
    baseline = [program.run(rng) for _ in range(counts[0])]
    disturbed = [program.run(rng, Disturbance(noise=2.0)) for _ in range(counts[1])]
    plain = [program.run(rng) for _ in range(counts[1])]
    options = {"held_out": False, "paired": True, "seed": 0}
    result = outer_perturbation(baseline, disturbed, program.metrics, **options)  # type: ignore[arg-type]
    assert result.verdict == "perturbed"
    assert result.pairs[0].a == "metric_0"
    assert (result.n_baseline, result.n_runs) == (counts[1], counts[1])
    assert result.n_references == (12 if counts == (30, 16) else 0)
    same = outer_perturbation(baseline, plain, program.metrics, **options)  # type: ignore[arg-type]
    assert same.p_value > 0.05


def test_comparisons_share_their_chance_of_a_false_alarm() -> None:
    alone, shared = (campaign(6, (20, 5), 0.12, comparisons=number) for number in (1, 8))
    assert alone.level == 0.05
    assert shared.level == pytest.approx(0.05 / 8)
    assert [pair.p_adjusted for pair in alone.pairs] == [pair.p_adjusted for pair in shared.pairs]
    widths = [result.pairs[0].simultaneous[1] - result.pairs[0].simultaneous[0] for result in (alone, shared)]
    assert widths[1] > 1.2 * widths[0]
    assert alone.pairs[0].ci == shared.pairs[0].ci  # an equivalence needs no share
    few = campaign(5, (20, 1), 0.4, comparisons=2, sd=0.1)
    assert few.exploratory
    assert "nothing can be significant at 0.025 (its share of 0.05 among 2 comparisons)" in " ".join(few.findings)
    with pytest.raises(ValueError, match="comparisons 0: expected at least 1"):
        campaign(5, (20, 5), 0.0, comparisons=0)


def test_the_overall_verdict_is_the_gravest_and_half_of_the_pairs_must_be_assessable() -> None:
    assert VERDICTS == ("perturbed", "changed", "inconclusive", "equivalent", "not assessable")
    assert gravest(["equivalent", "changed", "inconclusive"]) == "changed"
    assert gravest(["not assessable", "equivalent"]) == "equivalent"
    assert gravest([]) == "not assessable"
    assert overall_verdict(["equivalent", "not assessable"]) == "equivalent"
    assert overall_verdict(["equivalent", "not assessable", "not assessable"]) == "not assessable"
    assert overall_verdict(["inconclusive", "not assessable", "not assessable"]) == "inconclusive"
    assert overall_verdict(["perturbed", "not assessable", "not assessable"]) == "perturbed"
    assert overall_verdict([]) == "inconclusive"


def test_tied_metrics_are_not_assessable_but_may_be_perturbed() -> None:
    rng = np.random.default_rng(7)
    z = 0.4 + 0.03 * rng.normal(size=(25, 3))
    tied = correlations(z, 3, ties=0.7)
    result = inner_perturbation(tied[:20], tied[20:], seed=0)
    assert result.verdict == "not assessable"
    assert in_words(result).startswith("an absence of change cannot be shown")
    z[20:] += 0.8
    tied = correlations(z, 3, ties=0.7)
    assert inner_perturbation(tied[:20], tied[20:], seed=0).verdict == "perturbed"


def test_equivalence_from_one_run_is_exploratory_and_says_so() -> None:
    one, three = (campaign(8, (20, runs), 0.0, sd=0.02) for runs in (1, 3))
    assert one.verdict == three.verdict == "equivalent"
    assert one.exploratory
    assert not three.exploratory
    assert beside(one) == "it rests on one run"
    assert beside(three) == ""
    few = replace(one, n_baseline=5, n_runs=5)
    assert beside(few) == "it rests on 5 runs and 5 baselines, which are few"
    assert "one instrumented run shows no spread of its own" in " ".join(one.findings)


def test_a_flag_of_being_undefined_does_not_make_a_small_effect_significant() -> None:
    rng = np.random.default_rng(9)
    z = 0.4 + 0.3 * rng.normal(size=(25, 1))
    z[20:] += 0.25
    runs = correlations(z, 2)
    for n in (20, 21):  # undefined in two of five runs: less than half
        runs[n] = replace(runs[n], rho=np.array([[1, np.nan], [np.nan, 1]]))
    result = inner_perturbation(runs[:20], runs[20:], seed=0)
    assert result.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("sizes", "sd", "small"),
    [((20, 5), 0.15, 0.0), ((20, 5), 0.2, 0.0), ((10, 3), 0.1, 0.0), ((20, 1), 0.12, 0.0), ((20, 5), 0.2, 0.1)],
)
def test_the_number_of_missing_runs_settles_the_verdict_in_most_cases(
    sizes: tuple[int, int], sd: float, small: float
) -> None:
    """``small``: a change within delta of the first pair, which hardly scatters: it is found, and settles nothing."""
    settled = asked = 0
    for seed in range(80):
        rng = np.random.default_rng((seed, 77))
        z = 0.4 + sd * rng.normal(size=(1200, 3))
        if small:
            z[:, 0] = 0.4 + 0.02 * rng.normal(size=1200)
        b, r = sizes
        z[b : b + r, 0] += small
        runs = correlations(z[: b + r], 3)
        first = inner_perturbation(runs[:b], runs[b:], n_permutations=499, seed=seed)
        if first.verdict != "inconclusive" or first.extra_runs_needed is None or first.extra_runs_needed > 550:
            continue
        n = first.extra_runs_needed
        z[b + r + n :, 0] += small
        more = correlations(z[b + r : b + r + 2 * n], 3)
        baseline, instrumented = runs[:b] + more[:n], runs[b:] + more[n:]
        asked += 1
        settled += inner_perturbation(baseline, instrumented, n_permutations=499, seed=seed).verdict != "inconclusive"
    assert asked >= 15
    assert settled >= binom.ppf(0.01, asked, 0.8)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_missing_runs_are_counted_without_overflow_and_end() -> None:
    estimate = Difference(0.0, -0.3, 0.3, 0.5, 0.5, False)
    verdict = OpenVerdict([estimate], 900, 900, 0.2, 0.05, 0.05, 3.0, False, False, 1)
    assert extra_runs(verdict) == 1  # hundreds of runs have labellings beyond the largest float
    at_limit = replace(verdict, estimates=[replace(estimate, delta=0.2)], n_baseline=20, n_runs=5, size_open=True)
    assert extra_runs(at_limit) is None
    unknown = replace(verdict, estimates=[replace(estimate, low=float("nan"))])
    assert extra_runs(unknown) is None
    alike = replace(estimate, low=0.0, high=0.0, baseline_sd=0.0, run_sd=0.0)
    assert extra_runs(replace(verdict, estimates=[alike], n_baseline=20, n_runs=5)) == 1
    apart = replace(alike, delta=0.3, low=0.3, high=0.3)
    assert extra_runs(replace(verdict, estimates=[apart], n_baseline=20, n_runs=5)) == 1
    far = replace(verdict, estimates=[replace(estimate, delta=0.05)], n_baseline=20, n_runs=5)
    near = replace(far, delta=0.5)
    few, many = extra_runs(near), extra_runs(far)
    small = Difference(0.1, 0.08, 0.12, 0.02, 0.02, False)  # significant, and within delta: it settles nothing
    assert extra_runs(replace(far, estimates=[small, *far.estimates])) == many
    assert few is not None
    assert many is not None
    assert few < many


def test_an_interval_around_no_change_beside_a_change_that_is_shown_is_explained() -> None:
    result = campaign(8, (20, 5), 0.0, sd=0.02)
    shown = replace(result.pairs[0], simultaneous=(-0.85, 0.03), p_adjusted=0.031, verdict="changed")
    assert _change(shown, result).endswith("0.031, by a test that is sharper than the interval)")
    for other in (replace(shown, simultaneous=(-0.85, -0.03)), replace(shown, p_adjusted=0.3)):
        assert "sharper" not in _change(other, result)


@pytest.mark.parametrize("n", [10, 20])
def test_pairs_that_no_further_runs_settle_are_in_no_forecast(n: int) -> None:
    rng = np.random.default_rng(4)
    runs = correlations(0.4 + 0.02 * rng.normal(size=(2 * n, 3)), 3)
    rho = runs[-1].rho.copy()
    rho[2, :] = rho[:, 2] = np.nan  # m2 is constant in the last run
    runs[-1] = replace(runs[-1], rho=rho, constant=np.array([False, False, True]))
    result = inner_perturbation(runs[:n], runs[n:], seed=0)
    assert [(pair.name, pair.verdict) for pair in result.pairs if pair.verdict != "inconclusive"] == [
        ("m0 - m1", "equivalent")
    ]
    assert result.extra_runs_needed is None
    assert not any("more baseline" in text for text in result.findings)
    told = next(text for text in result.findings if text.startswith("Further runs do not settle "))
    assert "are undefined in some runs because a metric is constant there. Look at its signal: leave these runs" in told
