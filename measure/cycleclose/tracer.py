"""Tracing a program cycle-close: emulate, find phases, simulate in detail what stands for each phase.

The cycle-close paper, section 3. Before each interval the next phase is predicted; one that has no sample yet
is simulated in detail, all else is emulated fast, and afterwards put into a phase by its signature. An emulated
interval gets the events of its phase's sample, or is *unsampled* when there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from emulator.events import BlockFacts, TraceSelection
from emulator.intervals import Intervals
from emulator.machine import Machine
from emulator.timing.counters import Event
from emulator.timing.inorder import InOrderCore
from emulator.timing.warm import Touched
from measure.cycleclose.classifier import Base, SignatureTable, Update, WhenFull
from measure.cycleclose.code_lines import CodeLines
from measure.cycleclose.predictors import predictor_named
from measure.cycleclose.reuse import WaitModel
from measure.cycleclose.samples import Sample, Samples, wait_bucket
from measure.cycleclose.signature import KnownEvents, SignatureMaker, with_known
from measure.cycleclose.warmup import RecordQueue

_RECORD = TraceSelection(blocks=True, addresses=True)
_FIRST_GAP, _LEAST_GAP = 10, 3  # [intervals] between samples of a phase
_GAP_GROWTH = (
    4  # how many times as long the next gap is; or as short, after a sample that was estimated badly
)
_BADLY = 0.1  # of its cycles
_NOT_LEARNT = 0.5  # first part of a sample's record
_BUCKETS = 1024  # ranges of waiting that are told apart

WarmUp = Literal["queues", "lines"]


class Category(IntEnum):
    """Where an interval's events come from."""

    UNSAMPLED = 0  # emulated, and its phase had no sample: estimated by policy
    SIMULATED = 1  # simulated in detail
    MATCHED = 2  # emulated, and its phase had a sample


@dataclass(frozen=True)
class Settings:
    """How to trace. Defaults are the paper's where it has them."""

    interval_instructions: int = 200_000
    dimensions: int = 32
    threshold: float = 0.25
    base: Base = "2L"
    entries: int = 1024
    when_full: WhenFull = "oldest"
    update: Update = "sample"
    predictor: str = "rle-2"
    unsampled: Literal["none", "last", "closest"] = "last"
    warm_up: WarmUp = "queues"
    warm_references: int = 50_000
    warm_branches: int = 50_000
    wait_step: float = (
        0.0  # samples of a phase are no further apart in their waiting for memory; 0: code alone
    )
    roll_back: bool = False  # do not predict: go back and simulate what turned out to be new
    everything: bool = False  # simulate all intervals: the full trace that the others are compared with


@dataclass(frozen=True)
class Interval:
    """One interval of a trace. ``events``: (N_EVENTS,) counts, estimated unless simulated; NaN when there is no
    estimate. ``source``: number of the simulated interval that they come from, -1 for none; ``distance``: of the
    signature from its phase's, as a fraction of the base."""

    number: int
    begin_instructions: int
    end_instructions: int
    phase: int
    category: Category
    source: int
    distance: float
    events: NDArray[np.float64] = field(repr=False)

    @property
    def instructions(self) -> int:
        return self.end_instructions - self.begin_instructions


class CoreObserver:
    """The core as an observer that translations need not stop exactly for."""

    selection = _RECORD

    def __init__(self, core: InOrderCore) -> None:
        self.core = core

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        self.core.consume(facts, stream)


