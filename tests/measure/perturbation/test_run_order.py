"""Drift over the runs of a group, and what the order of runs allows to say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from measure.perturbation.perturbation import inner_perturbation
from measure.perturbation.run_order import FEWEST_RUNS, Order, drift_of, weighed
from measure.stats.correlation import Correlations
from measure.stats.synthetic import autoregression


def correlations(z: NDArray[np.float64]) -> list[Correlations]:
    """Runs of three metrics from ``z`` ``(n, 3)``."""
    rows, columns = np.triu_indices(3, 1)
    made = []
    for row in z:
        rho = np.eye(3)
        rho[rows, columns] = rho[columns, rows] = np.tanh(row)
        made.append(Correlations(("a", "b", "c"), rho, np.zeros(3, np.bool_), np.zeros(3), 500))
    return made


def runs(seed: int, n: int, persistence: float) -> list[Correlations]:
    rng = np.random.default_rng(seed)
    return correlations(0.4 + 0.1 * autoregression(rng, n, 1, persistence) + 0.02 * rng.normal(size=(n, 3)))


def test_drift_is_found_and_its_absence_seldom_called_drift() -> None:
    found = [drift_of(runs(seed, 20, 0.9), seed).p_value <= 0.05 for seed in range(60)]
    assert sum(found) >= 48
    alarms = [drift_of(runs(seed, 20, 0.0), seed).p_value <= 0.05 for seed in range(200)]
    assert sum(alarms) <= binom.ppf(0.999, 200, 0.05)


def test_the_pair_that_drifts_most_is_named_and_few_runs_are_not_judged() -> None:
    rng = np.random.default_rng(2)
    z = 0.4 + 0.05 * rng.normal(size=(20, 3))
    z[:, 1] = np.linspace(0, 1, 20)
    drift = drift_of(correlations(z), 0)
    assert drift.pair == ("a", "c")
    assert drift.correlations["a", "c"] > 0.7
    assert drift.p_value == drift.p_values["a", "c"] <= 0.01
    assert min(drift.p_values["a", "b"], drift.p_values["b", "c"]) > 0.05
    assert set(drift_of(correlations(z), 0, [("a", "b"), ("b", "c")]).p_values) == {("a", "b"), ("b", "c")}
    assert np.isnan(drift_of(correlations(z[: FEWEST_RUNS - 1]), 0).p_value)
    assert np.isnan(drift_of(correlations(np.full((9, 3), 0.5)), 0).p_value)


def test_a_drift_that_only_the_mean_over_pairs_shows_names_no_pair() -> None:
    rng = np.random.default_rng(13)
    z = 0.4 + 0.1 * np.linspace(-1, 1, 20)[:, np.newaxis] + 0.1 * rng.normal(size=(20, 3))
    drift = drift_of(correlations(z), 1)
    assert drift.pair is None
    assert drift.p_value == drift.together[1] <= 0.05 < min(drift.p_values.values())
    result = inner_perturbation(correlations(z), correlations(z[::-1]), seed=0)
    told = weighed(result, "unknown", [("baseline", correlations(z))], 1).findings[0]
    assert told.startswith("The runs of baseline drift in their order: the mean of z over all pairs correlates at ")


def drifting_campaign(pair: int, changed: list[int], seed: int = 3) -> tuple[list[Correlations], list[Correlations]]:
    """20 baselines in which one pair drifts, and 5 runs in which some have changed."""
    rng = np.random.default_rng(seed)
    z = 0.4 + 0.03 * rng.normal(size=(25, 3))
    z[:20, pair] += np.linspace(-0.1, 0.1, 20)
    z[20:, changed] += 0.6
    return correlations(z[:20]), correlations(z[20:])


@pytest.mark.parametrize(
    ("order", "drifts", "verdict"),
    [
        ("unknown", 1, "perturbed"),
        ("interleaved", 0, "perturbed"),
        ("unknown", 0, "inconclusive"),
        ("blocks", 0, "inconclusive"),
        ("blocks", 1, "changed"),
    ],
)
def test_the_order_of_runs_weakens_the_verdict_on_a_pair_that_drifts_itself(
    order: Order, drifts: int, verdict: str
) -> None:
    baseline, after = drifting_campaign(drifts, [0])
    result = inner_perturbation(baseline, after, seed=0)
    assert result.verdict == "perturbed"
    told = weighed(result, order, [("baseline", baseline), ("after", after)], 0)
    assert told.verdict == verdict
    assert next(pair for pair in told.pairs if pair.name == "a - b").verdict == verdict
    assert (told == result) is (verdict == "perturbed")
    if verdict != "perturbed":
        assert f"the verdict would be perturbed, as the next sentences say; it is {verdict}" in told.findings[0]


def test_a_change_of_another_pair_stands_beside_one_that_may_be_drift() -> None:
    baseline, after = drifting_campaign(0, [0, 1], seed=4)
    result = inner_perturbation(baseline, after, seed=0)
    assert {pair.name for pair in result.of("perturbed")} == {"a - b", "a - c"}
    told = weighed(result, "unknown", [("baseline", baseline), ("after", after)], 0)
    assert [(pair.name, pair.verdict) for pair in told.pairs] == [
        ("a - c", "perturbed"), ("a - b", "inconclusive"), ("b - c", "equivalent"),
    ]  # fmt: skip
    assert told.verdict == "perturbed"
    assert told.findings[0].startswith("The runs of baseline drift in their order: z of a - b correlates at 0.64 from ")
    assert told.findings[0].endswith(
        "So a - b may not have changed (inconclusive), and the verdict rests on the others."
    )


def test_a_large_change_is_seldom_called_drift_where_nothing_drifts() -> None:
    weakened = told = 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        z = 0.4 + 0.07 * rng.normal(size=(30, 3))
        z[20:, 0] += 0.8
        groups = [("baseline", correlations(z[:20])), ("after", correlations(z[20:]))]
        result = inner_perturbation(groups[0][1], groups[1][1], n_permutations=199, seed=seed)
        weakened += weighed(result, "unknown", groups, seed).verdict != "perturbed"
        same = inner_perturbation(groups[0][1], groups[0][1], n_permutations=9, seed=seed)
        told += len(weighed(same, "unknown", groups, seed).findings) > len(same.findings)
    assert max(weakened, told) <= binom.ppf(0.999, 80, 0.05)


def test_drift_with_all_baselines_first_is_seldom_a_perturbation() -> None:
    called = 0
    for seed in range(100):
        everything = runs(seed, 25, 0.8)
        result = inner_perturbation(everything[:20], everything[20:], n_permutations=499, seed=seed)
        called += weighed(result, "blocks", [("baseline", everything[:20])], seed).verdict == "perturbed"
    assert called == 0
