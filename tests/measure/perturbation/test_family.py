"""Comparisons in pairs that are tested together: one flip of signs for all of them, one largest statistic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from measure.perturbation.analysis_types import Perturbation
from measure.perturbation.perturbation import inner_evidence, inner_perturbation
from measure.perturbation.verdict import Evidence, Family
from measure.stats.correlation import Correlations
from measure.stats.permutation import VARIANCE_FLOOR, sign_flips

METRICS = ("a", "b", "c")
N_PAIRS = 3


def correlations(z: NDArray[np.float64]) -> list[Correlations]:
    """Runs with the given z of their pairs, ``(n, 3)``."""
    made = []
    for row in z:
        rho = np.eye(3)
        rho[np.triu_indices(3, 1)] = np.tanh(row)
        made.append(Correlations(METRICS, rho, np.zeros(3, np.bool_), np.zeros(3), 100))
    return made


def campaign(
    seed: int, n_runs: int, n_variants: int, *, change: float = 0.0, skewed: bool = False
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """z of baselines and of each variant's runs, ``(n_runs, 3)`` each, which share noise; the first may be changed."""
    rng = np.random.default_rng(seed)
    draw = rng.lognormal if skewed else rng.normal
    shared = 0.1 * draw(size=(n_runs, N_PAIRS))
    baseline, *runs = (0.3 + shared + 0.05 * draw(size=shared.shape) for _ in range(n_variants + 1))
    runs[0] = runs[0] + change
    return baseline, runs


def evidence(
    baseline: NDArray[np.float64], runs: NDArray[np.float64], kept: Sequence[int] | None = None, pairs: int = 0
) -> Evidence:
    """Of the pairs ``kept`` of all ``pairs``, by the flips of all."""
    kept = list(range(len(runs))) if kept is None else list(kept)
    flips = sign_flips(pairs or len(baseline), 9999, 0).of_pairs(kept)
    return inner_evidence(correlations(baseline[kept]), correlations(runs[kept]), paired=True, flips=flips)


def rounded(result: Perturbation) -> str:
    """A result with its numbers to 12 digits: sums over arrays of another memory order differ in the last ones."""
    return re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda number: f"{float(number[0]):.12g}", repr(result))


def naive(differences: Sequence[NDArray[np.float64]], kept: Sequence[Sequence[int]], n: int) -> list[list[float]]:
    """p-values by loops over all flips of ``n`` pairs: of each comparison's columns, over all of them."""

    def statistic(values: NDArray[np.float64]) -> float:
        square = (values**2).mean()
        variance = max(square - values.mean() ** 2, VARIANCE_FLOOR * square)
        return abs(values.mean()) / np.sqrt(variance / (len(values) - 1))

    def all_of(signs: NDArray[np.float64]) -> list[list[float]]:
        return [
            [statistic(one[rows, column] * signs[rows]) for column in range(one.shape[1])]
            for one, rows in zip(differences, kept, strict=True)
        ]

    observed = all_of(np.ones(n))
    largest = [max(max(one) for one in all_of(np.array(signs))) for signs in product([1.0, -1.0], repeat=n)]
    return [[float(np.mean([x >= value - 1e-9 for x in largest])) for value in one] for one in observed]


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 1000))
def test_the_family_equals_loops_over_all_flips(seed: int) -> None:
    baseline, runs = campaign(seed, 7, 2, change=0.05)
    kept = [list(range(7)), [0, 2, 3, 4, 5, 6]]  # a run of the second variant failed
    found = Family(
        [evidence(baseline, one, rows, 7) for one, rows in zip(runs, kept, strict=True)], delta=0.2, alpha=0.05
    ).judgements()
    expected = naive([one - baseline for one in runs], kept, 7)
    for one, p in zip(found, expected, strict=True):
        assert one.level == 0.05
        assert one.together == one.comparisons == 2
        names = [(a, b) for n, a in enumerate(METRICS) for b in METRICS[n + 1 :]]
        adjusted = {(pair.a, pair.b): pair.p_adjusted for pair in one.pairs}
        assert [adjusted[name] for name in names] == pytest.approx(p)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1000), st.permutations(range(3)))
