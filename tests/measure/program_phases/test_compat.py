"""Phases by SimPoint 3.2's rules: its random numbers, and a plain re-statement of its procedure."""

from __future__ import annotations

import json
import math
from typing import Literal

import numpy as np
import pytest

from measure.program_phases.bbv import BasicBlockVectors, from_dense
from measure.program_phases.compat import find_phases_simpoint32, project_simpoint32, random_numbers
from measure.program_phases.points import simulation_points
from tests.measure.program_phases import phases_naive as naive
from tests.measure.program_phases.golden_simpoint import CASES, GOLDEN, golden_vectors


def vectors_of(seed: int, n: int = 120, blocks: int = 30, phases: int = 4) -> BasicBlockVectors:
    rng = np.random.default_rng(seed)
    mixes = rng.dirichlet(np.full(blocks, 0.3), phases)
    return from_dense([rng.multinomial(rng.integers(300, 900), mixes[i // 10 % phases]) + 1 for i in range(n)])


def plain(
    vectors: BasicBlockVectors, max_k: int, starts: Literal["sample", "furthest"], fixed: bool, max_iterations: int,
    seed: int = 493575226,
) -> tuple[list[int], dict[int, float]]:  # fmt: skip
    """The exhaustive search of SimPoint 3.2, as loops over `naive.lloyd`."""
    points = project_simpoint32(vectors)
    n = len(points)
    sums = vectors.instructions.tolist()
    weights = [1.0 / n if fixed else s / sum(sums) for s in sums]
    best: dict[int, tuple[float, list[int]]] = {}
    for k in range(1, max_k + 1):
        for index in range(5):
            draws = random_numbers(seed + 5 * (k - 1) + 2 * index, k)
            chosen = [int(draw * 2**31) % n for draw in draws]
            if starts == "furthest":
                chosen = chosen[:1]
                while len(chosen) < k:
                    gaps = [min(naive.squared(p, points[c]) for c in chosen) for p in points]
                    chosen.append(gaps.index(max(gaps)))
            begun = points[chosen]
            _, centres, rounds = naive.lloyd(points, weights, begun, max_iterations, False)
            _, before, _ = naive.lloyd(points, weights, begun, max_iterations - 1, False)
            if rounds == max_iterations and before != centres:
                centres = before  # cut off: the centres before the last
            labels = []
            for point in points:
                distances = [naive.squared(point, centre) for centre in centres]
                labels.append(distances.index(min(distances)))
            score = naive.bic(points, labels, centres, weights)
            if k not in best or score > best[k][0]:
                best[k] = (score, labels)
    worst, top = min(s for s, _ in best.values()), max(s for s, _ in best.values())
    k = min(k for k, (s, _) in best.items() if s >= (top - worst) * 0.9 + worst)
    return best[k][1], {k: s for k, (s, _) in best.items()}


@pytest.mark.parametrize(("starts", "fixed"), [("sample", True), ("furthest", True), ("sample", False)])
def test_labels_are_those_of_the_plain_procedure(starts: Literal["sample", "furthest"], fixed: bool) -> None:
    vectors = vectors_of(1, n=90)
    labels, scores = plain(vectors, 6, starts, fixed, 100)
    found = find_phases_simpoint32(vectors, max_k=6, search="all", starts=starts, fixed_length=fixed)
    assert found.labels.tolist() == labels
    assert found.scores == pytest.approx(scores, rel=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_answers_are_those_of_simpoint_itself(case: str) -> None:
    _, options, coverage = CASES[case]
    theirs = json.loads(GOLDEN.read_text())[case]
    found = find_phases_simpoint32(golden_vectors(), **options)
    assert found.k == theirs["k"]
    assert found.labels.tolist() == theirs["labels"]
    assert [str(k) for k in found.scores] == list(theirs["scores"])  # also the order in which they were tried
    np.testing.assert_allclose(list(found.scores.values()), list(theirs["scores"].values()), rtol=1e-5)
    np.testing.assert_allclose(found.distances, theirs["distances"], rtol=1e-5)
    points = simulation_points(found, coverage)
    assert np.column_stack([points.intervals, points.phases]).tolist() == theirs["simpoints"]
    np.testing.assert_allclose(points.weights, theirs["weights"], rtol=1e-5)


def test_random_numbers_by_their_definition() -> None:
    """The published recurrences once more, with the table's upkeep written out on its own."""
    first = second = 12345
    drawn = []
    for _ in range(40):
        first = first * 40014 % 2147483563
        drawn.append(first)
    table = drawn[8:][::-1]
    latest, expected = table[0], []
    for _ in range(200):
        first = first * 40014 % 2147483563
        second = second * 40692 % 2147483399
        slot = latest // 67108862
        latest = (table[slot] - second - 1) % 2147483562 + 1
        table[slot] = first
        expected.append(float(np.float32(latest / 2147483563)))
    assert random_numbers(12345, 200).tolist() == pytest.approx(expected, abs=1e-7)
    assert random_numbers(-12345, 200).tolist() == random_numbers(12345, 200).tolist()


def test_random_numbers_refuse_the_seed_without_numbers() -> None:
    with pytest.raises(ValueError, match="got the seed 1, expected 32 bits and not 1"):
        random_numbers(1, 3)


def test_bisection_tries_few_k() -> None:
    found = find_phases_simpoint32(vectors_of(2), max_k=30)
    assert list(found.scores)[:3] == [1, 30, 15]
    assert len(found.scores) <= math.floor(math.log2(30) + 3)


def test_blocks_from_0_count_as_from_1() -> None:
    vectors = vectors_of(3)
    shifted = BasicBlockVectors(vectors.data, vectors.indices, vectors.indptr, vectors.n_dims, vectors.block_ids - 1)
    assert np.array_equal(project_simpoint32(vectors), project_simpoint32(shifted))


def test_identical_intervals_are_one_phase() -> None:
    for search in ("all", "bisect"):
        found = find_phases_simpoint32(from_dense(np.tile([[4, 4, 8]], (20, 1))), max_k=5, search=search)
        assert set(found.labels.tolist()) == {0}
        points = simulation_points(found)
        assert (points.intervals.tolist(), points.weights.tolist()) == ([0], [1.0])


def test_refuses() -> None:
    vectors = vectors_of(4)
    for change, message in (
        ({"starts": "kmeans++"}, r"got starts 'kmeans\+\+', expected sample or furthest"),
        ({"max_iterations": 1}, "got 1 iterations, expected at least 2"),
        ({"dimensions": 0}, "got 0 dimensions"),
    ):
        with pytest.raises(ValueError, match=message):
            find_phases_simpoint32(vectors, **change)
