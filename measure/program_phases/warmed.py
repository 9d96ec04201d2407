"""Simulates simulation points as their users do: each separately, after some warm-up.

Intervals cut out of a full simulation have caches and predictors filled by everything before them, and so do the
errors computed from them. A user begins shortly before a point, or keeps caches up to date while the program runs fast
up to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.events import TraceSelection
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import N_EVENTS
from measure.cycle_close.detail import DetailedRun
from measure.cycle_close.live_counts import Following
from measure.cycle_close.tracer import CoreObserver, TracerSettings

NO_WARM_UP, LINES = "no warm-up", "exact lines"


@dataclass(frozen=True)
class Bounds:
    """Begin and end of the intervals of points, (p,) instructions each."""

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

    ``make_machine``: makes equal machines, without a timing core, that run the program.
    """
    given = {NO_WARM_UP: 0}
    if warm_up_instructions:
        given[f"after {warm_up_instructions / 1e6:g} M"] = warm_up_instructions
    with make_machine() as machine:
        in_detail = _in_detail(machine, config, seed, bounds, list(given.values()))
    found = dict(zip(given, in_detail, strict=True))
    with make_machine() as machine:
        found[LINES] = _by_lines(machine, InOrderCore(config, seed), bounds)
    return found


def _in_detail(
    machine: Machine, config: MachineConfig, seed: int, bounds: Bounds, warm_ups: list[int]
) -> list[NDArray[np.float64]]:
    """Events of each point, by warm-up, on a new core that runs only the point and so many instructions before it."""
    wanted = [
        _Part(max(int(begin) - warm_up, 0), int(begin), int(end), number, point)
        for number, warm_up in enumerate(warm_ups)
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
                events[part.number][part.point] -= cores[part].snapshot()
            if part.end == moment:
                events[part.number][part.point] += cores.pop(part).snapshot()
    return events


@dataclass(frozen=True)
class _Part:
    """A point to simulate: start of its core, begin and end of the point; numbers of the warm-up and of the point."""

    start: int
    begin: int
    end: int
    number: int
    point: int


def _by_lines(machine: Machine, core: InOrderCore, bounds: Bounds) -> NDArray[np.float64]:
    """Each point on a core that was warmed up like a sample of a cycle-close trace."""
    run = DetailedRun(machine, core, TracerSettings(warm_up="lines"), Following(machine, core))
    events = np.zeros((len(bounds.begins), N_EVENTS))
    for point in np.argsort(bounds.begins, kind="stable"):
        begin, end = int(bounds.begins[point]), int(bounds.ends[point])
        events[point] = run.simulate(begin, end)
    return events
