"""The interval for a difference between runs and baselines, and the number of runs that settles a question."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from measure.stats.intervals import Difference, difference, extra_runs_for


def test_interval_is_welch_when_the_runs_vary_more() -> None:
    rng = np.random.default_rng(0)
    baseline, runs = rng.normal(0, 0.1, 20), rng.normal(0.5, 0.5, 6)
    result = difference(baseline, runs, 0.05)
    expected = stats.ttest_ind(runs, baseline, equal_var=False).confidence_interval(0.9)
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high))
    assert result.own_spread


def test_runs_that_happen_to_agree_borrow_the_spread_of_the_baselines() -> None:
    baseline = np.random.default_rng(1).normal(size=12)
    agreeing = difference(baseline, np.array([0.3, 0.3, 0.3]), 0.05)
    half = stats.t.ppf(0.95, 11) * baseline.std(ddof=1) * np.sqrt(1 / 12 + 1 / 3)
    assert agreeing.high - agreeing.delta == pytest.approx(half)
    assert agreeing.run_sd == agreeing.baseline_sd
    assert not agreeing.own_spread


@pytest.mark.parametrize(
    ("b", "r", "run_spread"),
    # The spread of one run cannot be seen, and that of two hardly: there it has to be the baselines' or less.
    [(b, r, s) for b, r in ((20, 1), (20, 2)) for s in (0.5, 1.0)]
    + [(b, r, s) for b, r in ((20, 5), (8, 3)) for s in (0.5, 1.0, 3.0)],
)
def test_interval_covers(b: int, r: int, run_spread: float) -> None:
    rng = np.random.default_rng(2)
    trials = 800
    covered = 0
    for _ in range(trials):
        result = difference(rng.normal(0, 1, b), rng.normal(0.7, run_spread, r), 0.05)
        covered += result.low < 0.7 < result.high
    assert covered / trials > 0.9 - 3.5 * np.sqrt(0.9 * 0.1 / trials)


def test_undefined_values_are_left_out_and_one_baseline_gives_no_interval() -> None:
    baseline = np.array([0.1, np.nan, 0.3, 0.2])
    result = difference(baseline, np.array([np.nan, 0.5]), 0.05)
    assert result == difference(np.array([0.1, 0.3, 0.2]), np.array([0.5]), 0.05)
    alone = difference(np.array([0.1]), np.array([0.5, 0.6]), 0.05)
    assert alone.delta == pytest.approx(0.45)
    assert np.isnan([alone.low, alone.high]).all()
    assert np.isnan(difference(np.array([np.nan, np.nan]), np.array([0.5]), 0.05).delta)


def test_extra_runs_give_the_power_they_promise() -> None:
    estimate = Difference(0.05, -0.1, 0.2, 0.1, 0.1, False)
    extra = extra_runs_for(estimate, 10, 2, margin=0.15, tail=0.05)
    assert extra is not None
    assert extra > 1

    def power(k: int) -> float:
        rng = np.random.default_rng(5)
        hits = 0
        for _ in range(1500):
            result = difference(rng.normal(0, 0.1, 10 + k), rng.normal(0.05, 0.1, 2 + k), 0.05)
            hits += result.high < 0.2
        return hits / 1500

    assert power(extra) > 0.72  # the borrowed spread is a little conservative
    assert power(extra - 2) < 0.85


def test_no_number_of_runs_settles_a_change_at_the_limit() -> None:
    estimate = Difference(0.2, 0.1, 0.3, 0.1, 0.1, False)
    assert extra_runs_for(estimate, 20, 5, margin=0.0, tail=0.05) is None
    assert extra_runs_for(estimate, 20, 5, margin=1e-4, tail=0.05) is None
    unknown = Difference(0.2, float("nan"), float("nan"), float("nan"), float("nan"), False)
    assert extra_runs_for(unknown, 1, 5, margin=0.1, tail=0.05) is None
