"""The nearest centre of each point: estimates in single precision never decide what they cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measure.program_phases.kmeans_kernel import lloyd
from measure.program_phases.nearest_kernel import WIDTH, assign, blocks_of, nearest_centres
from tests.measure.program_phases import phases_naive as naive


def plain(points: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nearest centre of each point and its squared distance, dimensions added in order."""
    squares = np.zeros((len(points), len(centres)))
    with np.errstate(over="ignore"):
        for j in range(points.shape[1]):
            squares += (points[:, j, None] - centres[None, :, j]) ** 2
    return squares.argmin(axis=1), squares.min(axis=1)


def ways(rng: np.random.Generator, n: int, d: int, k: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    points, some = rng.normal(size=(n, d)), rng.integers(0, n, k)
    near = points[some] * (1 + 1e-15 * rng.integers(0, 4, (k, 1)))
    return {
        "apart": (points, rng.normal(size=(k, d))),
        "on points": (points, points[some]),
        "closer than single precision tells": (points, points[0] + 1e-9 * rng.normal(size=(k, d))),
        "closer than double precision tells": (points, near[rng.integers(0, k, k)]),
        "far from the origin": (1e7 + 1e-3 * points, 1e7 + 1e-3 * rng.normal(size=(k, d))),
        "one centre at the origin": (1e7 + 1e-3 * points, 1e7 * (np.arange(k) > 0)[:, None] + 1e-3 * points[some]),
        "tiny": (1e-160 * points, 1e-160 * rng.normal(size=(k, d))),
        "squares overflow": (1e160 * points, 1e160 * points[some]),
        "smaller than can be scaled": (1e-310 * points, 1e-310 * points[some]),
        "huge": (1e140 * points, 1e140 * rng.normal(size=(k, d))),
        "a grid": (rng.integers(-2, 3, (n, d)) / 4, rng.integers(-2, 3, (k, d)) / 4),
        "one far out": (points * np.where(np.arange(n) == 0, 1e6, 1.0)[:, None], rng.normal(size=(k, d))),
    }  # fmt: skip


@pytest.mark.parametrize(("n", "d", "k"), [
    (1, 1, 1), (5, 2, 9), (WIDTH - 1, 15, 7), (WIDTH, 3, 5), (WIDTH + 1, 14, 2), (300, 15, 30), (130, 16, 9),
    (200, 31, 12), (90, 45, 4),
])  # fmt: skip
def test_labels_are_those_of_the_plain_twin(n: int, d: int, k: int) -> None:
    for seed in range(5):
        for way, (points, centres) in ways(np.random.default_rng(seed), n, d, k).items():
            labels, squares = nearest_centres(points, blocks_of(points), centres)
            expected = plain(points, centres)
            assert np.array_equal(labels, expected[0]), way
            assert np.array_equal(squares, expected[1]), way


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 200), st.integers(1, 20), st.integers(1, 12),
    st.floats(1e-12, 1e12), st.floats(0, 1e6), st.lists(st.floats(1e-14, 1.0), min_size=1, max_size=6),
)  # fmt: skip
def test_labels_stay_right_while_centres_move(
    seed: int, n: int, d: int, k: int, scale: float, offset: float, steps: list[float]
) -> None:
    """Blocks that keep their labels unmeasured would have got the same ones."""
    rng = np.random.default_rng(seed)
    points = scale * (np.sort(rng.normal(size=(n, d)), axis=0) + offset)
    centres = points[rng.integers(0, n, k)]
    blocks = blocks_of(points)
    labels, margins = np.zeros(n, np.int32), np.full(len(blocks.exact), -1.0)
    moved = 0.0
    for step in steps:
        assign(blocks, centres, moved, labels, margins)
        assert np.array_equal(labels, plain(points, centres)[0])
        before, centres = centres, centres + scale * step * rng.normal(size=(k, d))
        moved = float(np.sqrt(((centres - before) ** 2).sum(axis=1)).max())


def test_blocks_far_from_every_border_are_not_measured_again() -> None:
    rng = np.random.default_rng(1)
    points = np.repeat(np.eye(5) * 10, WIDTH, axis=0) + 0.1 * rng.normal(size=(5 * WIDTH, 5))
    blocks = blocks_of(points)
    labels, margins = np.zeros(len(points), np.int32), np.full(5, -1.0)
    assign(blocks, np.eye(5) * 10, 0.0, labels, margins)
    assert labels.tolist() == np.repeat(np.arange(5), WIDTH).tolist()
    labels[:] = 7
    assign(blocks, np.eye(5) * 10.01, 0.01, labels, margins)
    assert set(labels.tolist()) == {7}
    assign(blocks, np.eye(5) * 40, 30.0, labels, margins)
    assert labels.tolist() == np.repeat(np.arange(5), WIDTH).tolist()


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize("spread", [1e-6, 0.05, 1.0])
def test_iteration_over_many_blocks_is_that_of_the_plain_twin(spread: float, repair: bool) -> None:
    """Points in time order, as programs have them, so that most blocks are soon left alone."""
    rng = np.random.default_rng(2)
    points = np.repeat(rng.normal(size=(6, 5)), 75, axis=0) + spread * rng.normal(size=(450, 5))
    weights = rng.uniform(0.5, 2, len(points))
    for k in (4, 9):
        starts = points[rng.integers(0, 450, k)]
        labels, centres, _, _, _, iterations, _ = lloyd(points, weights, blocks_of(points), starts, 40, repair)
        expected = naive.lloyd(points, weights, starts, 40, repair)
        assert (labels.tolist(), centres.tolist(), iterations) == expected
