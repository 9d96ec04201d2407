"""Tracing in two runs: phases first, then the program again, with detail only where a phase is represented.

The emulated machine does the same again from the same inputs, so nothing need be predicted and nothing stays
unsampled: the first run only counts blocks, and the second is emulated at full speed up to shortly before each
interval that was chosen. What the paper's way pays for misses in accuracy (intervals whose phase was not
predicted) and for queues in time (every reference of the program), this pays with a second emulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.events import TraceSelection
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from measure.cycleclose.classifier import SignatureTable
from measure.cycleclose.signature import SignatureMaker
from measure.cycleclose.tracer import Category, CoreObserver, Interval, Settings
from measure.errors import MeasureError

_INSTRUCTIONS_A_REFERENCE = 3  # about; the window before an interval is in instructions here


@dataclass(frozen=True)
class Profile:
    """The first run: ``ends``: (n + 1,) instructions at the boundaries, the first 0; ``signatures``: (n, d);
    ``phases``, ``distances``: (n,)."""

    ends: NDArray[np.int64]
    signatures: NDArray[np.int64]
    phases: NDArray[np.int64]
    distances: NDArray[np.float64]


def profile(machine: Machine, settings: Settings) -> Profile:
    """Run the program once, counting blocks only, and find its phases."""
    table = SignatureTable(
        settings.dimensions, settings.threshold, settings.base, settings.entries, settings.update,
        settings.when_full,
    )  # fmt: skip
    maker = SignatureMaker(settings.dimensions)
    machine.observe(TraceSelection(counts=True))
    ends, signatures, matches = [0], [], []
    running = True
    while running:
        running = machine.advance_to_instructions(ends[-1] + settings.interval_instructions)
        if machine.instructions == ends[-1]:
            break
        ends.append(machine.instructions)
        signatures.append(maker.take(machine.facts, machine.block_counts))
        matches.append(table.classify(signatures[-1]))
    return Profile(
        np.array(ends, np.int64),
        np.array(signatures, np.int64).reshape(len(matches), settings.dimensions),
        np.array([match.phase for match in matches], np.int64),
        np.array([match.distance for match in matches], np.float64),
    )


def representatives(found: Profile, samples: int) -> dict[int, list[int]]:
    """Up to ``samples`` intervals of each phase to simulate, by phase, ascending.

    The phase's intervals are cut into so many stretches in time; of each the one whose signature is closest to
    the stretch's mean stands for it, the earliest of equals. A phase of few intervals gets one or as many.
    """
    lengths = np.diff(found.ends)
    shares = found.signatures / np.maximum(lengths, 1)[:, None]
    chosen: dict[int, list[int]] = {}
    for phase in np.unique(found.phases).tolist():
        members = np.flatnonzero(found.phases == phase)
        mine = []
        for stretch in np.array_split(members, min(samples, len(members))):
            mean = shares[stretch].mean(axis=0)
            mine.append(int(stretch[np.abs(shares[stretch] - mean).sum(axis=1).argmin()]))
        chosen[phase] = mine
    return chosen


def trace_again(
    machine: Machine, core: InOrderCore, settings: Settings, found: Profile, samples: int
) -> Iterator[Interval]:
    """Run the program a second time and yield its intervals when all samples are there.

    An interval gets the events of that sample of its phase that is nearest in time. Raises `MeasureError` when
    the program did not do the same again.
    """
    chosen = representatives(found, samples)
    warm = _INSTRUCTIONS_A_REFERENCE * max(settings.warm_references, settings.warm_branches)
    each: dict[int, NDArray[np.float64]] = {}
    detail = CoreObserver(core)
    for number in sorted(number for mine in chosen.values() for number in mine):
        begin, end = int(found.ends[number]), int(found.ends[number + 1])
        if machine.instructions < begin - warm:
            machine.observe(TraceSelection())
            machine.advance_to_instructions(begin - warm)
        machine.observe(TraceSelection(), [detail])
        machine.advance_to_instructions(begin)
        machine.drain()
        before = core.snapshot()
        machine.advance_to_instructions(end)
        machine.drain()
        if machine.instructions != end:
            raise MeasureError(
                f"the program did not do the same again: interval {number} ends after {machine.instructions} "
                f"instructions, and after {end} in the first run"
            )
        each[number] = (core.snapshot() - before) / (end - begin)
    for number, phase in enumerate(found.phases.tolist()):
        source = min(chosen[phase], key=lambda sample: (abs(sample - number), sample))
        begin, end = int(found.ends[number]), int(found.ends[number + 1])
        category = Category.SIMULATED if source == number else Category.MATCHED
        yield Interval(
            number, begin, end, phase, category, source, float(found.distances[number]), each[source] * (end - begin)
        )  # fmt: skip


def trace_in_two_runs(
    make_machine: Callable[[], Machine], core: InOrderCore, settings: Settings, samples: int
) -> list[Interval]:
    """The trace, from two machines that ``make_machine`` makes alike."""
    with make_machine() as machine:
        found = profile(machine, settings)
        machine.save_translations()
    with make_machine() as machine:
        return list(trace_again(machine, core, settings, found, samples))
