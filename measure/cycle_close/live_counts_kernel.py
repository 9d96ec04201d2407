"""Kernels that take over what was counted of an interval at its end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import inline_kernel, kernel
from emulator.timing.machine_events import N_EVENTS, Event

Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]

_MISPREDICTED = int(Event.BRANCHES_MISPREDICTED)
FIRST_CACHE_EVENT, LAST_CACHE_EVENT = int(Event.L1I_MISSES), int(Event.DTLB_MISSES)
"""The events of followed caches, these and all between."""
SAVED_CYCLES, TARGETS = N_EVENTS, N_EVENTS + 1
"""Columns behind those of events: cycles that misses did not wait (`emulator.timing.followed_kernel.wait`);
mispredicted targets of indirect jumps and calls."""
COUNTED = N_EVENTS + 2
"""Columns of what is counted of an interval."""


class Live(NamedTuple):
    """Counts since the last boundary: ``events``, (N_EVENTS,), of caches, of which those are right that are ``known``,
    ``saved_cycles``, (1,), ``targets``, (1,), mispredicted ones of indirect jumps and calls, and ``mispredicted``, (1,)
    branches; (0,) where they are not counted."""

    events: Longs
    known: NDArray[np.bool_]
    saved_cycles: Longs
    targets: Longs
    mispredicted: Longs


class Taken(NamedTuple):
    """The counts of a series' intervals: ``counted``, (n, COUNTED), NaN what is not counted; ``rows``, (1,): of how
    many intervals."""

    counted: Doubles
    rows: Longs


@inline_kernel
def take(live: Live, out: Doubles) -> None:
    """Move the ``live`` counts to ``out``, (COUNTED,)."""
    if len(live.events):
        for event in range(FIRST_CACHE_EVENT, LAST_CACHE_EVENT + 1):
            if live.known[event]:
                out[event] = live.events[event]
            live.events[event] = 0
        out[SAVED_CYCLES] = live.saved_cycles[0]
        live.saved_cycles[0] = 0
    if len(live.targets):
        out[TARGETS] = live.targets[0]
        live.targets[0] = 0
    if len(live.mispredicted):
        out[_MISPREDICTED] = live.mispredicted[0]
        live.mispredicted[0] = 0


@kernel
def take_counts(live: Live, taken: Taken) -> None:
    """Move the ``live`` counts to the next row of ``taken``."""
    take(live, taken.counted[taken.rows[0]])
    taken.rows[0] += 1


@inline_kernel
def waiting_of(counted: Doubles, instructions: int, cycles: Doubles) -> float:
    """As `measure.cycle_close.live_counts.waiting`, of one interval, (COUNTED,)."""
    total = 0.0
    for event in range(FIRST_CACHE_EVENT, LAST_CACHE_EVENT + 1):
        if cycles[event] > 0.0:
            total += counted[event] * cycles[event]
    if cycles[TARGETS] > 0.0:
        total += counted[TARGETS] * cycles[TARGETS]
    return (total - counted[SAVED_CYCLES]) / max(instructions, 1)
