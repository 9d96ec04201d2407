"""k-means and its score: against plain twins, against scikit-learn, and where clusters run empty."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from measure.program_phases.bic import score_above, variance_floor
from measure.program_phases.kmeans import Clustering, Starts, checked, kmeans_from, starting_centres
from measure.program_phases.kmeans_kernel import lloyd, spread_starts
from measure.program_phases.nearest_kernel import blocks_of, nearest_centres
from tests.measure.program_phases import phases_naive as naive


def cloud(seed: int, n: int = 300, d: int = 15, groups: int = 6, spread: float = 0.4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(groups, d))[rng.integers(0, groups, n)] + spread * rng.normal(size=(n, d))


def kmeans(
    points: ArrayLike, k: int, seed: int = 1, starts: Starts = "kmeans++", weights: ArrayLike | None = None,
    max_iterations: int = 100,
) -> Clustering:  # fmt: skip
    table, mass = checked(points, weights)
    return kmeans_from(table, starting_centres(table, k, seed, starts, mass), mass, max_iterations)


def bic_score(points: np.ndarray, clustering: Clustering, weights: ArrayLike | None = None) -> float:
    table, mass = checked(points, weights)
    return score_above(variance_floor(table, 0.0), clustering, mass)


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize(("k", "d"), [(1, 15), (3, 2), (7, 15), (9, 4), (17, 11), (12, 1)])
def test_bounds_change_no_bit(k: int, d: int, repair: bool) -> None:
    points = cloud(k, d=d, spread=1.0)
    weights = np.random.default_rng(k).uniform(0.5, 2, len(points))
    labels, centres, _, _, _, iterations, _ = lloyd(points, weights, blocks_of(points), points[:k].copy(), 60, repair)
    expected = naive.lloyd(points, weights, points[:k], 60, repair)
    assert labels.tolist() == expected[0]
    assert centres.tolist() == expected[1]
    assert iterations == expected[2]


@settings(max_examples=60, deadline=None)
@given(
    table=st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=2, max_size=25),
    k=st.integers(1, 10),
    repair=st.booleans(),
    rounds=st.integers(1, 8),
)
def test_ties_and_duplicates_change_no_bit(table: list[tuple[int, int]], k: int, repair: bool, rounds: int) -> None:
    points = np.array(table, float)
    starts = points[np.arange(k) % len(points)]
    weights = np.ones(len(points))
    labels, centres, _, _, _, iterations, _ = lloyd(points, weights, blocks_of(points), starts, rounds, repair)
    expected = naive.lloyd(points, weights, starts, rounds, repair)
    assert (labels.tolist(), centres.tolist(), iterations) == expected


@pytest.mark.parametrize("furthest", [True, False])
def test_starts_are_those_of_the_plain_twin(furthest: bool) -> None:
    points = cloud(1, n=80)
    weights = np.random.default_rng(1).uniform(0.1, 3, len(points))
    draws = np.random.default_rng(2).random(9)
    assert spread_starts(points, weights, draws, furthest).tolist() == naive.spread_starts(
        points.tolist(), weights.tolist(), draws.tolist(), furthest
    )


@pytest.mark.parametrize("starts", ["kmeans++", "sample", "furthest"])
def test_starts_for_fewer_clusters_are_the_first_of_those_for_more(starts: Starts) -> None:
    points = cloud(2)
    weights = np.ones(len(points))
    many = starting_centres(points, 12, 5, starts, weights)
    assert np.array_equal(starting_centres(points, 4, 5, starts, weights), many[:4])
    assert len(np.unique(many, axis=0)) == 12


def test_like_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cluster = pytest.importorskip("sklearn.cluster")
    points = cloud(3, n=800, groups=8, spread=0.6)
    weights = np.random.default_rng(3).uniform(0.5, 2, len(points))
    for k in (2, 8, 15):
        starts = starting_centres(points, k, 1, "kmeans++", weights)
        ours = kmeans_from(points, starts, weights, 300)
        theirs = cluster.KMeans(k, init=starts, n_init=1, tol=0, algorithm="lloyd", max_iter=300)
        theirs.fit(points, sample_weight=weights)
        assert ours.converged
        assert np.array_equal(ours.labels, theirs.labels_)
        assert ours.distortion == pytest.approx(theirs.inertia_, rel=1e-9)
        np.testing.assert_allclose(ours.centres, theirs.cluster_centers_, atol=1e-12)


def test_every_point_is_with_its_nearest_centre_and_every_centre_is_a_mean() -> None:
    points = cloud(4)
    found = kmeans(points, 9, seed=3)
    assert found.converged
    assert np.array_equal(nearest_centres(points, blocks_of(points), found.centres)[0], found.labels)
    for cluster in range(found.k):
        np.testing.assert_allclose(points[found.labels == cluster].mean(axis=0), found.centres[cluster])


def test_a_weight_counts_like_a_repeated_point() -> None:
    points = cloud(5, n=60)
    times = np.random.default_rng(5).integers(1, 5, 60)
    starts = points[:4].copy()
    weighted = kmeans_from(points, starts, times.astype(float))
    repeated = kmeans_from(np.repeat(points, times, axis=0), starts, np.ones(times.sum()))
    assert np.array_equal(np.repeat(weighted.labels, times), repeated.labels)
    assert weighted.distortion == pytest.approx(repeated.distortion)


def test_an_empty_cluster_gets_the_costliest_point() -> None:
    points = np.array([[0.0], [1.0], [2.0], [10.0]])
    starts = np.array([[0.0], [50.0], [60.0]])  # all points are nearest the first
    found = kmeans_from(points, starts, np.ones(4))
    assert found.k == 3
    assert sorted(np.bincount(found.labels).tolist()) == [1, 1, 2]
    assert found.distortion == pytest.approx(0.5)


def test_fewer_distinct_points_than_clusters_give_as_many_clusters_as_points() -> None:
    points = np.repeat([[0.0, 1.0], [2.0, 2.0], [5.0, 0.0]], 4, axis=0)
    for starts in ("kmeans++", "sample", "furthest"):
        found = kmeans(points, 7, seed=1, starts=starts)
        assert found.k == 3
        assert found.distortion == 0
        assert all(len(set(found.labels[i : i + 4])) == 1 for i in (0, 4, 8))


def test_kmeans_plus_plus_costs_less_than_a_sample() -> None:
    points = cloud(6, n=1000, groups=20, spread=0.1)
    cost = {
        starts: np.mean([kmeans(points, 20, seed, starts).distortion for seed in range(10)])
        for starts in ("kmeans++", "sample")
    }
    assert cost["kmeans++"] < 0.8 * cost["sample"]


@pytest.mark.parametrize("weighted", [True, False])
def test_score_is_that_of_the_plain_twin(weighted: bool) -> None:
    points = cloud(7)
    weights = np.random.default_rng(7).uniform(1, 9, len(points)) if weighted else None
    found = kmeans(points, 5, 1, weights=weights)
    expected = naive.bic(points, found.labels, found.centres, np.ones(len(points)) if weights is None else weights)
    assert bic_score(points, found, weights) == pytest.approx(expected, rel=1e-12)


def test_score_does_not_depend_on_the_scale_of_weights() -> None:
    points = cloud(8)
    weights = np.random.default_rng(8).uniform(1, 9, len(points))
    found = kmeans(points, 5, 1, weights=weights)
    scaled = Clustering(found.labels, found.centres, found.distortion * 1e6, True)
    assert bic_score(points, found, weights) == pytest.approx(bic_score(points, scaled, weights * 1e6))


def test_score_of_no_variance_is_finite_and_the_best() -> None:
    points = np.repeat([[0.1, 0.7], [0.3, 0.2]], 5, axis=0)
    one, two = (bic_score(points, kmeans(points, k, 1)) for k in (1, 2))
    assert np.isfinite(two)
    assert two > one


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "got k = 0, expected at least 1"),
        ({"points": np.zeros((0, 3))}, r"got points of shape \(0, 3\)"),
        ({"points": np.array([[0.0], [np.nan]])}, r"got points that are not finite \(interval 1\)"),
        ({"weights": [1.0, 0.0]}, r"got weight 0.0 \(interval 1\), expected positive weights"),
        ({"weights": [1.0]}, r"got weights of shape \(1,\), expected \(2,\)"),
        ({"starts": "best"}, "got starts 'best', expected one of kmeans"),
        ({"max_iterations": 0}, "got 0 iterations, expected at least 1"),
    ],
)
def test_refuses(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kmeans(**({"points": np.array([[0.0], [1.0]]), "k": 1, "seed": 1} | change))
