"""Tracing with a way back: what turns out to be new is run again, in detail.

The program is emulated some tens of milliseconds at a time. When that has shown phases (or ranges of waiting for
memory) that have no sample yet, the machine goes back to where it was before, and one interval of each is simulated on
the way forward. Nothing is predicted and nothing stays unsampled, as in two runs (`measure.cycleclose.rerun`); the
program runs once and its trace grows as it runs, but what is simulated is chosen before all of the program is known.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from emulator.intervals import Intervals
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from measure.cycleclose.classifier import Match, SignatureTable
from measure.cycleclose.detail import DetailedRun
from measure.cycleclose.reuse import WaitModel
from measure.cycleclose.samples import Sample, wait_bucket
from measure.cycleclose.signature import KnownEvents, SignatureMaker, with_known
from measure.cycleclose.tracer import (
    Category,
    Interval,
    Seen,
    Settings,
    profiling,
    samples_for,
    settle,
    shares_of,
)

_STRETCH_INSTRUCTIONS = (
    200_000_000  # emulated before looking back: some 40 ms, to a few for keeping the state
)


class RollBackTracer:
    """Traces ``machine``, which has no timing core of its own, with ``core`` for what is simulated."""

    def __init__(self, machine: Machine, core: InOrderCore, settings: Settings) -> None:
        self.machine = machine
        self.settings = settings
        self.table = SignatureTable(
            settings.dimensions, settings.threshold, settings.base, settings.entries, settings.update,
            settings.when_full,
        )  # fmt: skip
        self._signatures = SignatureMaker(settings.dimensions)
        self._known = KnownEvents()
        self._waits = WaitModel(core.config)
        self._profiled = profiling(settings, self._waits)
        self._run = DetailedRun(machine, core, settings, self._waits)
        self._samples = samples_for(settings)
        self._of_phase: dict[int, Sample] = {}  # the last one
        self._seen = Seen()
        self._sampled: set[tuple[int, int]] = set()  # phases and ranges of waiting that have a sample

    def intervals(self) -> Iterator[Interval]:
        """Run the program; yields the intervals of a stretch when it has been looked at. Raises `EmulatorError` for a
        guest that cannot go back, and `MeasureError` for one that does not do the same again."""
        machine, length = self.machine, self.settings.interval_instructions
        at_most = max(1, _STRETCH_INSTRUCTIONS // length)
        number = 0
        while machine.ending is None:
            saved = machine.snapshot()
            machine.observe(self._profiled)
            machine.count_from_here()
            ran = machine.run_intervals(length, at_most)
            begins = np.concatenate([[saved.instructions], ran.ends[:-1]])
            found = self._look(ran, begins)
            wanted, simulated = self._wanted(found), dict[int, Sample]()
            if wanted:
                ended = machine.ending is not None
                machine.restore(saved)
                for place in wanted:
                    match, signature, wait = found[place]
                    events = self._run.simulate(int(begins[place]), int(ran.ends[place]))
                    sample = Sample(number + place, events)
                    simulated[number + place] = sample
                    self._of_phase[match.phase] = sample
                    self._samples.add(sample, shares_of(signature), wait)
                    self._sampled.add((match.phase, wait_bucket(wait, self.settings.wait_step)))
                    self.table.sampled(match.phase, signature)
                self._run.advance(int(ran.ends[-1]) + int(ended))
            known = self._known.count(machine.facts, ran)
            shares = shares_of(np.array([signature for _, signature, _ in found]).reshape(len(found), -1))
            self._seen.add(shares, np.array([wait for _, _, wait in found]), known)
            for place, (match, _, wait) in enumerate(found):
                begin, end = int(begins[place]), int(ran.ends[place])
                if number + place in simulated:
                    category, sample = Category.SIMULATED, simulated[number + place]
                else:
                    category = Category.MATCHED
                    with_waits = self.settings.wait_step > 0
                    sample = (
                        self._samples.estimate(shares[place], wait)
                        if with_waits
                        else self._of_phase[match.phase]
                    )
                events = with_known(sample.events_each * (end - begin), known[place])
                yield Interval(
                    number + place, begin, end, match.phase, category, sample.number, match.distance, events
                )
            number += len(found)

    def settled(self, found: list[Interval]) -> list[Interval]:
        """As `Tracer.settled`."""
        return settle(found, self._samples, self._seen) if self.settings.wait_step else found

    def _look(self, ran: Intervals, begins: np.ndarray) -> list[tuple[Match, np.ndarray, float]]:
        """Phase, signature and waiting of each interval of the stretch."""
        signatures = self._signatures.make(self.machine.facts, ran)
        waits = np.zeros(len(ran))
        if self.settings.wait_step:
            waits = self._waits.add(ran.ends, ran.reuse_times)
        return [
            (self.table.classify(signature), signature, float(wait))
            for signature, wait in zip(signatures, waits, strict=True)
        ]

    def _wanted(self, found: list[tuple[Match, np.ndarray, float]]) -> list[int]:
        """Which intervals to simulate, ascending: the most typical of each phase and range of waiting that has none."""
        groups: dict[tuple[int, int], list[int]] = {}
        for place, (match, _, wait) in enumerate(found):
            key = (match.phase, wait_bucket(wait, self.settings.wait_step))
            if key not in self._sampled:
                groups.setdefault(key, []).append(place)
        chosen = []
        for places in groups.values():
            shares = np.array([found[place][1] / max(int(found[place][1].sum()), 1) for place in places])
            chosen.append(places[int(np.abs(shares - shares.mean(axis=0)).sum(axis=1).argmin())])
        return sorted(chosen)
