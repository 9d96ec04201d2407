"""Drift over the runs of a group, and what the order of runs allows to say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from measure.perturbation.perturbation import inner_perturbation
from measure.perturbation.run_order import FEWEST_RUNS, Drift, Order, drift_of, weighed
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
    assert drift.correlation > 0.7
    assert drift.p_value <= 0.01
    assert np.isnan(drift_of(correlations(z[: FEWEST_RUNS - 1]), 0).p_value)
    assert np.isnan(drift_of(correlations(np.full((9, 3), 0.5)), 0).p_value)


STEADY, DRIFTING = Drift(0.4, ("a", "b"), 0.1), Drift(0.001, ("a", "b"), 0.8)


@pytest.mark.parametrize(
    ("order", "drift", "verdict"),
    [
        ("unknown", STEADY, "perturbed"),
        ("interleaved", DRIFTING, "perturbed"),
        ("unknown", DRIFTING, "inconclusive"),
        ("blocks", DRIFTING, "inconclusive"),
        ("blocks", STEADY, "changed"),
    ],
)
def test_the_order_of_runs_weakens_a_verdict(order: Order, drift: Drift, verdict: str) -> None:
    rng = np.random.default_rng(3)
    z = 0.4 + 0.03 * rng.normal(size=(25, 3))
    z[20:, 0] += 0.6
    result = inner_perturbation(correlations(z[:20]), correlations(z[20:]), seed=0)
    assert result.verdict == "perturbed"
    told = weighed(result, order, [("baseline", drift)])
    assert told.verdict == verdict
    assert told.pairs[0].verdict == verdict
    assert told.pairs[1].verdict == "equivalent"
    assert (told == result) is (verdict == "perturbed")
    if verdict != "perturbed":
        assert f"the verdict would be perturbed, as the next sentences say; it is {verdict}" in told.findings[0]


def test_drift_with_all_baselines_first_is_seldom_a_perturbation() -> None:
    called = 0
    for seed in range(100):
        everything = runs(seed, 25, 0.8)
        result = inner_perturbation(everything[:20], everything[20:], n_permutations=499, seed=seed)
        drifts = [("baseline", drift_of(everything[:20], seed))]
        called += weighed(result, "blocks", drifts).verdict == "perturbed"
    assert called == 0
