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
from measure.cycleclose.reuse import FillHistory, WaitModel
from measure.cycleclose.samples import PhaseSamples, Sample, wait_bucket
from measure.cycleclose.signature import KnownEvents, SignatureMaker, with_known
from measure.cycleclose.tracer import Category, Interval, Settings, profiling

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
        self._fills = FillHistory(core.config)
        self._run = DetailedRun(machine, core, settings, self._fills)
        self._samples: dict[int, PhaseSamples] = {}
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
            wanted = self._wanted(found)
            if wanted:
                ended = machine.ending is not None
                machine.restore(saved)
                for place in wanted:
                    match, signature, wait = found[place]
                    events = self._run.simulate(int(begins[place]), int(ran.ends[place]))
                    self._samples.setdefault(match.phase, PhaseSamples()).add(
                        Sample(number + place, wait, events)
                    )
                    self._sampled.add((match.phase, wait_bucket(wait, self.settings.wait_step)))
                    self.table.sampled(match.phase, signature)
                self._run.advance(int(ran.ends[-1]) + int(ended))
            known = self._known.count(machine.facts, ran)
            for place, (match, _, wait) in enumerate(found):
                events_each, source = self._samples[match.phase].estimate(wait)
                begin, end = int(begins[place]), int(ran.ends[place])
                simulated = source == number + place
                events = with_known(events_each * (end - begin), known[place])
                category = Category.SIMULATED if simulated else Category.MATCHED
                yield Interval(
                    number + place, begin, end, match.phase, category, source, match.distance, events
                )
            number += len(found)

    def _look(self, ran: Intervals, begins: np.ndarray) -> list[tuple[Match, np.ndarray, float]]:
        """Phase, signature and waiting of each interval of the stretch."""
        signatures = self._signatures.make(self.machine.facts, ran)
        waits = np.zeros(len(ran))
        if self.settings.wait_step:
            waits = self._waits.cycles_each(ran.reuse_times, ran.ends - begins)
            self._fills.add(ran.ends, ran.reuse_times)
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
