"""Labellings, max-T and its statistics, against plain loops."""

from __future__ import annotations

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from measure.stats.permutation import (
    SHARED_DEGREES,
    critical_value,
    cross_differences,
    false_discovery_rates,
    labellings,
    max_t,
    mean_differences,
    paired_cross_differences,
    paired_differences,
    ratios,
    sign_flips,
    spread_ratios,
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


def test_all_signs_are_enumerated_observed_first_or_drawn_by_the_seed() -> None:
    few = sign_flips(5, 1000, seed=0)
    assert few.exact
    assert {tuple(row) for row in few.labels.tolist()} == set(product((1.0, -1.0), repeat=5))
    assert few.labels[0].tolist() == [1.0] * 5
    assert few.smallest_p == 2 / 32 > 0.05  # five pairs allow nothing below 5%
    assert sign_flips(6, 1000, seed=0).smallest_p == 2 / 64 < 0.05
    many = sign_flips(20, 500, seed=3)
    assert not many.exact
    assert many.labels.shape == (501, 20)
    assert many.labels[0].tolist() == [1.0] * 20
    assert many.smallest_p == 1 / 501
    np.testing.assert_array_equal(many.labels, sign_flips(20, 500, seed=3).labels)
    assert set(np.unique(many.labels)) == {-1.0, 1.0}


def naive_variances(
    values: NDArray[np.float64], label: NDArray[np.float64], floor: float
) -> tuple[list[list[NDArray[np.float64]]], list[float], list[float], list[bool]]:
    """By column: the values of both groups' runs, variance of the labelled, of the others, and whether it varies."""
    groups: list[list[NDArray[np.float64]]] = []
    own, other, varies = [], [], []
    for column in values.T:
        labelled, rest = (column[np.isfinite(column) & (label == flag)] for flag in (1, 0))
        both = np.concatenate([labelled, rest])
        pooled = float(both.var(ddof=1)) if len(both) > 1 else 0.0
        groups.append([labelled, rest])
        varies.append(bool(np.sqrt(pooled) > 1e-12))
        other.append(max(float(rest.var(ddof=1)) if len(rest) > 1 else 0.0, floor * pooled))
        own.append(float(labelled.var(ddof=1)) if len(labelled) > 1 else 0.0)
    return groups, own, other, varies


def naive_mean_differences(
    values: NDArray[np.float64], label: NDArray[np.float64], floor: float
) -> list[tuple[float, float]]:
    groups, own, other, varies = naive_variances(values, label, floor)
    ratio = max(1.0, float(np.median([a / b for a, b, v in zip(own, other, varies, strict=True) if v])))
    result = []
    for (labelled, rest), mine, theirs, moving in zip(groups, own, other, varies, strict=True):
        if not moving or len(labelled) == 0 or len(rest) == 0:
            result.append((0.0, 0.0))
            continue
        runs = len(labelled) - 1
        moderated = max((SHARED_DEGREES * ratio * theirs + runs * mine) / (SHARED_DEGREES + runs), theirs)
        error = np.sqrt(moderated / len(labelled) + theirs / len(rest))
        result.append((float(np.mean(labelled) - np.mean(rest)), float(error)))
    return result


@steady
@given(st.integers(0, 10_000), st.booleans())
def test_mean_differences_equal_the_definition(seed: int, gaps: bool) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(7, 4)) * [1.0, 1e-3, 1.0, 50.0]
    values[:, 2] = 4.2  # a column that does not vary
    if gaps:
        values[rng.random((7, 4)) < 0.2] = np.nan
    labels = labellings(5, 2, 1000, seed=0).labels
    differences, errors = mean_differences(values, labels, floor=0.05)
    for row, label in enumerate(labels):
        expected = naive_mean_differences(values, label, 0.05)
        np.testing.assert_allclose(differences[row], [one for one, _ in expected], atol=1e-9)
        np.testing.assert_allclose(errors[row], [one for _, one in expected], rtol=1e-6, atol=1e-12)


def test_the_error_is_welchs_for_one_column_whose_labelled_runs_scatter_more() -> None:
    rng = np.random.default_rng(4)
    values = np.append(rng.normal(0, 1, 12), rng.normal(0, 4, 6))[:, np.newaxis]
    differences, errors = mean_differences(values, labellings(12, 6, 10, seed=0).labels)
    expected = stats.ttest_ind(values[12:, 0], values[:12, 0], equal_var=False).statistic
    assert differences[0, 0] / errors[0, 0] == pytest.approx(expected, rel=0.15)  # moderated towards itself
    assert ratios(differences, errors)[0, 0] == differences[0, 0] / errors[0, 0]


@steady
@given(st.integers(0, 10_000))
def test_spread_ratios_equal_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    others, labelled = rng.normal(size=(5, 3)), rng.normal(3, 2, size=(3, 3))
    others[:, 1] = labelled[:, 1] = 1.5
    others[4, 2] = np.nan
    labels = labellings(5, 3, 1000, seed=0).labels
    result = spread_ratios(others, labelled, labels)
    for column, (before, after) in enumerate(zip(others.T, labelled.T, strict=True)):
        groups = [before[np.isfinite(before)], after]
        residuals = np.full(8, np.nan)
        residuals[np.isfinite(np.append(before, after))] = np.concatenate(
            [(group - group.mean()) * np.sqrt(len(group) / (len(group) - 1)) for group in groups]
        )
        least = 0.01 * np.nanvar(residuals, ddof=1)
        for row, label in enumerate(labels):
            parts = [residuals[label == 0], residuals[label == 1]] if row else groups
            low, high = (max(np.nanvar(part, ddof=1), least) for part in parts)
            expected = np.log(high / low) if column != 1 and all(np.isfinite(p).sum() > 1 for p in parts) else 0.0
            assert result[row, column] == pytest.approx(expected, abs=1e-9)


