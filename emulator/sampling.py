"""The ideal sampler: reads counters at a fixed interval of cycles or instructions, without perturbing the guest.

Hardware metrics come from the performance-monitoring unit, software counters from guest memory. The guest
stops at the first block boundary near each multiple of the interval, so intervals are exact in instructions
(to a block) and, in cycles, mostly within 1/256 of an interval. Where instructions take many times the cycles of
before, an interval may be longer, even by several times; the next one ends at a later multiple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from emulator.machine import Machine
from emulator.pmu import Pmu

Unit = Literal["cycles", "instructions"]
TOLERANCE = 256  # parts of an interval


@dataclass(frozen=True)
class Samples:
    """A trace of n intervals. ``boundaries_cycles``, ``boundaries_instructions``: (n+1,) begins and ends of intervals;
    ``hardware``: (n, h), ``software``: (n, s) events per interval."""

    boundaries_cycles: NDArray[np.int64]
    boundaries_instructions: NDArray[np.int64]
    hardware: NDArray[np.int64]
    software: NDArray[np.int64]


def sample_ideal(
    machine: Machine,
    pmu: Pmu,
    every: int,
    unit: Unit,
    software: Mapping[str, int] | None = None,
    phase: float = 0.0,
    between: Callable[[int], None] | None = None,
) -> Samples:
    """Run ``machine`` to its end, taking a record every ``every`` cycles or instructions.

    ``software``: guest addresses of 64-bit counters, by name, whose events in all processes are summed. ``phase`` in
    [0, 1): the first boundary, in intervals, as of a timer that was started earlier; the partial intervals before the
    first and after the last boundary are left out. ``between(record)`` is called after each record.
    """
    software_totals = machine.counter_totals(list((software or {}).values()))
    rows: list[NDArray[np.int64]] = []
    counts: list[list[int]] = []
    cycles: list[int] = []
    instructions: list[int] = []

    def record() -> None:
        machine.drain()
        rows.append(pmu.read())
        counts.append(software_totals.read())
        cycles.append(machine.cycles)
        instructions.append(machine.timed_instructions)

    target = int(phase * every)
    tolerance = max(1, every // TOLERANCE)
    while True:
        if unit == "cycles":
            running = machine.advance_to_cycles(target, tolerance)
        else:
            running = machine.advance_to_instructions(target)
        if not running:
            break
        record()
        if between is not None:
            between(len(rows) - 1)
        target += every
        reached = machine.cycles + tolerance if unit == "cycles" else machine.instructions
        if target <= reached:  # no record is empty: the next ends at a multiple to come
            target += ((reached - target) // every + 1) * every
    columns = len(pmu.metrics)
    return Samples(
        np.array(cycles, np.int64),
        np.array(instructions, np.int64),
        np.diff(np.array(rows, np.int64).reshape(-1, columns), axis=0),
        np.diff(np.array(counts, np.int64).reshape(len(counts), len(software or {})), axis=0),
    )