def test_the_order_of_variants_does_not_matter(seed: int, order: list[int]) -> None:
    baseline, runs = campaign(seed, 8, 3, change=0.1)
    parts = [evidence(baseline, one) for one in runs]
    found = Family(parts, delta=0.2, alpha=0.05).judgements()
    turned = Family([parts[n] for n in order], delta=0.2, alpha=0.05).judgements()
    assert [rounded(found[n]) for n in order] == [rounded(one) for one in turned]


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1000), st.integers(2, 12))
@example(163, 7)  # differs in the last digit
def test_a_family_of_one_is_the_single_judgement(seed: int, n_runs: int) -> None:
    baseline, (runs,) = campaign(seed, n_runs, 1, change=0.2)
    alone = inner_perturbation(correlations(baseline), correlations(runs), paired=True, seed=0)
    (found,) = Family([evidence(baseline, runs)], delta=0.2, alpha=0.05).judgements()
    assert rounded(found) == rounded(alone)
    # Copies of one comparison are one comparison: nothing is paid for them.
    copies = Family([evidence(baseline, runs)] * 4, delta=0.2, alpha=0.05).judgements()
    assert [one.p_value for one in copies] == pytest.approx([alone.p_value] * 4)


def test_a_comparison_beside_the_family_is_tested_as_strictly_and_costs_it_nothing() -> None:
    baseline, runs = campaign(3, 10, 4)
    parts = [evidence(baseline, one) for one in runs]
    family = Family(parts[:3], delta=0.2, alpha=0.05)
    before = [one.p_value for one in family.judgements()]
    beside = family.beside(parts[3])
    assert [one.p_value for one in family.judgements()] == before
    inside = Family(parts, delta=0.2, alpha=0.05).judgements()[3]
    assert beside.p_value == inside.p_value
    assert beside.pairs == inside.pairs
    with pytest.raises(ValueError, match="comparisons with 64 and 128 labellings"):
        Family([evidence(b := baseline[:n], runs[0][: len(b)]) for n in (6, 7)], delta=0.2, alpha=0.05)


@pytest.mark.parametrize("skewed", [False, True])
def test_false_alarms_over_the_variants_of_a_campaign_are_at_most_five_percent(skewed: bool) -> None:
    """Five variants, 200 campaigns: 5% with an exact 99.9% interval reaches 11%."""
    alarms = 0
    for seed in range(200):
        baseline, runs = campaign(seed, 8, 5, skewed=skewed)
        found = Family([evidence(baseline, one) for one in runs], delta=0.2, alpha=0.05).judgements()
        alarms += any(one.p_value <= one.level for one in found)
    assert 1 <= alarms <= 22


def test_six_pairs_of_several_variants_find_a_change_that_equal_shares_of_alpha_cannot() -> None:
    baseline, runs = campaign(5, 6, 3, change=0.6)
    family = Family([evidence(baseline, one) for one in runs], delta=0.2, alpha=0.05).judgements()
    assert [one.verdict for one in family] == ["perturbed", *(one.verdict for one in family[1:])]
    assert family[0].p_value == pytest.approx(2 / 2**6)
    apart = Family([evidence(baseline, runs[0])], delta=0.2, alpha=0.05, comparisons=3).judgements()[0]
    assert apart.verdict in ("inconclusive", "not assessable")
    assert apart.level == pytest.approx(0.05 / 3)


@pytest.mark.parametrize("left", [2, 3, 5])
def test_the_pairs_that_are_left_of_a_paired_campaign_keep_the_error_rates(left: int) -> None:
    """Runs of 8 pairs, most of which failed: nothing is called changed, and a change of delta seldom equivalent."""
    found = []
    for seed in range(200):
        baseline, (runs,) = campaign(seed, 8, 1, change=0.2)
        found.append(
            inner_perturbation(correlations(baseline[:left]), correlations(runs[:left]), paired=True, seed=0)
        )  # fmt: skip
    assert all(one.verdict in ("inconclusive", "equivalent") and one.too_few for one in found)
    assert all(one.p_value >= 2 / 2**left for one in found)
    said = next(" ".join(one.findings) for one in found if one.verdict == "inconclusive")
    assert f"{left} pairs of a baseline and a run allow no p-value below {2 / 2**left:.3f}, so nothing can be" in said
    assert "a change is about as large as the limit" not in said
    equivalent = [pair.verdict == "equivalent" for one in found for pair in one.pairs]
    assert np.mean(equivalent) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(equivalent))
    unchanged = [campaign(seed, 8, 1) for seed in range(200)]
    bounds = [
        pair.ci
        for baseline, (runs,) in unchanged
        for pair in inner_perturbation(
            correlations(baseline[:left]), correlations(runs[:left]), paired=True, seed=0
        ).pairs
    ]
    covered = np.mean([low <= 0 <= high for low, high in bounds])
    assert abs(covered - 0.9) <= 3 * np.sqrt(0.9 * 0.1 / len(bounds))
