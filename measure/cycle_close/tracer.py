"""Traces a program cycle-close: emulates it, finds its phases, and simulates samples of each phase in detail.

The cycle-close paper, section 3. Before each interval the next phase is predicted; if that phase has no sample yet,
the interval is simulated in detail, else it is emulated fast, and afterwards classified by its signature. An emulated
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
from emulator.execution.intervals import Intervals
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_events import Event
from emulator.timing.warm import Touched
from measure.cycle_close.classifier import Base, SignatureTable, Update, WhenFull
from measure.cycle_close.code_lines import CodeLines
from measure.cycle_close.predictors import predictor_named
from measure.cycle_close.reuse import WaitModel
from measure.cycle_close.samples import Sample, Samples, wait_bucket
from measure.cycle_close.signature import SignatureMaker, StaticEventCounter, with_static_events
from measure.cycle_close.warmup import RecordQueue

_RECORD = TraceSelection(blocks=True, addresses=True)
_FIRST_GAP, _LEAST_GAP = 10, 3  # [intervals] between samples of a phase
_GAP_GROWTH = 4  # factor to the next gap; after a sample that was estimated badly, divisor
_BADLY = 0.1  # error of an estimate, as a fraction of the interval's cycles, from which it counts as bad
_NOT_LEARNT = 0.5  # part at the beginning of a sample's record that does not train the branch predictors
_BUCKETS = 1024  # number of ranges of waiting that are distinguished

WarmUp = Literal["queues", "lines"]


class Category(IntEnum):
    """Where an interval's events come from."""

    UNSAMPLED = 0  # emulated, and its phase had no sample: estimated by policy
    SIMULATED = 1  # simulated in detail
    MATCHED = 2  # emulated, and its phase had a sample


@dataclass(frozen=True)
class Settings:
    """How to trace. Defaults are the paper's where it gives them."""

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
    wait_step: float = 0.0  # largest distance in waiting for memory between samples of a phase; 0: code alone
    roll_back: bool = False  # do not predict: go back and simulate what was new
    everything: bool = False  # simulate all intervals: the full trace, against which others are compared


@dataclass(frozen=True)
class Interval:
    """One interval of a trace. ``events``: (N_EVENTS,) counts, estimated unless simulated; NaN without an estimate.
    ``source``: number of the simulated interval that they come from, -1 for none; ``distance``: of the signature from
    its phase's, as a fraction of the base."""

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
    """Passes the record to the core; translations need not stop exactly at its instructions."""

    selection = _RECORD

    def __init__(self, core: InOrderCore) -> None:
        self.core = core

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        self.core.consume(facts, stream)


