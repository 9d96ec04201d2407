"""Traces a program in two runs: the first finds phases, the second simulates the representatives of each phase.

The emulated machine does the same again from the same inputs, so nothing need be predicted and nothing stays
unsampled: the first run only counts blocks and misses, and the second is emulated at full speed up to shortly before
each chosen interval. A second emulation replaces what the paper's algorithm costs: accuracy for intervals whose phase
was not predicted, and time for queues of all references of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from common.distinct import distinct
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_events import N_STATIC, Event
from measure.cycle_close.detail import DetailedRun
from measure.cycle_close.estimated_events import completed, possible, with_static_events
from measure.cycle_close.live_counts import (
    UNKNOWN,
    CountWatcher,
    Following,
    held_directions,
    live_counts,
    wait_cycles,
    waiting,
)
from measure.cycle_close.live_counts_kernel import COUNTED
from measure.cycle_close.samples import Sample, choose_samples, with_others
from measure.cycle_close.signature import StaticEventCounter
from measure.cycle_close.tracer import (
    Category,
    Interval,
    TracerSettings,
    profile_selection,
    samples_for,
    shares_of,
    signatures_for,
    table_for,
)

CHECKS, _INTERVALS_PER_CHECK = 16, 50
_BATCH_INSTRUCTIONS = 200_000_000  # in one call: some 40 ms, which bounds the delay of Ctrl-C


@dataclass(frozen=True)
class Profile:
    """The first run: ``ends``: (n + 1,) instructions at the boundaries, the first 0; ``signatures``: (n, d);
    ``phases``, ``distances``: (n,); ``waits``: (n,) cycles per instruction of waiting for memory, 0 without
    ``wait_step``; ``static_events``: (n, N_STATIC) events that follow from the blocks; ``counted``: (n, COUNTED)
    what fast execution counts, else NaN.
    """

    ends: NDArray[np.int64]
    signatures: NDArray[np.int64]
    phases: NDArray[np.int64]
    distances: NDArray[np.float64]
    waits: NDArray[np.float64]
    static_events: NDArray[np.int64]
    counted: NDArray[np.float64]
    frequent_branches: int


def profile(machine: Machine, core: InOrderCore, settings: TracerSettings) -> Profile:
    """Run the program once, count blocks and, with ``wait_step``, misses of caches like those of ``core``, which does
    not change, and find its phases."""
    table, maker = table_for(settings), signatures_for(settings)
    following = Following(machine, core) if settings.wait_step else None
    directions = held_directions(machine, core.config) if settings.warm_up == "lines" else None
    watcher = CountWatcher(live_counts(following, UNKNOWN if directions is None else directions.mispredicted))
    inline = () if directions is None else (directions.call,)
    selection = profile_selection(following)
    machine.observe(replace(selection, inline=(*selection.inline, *inline)))
    at_most = max(1, min(256, _BATCH_INSTRUCTIONS // settings.interval_instructions))
    counter = StaticEventCounter()
    ends, signatures, matches = [np.zeros(1, np.int64)], [], []
    static_events, counted = [np.zeros((0, N_STATIC), np.int64)], [np.zeros((0, COUNTED))]
    while machine.ending is None:
        ran = machine.run_intervals(settings.interval_instructions, at_most, watcher.begin(at_most))
        if len(ran) == 0:
            break
        counted.append(watcher.end(len(ran)))
        ends.append(ran.ends)
        static_events.append(counter.count(machine.facts, ran))
        signatures.append(maker.make(machine.facts, ran))
        matches += [table.classify(signature) for signature in signatures[-1]]
    boundaries, all_counted = np.concatenate(ends), np.concatenate(counted)
    return Profile(
        boundaries,
        np.concatenate(signatures) if signatures else np.zeros((0, settings.dimensions), np.int64),
        np.array([match.phase for match in matches], np.int64),
        np.array([match.distance for match in matches], np.float64),
        waiting(all_counted, np.diff(boundaries), wait_cycles(core.config)),
        np.concatenate(static_events),
        all_counted,
        maker.frequent,
    )


def representatives(first_run: Profile, settings: TracerSettings, samples: int) -> dict[int, list[int]]:
    """The intervals of each phase to simulate, by phase, ascending.

    About as many as the range of the phase's waiting for memory requires, and at least ``samples`` if the phase has so
    many; with ``wait_step``, the most typical intervals of the phase.
    """
    shares = shares_of(first_run.signatures)
    chosen: dict[int, list[int]] = {}
    for phase in distinct(first_run.phases).tolist():
        members = np.flatnonzero(first_run.phases == phase)
        picked = choose_samples(first_run.waits[members], shares[members], settings.wait_step, samples)
        if settings.wait_step and len(picked) < len(members):
            picked = samples_for(settings).typical(shares[members], first_run.waits[members], len(picked))
            picked = with_others(picked, len(members), samples)
        chosen[phase] = members[picked].tolist()
    return chosen


def checks_beside(chosen: Collection[int], n_intervals: int) -> list[int]:
    """Intervals to simulate beside those ``chosen``, to see how far estimates are off: one at random in each of up to
    `CHECKS` parts of the run, and at most one of `_INTERVALS_PER_CHECK`."""
    random = np.random.default_rng(0)
    others = np.setdiff1d(np.arange(n_intervals), list(chosen))
    parts = min(CHECKS, n_intervals // _INTERVALS_PER_CHECK, len(others))
    return [int(random.choice(part)) for part in np.array_split(others, parts)] if parts else []


@dataclass(frozen=True)
class SecondTrace:
    """``intervals``: all of the program; ``checks``: errors of the estimates of intervals that were drawn to be
    simulated all the same, as fractions of their cycles."""

    intervals: list[Interval]
    checks: list[float]


def trace_second_run(
    machine: Machine, core: InOrderCore, settings: TracerSettings, first_run: Profile, samples: int
) -> SecondTrace:
    """Run the program a second time.

    An interval gets the events of that sample of its phase that is nearest in time or, with ``wait_step``, an estimate
    from the samples with the closest signatures and waiting. Raises `MeasureError` when the program did not do the
    same again.
    """
    chosen = representatives(first_run, settings, samples)
    numbers = {number for mine in chosen.values() for number in mine}
    # With queues, an interval drawn from anywhere tells more of its warm-up than of its estimate.
    has_checks = settings.wait_step > 0 and settings.warm_up == "lines"
    checked = checks_beside(numbers, len(first_run.phases)) if has_checks else []
    following = Following(machine, core) if settings.warm_up == "lines" else None
    run = DetailedRun(machine, core, settings, following)
    each = {
        number: run.simulate(int(first_run.ends[number]), int(first_run.ends[number + 1]))
        for number in sorted(numbers.union(checked))
    }
    shares, waits, all_samples = shares_of(first_run.signatures), first_run.waits, samples_for(settings)
    lengths = np.diff(first_run.ends)
    checks = []
    if settings.wait_step:
        features = {n: (Sample(n, events / lengths[n]), shares[n], float(waits[n])) for n, events in each.items()}
        for number in sorted(numbers):
            all_samples.add(*features[number])
        counts_mispredictions = np.isfinite(first_run.counted[:, Event.BRANCHES_MISPREDICTED])
        penalties = counts_mispredictions * core.config.pipeline.mispredict_penalty_cycles
        checks = [all_samples.relative_error(*features[number], int(penalties[number])) for number in checked]
        for number in checked:
            all_samples.add(*features[number])
        estimated, sources = all_samples.estimates(shares, waits)
        estimated *= lengths[:, None]
        estimated = completed(estimated, first_run.static_events, first_run.counted, core.config)
    intervals = []
    for number, phase in enumerate(first_run.phases.tolist()):
        begin, end = int(first_run.ends[number]), int(first_run.ends[number + 1])
        category, source = Category.MATCHED, number
        if number in each:
            category = Category.SIMULATED
        elif settings.wait_step:
            source = int(sources[number])
        else:
            source = min(chosen[phase], key=lambda sample: (abs(sample - number), sample))
        if category is Category.SIMULATED:
            events = with_static_events(each[number], first_run.static_events[number])
        elif not settings.wait_step:
            events = each[source] * (lengths[number] / lengths[source])
            events = possible(with_static_events(events, first_run.static_events[number]))
        else:
            events = estimated[number]
        distance = float(first_run.distances[number])
        intervals.append(Interval(number, begin, end, phase, category, source, distance, events))
    return SecondTrace(intervals, checks)


def trace_in_two_runs(
    make_machine: Callable[[], Machine], core: InOrderCore, settings: TracerSettings, samples: int
) -> list[Interval]:
    """The trace, from two equal machines made by ``make_machine``."""
    with make_machine() as machine:
        first_run = profile(machine, core, settings)
        machine.save_translations()
    with make_machine() as machine:
        traced = trace_second_run(machine, core, settings, first_run, samples).intervals
        machine.save_translations()
    return traced
