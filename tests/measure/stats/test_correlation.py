"""Spearman, Fisher's z and the within-trace interval, against scipy and against simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy import stats

from measure.stats.correlation import (
    RHO_CEILING,
    automatic_block_records,
    average_ranks,
    fisher_z,
    spearman,
    stationary_bootstrap_interval,
)
from measure.stats.synthetic import autoregression

steady = settings(deadline=None)  # machines are shared

TABLES = st.tuples(st.integers(4, 40), st.integers(2, 5), st.sampled_from([3, 1000])).flatmap(
    lambda size: arrays(np.int64, size[:2], elements=st.integers(0, size[2]))
)


def names(count: int) -> list[str]:
    return [f"metric_{index}" for index in range(count)]


@steady
@given(TABLES)
def test_spearman_equals_scipy_with_and_without_ties(table: NDArray[np.int64]) -> None:
    ours = spearman(table, names(table.shape[1]))
    for i in range(table.shape[1]):
        assert ours.constant[i] == (len(set(table[:, i].tolist())) == 1)
        for j in range(table.shape[1]):
            if ours.constant[i] or ours.constant[j]:
                assert np.isnan(ours.rho[i, j])
            else:
                assert ours.rho[i, j] == pytest.approx(stats.spearmanr(table[:, i], table[:, j])[0], abs=1e-12)


@steady
@given(arrays(np.float64, st.integers(1, 60), elements=st.integers(0, 9).map(float)))
def test_ranks_and_ties_equal_scipy_and_counting(values: NDArray[np.float64]) -> None:
    ranks, most = average_ranks(values)
    np.testing.assert_array_equal(ranks, stats.rankdata(values))
    listed = values.tolist()
    largest = max(listed.count(value) for value in listed)
    assert most == (largest if largest > 1 else 0)


@steady
@given(arrays(np.int64, (30, 3), elements=st.integers(-50, 50)))
def test_spearman_ignores_monotone_transforms_and_changes_sign_under_reversal(
    table: NDArray[np.int64],
) -> None:
    plain = spearman(table, names(3))
    bent = np.column_stack([table[:, 0] ** 3, np.exp(table[:, 1] / 10), -table[:, 2]])
    transformed = spearman(bent, names(3))
    assert transformed.rho[0, 1] == pytest.approx(plain.rho[0, 1], nan_ok=True)
    assert transformed.rho[0, 2] == pytest.approx(-plain.rho[0, 2], nan_ok=True)
    np.testing.assert_array_equal(transformed.tie_fraction, plain.tie_fraction)


def test_constant_and_tied_metrics_are_reported() -> None:
    table = np.column_stack([np.arange(8), np.full(8, 3), [0, 0, 0, 0, 1, 2, 3, 4]])
    result = spearman(table, ("cycles", "faults", "misses"))
    assert result.constant.tolist() == [False, True, False]
    assert result.tie_fraction.tolist() == [0.0, 1.0, 0.5]
    assert np.isnan(result.rho[1]).all()
    assert np.isnan(result.rho[:, 1]).all()
    assert result.rho[0, 0] == 1.0
    assert result.n_records == 8


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            np.array([[1.0, 2], [3, np.nan], [5, 6], [7, 8]]),
            "metric 'misses' is nan at record 1: expected a finite",
        ),
        (
            np.array([[1.0, 2], [3, 4], [np.inf, 6], [7, 8]]),
            "metric 'cycles' is inf at record 2: expected a finite",
        ),
        (np.ones((3, 2)), "a trace of 3 records is too short to correlate: expected at least 4"),
        (np.ones((9, 3)), r"values have shape \(9, 3\): expected \(records, 2\)"),
    ],
)
def test_bad_values_are_refused_by_name(table: NDArray[np.float64], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spearman(table, ("cycles", "misses"))


def test_fisher_z_is_atanh_below_its_ceiling() -> None:
    rho = np.array([-0.5, 0.0, 0.3, RHO_CEILING])
    np.testing.assert_allclose(fisher_z(rho), np.arctanh(rho))
    assert fisher_z(1.0) == fisher_z(RHO_CEILING) == -fisher_z(-1.0)
    assert np.isnan(fisher_z(np.nan))


def test_block_length_follows_the_autocorrelation() -> None:
    rng = np.random.default_rng(1)
    lengths = [
        np.median([automatic_block_records(autoregression(rng, 1000, 1, persistence)[:, 0]) for _ in range(20)])
        for persistence in (0.0, 0.5, 0.9)
    ]
    assert lengths[0] < 5 < lengths[1] < lengths[2] < 3 * np.sqrt(1000)
    assert automatic_block_records(np.ones(100)) == 1.0


def test_block_length_of_an_ar_process_is_near_the_optimum_of_its_spectrum() -> None:
    # For AR(1) the sums of R(k) and of |k| R(k) are R0 (1 + a)/(1 - a) and 2 R0 a/(1 - a)^2.
    a, n = 0.7, 4000
    optimum = (2 * a / (1 - a**2)) ** (2 / 3) * n ** (1 / 3)
    rng = np.random.default_rng(2)
    chosen = [automatic_block_records(autoregression(rng, n, 1, a)[:, 0]) for _ in range(30)]
    assert np.median(chosen) == pytest.approx(optimum, rel=0.25)


def test_stationary_bootstrap_covers_where_independent_resampling_does_not() -> None:
    rng = np.random.default_rng(3)
    truth = 6 / np.pi * np.arcsin(0.5 / 2)  # Spearman's rho of a normal pair of correlation 0.5
    covered = {"blocks": 0, "records": 0}
    trials = 60
    for trial in range(trials):
        series = autoregression(rng, 600, 2, 0.9)
        pair = np.column_stack([series[:, 0], 0.5 * series[:, 0] + np.sqrt(0.75) * series[:, 1]])
        for kind, block in (("blocks", None), ("records", 1.0)):
            low, high = stationary_bootstrap_interval(pair, n_resamples=150, block_records=block, seed=trial)
            covered[kind] += low < truth < high
    assert covered["blocks"] / trials > 0.8
    assert covered["records"] / trials < 0.65


def test_bootstrap_is_seeded_and_handles_constant_and_perfect_pairs() -> None:
    rng = np.random.default_rng(4)
    pair = rng.integers(0, 5, (100, 2))
    first = stationary_bootstrap_interval(pair, n_resamples=50, seed=1)
    assert first == stationary_bootstrap_interval(pair, n_resamples=50, seed=1)
    assert first != stationary_bootstrap_interval(pair, n_resamples=50, seed=2)
    assert np.isnan(stationary_bootstrap_interval(np.column_stack([pair[:, 0], np.ones(100)]), seed=1)).all()
    low, high = stationary_bootstrap_interval(np.column_stack([pair[:, 0], pair[:, 0]]), n_resamples=50, seed=1)
    assert 0.99 < low <= high <= 1.0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_bootstrap_interval_is_ordered_and_within_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = stationary_bootstrap_interval(rng.integers(0, 4, (20, 2)), n_resamples=30, seed=seed)
    assert -1 <= low <= high <= 1


def test_integers_beyond_the_precision_of_floats_are_ranked_as_they_are() -> None:
    rng = np.random.default_rng(5)
    small = rng.integers(0, 40, (60, 3))
    for kind, offset in ((np.int64, 2**62), (np.uint64, 2**63)):
        large = small.astype(kind) + np.array(offset, kind)
        assert len(np.unique(large.astype(np.float64))) == 1  # as floats they all are equal
        np.testing.assert_array_equal(spearman(large, "abc").rho, spearman(small, "abc").rho)
        assert spearman(large, "abc").tie_fraction.tolist() == spearman(small, "abc").tie_fraction.tolist()
