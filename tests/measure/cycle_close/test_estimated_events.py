"""What cannot happen together is in no estimate: limits that hold in the simulator, and in any mix of samples."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.events import BlockFacts
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import FIRST_DYNAMIC, FIRST_STATIC, N_EVENTS, Event
from measure.cycle_close.estimated_events import AT_MOST, SUMS, completed, possible
from measure.cycle_close.live_counts_kernel import COUNTED, FIRST_CACHE_EVENT, LAST_CACHE_EVENT
from tests.emulator.timing.timing_programs import machine, machines, programs, records, stream_of

CONFIG = machine()


def assert_possible(events: np.ndarray) -> None:
    """``events``: (N_EVENTS,)."""
    assert events.min() >= 0
    for part, whole in AT_MOST:
        assert events[part] <= events[whole], (part.name, whole.name)
    indirect = events[Event.RETURNS] + events[Event.INDIRECT_TRANSFERS]
    direct = events[Event.BRANCHES] - events[Event.BRANCHES_CONDITIONAL] - indirect
    assert events[Event.TARGETS_MISPREDICTED] <= indirect
    assert events[Event.BTB_MISSES] <= direct + events[Event.BRANCHES_TAKEN]
    for whole, one, other in SUMS:
        if whole is Event.L1D_MISSES or events[whole]:
            total = events[one] + events[other]
            assert total == 0 or abs(events[whole] - total) <= 1e-9 * max(1.0, total), whole.name


@settings(max_examples=100, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_the_limits_hold_in_the_simulator(data: st.DataObject) -> None:
    config: MachineConfig = data.draw(machines())
    facts: BlockFacts = data.draw(programs())
    core = InOrderCore(config, seed=data.draw(st.integers(0, 5)))
    core.consume(facts, stream_of(data.draw(records(facts))))
    counted = core.snapshot().astype(np.float64)
    assert_possible(counted)
    np.testing.assert_allclose(possible(counted), counted, rtol=1e-12)


def simulated(rng: np.random.Generator) -> np.ndarray:
    """Events of an interval that can happen together, with few accesses of some kinds."""
    events = rng.integers(0, 1000, N_EVENTS) * rng.choice([0.01, 1, 1], N_EVENTS)
    events[Event.CYCLES] += 1500
    events[FIRST_STATIC:FIRST_DYNAMIC] = events[FIRST_STATIC:FIRST_DYNAMIC].round()
    events[Event.BRANCHES] += events[[Event.BRANCHES_CONDITIONAL, Event.RETURNS, Event.INDIRECT_TRANSFERS]].sum()
    events[Event.L1D_ACCESSES] = events[[Event.LOADS, Event.STORES]].sum() - rng.integers(0, 2)
    events[Event.L1D_ACCESSES] = max(events[Event.L1D_ACCESSES], events[Event.LOADS], events[Event.STORES])
    events[Event.L1D_LOAD_MISSES] = min(events[Event.L1D_LOAD_MISSES], events[Event.LOADS])
    events[Event.L1D_STORE_MISSES] = min(events[Event.L1D_STORE_MISSES], events[Event.STORES])
    events[Event.L1D_MISSES] = events[Event.L1D_LOAD_MISSES] + events[Event.L1D_STORE_MISSES]
    return possible(events)


@given(st.integers(0, 1 << 30), st.booleans(), st.booleans())
def test_an_estimate_is_possible_whatever_the_weights(seed: int, some_known: bool, many: bool) -> None:
    """Weights follow the effect of waiting, and may be negative; a trace had hit rates of -13%, and more branches taken
    than there were."""
    rng = np.random.default_rng(seed)
    samples = np.array([simulated(rng) for _ in range(4)])
    weights = rng.normal(0.25, 0.5, 4)
    weights[0] += 1 - weights.sum()
    estimate = weights @ samples
    static = simulated(rng)[FIRST_STATIC:FIRST_DYNAMIC].round().astype(np.int64)
    mispredicted = rng.integers(0, 1 + static[Event.BRANCHES_CONDITIONAL - FIRST_STATIC]) if some_known else np.nan
    counted = np.full((2, COUNTED), np.nan)
    counted[0, Event.BRANCHES_MISPREDICTED] = mispredicted
    if many:
        rows = np.array([estimate, samples[0]])
        found = completed(rows, np.array([static, static]), counted, CONFIG)[0]
    else:
        found = completed(estimate, static, counted[0], CONFIG)
    assert_possible(found)
    assert found[FIRST_STATIC:FIRST_DYNAMIC].tolist() == static.tolist()
    if some_known:
        assert abs(found[Event.BRANCHES_MISPREDICTED] - mispredicted) < 1e-9
    elif estimate[Event.CYCLES] >= 0:
        needed = found[Event.INSTRUCTIONS] / CONFIG.pipeline.issue_width + found[Event.STALL_CYCLES]
        assert found[Event.CYCLES] == max(estimate[Event.CYCLES], needed)


@given(st.integers(0, 1 << 30))
def test_an_estimate_beside_counts_is_possible(seed: int) -> None:
    """Misses of L1I were counted and its accesses estimated: a trace had hit rates down to -4436."""
    rng = np.random.default_rng(seed)
    weights = np.array([2.0, -1.0]) if rng.integers(2) else np.array([0.5, 0.5])
    truth = simulated(rng)
    counted = np.full(COUNTED, np.nan)
    counted[FIRST_CACHE_EVENT : LAST_CACHE_EVENT + 1] = truth[FIRST_CACHE_EVENT : LAST_CACHE_EVENT + 1]
    counted[Event.BRANCHES_MISPREDICTED] = truth[Event.BRANCHES_MISPREDICTED]
    static = truth[FIRST_STATIC:FIRST_DYNAMIC].astype(np.int64)
    found = completed(weights @ [simulated(rng), simulated(rng)], static, counted, CONFIG)
    assert_possible(found)
    known = ~np.isnan(counted[:N_EVENTS])
    assert found[known].tolist() == counted[:N_EVENTS][known].tolist()


def test_what_is_possible_stays_and_the_whole_of_a_sum_stays() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        events = simulated(rng)
        np.testing.assert_allclose(possible(events), events, rtol=1e-12)
        events[Event.L1D_LOAD_MISSES] *= 3
        changed = possible(events)
        assert changed[Event.L1D_MISSES] == events[Event.L1D_MISSES]
        assert changed[Event.L1D_LOAD_MISSES] >= events[Event.L1D_LOAD_MISSES] / 3


def test_what_is_counted_is_not_estimated() -> None:
    rng = np.random.default_rng(2)
    estimate, truth = simulated(rng), simulated(rng)
    counted = np.full(COUNTED, np.nan)
    counted[FIRST_CACHE_EVENT : LAST_CACHE_EVENT + 1] = truth[FIRST_CACHE_EVENT : LAST_CACHE_EVENT + 1]
    static = truth[FIRST_STATIC:FIRST_DYNAMIC].astype(np.int64)
    found = completed(estimate, static, counted, CONFIG)
    assert (
        found[FIRST_CACHE_EVENT : LAST_CACHE_EVENT + 1].tolist()
        == counted[FIRST_CACHE_EVENT : LAST_CACHE_EVENT + 1].tolist()
    )
    assert found[Event.CYCLES] >= estimate[Event.CYCLES]