@dataclass
class _NextSample:
    """When a phase and range of waiting is sampled again: after ``intervals`` more of its intervals.

    Samples get rarer, and more frequent again after a sample that differed from its estimate. Behaviour may drift
    without a change of code or waiting: whether a loop over about as many lines as a cache has misses or hits depends
    on a few lines more or less, which reuse times in powers of two cannot show.
    """

    intervals: int
    gap: int

    @classmethod
    def after(cls, last: _NextSample | None, was_badly_estimated: bool) -> _NextSample:
        """The next sample after one was taken; ``last``: the one that was due, None for the first sample."""
        if last is None:
            gap = _FIRST_GAP
        elif was_badly_estimated:
            gap = max(_LEAST_GAP, last.gap // _GAP_GROWTH)
        else:
            gap = _GAP_GROWTH * last.gap
        return cls(gap, gap)


class RecordBuffer:
    """An observer that keeps the record of an interval until it has ended."""

    selection = _RECORD

    def __init__(self) -> None:
        self._parts: list[NDArray[np.uint32]] = []

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        self._parts.append(stream.copy())

    def take(self) -> NDArray[np.uint32]:
        """Return the whole record and clear it."""
        parts, self._parts = self._parts, []
        return np.concatenate(parts) if parts else np.zeros(0, np.uint32)


class Tracer:
    """Traces ``machine``, which has no timing core of its own, with ``core`` for the simulated intervals.

    Virtual time is one cycle per instruction in every mode, so that the guest does the same whatever is simulated.

    ``defer_estimates``: intervals that `reestimated` will estimate have no events until then.
    """

    def __init__(
        self, machine: Machine, core: InOrderCore, settings: Settings, defer_estimates: bool = False
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
        self._static = StaticEventCounter()
        self._waits = WaitModel(core.config)
        self._samples = samples_for(settings)
        self._of_phase: dict[int, Sample] = {}  # the last sample of each phase
        self._features = IntervalFeatures()
        self.sampled_again: list[float] = []
        """Errors of the estimates that were simulated all the same, as fractions of the intervals' cycles."""
        self._next_samples: dict[tuple[int, int], _NextSample] = {}  # by phase and range of waiting with a sample
        self._last: Sample | None = None
        self._deferred = defer_estimates and settings.wait_step > 0
        self._unknown = np.full(len(core.counters), np.nan)
        self._code = CodeLines(core.config)
        self._simulated_until = 0  # [instructions]
        self._kept = RecordBuffer()
        self._detail: CoreObserver | RecordBuffer = CoreObserver(core)
        self._before = core.snapshot()
        self._profile_selection = profile_selection(settings, self._waits)
        has_queues = settings.warm_references > 0 or settings.warm_branches > 0
        self._queue = (
            RecordQueue(settings.warm_references, settings.warm_branches)
            if has_queues and settings.warm_up == "queues" and not settings.everything
            else None
        )

    def intervals(self) -> Iterator[Interval]:
        """Run the program; yields each interval as soon as it has run; the last one may be short."""
        machine, number = self.machine, 0
        watching = [self._queue] if self._queue is not None else []
        machine.observe(self._profile_selection, watching)
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
                    machine.observe(self._profile_selection, watching)
            if len(ran) == 0:
                return
            yield self._classify(number, begin, ran, counted)
            number += 1

    def wants_detail(self) -> bool:
        """Whether the next interval is to be simulated: its predicted phase has no sample, or is due for another."""
        if self.settings.everything:
            return True
        predicted = self._predictor.next_phase()
        if predicted is None:
            return False
        phase, bucket = divmod(predicted, _BUCKETS)
        due = self._next_samples.get((phase, bucket))
        return self.table.contains(phase) and (due is None or due.intervals <= 0)

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
        self.machine.observe(self._profile_selection, [self._detail, *watching])
        self._before = self.core.snapshot()

    def _simulate(self) -> NDArray[np.float64]:
        """Events of the interval that has just run in detail, (N_EVENTS,)."""
        core, facts = self.core, self.machine.facts
        if self._detail is self._kept:
            # The branch predictors were not trained while nothing was simulated. They are trained on the second half
            # of the interval, which is as much like the code before it as anything that is known.
            record = self._kept.take()
            core.train(facts, record, int(len(record) * _NOT_LEARNT))
            self._before = core.snapshot()
            core.consume(facts, record)
        self._simulated_until = self.machine.instructions
        return (core.snapshot() - self._before).astype(np.float64)

    def _classify(
        self, number: int, begin: int, ran: Intervals, counted: NDArray[np.float64] | None
    ) -> Interval:
        """Classify the interval that has just run; ``counted``: its events, None if they must be estimated."""
        end = int(ran.ends[0])
        instructions = end - begin
        signature = self._signatures.make(self.machine.facts, ran)[0]
        wait = 0.0
        if self.settings.wait_step:
            wait = float(self._waits.add(ran.ends, ran.reuse_times)[0])
        self._code.add(begin, ran)
        share = signature / max(int(signature.sum()), 1)
        static = self._static.count(self.machine.facts, ran)[0]
        self._features.add(share[None, :], np.array([wait]), static[None, :])
        match = self.table.classify(signature)
        phase = match.phase
        bucket = min(wait_bucket(wait, self.settings.wait_step), _BUCKETS - 1)
        self._predictor.observe(phase * _BUCKETS + bucket)
        due = self._next_samples.get((phase, bucket))
        if due is not None and self.settings.wait_step:
            due.intervals -= 1
        if counted is not None:
            category = Category.SIMULATED
            sample = Sample(number, counted / instructions)
            badly = False
            if due is not None and self.settings.wait_step:
                self.sampled_again.append(self._relative_error(sample, share, wait))
                badly = self.sampled_again[-1] > _BADLY
            self._next_samples[phase, bucket] = _NextSample.after(due, badly)
            self._samples.add(sample, share, wait)
            self._of_phase[phase] = sample
            self.table.record_sample(phase, signature)
        elif self._deferred:
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
            events = with_static_events(events, static)
        return Interval(number, begin, end, phase, category, sample.number, match.distance, events)

    def _relative_error(self, sample: Sample, share: NDArray[np.float64], wait: float) -> float:
        """Error of the estimate of a simulated interval, ``sample``, by the other samples, as a fraction of cycles."""
        cycles = sample.events_each[Event.CYCLES]
        return float(abs(self._samples.estimate(share, wait).events_each[Event.CYCLES] - cycles) / cycles)

    def reestimated(self, intervals: list[Interval]) -> list[Interval]:
        """``intervals``, all that `intervals` yielded, estimated again with the samples that came later.

        Without ``wait_step``, as in the paper, an interval keeps the estimate made when it ended.
        """
        if self.settings.everything or not self.settings.wait_step:
            return intervals
        none = self.settings.unsampled == "none"
        return reestimate(intervals, self._samples, self._features, keep={Category.UNSAMPLED} if none else set())

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


class IntervalFeatures:
    """Features of every interval that a new estimate needs: its signature as shares, its waiting, and its static
    events."""

    def __init__(self) -> None:
        self._shares: list[NDArray[np.float64]] = []
        self._waits: list[NDArray[np.float64]] = []
        self._static: list[NDArray[np.int64]] = []

    def add(self, shares: NDArray[np.float64], waits: NDArray[np.float64], static: NDArray[np.int64]) -> None:
        """Add the next intervals: (n, d), (n,), (n, N_STATIC)."""
        self._shares.append(shares)
        self._waits.append(waits)
        self._static.append(static)

    def all(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """The features of all intervals."""
        return np.concatenate(self._shares), np.concatenate(self._waits), np.concatenate(self._static)


def reestimate(
    intervals: list[Interval], samples: Samples, features: IntervalFeatures, keep: Collection[Category] = ()
) -> list[Interval]:
    """``intervals`` estimated by all ``samples``; simulated ones and those of a category in ``keep`` stay as they are.

    ``features``: of the program's first intervals, at least those of ``intervals``.
    """
    if not len(samples) or not intervals:
        return intervals
    all_shares, all_waits, all_static = features.all()
    n = len(intervals)
    shares, waits, static = all_shares[:n], all_waits[:n], all_static[:n]
    events, sources = samples.estimates(shares, waits)
    instructions = np.array([one.instructions for one in intervals])
    events = with_static_events(events * instructions[:, None], static)
    return [
        one
        if one.category is Category.SIMULATED or one.category in keep
        else replace(one, source=source, events=each)
        for one, each, source in zip(intervals, events, sources.tolist(), strict=True)
    ]


def samples_for(settings: Settings) -> Samples:
    """An empty set of samples, in which half the threshold of one phase counts as much as ``wait_step``."""
    reach = settings.threshold / 2 * (2 if settings.base == "2L" else 1)
    return Samples(settings.dimensions, reach, settings.wait_step or 1.0)


def shares_of(signatures: NDArray[np.int64]) -> NDArray[np.float64]:
    """Signatures, (..., d), scaled so that they sum to 1."""
    return np.asarray(signatures / np.maximum(signatures.sum(axis=-1, keepdims=True), 1))


def profile_selection(settings: Settings, waits: WaitModel) -> TraceSelection:
    """What is recorded of an interval that is not simulated."""
    lines = settings.warm_up == "lines" or settings.wait_step > 0
    if settings.everything or not lines:
        return TraceSelection(counts=True)
    return TraceSelection(counts=True, line_bits=waits.line_bits, reuse_times=settings.wait_step > 0)
