"""The intervals for a difference between runs and baselines, unpaired and paired."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from measure.stats.intervals import difference, paired_difference


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


def test_a_paired_difference_is_students_interval() -> None:
    rng = np.random.default_rng(6)
    baseline = rng.normal(0, 1, 9)
    runs = baseline + rng.normal(0.3, 0.1, 9)
    result = paired_difference(baseline, runs, 0.05)
    expected = stats.ttest_rel(runs, baseline).confidence_interval(0.9)
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high))
    assert result.paired
    with_gap = paired_difference(np.append(baseline, np.nan), np.append(runs, 1.0), 0.05)
    assert (with_gap.low, with_gap.high) == (result.low, result.high)
    assert np.isnan(paired_difference(baseline[:1], runs[:1], 0.05).low)
