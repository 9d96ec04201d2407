"""Phases online: hand-worked tables, and invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.timing.machine_events import FIRST_STATIC, N_STATIC, Event
from measure.cycle_close.classifier import SignatureTable
from measure.cycle_close.estimated_events import with_static_events


def signature(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_the_base_of_the_threshold_is_explicit() -> None:
    # 20 of 100 instructions elsewhere: a Manhattan distance of 40, 40% of L and 20% of 2L.
    for base, same in (("L", False), ("2L", True)):
        table = SignatureTable(2, threshold=0.25, base=base)  # type: ignore[arg-type]
        table.classify(signature(100, 0))
        match = table.classify(signature(80, 20))
        assert match.is_new is not same
        assert match.distance == pytest.approx(0.4 if base == "L" else 0.2)


def test_the_closest_phase_wins_and_the_older_of_equals() -> None:
    table = SignatureTable(3, threshold=0.5)
    assert table.classify(signature(10, 0, 0)).phase == 0
    assert table.classify(signature(0, 10, 0)).phase == 1
    assert table.classify(signature(6, 4, 0)).phase == 0
    assert table.classify(signature(4, 6, 0)).phase == 1
    assert table.classify(signature(5, 5, 0)).is_new  # 0.5 from both is not below the threshold
    table = SignatureTable(3, threshold=0.6)
    table.classify(signature(10, 0, 0))
    table.classify(signature(0, 0, 10))
    assert table.classify(signature(5, 0, 5)).phase == 0


@pytest.mark.parametrize(("update", "phase"), [("sample", 1), ("never", 0)])
def test_a_sample_moves_the_signature(update: str, phase: int) -> None:
    table = SignatureTable(2, threshold=0.3, update=update)  # type: ignore[arg-type]
    table.classify(signature(100, 0))
    table.record_sample(0, signature(75, 25))
    assert table.classify(signature(50, 50)).phase == (0 if update == "sample" else 1)
    assert table.phases == (1 if phase == 1 else 2)


def test_the_mean_follows_the_intervals() -> None:
    table = SignatureTable(2, threshold=0.9, update="mean")
    for first in (100, 80, 60):
        table.classify(signature(first, 100 - first))
    assert table.distances(signature(80, 20))[0] == pytest.approx(0)


def test_a_full_table_forgets_the_phase_met_longest_ago() -> None:
    table = SignatureTable(4, threshold=0.1, entries=2)
    for place in (0, 1, 0, 2):
        table.classify(np.eye(4, dtype=np.int64)[place] * 10)
    assert (table.phases, table.replaced) == (3, 1)
    assert not table.contains(1)
    assert table.classify(signature(0, 10, 0, 0)).phase == 3  # never a number twice


def test_a_full_table_may_take_the_closest() -> None:
    table = SignatureTable(4, threshold=0.1, entries=2, when_full="closest")
    for place in (0, 1):
        table.classify(np.eye(4, dtype=np.int64)[place] * 10)
    match = table.classify(signature(0, 4, 3, 3))
    assert match.phase == 1
    assert not match.is_new
    assert match.distance == pytest.approx(0.6)


signatures = st.lists(st.lists(st.integers(0, 1000), min_size=4, max_size=4).filter(any), min_size=1, max_size=40)


@given(signatures, st.floats(0.01, 1.0), st.sampled_from(["L", "2L"]))
def test_invariants(rows: list[list[int]], threshold: float, base: str) -> None:
    table = SignatureTable(4, threshold, base, update="never")  # type: ignore[arg-type]
    firsts: list[np.ndarray] = []
    for row in rows:
        counts = np.array(row, np.int64)
        share = counts / counts.sum()
        apart = [np.abs(share - first).sum() / (1 if base == "L" else 2) for first in firsts]
        match = table.classify(counts)
        if match.is_new:
            assert all(distance >= threshold - 1e-9 for distance in apart)
            assert match.phase == len(firsts)
            firsts.append(share)
        else:
            assert apart[match.phase] < threshold + 1e-9
            assert apart[match.phase] <= min(apart) + 1e-9
            assert match.distance == pytest.approx(apart[match.phase])
    assert table.phases == len(firsts)


@pytest.mark.parametrize(("threshold", "entries", "what"), [(0, 4, "threshold of 0"), (0.5, 0, "table of 0 entries")])
def test_bad_settings(threshold: float, entries: int, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        SignatureTable(4, threshold, entries=entries)


def test_misses_stay_within_the_accesses_that_are_known() -> None:
    estimate = np.full(len(Event), 100.0)
    estimate[Event.L1D_ACCESSES], estimate[Event.L1D_MISSES], estimate[Event.CYCLES] = 50, 20, 300
    known = np.full(N_STATIC, 100)
    known[Event.L1D_ACCESSES - FIRST_STATIC] = 5
    events = with_static_events(estimate, known)
    assert events[Event.L1D_ACCESSES] == 5
    assert events[Event.L1D_MISSES] == 2
    assert events[Event.CYCLES] == 300
    estimate[Event.L1D_ACCESSES] = estimate[Event.L1D_MISSES] = 0
    assert with_static_events(estimate, known)[Event.L1D_MISSES] == 0
