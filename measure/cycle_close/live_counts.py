"""What fast execution counts of each interval: misses of caches and TLBs, and mispredictions.

Intervals with the same code can differ in these many times. They are exact where fast execution keeps caches and
branch predictor up to date (`emulator.timing.followed_caches`); then no sample has to stand for them: an estimate
gets the interval's own (`measure.cycle_close.estimated_events`). From misses follows how long an interval waits for
memory.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emulator.engine.instrument.held_directions import HeldDirections, StaticDirections
from emulator.events import TraceSelection
from emulator.execution.intervals import Written
from emulator.kernels.jit import BoundKernel
from emulator.machine import Machine
from emulator.timing.followed_caches import CacheContents, follows_stores, line_bits
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import N_EVENTS, Event
from emulator.timing.online_predictor import online_predictor
from measure.cycle_close.live_counts_kernel import COUNTED, SAVED_CYCLES, TARGETS, Live, Taken, take_counts

UNKNOWN = np.zeros(0, np.int64)
"""In place of live counts, where there are none."""


class Following:
    """Caches like those of ``core`` that follow ``machine`` while ``selection`` is observed. ``caches``: these;
    ``known``: (N_EVENTS,), the events that they count. ``targets``: (1,), mispredicted ones of indirect jumps and
    calls, live, or `UNKNOWN` without a branch target buffer."""

    def __init__(self, machine: Machine, core: InOrderCore) -> None:
        bits = line_bits(core.config)
        self.selection = TraceSelection(followed_lines=bits, follows_stores=follows_stores(core.config))
        self.caches = core.followed_caches(machine.follow_lines(bits))
        self.known = np.ones(N_EVENTS, np.bool_)
        if core.config.l1d.write_policy == "write_through" and core.config.l2 is None:  # they are the stores
            self.known[Event.MEMORY_WRITES] = False
        self.targets = UNKNOWN
        if core.config.branch_predictor.btb_entries:
            self._targets = machine.hold_targets(core.config.branch_predictor.btb_entries)
            self.targets = self._targets.mispredicted
            self.selection = replace(self.selection, inline=(self._targets.call,))
        self._machine = machine

    def contents(self) -> CacheContents:
        """What a core would hold now."""
        return self.caches.contents(self._machine.instructions)


def live_counts(following: Following | None, mispredicted: NDArray[np.int64] = UNKNOWN) -> Live:
    """What is counted: of ``following``, if it is, and ``mispredicted``, (1,), if it is not `UNKNOWN`."""
    if following is None:
        return Live(UNKNOWN, np.zeros(0, np.bool_), UNKNOWN, UNKNOWN, mispredicted)
    caches = following.caches
    return Live(caches.events, following.known, caches.saved_cycles, following.targets, mispredicted)


def wait_cycles(config: MachineConfig) -> NDArray[np.float64]:
    """Cycles that an access waits, (COUNTED,), for each miss that is counted, and for what misses save."""
    cycles = np.zeros(COUNTED)
    cycles[SAVED_CYCLES] = -1
    below = config.memory.latency_cycles if config.l2 is None else config.l2.hit_latency_cycles
    reading = Event.L1D_MISSES if config.l1d.write_allocate else Event.L1D_LOAD_MISSES  # a line, and not just writing
    cycles[[reading, Event.L1I_MISSES]] = below
    cycles[Event.L2_MISSES] = config.memory.latency_cycles
    if config.branch_predictor.btb_entries:
        cycles[TARGETS] = config.pipeline.mispredict_penalty_cycles
    for tlb, event in ((config.itlb, Event.ITLB_MISSES), (config.dtlb, Event.DTLB_MISSES)):
        if tlb is not None:
            cycles[event] = tlb.miss_penalty_cycles
    return cycles


class CountWatcher:
    """Takes the counts of a series of intervals at each boundary; an `IntervalWatcher`. ``live``: those since the last
    boundary."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._taken = _room(0)

    def begin(self, at_most: int) -> CountWatcher:
        """Prepare for a series of ``at_most`` intervals; what was counted since the last boundary is forgotten."""
        self._taken = _room(at_most)
        for live in (self._live.events, self._live.saved_cycles, self._live.targets, self._live.mispredicted):
            live[:] = 0
        return self

    def watch(self, written: Written) -> BoundKernel:
        """See `IntervalWatcher`."""
        bound: BoundKernel = take_counts.bound(self._live, self._taken)
        return bound

    def end(self, n_intervals: int) -> NDArray[np.float64]:
        """The counts of the series' intervals, (n, COUNTED), NaN what is not counted."""
        if self._taken.rows[0] < n_intervals:  # the guest has ended in the last
            take_counts(self._live, self._taken)
        return self._taken.counted[:n_intervals]


def _room(n: int) -> Taken:
    return Taken(np.full((n, COUNTED), np.nan), np.zeros(1, np.int64))


def waiting(
    counted: NDArray[np.float64], instructions: NDArray[np.int64], cycles: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Cycles per instruction that intervals wait for memory, (n,), from what is ``counted``, (n, COUNTED), of all
    misses; ``cycles``: of `wait_cycles`."""
    return np.asarray(np.nan_to_num(counted) @ cycles / np.maximum(instructions, 1))


def known_penalty_cycles(live: NDArray[np.int64], config: MachineConfig) -> int:
    """The penalty of a misprediction if ``live``, a count of them, is not `UNKNOWN`, else 0."""
    return config.pipeline.mispredict_penalty_cycles if len(live) else 0


def held_directions(machine: Machine, config: MachineConfig) -> HeldDirections | StaticDirections:
    """What counts the mispredictions of ``machine`` while it runs fast: the counters of `online_predictor`, or the
    directions alone for a predictor that learns nothing."""
    shape = online_predictor(config)
    if shape is None:
        return machine.hold_static_directions(config.branch_predictor.kind == "backward_taken")
    return machine.hold_directions(*shape)