@dataclass
class _Due:
    """After how many more intervals of a phase and range of waiting it is sampled again: ever more seldom, and sooner
    after each sample that was not like its estimate.

    Behaviour may drift in a way that neither shows: whether a loop over as many lines as a cache has misses or hits
    depends on a few lines more or less, which reuse times in powers of two cannot tell apart.
    """

    intervals: int
    gap: int

    @classmethod
    def after(cls, last: _Due | None, was_badly_estimated: bool) -> _Due:
        """When it is next due, now that it has been sampled; ``last``: when it was, None for the first sample."""
        if last is None:
            gap = _FIRST_GAP
        elif was_badly_estimated:
            gap = max(_LEAST_GAP, last.gap // _GAP_GROWTH)
        else:
            gap = _GAP_GROWTH * last.gap
        return cls(gap, gap)


class KeptRecord:
    """An observer that keeps the record of an interval until it has ended."""

    selection = _RECORD

    def __init__(self) -> None:
        self._parts: list[NDArray[np.uint32]] = []

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        self._parts.append(stream.copy())

    def take(self) -> NDArray[np.uint32]:
        """All of it; begins anew."""
        parts, self._parts = self._parts, []
        return np.concatenate(parts) if parts else np.zeros(0, np.uint32)


class Tracer:
    """Traces ``machine``, which has no timing core of its own, with ``core`` for what is simulated.

    Virtual time is a cycle an instruction, in every mode, so that the guest does the same whatever is simulated.

    ``only_settled``: nobody looks at intervals before `settled`. Those that it will estimate anew have no events until
    then.
    """

    def __init__(
        self, machine: Machine, core: InOrderCore, settings: Settings, only_settled: bool = False
    ) -> None:
        if settings.interval_instructions < 1000:
            raise ValueError(
                f"intervals of {settings.interval_instructions} instructions, expected at least 1000"
            )
        self.machine = machine
        self.core = core
        self.settings = settings
        self.table = SignatureTable(
            settings.dimensions, settings.threshold, settings.base, settings.entries, settings.update,
            settings.when_full,
        )  # fmt: skip
        self._predictor = predictor_named(settings.predictor)
        self._signatures = SignatureMaker(settings.dimensions)
        self._known = KnownEvents()
        self._waits = WaitModel(core.config)
        self._samples = samples_for(settings)
        self._of_phase: dict[int, Sample] = {}  # the last one
        self._seen = Seen()
        self.sampled_again: list[float] = []
        """Of intervals that had samples and were simulated all the same: which part of their cycles these were off."""
        self._due: dict[tuple[int, int], _Due] = {}  # of phases and ranges of waiting that have a sample
        self._last: Sample | None = None
        self._waits_for_all = only_settled and settings.wait_step > 0
        self._unknown = np.full(len(core.counters), np.nan)
        self._code = CodeLines(core.config)
        self._simulated_until = 0  # [instructions]
        self._kept = KeptRecord()
        self._detail: CoreObserver | KeptRecord = CoreObserver(core)
        self._before = core.snapshot()
        self._profiled = profiling(settings, self._waits)
        asked = settings.warm_references > 0 or settings.warm_branches > 0
        self._queue = (
            RecordQueue(settings.warm_references, settings.warm_branches)
            if asked and settings.warm_up == "queues" and not settings.everything
            else None
        )

    def intervals(self) -> Iterator[Interval]:
        """Run the program; yields each interval as soon as it has run, the last one however short."""
        machine, number = self.machine, 0
        watching = [self._queue] if self._queue is not None else []
        machine.observe(self._profiled, watching)
        while machine.ending is None:
            begin = machine.instructions
            detailed = self.wants_detail()
            if detailed:
                self._enter_detail(watching)
            ran = machine.run_intervals(self.settings.interval_instructions, 1)
            counted = None
            if detailed:
                machine.drain()
                counted = self._simulate()
                if not self.settings.everything:
                    machine.observe(self._profiled, watching)
            if len(ran) == 0:
                return
            yield self._classify(number, begin, ran, counted)
            number += 1

    def wants_detail(self) -> bool:
        """Whether the next interval is to be simulated: its phase, if predicted rightly, has no sample."""
        if self.settings.everything:
            return True
        predicted = self._predictor.next_phase()
        if predicted is None:
            return False
        phase, bucket = divmod(predicted, _BUCKETS)
        due = self._due.get((phase, bucket))
        return self.table.knows(phase) and (due is None or due.intervals <= 0)

    def _enter_detail(self, watching: list[RecordQueue]) -> None:
        """Warm the core up for the interval that begins here."""
        self._detail = CoreObserver(self.core)
        if self._queue is not None:
            self.machine.drain()
            tail = self._queue.tail(self.machine.facts)
            self.core.consume(self.machine.facts, tail)
        if self.settings.warm_up == "lines" and not self.settings.everything:
            now = self.machine.instructions
            touched = Touched(*self.machine.touched_lines(self.core.lines_to_warm))
            code = self._code.before(now, self.machine.facts)
            self.core.warm_caches(touched, code, now - self._simulated_until, self._waits.fills_before(now))
            self._detail = self._kept
        self.machine.observe(self._profiled, [self._detail, *watching])
        self._before = self.core.snapshot()

    def _simulate(self) -> NDArray[np.float64]:
        """Events of the interval that has just run in detail, (N_EVENTS,)."""
        core, facts = self.core, self.machine.facts
        if self._detail is self._kept:
            # What branch prediction learns while nothing is simulated is not known. The second half of the interval is
            # as much like what came before it as anything is.
            record = self._kept.take()
            core.train(facts, record, int(len(record) * _NOT_LEARNT))
            self._before = core.snapshot()
            core.consume(facts, record)
        self._simulated_until = self.machine.instructions
        return (core.snapshot() - self._before).astype(np.float64)

    def _classify(
        self, number: int, begin: int, ran: Intervals, counted: NDArray[np.float64] | None
    ) -> Interval:
        end = int(ran.ends[0])
        instructions = end - begin
        signature = self._signatures.make(self.machine.facts, ran)[0]
        wait = 0.0
        if self.settings.wait_step:
            wait = float(self._waits.add(ran.ends, ran.reuse_times)[0])
        self._code.add(begin, ran)
        share = signature / max(int(signature.sum()), 1)
        known = self._known.count(self.machine.facts, ran)[0]
        self._seen.add(share[None, :], np.array([wait]), known[None, :])
        match = self.table.classify(signature)
        phase = match.phase
        bucket = min(wait_bucket(wait, self.settings.wait_step), _BUCKETS - 1)
        self._predictor.observe(phase * _BUCKETS + bucket)
        due = self._due.get((phase, bucket))
        if due is not None and self.settings.wait_step:
            due.intervals -= 1
        if counted is not None:
            category = Category.SIMULATED
            sample = Sample(number, counted / instructions)
            badly = False
            if due is not None and self.settings.wait_step:
                self.sampled_again.append(self._off(sample, share, wait))
                badly = self.sampled_again[-1] > _BADLY
            self._due[phase, bucket] = _Due.after(due, badly)
            self._samples.add(sample, share, wait)
            self._of_phase[phase] = sample
            self.table.sampled(phase, signature)
        elif self._waits_for_all:
            category = Category.MATCHED if phase in self._of_phase else Category.UNSAMPLED
            return Interval(number, begin, end, phase, category, -1, match.distance, self._unknown)
        elif phase in self._of_phase:
            category = Category.MATCHED
            sample = self._samples.estimate(share, wait) if self.settings.wait_step else self._of_phase[phase]
        else:
            category, guessed = Category.UNSAMPLED, self._guess(signature, share, wait)
            if guessed is None:
                return Interval(number, begin, end, phase, category, -1, match.distance, self._unknown)
            sample = guessed
        self._last = sample
        events = sample.events_each * instructions
        if category is not Category.SIMULATED:
            events = with_known(events, known)
        return Interval(number, begin, end, phase, category, sample.number, match.distance, events)

    def _off(self, sample: Sample, share: NDArray[np.float64], wait: float) -> float:
        """By which part of its cycles an interval, ``sample``, is estimated wrongly by the samples so far."""
        cycles = sample.events_each[Event.CYCLES]
        return float(abs(self._samples.estimate(share, wait).events_each[Event.CYCLES] - cycles) / cycles)

    def settled(self, found: list[Interval]) -> list[Interval]:
        """``found``, all that `intervals` gave, with what the samples that came later say, too.

        Without ``wait_step``, as in the paper, an interval keeps what was known when it ended.
        """
        if self.settings.everything or not self.settings.wait_step:
            return found
        none = self.settings.unsampled == "none"
        return settle(found, self._samples, self._seen, keep={Category.UNSAMPLED} if none else set())

    def _guess(self, signature: NDArray[np.int64], share: NDArray[np.float64], wait: float) -> Sample | None:
        if self.settings.unsampled == "last":
            return self._last
        if self.settings.unsampled == "closest" and self._of_phase:
            if self.settings.wait_step:
                return self._samples.estimate(share, wait)
            sampled = np.zeros(self.table.phases, np.bool_)
            sampled[list(self._of_phase)] = True
            closest = self.table.closest(signature, sampled)
            return None if closest is None else self._of_phase[closest]
        return None


class Seen:
    """The facts of every interval that a new estimate needs: shares of its signature, waiting, and the
    events that follow from its blocks."""

    def __init__(self) -> None:
        self._shares: list[NDArray[np.float64]] = []
        self._waits: list[NDArray[np.float64]] = []
        self._known: list[NDArray[np.int64]] = []

    def add(self, shares: NDArray[np.float64], waits: NDArray[np.float64], known: NDArray[np.int64]) -> None:
        """The next intervals: (n, d), (n,), (n, N_STATIC)."""
        self._shares.append(shares)
        self._waits.append(waits)
        self._known.append(known)

    def all(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Those of all intervals."""
        return np.concatenate(self._shares), np.concatenate(self._waits), np.concatenate(self._known)


def settle(
    found: list[Interval], samples: Samples, seen: Seen, keep: Collection[Category] = ()
) -> list[Interval]:
    """``found`` with all ``samples`` taken into account; those that were simulated, and of a category to ``keep``, as
    they are. ``seen``: of the first intervals of the program, at least those of ``found``."""
    if not len(samples) or not found:
        return found
    all_shares, all_waits, all_known = seen.all()
    n = len(found)
    shares, waits, known = all_shares[:n], all_waits[:n], all_known[:n]
    events, sources = samples.estimates(shares, waits)
    instructions = np.array([one.instructions for one in found])
    events = with_known(events * instructions[:, None], known)
    return [
        one
        if one.category is Category.SIMULATED or one.category in keep
        else replace(one, source=source, events=each)
        for one, each, source in zip(found, events, sources.tolist(), strict=True)
    ]


def samples_for(settings: Settings) -> Samples:
    """No samples yet. Signatures half as far apart as those of one phase may be differ as much as ``wait_step``."""
    reach = settings.threshold / 2 * (2 if settings.base == "2L" else 1)
    return Samples(settings.dimensions, reach, settings.wait_step or 1.0)


def shares_of(signatures: NDArray[np.int64]) -> NDArray[np.float64]:
    """Signatures, (..., d), that sum to 1."""
    return np.asarray(signatures / np.maximum(signatures.sum(axis=-1, keepdims=True), 1))


def profiling(settings: Settings, waits: WaitModel) -> TraceSelection:
    """What is observed of an interval that is not simulated."""
    lines = settings.warm_up == "lines" or settings.wait_step > 0
    if settings.everything or not lines:
        return TraceSelection(counts=True)
    return TraceSelection(counts=True, line_bits=waits.line_bits, reuse_times=settings.wait_step > 0)
