"""Projection, the number of phases, simulation points and tables: known phases are found, and known rates come out."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from rich.console import Console

from measure.program_phases.bbv import BasicBlockVectors, from_dense
from measure.program_phases.choose import Phases, Search, choose_k, find_phases, search_k
from measure.program_phases.estimates import FULL, POINTS
from measure.program_phases.homogeneity import faintest, homogeneity, is_partial, mean_text, metrics_in, similarity
from measure.program_phases.points import estimate, estimate_rate, first_n, simulation_points, skip_then_n
from measure.program_phases.projection import project
from measure.program_phases.terminal import _print_uniform, print_estimates
from tests.measure.program_phases import phases_naive as naive


def program(
    seed: int, phases: int, n: int = 600, blocks: int = 200, noise: bool = True
) -> tuple[BasicBlockVectors, NDArray[np.int64]]:
    """Vectors of a program whose phases run one after another, and the phase of each interval."""
    rng = np.random.default_rng(seed)
    mixes = rng.dirichlet(np.full(blocks, 0.05), phases)
    truth = np.repeat(rng.permutation(np.arange(n // 10) % phases), 10)
    if noise:
        counts = np.array([rng.multinomial(100_000, mixes[phase]) for phase in truth])
    else:
        counts = np.round(mixes * 100_000).astype(int)[truth]
    return from_dense(counts), truth


def same_partition(a: Sequence[int], b: Sequence[int]) -> bool:
    return len(set(zip(a, b, strict=True))) == len(set(a)) == len(set(b))


@pytest.mark.parametrize("search", ["all", "bisect"])
@pytest.mark.parametrize(
    ("phases", "noise"), [(1, False), (2, False), (2, True), (5, False), (5, True), (9, False), (9, True)]
)
def test_known_phases_are_recovered_exactly(phases: int, noise: bool, search: Search) -> None:
    vectors, truth = program(phases, phases, noise=noise)
    found = find_phases(project(vectors), max_k=15, search=search)
    assert same_partition(found.labels.tolist(), truth.tolist())
    assert found.k == phases
    assert np.unique(found.labels, return_index=True)[1].tolist() == sorted(
        np.unique(found.labels, return_index=True)[1]
    )
    np.testing.assert_allclose(found.weights, np.bincount(found.labels) / len(truth))


def test_identical_intervals_are_one_phase() -> None:
    vectors = from_dense(np.tile([[5, 0, 3, 92]], (50, 1)))
    for search in ("all", "bisect"):
        found = find_phases(project(vectors), search=search)
        assert found.k == 1
        assert simulation_points(found).intervals.tolist() == [0]


@pytest.mark.parametrize("search", ["all", "bisect"])
def test_what_differs_by_next_to_nothing_is_one_phase(search: Search) -> None:
    """Every other interval has three instructions of 100,000 elsewhere: no phase of its own, and it hides none."""
    mixes = np.round(np.random.default_rng(8).dirichlet(np.full(50, 0.3), 3) * 100_000).astype(int) + 10
    hair = 3 * (np.arange(90) % 2)[:, None] * (np.arange(50) == 7)
    truth = np.arange(90) // 15 % 3
    one, three = project(from_dense(mixes[0] + hair)), project(from_dense(mixes[truth] + hair))
    assert find_phases(one, search=search).k == 1
    assert same_partition(find_phases(three, search=search).labels.tolist(), truth.tolist())
    assert find_phases(one, search=search, least_variance=0).k == 2
    assert find_phases(three, search=search, least_variance=0).k == 6


def test_a_given_k_is_not_searched_for() -> None:
    vectors, _ = program(4, 5)
    found = find_phases(project(vectors), k=3)
    assert found.k == 3
    assert list(found.scores) == [3]
    assert find_phases(project(vectors), max_k=3, k=7).k == 7


def test_one_interval_is_one_phase() -> None:
    found = find_phases(project(from_dense([[1, 2, 3]])))
    assert (found.k, found.labels.tolist(), found.weights.tolist()) == (1, [0], [1.0])


def test_weights_are_shares_of_instructions() -> None:
    vectors, truth = program(3, 3)
    length = np.where(truth == 0, 5.0, 1.0)
    found = find_phases(project(vectors), max_k=8, weights=length)
    first = found.labels[np.flatnonzero(truth == 0)[0]]
    assert found.weights[first] == pytest.approx(length[truth == 0].sum() / length.sum())


def test_threshold_raises_the_number_of_phases() -> None:
    points = np.random.default_rng(1).normal(size=(400, 3)) * [1, 5, 1]
    ks = [find_phases(points, max_k=12, threshold=threshold).k for threshold in (0.0, 0.5, 0.9, 1.0)]
    assert ks == sorted(ks)
    assert ks[0] == 1 < ks[-1]


def test_the_smallest_k_that_reaches_the_threshold_is_chosen() -> None:
    assert choose_k({1: 0.0, 2: 89.0, 3: 90.0, 4: 100.0}, 0.9) == 3
    assert choose_k({1: -100.0, 2: -100.0}, 0.9) == 1


def test_bisection_looks_where_the_score_is_short() -> None:
    tried = search_k(lambda k: float(min(k, 11)), 30, 0.9, "bisect")
    assert list(tried) == [1, 30, 15, 8, 11, 9, 10]
    assert choose_k(tried, 0.9) == 10
    assert list(search_k(float, 2, 0.9, "bisect")) == [1, 2]
    assert list(search_k(float, 1, 0.9, "bisect")) == [1]


def test_find_phases_refuses() -> None:
    points = np.zeros((3, 2))
    for change, message in (
        ({"max_k": 0}, "got max_k = 0, expected at least 1"),
        ({"k": 0}, "got k = 0, expected at least 1"),
        ({"threshold": 1.5}, "got a threshold of 1.5, expected 0 to 1"),
        ({"search": "random"}, "got the search 'random', expected one of all, bisect"),
    ):
        with pytest.raises(ValueError, match=message):
            find_phases(points, **change)


def test_projection_is_the_plain_product() -> None:
    counts = np.random.default_rng(4).poisson(1.0, (30, 40)) + np.eye(30, 40, dtype=int)
    matrix = np.random.default_rng(9).uniform(-1.0, 1.0, (40, 15))
    expected = counts / counts.sum(axis=1, keepdims=True) @ matrix
    np.testing.assert_allclose(project(from_dense(counts), 15, 9), expected, atol=1e-14)
    assert np.abs(matrix).max() <= 1


def test_projection_preserves_distances() -> None:
    """Squared distances are those of the vectors times d / 3, with a relative spread of about sqrt(2 / d)."""
    vectors, _ = program(5, 30, n=300, blocks=500)
    rows = np.zeros((vectors.n_intervals, vectors.n_dims))
    rows[np.repeat(np.arange(vectors.n_intervals), np.diff(vectors.indptr)), vectors.indices] = vectors.shares()
    a, b = np.random.default_rng(5).integers(0, 300, (2, 400))
    true = ((rows[a] - rows[b]) ** 2).sum(axis=1)
    apart = true > 1e-3
    for dimensions, tolerance in ((15, 0.55), (200, 0.15)):
        ratios = np.concatenate([
            ((points[a] - points[b]) ** 2).sum(axis=1)[apart] / true[apart] * 3 / dimensions
            for points in (project(vectors, dimensions, seed) for seed in range(10))
        ])  # fmt: skip
        assert ratios.mean() == pytest.approx(1.0, abs=0.1)
        assert 0.1 * tolerance < ratios.std() < tolerance


def test_projection_refuses() -> None:
    empty = BasicBlockVectors(np.array([3]), np.array([0], np.int32), np.array([0, 1, 1]), 1, np.array([1]))
    with pytest.raises(ValueError, match="interval 1 executed nothing"):
        project(empty)
    with pytest.raises(ValueError, match="got 0 dimensions"):
        project(from_dense([[1]]), 0)


def phases_of(phases: Sequence[int], distances: Sequence[float]) -> Phases:
    labels = np.array(phases, np.int32)
    weights = np.bincount(labels) / len(labels)
    return Phases(labels, len(weights), np.zeros((len(weights), 1)), np.array(distances), weights, {})


def test_the_nearest_interval_stands_for_its_phase_and_the_lowest_on_ties() -> None:
    found = simulation_points(phases_of([0, 1, 0, 1, 1, 0, 2], [0.3, 0.2, 0.1, 0.2, 0.4, 0.1, 0.0]))
    assert found.intervals.tolist() == [2, 1, 6]
    assert found.phases.tolist() == [0, 1, 2]
    np.testing.assert_allclose(found.weights, [3 / 7, 3 / 7, 1 / 7])


def test_coverage_leaves_small_phases_out() -> None:
    phases = phases_of([0] * 2 + [1] * 5 + [2] * 3, [0.0] * 10)
    found = simulation_points(phases, coverage=0.8)
    assert found.phases.tolist() == [1, 2]
    np.testing.assert_allclose(found.weights, [5 / 8, 3 / 8])
    with pytest.raises(ValueError, match="got a coverage of 0"):
        simulation_points(phases, 0)


def test_rates_of_homogeneous_phases_are_exact() -> None:
    phases = phases_of([0] * 4 + [1] * 6, [0.0] * 10)
    labels = phases.labels
    instructions = np.full(10, 1000.0)
    cycles = np.where(labels == 0, 1000.0, 4000.0)
    accesses = np.where(labels == 0, 100.0, 500.0)
    misses = np.where(labels == 0, 50.0, 10.0)
    points = simulation_points(phases)
    assert estimate(cycles / instructions, points) == pytest.approx(cycles.sum() / instructions.sum())
    assert estimate_rate(instructions, cycles, instructions, points) == pytest.approx(10_000 / cycles.sum())
    assert estimate_rate(misses, accesses, instructions, points) == pytest.approx(misses.sum() / accesses.sum())
    # the mean of IPCs, which is wrong, is something else
    assert estimate(instructions / cycles, points) != pytest.approx(10_000 / cycles.sum(), rel=0.1)
    both = estimate(np.stack([cycles, misses], axis=1), points)
    np.testing.assert_allclose(both, [cycles.mean(), misses.mean()])
    assert np.isnan(estimate_rate(misses, np.zeros(10), instructions, points))


def test_rates_hold_with_intervals_of_unequal_length() -> None:
    labels = np.array([0, 0, 1, 1], np.int32)
    instructions = np.array([100.0, 300.0, 1000.0, 600.0])
    cycles = instructions * np.where(labels == 0, 2.0, 0.5)
    weights = np.bincount(labels, weights=instructions) / instructions.sum()
    phases = Phases(labels, 2, np.zeros((2, 1)), np.zeros(4), weights, {})
    points = simulation_points(phases)
    assert estimate_rate(cycles, instructions, instructions, points) == pytest.approx(cycles.sum() / instructions.sum())


def test_baselines_of_the_same_cost() -> None:
    values = np.arange(10.0)
    assert estimate(values, first_n(10, 4)) == pytest.approx(1.5)
    assert estimate(values, skip_then_n(10, 6, 4)) == pytest.approx(7.5)
    assert estimate(values, first_n(10, 2, [3, 1, *[1] * 8])) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="got 5 intervals after 6, expected at least 1 and all of them among 10"):
        skip_then_n(10, 6, 5)


def test_homogeneity_by_hand() -> None:
    metrics = pd.DataFrame({"cpi": [1.0, 3.0, 5.0, 5.0]})
    table = homogeneity([0, 0, 1, 1], metrics, [1, 3, 2, 2])
    assert table.index.tolist() == ["program", "0", "1"]
    assert table["intervals"].tolist() == [4, 2, 2]
    np.testing.assert_allclose(table["share"], [1.0, 0.5, 0.5])
    np.testing.assert_allclose(table["cpi_mean"], [3.75, 2.5, 5.0])
    np.testing.assert_allclose(table["cpi_std"], [np.sqrt(1.9375), np.sqrt(0.75), 0.0])
    np.testing.assert_allclose(table["cpi_cov"], [np.sqrt(1.9375) / 3.75, np.sqrt(0.75) / 2.5, 0.0])
    with pytest.raises(ValueError, match="got 2 labels, 4 rows of metrics and 2 weights"):
        homogeneity([0, 1], metrics)


def test_homogeneity_leaves_intervals_without_a_value_out() -> None:
    metrics = pd.DataFrame({"hits": [0.5, np.nan, np.nan, np.nan]})
    table = homogeneity([0, 0, 1, 1], metrics)
    assert table["hits_mean"].to_dict() == {"program": 0.5, "0": 0.5, "1": pytest.approx(np.nan, nan_ok=True)}
    assert table["hits_intervals"].to_dict() == {"program": 1, "0": 1, "1": 0}


def test_a_mean_says_of_how_many_intervals_it_is() -> None:
    metrics = pd.DataFrame({"cpi": [1.0, 3.0, 2.0, 2.0], "hits": [0.5, 0.7, np.nan, np.nan]})
    table = homogeneity([0, 0, 0, 1], metrics)
    texts = {name: [mean_text(row, metric) for metric in metrics_in(table)] for name, row in table.iterrows()}
    assert texts == {
        "program": ["2.000 (35.4%)", "0.600 (16.7%), 2 of 4"],
        "0": ["2.000 (40.8%)", "0.600 (16.7%), 2 of 3"],
        "1": ["2.000 (0.0%)", "-"],
    }
    alone = homogeneity([0, 0], pd.DataFrame({"hits": [0.5, np.nan]}))
    assert mean_text(alone.iloc[1], "hits", "\n") == "0.500\n1 of 2"  # one interval has no spread
    assert is_partial(table)
    assert not is_partial(homogeneity([0, 0], pd.DataFrame({"cpi": [1.0, 2.0]})))
    written = io.StringIO()
    found = Phases(np.zeros(2, np.int32), 1, np.zeros((1, 1)), np.zeros(2), np.ones(1), {1: 0.0})
    _print_uniform(Console(width=160, file=written), alone, found)
    assert "Where it says N of M, only N of the M intervals have a value" in written.getvalue()


def test_similarity_is_that_of_the_plain_twin() -> None:
    counts = (
        np.random.default_rng(6).poisson(0.7, (40, 25)) + np.eye(40, 25, dtype=int) + np.eye(40, 25, -25, dtype=int)
    )
    np.testing.assert_allclose(similarity(from_dense(counts)), naive.manhattan(counts), atol=1e-14)
    np.testing.assert_allclose(similarity(counts), naive.manhattan(counts), atol=1e-14)
    shares = counts / counts.sum(axis=1, keepdims=True)
    merged = shares.reshape(10, 4, 25).mean(axis=1)
    np.testing.assert_allclose(similarity(counts, at_most=10), naive.manhattan(merged), atol=1e-14)


def test_the_picture_of_distances_uses_the_whole_scale_and_shows_no_noise() -> None:
    alike = np.full((100, 100), 0.01)
    assert faintest(alike) == 0.1
    two_phases = np.zeros((100, 100))
    two_phases[:50, 50:] = two_phases[50:, :50] = 0.4
    assert faintest(two_phases) == pytest.approx(0.4)
    two_phases[0, 1:20] = two_phases[1:20, 0] = 2.0  # single ones do not darken the others
    assert faintest(two_phases) == pytest.approx(0.4)
    assert faintest(np.full((4, 4), 2.0)) == 2.0


def test_similarity_of_more_intervals_than_asked_for() -> None:
    vectors, _ = program(7, 3, n=500)
    assert similarity(vectors, at_most=37).shape == (37, 37)
    with pytest.raises(ValueError, match="got at_most = 0"):
        similarity(vectors, 0)


def test_an_error_in_percent_of_0_is_not_shown_as_a_number() -> None:
    nothing = {"value": 0.0, "error_percent": math.nan}
    methods = {
        FULL: {"cpi": {"value": 1.0, "error_percent": 0.0}, "l2_hit_rate": nothing},
        POINTS: {"cpi": {"value": 1.5, "error_percent": 50.0}, "l2_hit_rate": nothing},
        "first N": {"cpi": {"value": 1.5, "error_percent": 50.0}, "l2_hit_rate": {**nothing, "value": math.nan}},
    }
    out = io.StringIO()
    print_estimates(Console(file=out, width=100), methods)
    rates = next(line for line in out.getvalue().splitlines() if "L2 hits" in line)
    assert [cell.strip() for cell in rates.split("│")[2:-1]] == ["0.000", "0.000 (-)", "-"]
    assert "1.500 (50.00%)" in out.getvalue()
