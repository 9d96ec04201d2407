"""Clustering against a naive twin and known phases; the command on a real program."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from measure.cli import main
from measure.simpoint.cluster import (
    Clustering,
    _starts,
    bic,
    estimate,
    find_phases,
    kmeans,
    project,
    similarity,
)
from measure.simpoint.formats import BlockVectors, read_bb

ROOT = Path(__file__).parent.parent.parent.parent


def naive_kmeans(points: NDArray[np.float64], k: int, seed: int) -> Clustering:
    """Lloyd's iterations as one would write them."""
    centres = _starts(points, k, np.random.default_rng(seed))
    labels = np.full(len(points), -1)
    iteration = 0
    while iteration < 100:
        iteration += 1
        squared = np.array([[((point - centre) ** 2).sum() for centre in centres] for point in points])
        new = squared.argmin(axis=1)
        if np.array_equal(new, labels):
            break
        labels = new
        for one in range(k):
            if not (labels == one).any():
                apart = ((points - centres[labels]) ** 2).sum(axis=1)
                apart[np.bincount(labels, minlength=k)[labels] < 2] = -1
                labels[apart.argmax()] = one
        centres = np.array([points[labels == one].mean(axis=0) for one in range(k)])
    distortion = float(((points - centres[labels]) ** 2).sum())
    return Clustering(labels, centres, distortion, iteration)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(1, 6), st.integers(1, 4))
def test_kmeans_is_its_naive_twin(seed: int, n: int, k: int, dimensions: int) -> None:
    k = min(k, n)
    points = np.random.default_rng(seed).normal(size=(n, dimensions))
    found, expected = kmeans(points, k, seed), naive_kmeans(points, k, seed)
    assert found.labels.tolist() == expected.labels.tolist()
    assert found.distortion == pytest.approx(expected.distortion)
    assert found.iterations == expected.iterations
    assert len(np.unique(found.labels)) == k


def test_kmeans_is_no_worse_than_scikit_learn() -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    points = np.random.default_rng(3).normal(size=(500, 15)) + np.repeat(np.eye(15)[:10] * 8, 50, axis=0)
    ours = min(kmeans(points, 10, seed).distortion for seed in range(5))
    theirs = cluster.KMeans(10, n_init=5, random_state=0).fit(points).inertia_
    assert ours <= theirs * 1.001


def test_bic_by_hand() -> None:
    # Two clusters of two points, each 1 from its centre: variance 4 / (1 * 4) = 1.
    points = np.array([[0.0], [2.0], [10.0], [12.0]])
    found = Clustering(np.array([0, 0, 1, 1]), np.array([[1.0], [11.0]]), 4.0, 1)
    likelihood = 4 * (-0.5 * (np.log(2 * np.pi) + 1) - np.log(4)) + 4 * np.log(2)
    assert bic(points, found) == pytest.approx(likelihood - (1 + 2 + 1) / 2 * np.log(4))


def program(sequence: list[int], seed: int = 1, noise: float = 0.02) -> BlockVectors:
    """Intervals of a made-up program whose phase at each one is told by ``sequence``."""
    rng = np.random.default_rng(seed)
    profiles = rng.dirichlet(np.full(40, 0.2), size=max(sequence) + 1)
    counts = []
    for phase in sequence:
        mix = profiles[phase] * rng.normal(1, noise, 40)
        counts.append(np.maximum(np.rint(1e6 * mix / mix.sum()), 0).astype(np.int64))
    matrix = np.array(counts)
    rows, columns = np.nonzero(matrix)
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(matrix)))]).astype(np.int64)
    return BlockVectors(matrix[rows, columns], columns.astype(np.int64), starts)


def test_known_phases_are_recovered_exactly() -> None:
    sequence = ([0] * 30 + [1] * 20 + [2] * 25 + [1] * 10 + [3] * 15) * 2
    found = find_phases(program(sequence), max_k=10)
    assert found.clustering.k == 4
    for phase in range(4):
        assert len(np.unique(found.labels[np.array(sequence) == phase])) == 1
    assert found.weights.sum() == pytest.approx(1)
    shares = sorted(np.bincount(sequence) / len(sequence))
    assert sorted(found.weights) == pytest.approx(shares, abs=0.01)
    for phase, point in enumerate(found.points):
        mine = np.flatnonzero(found.labels == phase)
        assert point == mine[found.distances[mine].argmin()]
    values = np.array([[1.0 + phase] for phase in sequence])
    assert estimate(values, found)[0] == pytest.approx(values.mean(), abs=0.01)


