"""Traces a program with rollback: new behaviour is run again, in detail.

The program is emulated some tens of milliseconds at a time. If that part contains phases (or ranges of waiting for
memory, or code) without a sample, or phases that are due for another sample, the machine is restored to the state
before the part, and one interval of each is simulated on the way forward. Nothing is predicted and nothing stays
unsampled, as in two runs (`measure.cycle_close.rerun`); the program runs once and its trace grows as it runs, but
samples are chosen before the whole program is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emulator.execution.intervals import Intervals
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from measure.cycle_close.classifier import Match
from measure.cycle_close.detail import DetailedRun
from measure.cycle_close.estimated_events import completed, possible, with_static_events
from measure.cycle_close.live_counts import (
    CountWatcher,
    Following,
    known_penalty_cycles,
    live_counts,
    wait_cycles,
    waiting,
)
from measure.cycle_close.online_kernel import BUCKETS
from measure.cycle_close.samples import Sample, most_typical, wait_bucket
from measure.cycle_close.schedule import BADLY, SampleSchedule
from measure.cycle_close.signature import StaticEventCounter
from measure.cycle_close.tracer import (
    Category,
    Interval,
    IntervalFeatures,
    TracerSettings,
    follows_caches,
    reestimate,
    samples_for,
    shares_of,
    signatures_for,
    table_for,
)

_PART_INSTRUCTIONS = 200_000_000  # emulated between two snapshots: some 40 ms, against a few ms for a snapshot


class RollBackTracer:
    """Traces ``machine``, which has no timing core of its own, with ``core`` for the simulated intervals."""

    def __init__(self, machine: Machine, core: InOrderCore, settings: TracerSettings) -> None:
        self.machine = machine
        self.settings = settings
        self.table = table_for(settings)
        self._signatures = signatures_for(settings)
        self._static = StaticEventCounter()
        self._core = core
        self._following = Following(machine, core) if follows_caches(settings) else None
        self._wait_cycles = wait_cycles(core.config)
        self._run = DetailedRun(machine, core, settings, self._following)
        self._profile_selection = replace(self._run.fast, counts=True)
        self._samples = samples_for(settings)
        self._of_phase: dict[int, Sample] = {}  # the last sample of each phase
        self._features = IntervalFeatures()
        self._schedule = SampleSchedule()
        self.sampled_again: list[float] = []
        """As `Tracer.sampled_again`."""

    def intervals(self) -> Iterator[Interval]:
        """Run the program; yields the intervals of a part when the part is done.

        Raises `EmulatorError` for a guest whose state cannot be restored, and `MeasureError` for one that does not do
        the same again.
        """
        machine, length = self.machine, self.settings.interval_instructions
        at_most = max(1, _PART_INSTRUCTIONS // length)
        caches = None if self._following is None else self._following.caches
        watcher = CountWatcher(live_counts(self._following, self._run.mispredicted))
        number = 0
        while machine.ending is None:
            saved, directions = machine.snapshot(), self._core.directions()
            held = None if caches is None else caches.state(machine.instructions)
            self._core.follow()
            machine.observe(self._profile_selection)
            machine.count_from_here()
            ran = machine.run_intervals(length, at_most, watcher.begin(at_most))
            counted = watcher.end(len(ran))
            begins = np.concatenate([[saved.instructions], ran.ends[:-1]])
            signatures = self._signatures.make(machine.facts, ran)
            shares, found = shares_of(signatures), self._classify(begins, ran, signatures, counted)
            wanted, simulated = self._to_simulate(found, shares), dict[int, NDArray[np.float64]]()
            if wanted:
                ended = machine.ending is not None
                machine.restore(saved)
                self._core.restore_directions(directions)
                if caches is not None and held is not None:
                    caches.restore(held)
                self._core.follow()
                for place in wanted:
                    match, wait = found[place]
                    events = self._run.simulate(int(begins[place]), int(ran.ends[place]))
                    sample = Sample(number + place, events / (ran.ends[place] - begins[place]))
                    simulated[place] = events
                    self._of_phase[match.phase] = sample
                    self._take(self._key(match, wait), sample, shares[place], wait)
                    self._samples.add(sample, shares[place], wait)
                    self.table.record_sample(match.phase, signatures[place])
                self._run.advance(int(ran.ends[-1]) + int(ended))
            static = self._static.count(machine.facts, ran)
            self._features.add(shares, np.array([wait for _, wait in found]), static, counted)
            for place, (match, wait) in enumerate(found):
                begin, end = int(begins[place]), int(ran.ends[place])
                if place in simulated:
                    category, source = Category.SIMULATED, number + place
                    events = possible(with_static_events(simulated[place], static[place]))
                else:
                    category = Category.MATCHED
                    with_waits = self.settings.wait_step > 0
                    sample = (
                        self._samples.estimate(shares[place], wait, number + place)
                        if with_waits
                        else self._of_phase[match.phase]
                    )
                    source = sample.number
                    events = sample.events_each * (end - begin)
                    events = completed(events, static[place], counted[place], self._core.config)
                yield Interval(number + place, begin, end, match.phase, category, source, match.distance, events)
            number += len(found)

    @property
    def frequent_branches(self) -> int:
        """See `SignatureMaker.frequent`."""
        return self._signatures.frequent

    def reestimated(self, intervals: list[Interval]) -> list[Interval]:
        """As `Tracer.reestimated`."""
        if not self.settings.wait_step:
            return intervals
        return reestimate(intervals, self._samples, self._features, self._core.config)

    def _classify(
        self, begins: np.ndarray, ran: Intervals, signatures: np.ndarray, counted: np.ndarray
    ) -> list[tuple[Match, float]]:
        """Phase and waiting of each interval of the part, with what was ``counted`` of them, (n, COUNTED)."""
        waits = np.zeros(len(ran))
        if self.settings.wait_step:
            waits = waiting(counted, ran.ends - begins, self._wait_cycles)
        return [(self.table.classify(each), float(wait)) for each, wait in zip(signatures, waits, strict=True)]

    def _to_simulate(self, found: list[tuple[Match, float]], shares: np.ndarray) -> list[int]:
        """Indices of the intervals to simulate, ascending: one for each phase and range of waiting without a sample.
        Where waiting counts, also the intervals whose phase and range are due for another sample, and enough intervals
        that samples stand for all code. ``shares``: the intervals' signatures, (n, d), which sum to 1."""
        groups: dict[int, list[int]] = {}
        chosen = []
        for place, (match, wait) in enumerate(found):
            key = self._key(match, wait)
            if key not in self._schedule:
                groups.setdefault(key, []).append(place)
            elif self.settings.wait_step and self._schedule.count(key):
                self._schedule.take(key, was_badly_estimated=False)
                chosen.append(place)
        chosen += [places[most_typical(shares[places])] for places in groups.values()]
        if self.settings.wait_step:
            chosen += self._samples.more_for(shares, chosen)
        return sorted(chosen)

    def _key(self, match: Match, wait: float) -> int:
        return match.phase * BUCKETS + min(wait_bucket(wait, self.settings.wait_step), BUCKETS - 1)

    def _take(self, key: int, sample: Sample, share: np.ndarray, wait: float) -> None:
        """Note in the schedule that ``sample`` is one of ``key``, and whether its estimate would have been bad."""
        if key not in self._schedule:
            self._schedule.take(key, was_badly_estimated=False)
            return
        if self.settings.wait_step:
            penalty_cycles = known_penalty_cycles(self._run.mispredicted, self._core.config)
            self.sampled_again.append(self._samples.relative_error(sample, share, wait, penalty_cycles))
            if self.sampled_again[-1] > BADLY:
                self._schedule.take(key, was_badly_estimated=True)
