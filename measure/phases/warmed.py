"""Simulation points as their users simulate them: each by itself, after some warm-up.

An error computed from intervals that are cut out of a full simulation is that of points whose caches and predictors
hold all that came before. A user begins shortly before a point, or has the caches filled from when each line was
accessed last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.events import TraceSelection
from emulator.machine import Machine
from emulator.timing.config import MachineConfig
from emulator.timing.counters import N_EVENTS
from emulator.timing.inorder import InOrderCore
from measure.cycleclose.detail import DetailedRun
from measure.cycleclose.reuse import WaitModel
from measure.cycleclose.tracer import CoreObserver, Settings

NO_WARM_UP, LINES = "no warm-up", "exact lines"
_FILL_INTERVAL = 200_000  # instructions after which the rate of fills is looked at
_BATCH = 256


@dataclass(frozen=True)
class Bounds:
    """Where the intervals of points begin and end, (p,) instructions each."""

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]


def simulate_warmed(
    make_machine: Callable[[], Machine],
    config: MachineConfig,
    seed: int,
    bounds: Bounds,
    warm_up_instructions: int,
) -> dict[str, NDArray[np.float64]]:
    """Events of each point, (p, N_EVENTS), by warm-up: none, ``warm_up_instructions`` before it in detail, exact lines.

    ``make_machine``: makes a machine, without a timing core, in which the program does the same each time.
    """
    given = {NO_WARM_UP: 0}
    if warm_up_instructions:
        given[f"after {warm_up_instructions / 1e6:g} M"] = warm_up_instructions
    with make_machine() as machine:
        told = _in_detail(machine, config, seed, bounds, list(given.values()))
    found = dict(zip(given, told, strict=True))
    waits = WaitModel(config)
    with make_machine() as machine:
        _count_fills(machine, waits)
    with make_machine() as machine:
        found[LINES] = _by_lines(machine, InOrderCore(config, seed), bounds, waits)
    return found


def _in_detail(
    machine: Machine, config: MachineConfig, seed: int, bounds: Bounds, warm_ups: list[int]
) -> list[NDArray[np.float64]]:
    """Each point on a new core that has seen so many instructions before it and nothing else."""
    wanted = [
        _Part(max(int(begin) - warm_up, 0), int(begin), int(end), way, point)
        for way, warm_up in enumerate(warm_ups)
        for point, (begin, end) in enumerate(zip(bounds.begins, bounds.ends, strict=True))
    ]
    events = [np.zeros((len(bounds.begins), N_EVENTS)) for _ in warm_ups]
    cores: dict[_Part, InOrderCore] = {}
    for moment in sorted({moment for part in wanted for moment in (part.start, part.begin, part.end)}):
        if machine.instructions < moment:
            machine.observe(TraceSelection(), [CoreObserver(core) for core in cores.values()])
            machine.advance_to_instructions(moment)
            machine.drain()
        for part in wanted:
            if part.start == moment:
                cores[part] = InOrderCore(config, seed)
            if part.begin == moment:
                events[part.way][part.point] -= cores[part].snapshot()
            if part.end == moment:
                events[part.way][part.point] += cores.pop(part).snapshot()
    return events


@dataclass(frozen=True)
class _Part:
    """A point to simulate: where its core starts, the point begins and ends; which warm-up, and which point."""

    start: int
    begin: int
    end: int
    way: int
    point: int


def _count_fills(machine: Machine, waits: WaitModel) -> None:
    """Run the program and put down how many lines come into the data caches."""
    machine.observe(TraceSelection(counts=True, line_bits=waits.line_bits, reuse_times=True))
    while machine.ending is None:
        ran = machine.run_intervals(_FILL_INTERVAL, _BATCH)
        waits.add(ran.ends, ran.reuse_times)


def _by_lines(machine: Machine, core: InOrderCore, bounds: Bounds, waits: WaitModel) -> NDArray[np.float64]:
    """Each point on a core that has been warmed up as a sample of a cycle-close trace is."""
    run = DetailedRun(machine, core, Settings(warm_up="lines"), waits)
    events = np.zeros((len(bounds.begins), N_EVENTS))
    for point in np.argsort(bounds.begins, kind="stable"):
        begin, end = int(bounds.begins[point]), int(bounds.ends[point])
        events[point] = run.simulate(begin, end) * (end - begin)
    return events
