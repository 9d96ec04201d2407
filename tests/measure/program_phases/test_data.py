"""Phases cut by how long their intervals wait for memory."""

from __future__ import annotations

import numpy as np

from measure.program_phases.choose import Phases
from measure.program_phases.data_phases import split_by_waits
from measure.program_phases.points import estimate, simulation_points


def phases_of(labels: np.ndarray, weights: np.ndarray) -> Phases:
    k = int(labels.max()) + 1
    shares = np.bincount(labels, weights, k)
    return Phases(labels.astype(np.int32), k, np.zeros((k, 2)), np.zeros(len(labels)), shares / shares.sum(), {k: 0.0})


def test_intervals_that_wait_differently_are_told_apart() -> None:
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1], 100)
    waits = np.where(np.arange(200) % 2 == 0, 0.1, 4.0)
    waits[labels == 1] = 1.0
    weights = np.full(200, 5.0)
    cut = split_by_waits(phases_of(labels, weights), rng.normal(0, 0.001, (200, 2)), waits, weights, 0.2)
    assert len(set(zip(labels.tolist(), waits.tolist(), cut.labels.tolist(), strict=True))) == cut.k == 3
    assert cut.labels[:2].tolist() == [0, 1]  # in order of appearance
    assert cut.weights.tolist() == [0.25, 0.25, 0.5]
    points = simulation_points(cut)
    cpi = 1 + waits
    assert estimate(cpi, points) == np.average(cpi)
    assert np.abs(cpi[points.intervals][cut.labels] - cpi).max() < 1e-9


def test_ranges_are_no_wider_than_the_step() -> None:
    rng = np.random.default_rng(2)
    waits, weights = rng.gamma(1.0, 2.0, 500), rng.uniform(1, 2, 500)
    labels = rng.integers(3, size=500)
    cut = split_by_waits(phases_of(labels, weights), rng.normal(size=(500, 4)), waits, weights, 0.3)
    for label in range(cut.k):
        mine = np.log1p(waits[cut.labels == label])
        assert len(mine)
        assert mine.max() - mine.min() <= 0.3 + 1e-9
        assert len(set(labels[cut.labels == label])) == 1
    assert cut.weights.sum() == 1.0 or abs(cut.weights.sum() - 1) < 1e-12
    assert (cut.distances >= 0).all()


def test_no_step_cuts_nothing() -> None:
    labels, weights = np.array([0, 1, 0]), np.ones(3)
    found = phases_of(labels, weights)
    assert split_by_waits(found, np.zeros((3, 2)), np.array([0.0, 1.0, 9.0]), weights, 0.0) is found
