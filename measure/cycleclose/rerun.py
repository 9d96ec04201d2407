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
from emulator.timing.config import MachineConfig
from emulator.timing.counters import N_STATIC
from emulator.timing.inorder import InOrderCore
from measure.cycleclose.classifier import SignatureTable
from measure.cycleclose.detail import DetailedRun
from measure.cycleclose.reuse import WaitModel
from measure.cycleclose.samples import Sample, spread
from measure.cycleclose.signature import KnownEvents, SignatureMaker, with_known
from measure.cycleclose.tracer import Category, Interval, Settings, samples_for, shares_of

_BATCH_INSTRUCTIONS = 200_000_000  # run at once: some 40 ms, after which Ctrl-C is heard


@dataclass(frozen=True)
class Profile:
    """The first run: ``ends``: (n + 1,) instructions at the boundaries, the first 0; ``signatures``: (n, d);
    ``phases``, ``distances``: (n,); ``waits``: (n,) cycles an instruction waits for memory, about, 0 where not asked;
    ``known``: (n, N_STATIC) events that follow from the blocks; ``model``: what has seen it.
    """

    ends: NDArray[np.int64]
    signatures: NDArray[np.int64]
    phases: NDArray[np.int64]
    distances: NDArray[np.float64]
    waits: NDArray[np.float64]
    known: NDArray[np.int64]
    model: WaitModel


def profile(machine: Machine, config: MachineConfig, settings: Settings) -> Profile:
    """Run the program once, counting blocks and, with ``wait_step``, reuse times, and find its phases."""
    table = SignatureTable(
        settings.dimensions, settings.threshold, settings.base, settings.entries, settings.update,
        settings.when_full,
    )  # fmt: skip
    maker, model = SignatureMaker(settings.dimensions), WaitModel(config)
    with_waits = settings.wait_step > 0
    line_bits = model.line_bits if with_waits else 0
    machine.observe(TraceSelection(counts=True, line_bits=line_bits, reuse_times=with_waits))
    at_most = max(1, min(256, _BATCH_INSTRUCTIONS // settings.interval_instructions))
    counter = KnownEvents()
    ends, signatures, waits, matches = [np.zeros(1, np.int64)], [], [np.zeros(0)], []
    known = [np.zeros((0, N_STATIC), np.int64)]
    while machine.ending is None:
        ran = machine.run_intervals(settings.interval_instructions, at_most)
        if len(ran) == 0:
            break
        ends.append(ran.ends)
        waits.append(model.add(ran.ends, ran.reuse_times) if with_waits else np.zeros(len(ran)))
        known.append(counter.count(machine.facts, ran))
        signatures.append(maker.make(machine.facts, ran))
        matches += [table.classify(signature) for signature in signatures[-1]]
    boundaries = np.concatenate(ends)
    return Profile(
        boundaries,
        np.concatenate(signatures) if signatures else np.zeros((0, settings.dimensions), np.int64),
        np.array([match.phase for match in matches], np.int64),
        np.array([match.distance for match in matches], np.float64),
        np.concatenate(waits),
        np.concatenate(known),
        model,
    )


def representatives(found: Profile, settings: Settings, samples: int) -> dict[int, list[int]]:
    """The intervals of each phase to simulate, by phase, ascending: as many as its waiting for memory spreads over,
    about, and at least ``samples`` if it has so many; with ``wait_step`` those that stand best for the others."""
    shares = shares_of(found.signatures)
    chosen: dict[int, list[int]] = {}
    for phase in np.unique(found.phases).tolist():
        members = np.flatnonzero(found.phases == phase)
        picked = spread(found.waits[members], shares[members], settings.wait_step, samples)
        if settings.wait_step:
            picked = samples_for(settings).typical(shares[members], found.waits[members], len(picked))
        chosen[phase] = members[picked].tolist()
    return chosen


def trace_again(
    machine: Machine, core: InOrderCore, settings: Settings, found: Profile, samples: int
) -> Iterator[Interval]:
    """Run the program a second time and yield its intervals when all samples are there.

    An interval gets the events of that sample of its phase that is nearest in time or, with ``wait_step``, what the
    samples with the closest signatures and waiting say. Raises `MeasureError` when the program did not do the same
    again.
    """
    chosen = representatives(found, settings, samples)
    run = DetailedRun(machine, core, settings, found.model)
    each = {
        number: run.simulate(int(found.ends[number]), int(found.ends[number + 1]))
        for number in sorted(number for mine in chosen.values() for number in mine)
    }
    shares, all_samples = shares_of(found.signatures), samples_for(settings)
    if settings.wait_step:
        for number, events in each.items():
            all_samples.add(Sample(number, events), shares[number], float(found.waits[number]))
        estimated, sources = all_samples.estimates(shares, found.waits)
        estimated = with_known(estimated * np.diff(found.ends)[:, None], found.known)
    for number, phase in enumerate(found.phases.tolist()):
        begin, end = int(found.ends[number]), int(found.ends[number + 1])
        category, source = Category.MATCHED, number
        if number in each:
            category = Category.SIMULATED
        elif settings.wait_step:
            source = int(sources[number])
        else:
            source = min(chosen[phase], key=lambda sample: (abs(sample - number), sample))
        if category is Category.SIMULATED or not settings.wait_step:
            events = with_known(each[source] * (end - begin), found.known[number])
        else:
            events = estimated[number]
        yield Interval(number, begin, end, phase, category, source, float(found.distances[number]), events)


def trace_in_two_runs(
    make_machine: Callable[[], Machine], core: InOrderCore, settings: Settings, samples: int
) -> list[Interval]:
    """The trace, from two machines that ``make_machine`` makes alike."""
    with make_machine() as machine:
        found = profile(machine, core.config, settings)
        machine.save_translations()
    with make_machine() as machine:
        traced = list(trace_again(machine, core, settings, found, samples))
        machine.save_translations()
    return traced
