"""Samples of a cycle-close trace: spread over waiting and code, and interpolated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.timing.machine_events import N_EVENTS, Event
from measure.cycle_close.medoids import medoids
from measure.cycle_close.samples import Sample, Samples, choose_samples, wait_bucket

EXAMPLES = settings(max_examples=60, derandomize=True, deadline=None)


def samples_of(
    shares: list[list[float]], waits: list[float], cycles: list[float], reach: float = 0.25, step: float = 0.2
) -> Samples:
    samples = Samples(len(shares[0]), reach, step)
    for number, (share, wait, value) in enumerate(zip(shares, waits, cycles, strict=True)):
        events = np.zeros(N_EVENTS)
        events[Event.CYCLES] = value
        samples.add(Sample(10 * number, events), np.array(share), wait)
    return samples


def naive_estimate(
    shares: np.ndarray,
    waits: np.ndarray,
    cycles: np.ndarray,
    share: np.ndarray,
    wait: float,
    number: int,
    reach: float,
    step: float,
) -> tuple[float, int]:
    """Cycles an instruction as `Samples.estimate` has them, with numpy."""
    apart = np.abs(shares - share).sum(axis=1) / reach + np.abs(np.log1p(waits) - np.log1p(wait)) / step
    between = np.abs(10 * np.arange(len(waits)) - number)
    apart += 0.1 * between / (between + 100)
    near = np.argsort(apart, kind="stable")[:4]
    weights = 1 / (apart[near] + 0.02) ** 2
    weights /= weights.sum()
    x, y = waits[near], cycles[near]
    inside = np.clip(wait, x.min(), x.max())
    mean, value = weights @ x, weights @ y
    spread = weights @ (x - mean) ** 2 + 0.01
    slope = (weights @ ((x - mean) * (y - value)) + 0.5 * 0.01) / spread
    return max(value + slope * (inside - mean) + 0.5 * (wait - inside), 0.5 * y.min()), int(near[0])


@EXAMPLES
@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 400), st.integers(0, 2**32 - 1))
def test_the_closest_samples_say_what_an_interval_did(n: int, dimensions: int, number: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.ones(dimensions), n)
    waits, cycles = random.exponential(1.0, n), random.uniform(1, 5, n)
    samples = samples_of(shares.tolist(), waits.tolist(), cycles.tolist())
    share, wait = random.dirichlet(np.ones(dimensions)), float(random.exponential(1.0))
    found = samples.estimate(share, wait, number)
    value, nearest = naive_estimate(shares, waits, cycles, share, wait, number, 0.25, 0.2)
    assert found.events_each[Event.CYCLES] == pytest.approx(value)
    assert found.number == 10 * nearest
    at_sample = samples.estimate(shares[0], float(waits[0]), 0)
    assert at_sample.number == 0
    assert (at_sample.events_each >= 0).all()


def test_a_sample_of_other_code_does_not_serve() -> None:
    """Both were once samples of one phase; with waiting alone they would be interpolated: 3.5."""
    samples = samples_of([[0.7, 0.3], [0.2, 0.8]], [0.1, 0.3], [6.0, 1.0])
    assert samples.estimate(np.array([0.2, 0.8]), 0.2, 0).events_each[Event.CYCLES] == pytest.approx(1.0, abs=0.25)


def test_of_samples_that_are_alike_the_nearest_in_time_serve() -> None:
    shares, waits, cycles = [[1.0]] * 40, [0.5] * 40, [1.0] * 20 + [9.0] * 20
    samples = samples_of(shares, waits, cycles)
    for number, value in ((0, 1.0), (150, 1.0), (240, 9.0), (1000, 9.0)):
        assert samples.estimate(np.ones(1), 0.5, number).events_each[Event.CYCLES] == pytest.approx(value)


def test_between_samples_of_the_same_code_events_go_with_waiting() -> None:
    samples = samples_of([[1.0], [1.0]], [1.0, 3.0], [2.0, 4.0])
    for wait, value in ((1.0, 2.0), (2.0, 3.0), (3.0, 4.0)):
        assert samples.estimate(np.ones(1), wait, 5).events_each[Event.CYCLES] == pytest.approx(value, abs=0.02)


def test_samples_are_spread_over_waiting() -> None:
    waits = np.expm1(np.linspace(0, 1, 101))
    shares = np.ones((101, 1))
    picked = choose_samples(waits, shares, 0.25)
    assert len(picked) == 5
    assert np.abs(np.log1p(waits[picked]) - np.linspace(0, 1, 5)).max() <= 0.25 / 8 + 1e-9
    # Of those that wait alike the typical one: the first here has other code.
    shares = np.array([[1.0, 0.0]] + [[0.1, 0.9]] * 9)
    assert choose_samples(np.zeros(10), shares, 0.2).tolist() == [1]
    assert choose_samples(np.zeros(10), shares, 0.2, at_least=2).tolist() == [1, 5]
    assert choose_samples(np.arange(10.0), shares, 0.0, at_least=1).tolist() == [1]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.floats(0.01, 1), st.integers(1, 5))
def test_every_interval_is_near_a_sample(waits: list[float], step: float, at_least: int) -> None:
    values = np.array(waits)
    picked = choose_samples(values, np.ones((len(values), 1)), step, at_least)
    assert min(at_least, len(values)) <= len(picked)
    assert len(picked) <= max(at_least, 2 + int((np.log1p(values.max()) - np.log1p(values.min())) / step))
    assert (np.diff(picked) > 0).all()
    scale = np.log1p(values)
    assert np.abs(scale[:, None] - scale[picked]).min(axis=1).max() <= step + 1e-9


def test_levels_of_waiting_with_gaps_between_them_have_samples_each() -> None:
    levels = np.array([0.5, 2, 5, 9, 14, 20, 26])
    waits, shares = np.repeat(levels, 50), np.ones((350, 1))
    assert sorted(waits[choose_samples(waits, shares, 0.2)]) == levels.tolist()
    assert len(choose_samples(waits, shares, 0.2, at_least=30)) == 30
    assert len(choose_samples(waits, shares, 0.2, at_least=1000)) == 350


def test_ranges_of_waiting() -> None:
    assert wait_bucket(0.0, 0.2) == 0
    assert wait_bucket(float(np.expm1(0.39)), 0.2) == 1
    assert wait_bucket(5.0, 0.0) == 0


def naive_medoids(points: np.ndarray, draws: list[float]) -> list[int]:
    """k-means++ and three rounds of moving centres, with numpy."""

    def apart(one: np.ndarray) -> np.ndarray:
        return np.abs(points - one).sum(axis=1)

    centres = [int(apart(points.mean(axis=0)).argmin())]
    for draw in draws:
        nearest = np.min([apart(points[centre]) for centre in centres], axis=0)
        reached = np.flatnonzero((np.cumsum(nearest) >= draw * nearest.sum()) & (nearest > 0))
        if not len(reached):
            break
        centres.append(int(reached[0]))
    for _ in range(3):
        own = np.argmin([apart(points[centre]) for centre in centres], axis=0)
        for number in range(len(centres)):
            members = np.flatnonzero(own == number)
            if len(members):
                mean = points[members].mean(axis=0)
                centres[number] = int(members[np.abs(points[members] - mean).sum(axis=1).argmin()])
    return sorted(set(centres))


@EXAMPLES
@given(st.integers(1, 25), st.integers(1, 3), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_typical_intervals_are_medoids(n: int, d: int, k: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    points = random.choice([0.0, 1.0, 4.0], (n, d)) + random.random((n, d)) / 8
    draws = random.random(k - 1)
    found = medoids(points, draws).tolist()
    assert found == naive_medoids(points, draws.tolist())
    assert 1 <= len(found) <= min(k, n)
