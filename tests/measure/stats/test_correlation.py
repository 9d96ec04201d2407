"""Spearman and Fisher's z, against scipy."""

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
    average_ranks,
    fisher_z,
    spearman,
)

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


def test_integers_beyond_the_precision_of_floats_are_ranked_as_they_are() -> None:
    rng = np.random.default_rng(5)
    small = rng.integers(0, 40, (60, 3))
    for kind, offset in ((np.int64, 2**62), (np.uint64, 2**63)):
        large = small.astype(kind) + np.array(offset, kind)
        assert len(np.unique(large.astype(np.float64))) == 1  # as floats they all are equal
        np.testing.assert_array_equal(spearman(large, "abc").rho, spearman(small, "abc").rho)
        assert spearman(large, "abc").tie_fraction.tolist() == spearman(small, "abc").tie_fraction.tolist()