def test_identical_intervals_are_one_phase() -> None:
    found = find_phases(program([0] * 12, noise=0))
    assert found.clustering.k == 1
    assert found.points.tolist() == [0]


def test_projection_keeps_distances() -> None:
    vectors = program(list(range(30)), noise=0)
    distances, rows = similarity(vectors)
    assert rows.tolist() == list(range(30))
    dense = np.zeros((30, vectors.n_blocks))
    for row in range(30):
        mine = slice(vectors.starts[row], vectors.starts[row + 1])
        dense[row, vectors.blocks[mine]] = vectors.counts[mine] / vectors.counts[mine].sum()
    assert distances == pytest.approx(np.abs(dense[:, None] - dense[None]).sum(axis=2), abs=1e-5)
    true = np.sqrt(((dense[:, None] - dense[None]) ** 2).sum(axis=2))[np.triu_indices(30, 1)]
    ratios = []
    for seed in range(20):
        points = project(vectors, 15, seed)
        seen = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))[np.triu_indices(30, 1)]
        ratios.append((seen / true) ** 2 / 5)  # an entry of the matrix has variance 1/3: 15 of them make 5
    assert np.mean(ratios) == pytest.approx(1, abs=0.05)
    assert np.std(ratios) < 0.6


def test_similarity_is_thinned_for_many_intervals() -> None:
    distances, rows = similarity(program([0, 1] * 50), at_most=10)
    assert distances.shape == (10, 10)
    assert rows[[0, -1]].tolist() == [0, 99]


@pytest.mark.parametrize("options", [{"threshold": 1.5}, {"max_k": 0}, {"starts": 0}, {"dimensions": 0}])
def test_bad_parameters(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected a threshold"):
        find_phases(program([0, 1]), **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 clusters of 2 points"):
        kmeans(np.zeros((2, 2)), 3, 1)


def test_the_command(tmp_path: Path) -> None:
    source = tmp_path / "two.c"
    source.write_text("""
static volatile int data[1 << 14];
int main(void) {
  long s = 1;
  for (int k = 0; k < 8; k++) {
    for (long i = 0; i < 20000; i++) s += data[(i * 17) & 0x3fff];
    for (long i = 0; i < 30000; i++) s = s * 31 + (s >> 7);
  }
  return s == 42;
}
""")
    machine = ROOT / "configs" / "machines" / "strongarm.yaml"
    out = tmp_path / "out"
    arguments = ["phases", "--interval", "20k", "--machine", str(machine), "--out", str(out), str(source)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    about = json.loads((out / "summary.json").read_text())
    assert 2 <= about["k"] <= 30
    assert about["estimates"]["simulation points"]["error_percent"] < 10
    table = pd.read_parquet(out / "trace.parquet")
    vectors = read_bb(out / "two.bb")
    assert vectors.instructions.tolist() == (table["end_instructions"] - table["begin_instructions"]).tolist()
    uniform = pd.read_csv(out / "homogeneity.csv").set_index("phase")
    assert uniform.loc[-1, "cpi_mean"] == pytest.approx(table["cycles"].sum() / table["instructions"].sum())
    assert (uniform.drop(index=-1)["cpi_cov"] * uniform.drop(index=-1)["share"]).sum() < uniform.loc[
        -1, "cpi_cov"
    ]
    again = CliRunner().invoke(main, ["phases", "--out", str(tmp_path / "bb"), str(out / "two.bb")])
    assert again.exit_code == 0, again.output
    assert (tmp_path / "bb" / "two.simpoints").read_text() == (out / "two.simpoints").read_text()
    wrong = CliRunner().invoke(main, ["phases", "--machine", str(machine), str(out / "two.bb")])
    assert wrong.exit_code == 2
    assert "is a file of vectors" in wrong.output
