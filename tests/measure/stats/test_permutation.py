"""Labellings, max-T and its statistics, against plain loops."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from measure.stats.permutation import (
    cross_differences,
    false_discovery_rates,
    labellings,
    max_t,
    mean_differences,
)

steady = settings(deadline=None)  # machines are shared


@pytest.mark.parametrize(("n_baseline", "n_runs"), [(5, 1), (4, 3), (1, 1), (3, 3)])
def test_few_labellings_are_all_enumerated_observed_first(n_baseline: int, n_runs: int) -> None:
    result = labellings(n_baseline, n_runs, 1000, seed=0)
    assert result.exact
    rows = {tuple(row) for row in result.labels.astype(int).tolist()}
    assert len(rows) == len(result.labels) == comb(n_baseline + n_runs, n_runs)
    assert all(sum(row) == n_runs for row in rows)
    assert result.labels[0].tolist() == [0.0] * n_baseline + [1.0] * n_runs
    assert result.smallest_p == 1 / len(rows)


def test_many_labellings_are_drawn_by_the_seed_with_the_observed_one_added() -> None:
    result = labellings(20, 5, 500, seed=3)
    assert not result.exact
    assert result.labels.shape == (501, 25)
    assert (result.labels.sum(axis=1) == 5).all()
    assert result.labels[0, 20:].all()
    np.testing.assert_array_equal(result.labels, labellings(20, 5, 500, seed=3).labels)
    # Every run plays the instrumented one about as often as any other.
    assert np.abs(result.labels[1:].mean(axis=0) - 0.2).max() < 4 * np.sqrt(0.2 * 0.8 / 500)


def naive_mean_difference(values: NDArray[np.float64], label: NDArray[np.float64]) -> float:
    known = [(value, flag) for value, flag in zip(values, label, strict=True) if np.isfinite(value)]
    labelled = [value for value, flag in known if flag]
    others = [value for value, flag in known if not flag]
    spread = np.std([value for value, _ in known], ddof=1) if len(known) > 1 else 0.0
    if not labelled or not others or spread < 1e-12:
        return 0.0
    return float((np.mean(labelled) - np.mean(others)) / (spread * np.sqrt(1 / len(labelled) + 1 / len(others))))


@steady
@given(st.integers(0, 10_000), st.booleans())
def test_mean_differences_equal_the_definition(seed: int, gaps: bool) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(7, 3))
    values[:, 2] = 4.2  # a column that does not vary
    if gaps:
        values[rng.random((7, 3)) < 0.4] = np.nan
    labels = labellings(5, 2, 1000, seed=0).labels
    result = mean_differences(values, labels)
    for row, label in enumerate(labels):
        for column in range(3):
            assert result[row, column] == pytest.approx(naive_mean_difference(values[:, column], label), abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_mean_differences_order_labellings_and_columns_as_the_pooled_t_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(8, 3)) * [1.0, 1e-3, 50.0]
    labels = labellings(5, 3, 1000, seed=0).labels
    flags = labels.astype(bool)
    t = np.array([[stats.ttest_ind(v[f], v[~f]).statistic for v in values.T] for f in flags])
    ours = mean_differences(values, labels)
    np.testing.assert_array_equal(np.argsort(t.ravel(), kind="stable"), np.argsort(ours.ravel(), kind="stable"))


def naive_cross_difference(matrix: NDArray[np.float64], label: NDArray[np.float64]) -> float:
    cross, within = [], []
    for i, j in combinations(range(len(label)), 2):
        if np.isfinite(matrix[i, j]):
            if label[i] != label[j]:
                cross.append(matrix[i, j])
            elif not label[i]:
                within.append(matrix[i, j])
    return float(np.mean(cross) - np.mean(within)) if cross and within else 0.0


@steady
@given(st.integers(0, 10_000), st.booleans())
def test_cross_differences_equal_the_definition(seed: int, gaps: bool) -> None:
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(6, 6, 2))
    if gaps:
        half[rng.random((6, 6, 2)) < 0.3] = np.nan
    similarity = half + half.transpose(1, 0, 2)
    similarity[np.arange(6), np.arange(6)] = np.nan
    labels = labellings(4, 2, 1000, seed=0).labels
    result = cross_differences(similarity, labels)
    for column in range(2):
        naive = np.array([naive_cross_difference(similarity[:, :, column], label) for label in labels])
        scale = np.sqrt(np.mean(naive**2))
        np.testing.assert_allclose(result[:, column], naive / scale if scale > 0 else 0.0, atol=1e-9)
        if not gaps:
            assert naive.mean() == pytest.approx(0.0, abs=1e-9)


@steady
@given(st.integers(0, 10_000), st.booleans())
def test_max_t_equals_counting(seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    statistics = rng.normal(size=(40, 4))
    if ties:
        statistics = np.round(statistics)
    losses = np.array([False, True, False, True])
    result = max_t(statistics, losses_only=losses)
    extremity = [[-v if loss else abs(v) for v, loss in zip(row, losses, strict=True)] for row in statistics]
    for column in range(4):
        observed = extremity[0][column]
        adjusted = sum(max(row) >= observed for row in extremity) / 40
        raw = sum(row[column] >= observed for row in extremity) / 40
        assert result.p_adjusted[column] == pytest.approx(adjusted)
        assert result.p_raw[column] == pytest.approx(raw)
        assert 0 < result.p_raw[column] <= result.p_adjusted[column] <= 1


def test_equal_statistics_summed_in_another_order_count_as_equal() -> None:
    statistics = np.array([[0.1 + 0.2], [0.3], [0.1]])
    assert max_t(statistics).p_adjusted[0] == pytest.approx(2 / 3)


@steady
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_false_discovery_rates_equal_scipy_and_skip_nan(p_values: list[float]) -> None:
    expected = stats.false_discovery_control(p_values)
    result = false_discovery_rates(np.array([np.nan, *p_values]))
    assert np.isnan(result[0])
    np.testing.assert_allclose(result[1:], expected)
