"""Waiting for memory from reuse times, and samples spread over it and interpolated."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.timing.load import load_machine
from measure.cycleclose.reuse import WaitModel
from measure.cycleclose.reuse_kernel import expected_misses
from measure.cycleclose.samples import PhaseSamples, Sample, spread, wait_bucket

MACHINES = Path(__file__).parents[3] / "configs" / "machines"


def reuse_times(accesses: list[int]) -> np.ndarray:
    """One access an instruction; lines as numbers."""
    last: dict[int, int] = {}
    out = np.zeros((1, 33), np.int64)
    for now, line in enumerate(accesses):
        age = now - last[line] if line in last else 1 << 31
        out[0, age.bit_length()] += 1
        last[line] = now
    return out


def lru_misses(accesses: list[int], lines: int) -> int:
    held: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for line in accesses:
        if line in held:
            held.move_to_end(line)
            continue
        misses += 1
        held[line] = None
        if len(held) > lines:
            held.popitem(last=False)
    return misses


@pytest.mark.parametrize("lines", [64, 256, 1024])
@pytest.mark.parametrize("kind", ["zipf", "uniform", "mixed"])
def test_misses_are_near_those_of_an_lru_cache(kind: str, lines: int) -> None:
    rng = np.random.default_rng(lines)
    n = 60_000
    zipf = np.minimum(rng.zipf(1.3, n), 5000)
    uniform = rng.integers(3000, size=n)
    accesses = {
        "zipf": zipf,
        "uniform": uniform,
        "mixed": np.where(rng.random(n) < 0.7, zipf, 10_000 + uniform),
    }[kind]
    expected = lru_misses(accesses.tolist(), lines)
    found = expected_misses(reuse_times(accesses.tolist()), np.array([n]), float(lines))[0]
    assert found == pytest.approx(expected, rel=0.12)


@given(st.lists(st.integers(0, 500), min_size=33, max_size=33), st.integers(1, 10**6))
def test_larger_caches_miss_no_more(counts: list[int], instructions: int) -> None:
    times = np.array([counts], np.int64)
    length = np.array([max(instructions, sum(counts))])
    misses = [expected_misses(times, length, float(lines))[0] for lines in (1, 16, 256, 4096, 1 << 30)]
    assert all(a >= b - 1e-9 for a, b in pairwise(misses))
    assert 0 <= misses[-1] <= misses[0] <= sum(counts)


def test_waiting_is_misses_times_latency() -> None:
    config = load_machine(MACHINES / "strongarm.yaml")
    model = WaitModel(config)
    times = np.zeros((3, 33), np.int64)
    times[1, 32] = 1000  # never touched before
    times[2, 1] = 1000  # touched the instruction before
    waits = model.cycles_each(times, np.array([10_000, 10_000, 10_000]))
    assert waits.tolist() == pytest.approx([0, 0.1 * config.memory.latency_cycles, 0], rel=0.35)
    assert model.line_bits == 5


def sample(number: int, wait: float, value: float) -> Sample:
    return Sample(number, wait, np.array([value]))


def test_events_between_two_samples_are_interpolated() -> None:
    phase = PhaseSamples()
    for one in (sample(7, 2.0, 30.0), sample(3, 0.0, 10.0), sample(9, 1.0, 14.0)):
        phase.add(one)
    expected = {
        0.0: (10.0, 3),
        0.25: (11.0, 3),
        1.5: (22.0, 7),
        1.9: (28.4, 7),
        2.0: (30.0, 7),
        5.0: (30.0, 7),
    }
    for wait, (value, source) in expected.items():
        events, nearest = phase.estimate(wait)
        assert events[0] == pytest.approx(value)
        assert nearest == source
    phase.add(sample(11, 1.0, 15.0))  # as long as another: takes its place
    assert phase.estimate(1.0)[1] == 11
    assert phase.differ(0.2)
    assert not phase.differ(0)


def test_samples_are_spread_over_waiting() -> None:
    waits = np.expm1(np.linspace(0, 1, 101))
    shares = np.ones((101, 1))
    picked = spread(waits, shares, 0.25)
    assert len(picked) == 5
    assert np.abs(np.log1p(waits[picked]) - np.linspace(0, 1, 5)).max() <= 0.25 / 8 + 1e-9
    # Of those that wait alike the typical one: the first here has other code.
    shares = np.array([[1.0, 0.0]] + [[0.1, 0.9]] * 9)
    assert spread(np.zeros(10), shares, 0.2).tolist() == [1]
    assert spread(np.zeros(10), shares, 0.2, at_least=2).tolist() == [1, 5]
    assert spread(np.arange(10.0), shares, 0.0, at_least=1).tolist() == [1]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.floats(0.01, 1), st.integers(1, 5))
def test_every_interval_is_near_a_sample(waits: list[float], step: float, at_least: int) -> None:
    values = np.array(waits)
    picked = spread(values, np.ones((len(values), 1)), step, at_least)
    assert (
        1 <= len(picked) <= max(at_least, 2 + int((np.log1p(values.max()) - np.log1p(values.min())) / step))
    )
    assert (np.diff(picked) > 0).all()


def test_ranges_of_waiting() -> None:
    assert wait_bucket(0.0, 0.2) == 0
    assert wait_bucket(float(np.expm1(0.39)), 0.2) == 1
    assert wait_bucket(5.0, 0.0) == 0