@steady
@given(st.integers(0, 10_000), st.booleans())
def test_paired_differences_equal_the_definition(seed: int, gaps: bool) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(0.3, 1, (6, 3))
    values[:, 1] = 0.0
    if gaps:
        values[rng.random((6, 3)) < 0.2] = np.nan
    signs = sign_flips(6, 1000, seed=0).labels
    means, errors = paired_differences(values, signs)
    for row, sign in enumerate(signs):
        for column in range(3):
            known = [s * v for s, v in zip(sign, values[:, column], strict=True) if np.isfinite(v)]
            if len(known) < 2 or not any(known):
                assert (means[row, column], errors[row, column]) == (0.0, 0.0)
                continue
            assert means[row, column] == pytest.approx(np.mean(known), abs=1e-12)
            least = np.sqrt(0.01 * np.mean(np.square(known)) / (len(known) - 1))
            assert errors[row, column] == pytest.approx(max(stats.sem(known), least))


def similarities(seed: int, n: int, gaps: bool) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(n, n, 2))
    if gaps:
        half[rng.random((n, n, 2)) < 0.2] = np.nan
    similarity = half + half.transpose(1, 0, 2)
    similarity[np.arange(n), np.arange(n)] = np.nan
    return np.asarray(similarity)


def naive_cross_difference(matrix: NDArray[np.float64], label: NDArray[np.float64]) -> float:
    """Difference of mean similarities, in standard errors from each run's mean similarity to the other baselines."""
    cross, within, means = [], [], {0: [], 1: []}  # type: ignore[var-annotated]
    for i, j in combinations(range(len(label)), 2):
        if np.isfinite(matrix[i, j]):
            if label[i] != label[j]:
                cross.append(matrix[i, j])
            elif not label[i]:
                within.append(matrix[i, j])
    for i, flag in enumerate(label):
        others = [matrix[i, j] for j in range(len(label)) if j != i and not label[j] and np.isfinite(matrix[i, j])]
        if others:
            means[int(flag)].append(np.mean(others))
    if not cross or not within:
        return 0.0
    overall = [np.nanmean(row) for row in matrix if np.isfinite(row).any()]
    least = 0.01 * np.var(overall, ddof=1)
    n = int((label == 0).sum())
    rest = max((np.var(means[0], ddof=1) if len(means[0]) > 1 else 0.0) * ((n - 1) / (n - 2)) ** 2, least)
    own = max(np.var(means[1], ddof=1) if len(means[1]) > 1 else 0.0, rest)
    error = np.sqrt(own / max(len(means[1]), 1) + rest / max(len(means[0]), 1))
    return float((np.mean(cross) - np.mean(within)) / error) if error > 1e-12 else 0.0


@steady
@given(st.integers(0, 10_000), st.booleans())
def test_cross_differences_equal_the_definition(seed: int, gaps: bool) -> None:
    similarity = similarities(seed, 7, gaps)
    labels = labellings(5, 2, 1000, seed=0).labels
    result = cross_differences(similarity, labels)
    for column in range(2):
        naive = [naive_cross_difference(similarity[:, :, column], label) for label in labels]
        np.testing.assert_allclose(result[:, column], naive, atol=1e-9)


def test_a_metric_without_similarity_in_most_runs_has_no_cross_difference() -> None:
    similarity = similarities(1, 8, False)
    similarity[:5, :, 1] = similarity[:, :5, 1] = np.nan
    result = cross_differences(similarity, labellings(6, 2, 1000, seed=0).labels)
    assert result[:, 0].any()
    assert not result[:, 1].any()


@steady
@given(st.integers(0, 10_000), st.booleans())
def test_paired_cross_differences_equal_the_definition(seed: int, gaps: bool) -> None:
    n_pairs, n = 3, 8  # 3 pairs and 2 baselines without a partner
    similarity = similarities(seed, n, gaps)
    signs = sign_flips(n_pairs, 100, seed=0).labels
    result = paired_cross_differences(similarity, signs)
    for row, sign in enumerate(signs):
        baseline = [i if sign[i] > 0 else n - n_pairs + i for i in range(n_pairs)]
        runs = [n - n_pairs + i if sign[i] > 0 else i for i in range(n_pairs)]
        members = [*baseline, *range(n_pairs, n - n_pairs)]
        for column in range(2):
            matrix = similarity[:, :, column]
            changes = []
            for mine, plain in zip(runs, baseline, strict=True):
                means = []
                for one in (mine, plain):
                    known = [matrix[one, j] for j in members if j not in (mine, plain) and np.isfinite(matrix[one, j])]
                    means.append(np.mean(known) if known else 0.0)
                changes.append(means[0] - means[1])
            least = np.sqrt(0.01 * np.mean(np.square(changes)) / (n_pairs - 1))
            expected = np.mean(changes) / max(stats.sem(changes), least)
            assert result[row, column] == pytest.approx(expected, rel=1e-6, abs=1e-9)


@steady
@given(st.integers(0, 10_000), st.sampled_from([0.01, 0.05, 0.3]))
def test_the_critical_value_is_exceeded_as_often_as_the_level_allows(seed: int, level: float) -> None:
    statistics = np.round(np.random.default_rng(seed).normal(size=(60, 3)), 1)
    largest = np.abs(statistics).max(axis=1)
    critical = critical_value(largest, level)
    assert (largest > critical).mean() <= level
    if np.isfinite(critical):
        assert (largest >= critical).mean() > level
    else:
        assert level < 1 / 60


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
