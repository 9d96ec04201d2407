"""Completes the estimated events of an interval: what is known of it exactly, and what can happen at all.

An estimate combines samples, and weights that follow the effect of waiting may be negative: each event is close to the
truth, but not all of them are possible together, such as more misses than accesses in an interval with few of them.
The same is true of what is estimated beside what is counted. So in each interval no event is below 0, and none happens
more often than what it is a part of: all rates are from 0 to 1. What is exact stays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import FIRST_DYNAMIC, FIRST_STATIC, N_EVENTS, Event

# Dynamic events and the static events in proportion to which they are scaled, so that their rates are kept.
_RATE_OF = {
    Event.BRANCHES_TAKEN: Event.BRANCHES_CONDITIONAL,
    Event.BRANCHES_MISPREDICTED: Event.BRANCHES_CONDITIONAL,
    Event.L1D_MISSES: Event.L1D_ACCESSES,
    Event.L1D_LOAD_MISSES: Event.LOADS,
    Event.L1D_STORE_MISSES: Event.STORES,
    Event.L1D_WRITEBACKS: Event.L1D_ACCESSES,
}
_PARTS = np.array([*_RATE_OF], np.int64)
_WHOLES = np.array([*_RATE_OF.values()], np.int64)
_CYCLES = np.array([Event.CYCLES, Event.STALL_CYCLES, Event.FRONTEND_STALL_CYCLES])

_FIRST = (
    (Event.BRANCHES_TAKEN, Event.BRANCHES_CONDITIONAL),
    (Event.BRANCHES_MISPREDICTED, Event.BRANCHES_CONDITIONAL),
    (Event.L1I_MISSES, Event.L1I_ACCESSES),
    (Event.ITLB_MISSES, Event.L1I_ACCESSES),
    (Event.L1D_MISSES, Event.L1D_ACCESSES),
    (Event.L1D_LOAD_MISSES, Event.LOADS),
    (Event.L1D_STORE_MISSES, Event.STORES),
    (Event.L1D_WRITEBACKS, Event.L1D_MISSES),
    (Event.DTLB_MISSES, Event.L1D_ACCESSES),
    (Event.STALL_CYCLES, Event.CYCLES),
    (Event.FRONTEND_STALL_CYCLES, Event.STALL_CYCLES),
)
_AFTER_SUMS = (
    (Event.L2_MISSES, Event.L2_ACCESSES),
    (Event.L2_DATA_MISSES, Event.L2_DATA_ACCESSES),
    (Event.L2_DATA_MISSES, Event.L2_MISSES),
)
AT_MOST = (*_FIRST, *_AFTER_SUMS)
"""Events of which there are never more than of others; those that limit others come before these."""
SUMS = (
    (Event.L1D_MISSES, Event.L1D_LOAD_MISSES, Event.L1D_STORE_MISSES),
    (Event.L2_ACCESSES, Event.L1I_MISSES, Event.L2_DATA_ACCESSES),
)
"""Events that are the sum of two others; the second one on machines with an L2 cache."""


def completed(
    estimate: NDArray[np.float64], static: NDArray[np.int64], counted: NDArray[np.float64], config: MachineConfig
) -> NDArray[np.float64]:
    """The events of intervals, (..., N_EVENTS), from an ``estimate`` of them: with their exact ``static`` events,
    (..., N_STATIC); with the events that fast execution has ``counted``, (..., COUNTED), where these are not NaN; and
    with cycles enough to issue the instructions and to stall."""
    mispredicted = counted[..., Event.BRANCHES_MISPREDICTED]
    found = possible(with_mispredictions(with_static_events(estimate, static), mispredicted, config))
    known = counted[..., :N_EVENTS]
    found = np.where(np.isnan(known), found, known)
    if config.l1d.write_policy == "write_through" and config.l2 is None:
        found[..., Event.MEMORY_WRITES] = found[..., Event.STORES]
    for misses in (Event.L1I_MISSES, Event.ITLB_MISSES):  # of estimated accesses there are at least as many
        np.maximum(found[..., Event.L1I_ACCESSES], found[..., misses], out=found[..., Event.L1I_ACCESSES])
    _limit(found, AT_MOST)
    issuing = found[..., Event.INSTRUCTIONS] / config.pipeline.issue_width
    found[..., Event.CYCLES] = np.maximum(found[..., Event.CYCLES], issuing + found[..., Event.STALL_CYCLES])
    return found


def with_static_events(estimate: NDArray[np.float64], static: NDArray[np.int64]) -> NDArray[np.float64]:
    """The events of intervals, (..., N_EVENTS): an ``estimate`` with exact ``static`` events, (..., N_STATIC)."""
    events = estimate.copy()
    events[..., FIRST_STATIC:FIRST_DYNAMIC] = static
    estimated, actual = estimate[..., _WHOLES], events[..., _WHOLES]
    events[..., _PARTS] *= np.divide(actual, estimated, out=np.ones(estimated.shape), where=estimated > 0)
    _follow(estimate, events)
    return events


def with_mispredictions(
    events: NDArray[np.float64], mispredicted: NDArray[np.float64], config: MachineConfig
) -> NDArray[np.float64]:
    """Estimated ``events`` of intervals, (..., N_EVENTS), with their ``mispredicted`` branches, (...,), where these are
    not NaN, and the cycles that more or fewer of them take."""
    known = np.isfinite(mispredicted)
    if not known.any():
        return events
    more = np.where(known, mispredicted - events[..., Event.BRANCHES_MISPREDICTED], 0.0)
    changed = events.copy()
    changed[..., Event.BRANCHES_MISPREDICTED] += more
    changed[..., _CYCLES] += (more * config.pipeline.mispredict_penalty_cycles)[..., None]
    return changed


def possible(events: NDArray[np.float64]) -> NDArray[np.float64]:
    """``events``, (..., N_EVENTS), with what can happen together: none below 0, `AT_MOST` and `SUMS`.

    Cycles and static events stay. Of a sum the whole stays, and its parts share it in their proportion, as far as they
    can; accesses of the L2 cache follow from the misses of the others.
    """
    found = np.maximum(events, 0.0)
    _limit(found, _FIRST)
    indirect = found[..., Event.RETURNS] + found[..., Event.INDIRECT_TRANSFERS]
    direct = found[..., Event.BRANCHES] - found[..., Event.BRANCHES_CONDITIONAL] - indirect
    for event, most in (
        (Event.TARGETS_MISPREDICTED, indirect),
        (Event.BTB_MISSES, np.maximum(direct, 0.0) + found[..., Event.BRANCHES_TAKEN]),
    ):
        found[..., event] = np.minimum(found[..., event], most)
    whole, one, other = (found[..., event] for event in SUMS[0])
    parts = one + other
    share = np.divide(one, parts, out=np.ones(parts.shape), where=parts > 0)
    of_stores = np.minimum(np.maximum((1 - share) * whole, whole - found[..., Event.LOADS]), found[..., Event.STORES])
    found[..., SUMS[0][1]], found[..., SUMS[0][2]] = whole - of_stores, of_stores
    _follow(np.maximum(events, 0.0), found)
    np.maximum(found, 0.0, out=found)
    _limit(found, _AFTER_SUMS)
    return found


def _follow(before: NDArray[np.float64], after: NDArray[np.float64]) -> None:
    """Change what lies below the first-level caches as their misses and write-backs have changed from ``before`` to
    ``after``, (..., N_EVENTS): accesses and misses of the L2 cache, if there is one, and lines that memory reads and
    writes."""

    def ratio(whole: NDArray[np.float64], changed: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.divide(changed, whole, out=np.ones(whole.shape), where=whole > 0)

    has_l2 = before[..., Event.L2_ACCESSES] > 0
    of_data = ratio(before[..., Event.L1D_MISSES], after[..., Event.L1D_MISSES])
    for event in (Event.L2_DATA_ACCESSES, Event.L2_DATA_MISSES):
        after[..., event] = before[..., event] * of_data
    more = after[..., Event.L2_DATA_MISSES] - before[..., Event.L2_DATA_MISSES]
    after[..., Event.L2_MISSES] = before[..., Event.L2_MISSES] + more
    accesses = after[..., Event.L1I_MISSES] + after[..., Event.L2_DATA_ACCESSES]
    after[..., Event.L2_ACCESSES] = np.where(has_l2, accesses, 0.0)
    last_missed, last_changed = (
        np.where(has_l2, events[..., Event.L2_MISSES], events[..., Event.L1I_MISSES] + events[..., Event.L1D_MISSES])
        for events in (before, after)
    )
    after[..., Event.MEMORY_READS] = before[..., Event.MEMORY_READS] * ratio(last_missed, last_changed)
    written = ratio(before[..., Event.L1D_WRITEBACKS], after[..., Event.L1D_WRITEBACKS])
    after[..., Event.MEMORY_WRITES] = before[..., Event.MEMORY_WRITES] * np.where(has_l2, 1.0, written)


def _limit(events: NDArray[np.float64], pairs: tuple[tuple[Event, Event], ...]) -> None:
    for part, whole in pairs:
        events[..., part] = np.minimum(events[..., part], events[..., whole])
