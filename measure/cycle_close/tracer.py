"""Traces a program cycle-close: emulates it, finds its phases, and simulates samples of each phase in detail.

The cycle-close paper, section 3. Before each interval the next phase is predicted; if that phase has no sample yet,
the interval is simulated in detail, else it is emulated fast, and afterwards classified by its signature. An emulated
interval gets the events of its phase's sample, or is *unsampled* when there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from common.quantities import SHORTEST_TRACED_INTERVAL
from emulator.engine.instrument.held_directions import HeldDirections
from emulator.events import BlockFacts, TraceSelection
from emulator.execution.intervals import Intervals
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig
from measure.arguments import check_flag, check_number, check_word
from measure.cycle_close.classifier import Base, SignatureTable, Update, WhenFull
from measure.cycle_close.estimated_events import completed
from measure.cycle_close.live_counts import (
    UNKNOWN,
    Following,
    held_directions,
    known_penalty_cycles,
    live_counts,
    wait_cycles,
)
from measure.cycle_close.online import OnlinePhases
from measure.cycle_close.online_kernel import BUCKETS, Found
from measure.cycle_close.predictors import predictor_named
from measure.cycle_close.samples import Sample, Samples
from measure.cycle_close.schedule import BADLY
from measure.cycle_close.signature import SignatureMaker, StaticEventCounter
from measure.cycle_close.warmup import RecordQueue
from measure.errors import ArgumentError

_RECORD = TraceSelection(blocks=True, addresses=True)
_NOT_LEARNT = 0.5  # part at the beginning of a sample's record that does not train predictors
_SERIES = 64  # intervals that run without a return to Python; Ctrl-C loses those of the current series

WarmUp = Literal["queues", "lines"]


class Category(IntEnum):
    """Where an interval's events come from."""

    UNSAMPLED = 0  # emulated, and its phase had no sample: estimated by policy
    SIMULATED = 1  # simulated in detail
    MATCHED = 2  # emulated, and its phase had a sample


@dataclass(frozen=True)
class TracerSettings:
    """How to trace. Defaults are the paper's where it gives them; those of the command are `BY_DEFAULT`.

    Raises `ArgumentError` for settings out of range.
    """

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
    signature: Literal["balanced", "hashed"] = "hashed"  # which of its entries a branch adds to: see `SignatureMaker`

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(TracerSettings).items():
            value = getattr(self, name)
            if get_origin(hint) is Literal:
                check_word(name, value, get_args(hint))
            elif hint is bool:
                check_flag(name, value)
        check_number(
            "interval_instructions", self.interval_instructions, least=SHORTEST_TRACED_INTERVAL, whole=True,
            what="instructions",
        )  # fmt: skip
        check_number("dimensions", self.dimensions, least=1, most=65536, whole=True, what="entries of a signature")
        check_number("threshold", self.threshold, above=0, most=1, what="a fraction of the base: 0.25 is 25%")
        check_number("entries", self.entries, least=1, whole=True, what="phases in the table")
        check_number("warm_references", self.warm_references, least=0, whole=True, what="memory references")
        check_number("warm_branches", self.warm_branches, least=0, whole=True, what="branches")
        wait_step = "a fraction of an instruction's time: 0.2 is 20%"
        check_number("wait_step", self.wait_step, least=0, most=10, what=wait_step)
        try:
            predictor_named(self.predictor)
        except (ValueError, AttributeError):
            raise ArgumentError(
                f"predictor: got {self.predictor!r}, expected 'last' or 'rle-N' with N of at least 1"
            ) from None


BY_DEFAULT = TracerSettings(warm_up="lines", wait_step=0.2, signature="balanced", dimensions=256)


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
    follows_tasks = True

    def __init__(self, core: InOrderCore) -> None:
        self.core = core

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        self.core.consume(facts, stream)

    def interrupted(self, pc: int) -> None:
        """See `emulator.events.FollowsTasks`."""
        self.core.interrupted(pc)


class RecordBuffer:
    """An observer that keeps the record of an interval until it has ended."""

    selection = _RECORD
    follows_tasks = True

    def __init__(self) -> None:
        self._parts: list[NDArray[np.uint32]] = []
        self._words = 0
        self._interruptions: list[tuple[int, int]] = []

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        self._parts.append(stream.copy())
        self._words += len(stream)

    def interrupted(self, pc: int) -> None:
        """See `emulator.events.FollowsTasks`."""
        self._interruptions.append((self._words, pc))

    def take(self) -> tuple[NDArray[np.uint32], list[tuple[int, int]]]:
        """Return the whole record, and for each interruption the words before it and the pc that these went to; and
        clear both."""
        parts, interruptions = self._parts, self._interruptions
        self._parts, self._words, self._interruptions = [], 0, []
        return np.concatenate(parts) if parts else np.zeros(0, np.uint32), interruptions


class Tracer:
    """Traces ``machine``, which has no timing core of its own, with ``core`` for the simulated intervals.

    Virtual time is one cycle per instruction in every mode, so that the guest does the same whatever is simulated.

    ``defer_estimates``: intervals that `reestimated` will estimate have no events until then. ``stepwise``: return to
    Python after every interval, so that the machine is at its end when it is yielded.
    """

    def __init__(
        self, machine: Machine, core: InOrderCore, settings: TracerSettings, defer_estimates: bool = False,
        stepwise: bool = False,
    ) -> None:  # fmt: skip
        self.machine = machine
        self.core = core
        self.settings = settings
        self.table = table_for(settings)
        self._samples = samples_for(settings)
        predictor = predictor_named(settings.predictor)
        self._following = Following(machine, core) if follows_caches(settings) else None
        self._detail_selection = self._profile_selection = profile_selection(self._following)
        self._mispredicted = UNKNOWN
        self._warms_lines = settings.warm_up == "lines" and not settings.everything
        if self._warms_lines:
            self._profile_selection, self._mispredicted = keep_online(machine, core, self._detail_selection)
        self._phases = OnlinePhases(
            self.table, signatures_for(settings), predictor, wait_cycles(core.config), self._samples,
            settings.wait_step, live_counts(self._following, self._mispredicted),
        )  # fmt: skip
        self._static = StaticEventCounter()
        self._of_phase: dict[int, Sample] = {}  # the last sample of each phase
        self._features = IntervalFeatures()
        self.sampled_again: list[float] = []
        """Errors of the estimates that were simulated all the same, as fractions of the intervals' cycles."""
        self._last: Sample | None = None
        self._series = 1 if stepwise else _SERIES
        self._deferred = defer_estimates and settings.wait_step > 0
        self._unknown = np.full(len(core.counters), np.nan)
        self._kept = RecordBuffer()
        self._detail: CoreObserver | RecordBuffer = CoreObserver(core)
        self._before = core.snapshot()
        has_queues = settings.warm_references > 0 or settings.warm_branches > 0
        self._queue = (
            RecordQueue(settings.warm_references, settings.warm_branches)
            if has_queues and settings.warm_up == "queues" and not settings.everything
            else None
        )

    def intervals(self) -> Iterator[Interval]:
        """Run the program; yields each interval when it has run, or when some more have; the last one may be short."""
        machine, phases, number = self.machine, self._phases, 0
        watching = [self._queue] if self._queue is not None else []
        machine.observe(self._profile_selection, watching)
        while machine.ending is None:
            begin = machine.instructions
            detailed = self.wants_detail()
            if detailed:
                self._enter_detail(watching)
            at_most = 1 if detailed else self._series
            phases.begin(machine.facts, begin, at_most)
            ran = machine.run_intervals(self.settings.interval_instructions, at_most, phases)
            counted = None
            if detailed:
                machine.drain()
                counted = self._simulate()
                if not self.settings.everything:
                    machine.observe(self._profile_selection, watching)
            if len(ran) == 0:
                return
            yield from self._classified(number, begin, ran, counted)
            number += len(ran)

    @property
    def frequent_branches(self) -> int:
        """See `SignatureMaker.frequent`."""
        return self._phases.signatures.frequent

    def wants_detail(self) -> bool:
        """Whether the next interval is to be simulated."""
        return self.settings.everything or self._phases.wants_detail()

    def _enter_detail(self, watching: list[RecordQueue]) -> None:
        """Warm the core up for the interval that begins here."""
        self._detail = CoreObserver(self.core)
        if self._queue is not None:
            self.machine.drain()
            tail = self._queue.tail(self.machine.facts)
            self.core.consume(self.machine.facts, tail)
            self.core.follow(self.machine.hart.pc)
        if self._warms_lines and self._following is not None:
            self.core.adopt(self._following.contents())
            self._detail = self._kept
        self.machine.observe(self._detail_selection, [self._detail, *watching])
        self._before = self.core.snapshot()

    def _simulate(self) -> NDArray[np.float64]:
        """Events of the interval that has just run in detail, (N_EVENTS,)."""
        core, facts = self.core, self.machine.facts
        if self._detail is self._kept:
            # Of the branch predictors only counters of directions were trained while nothing was simulated. The others
            # are trained on the second half of the interval, which is as much like the code before it as anything that
            # is known.
            record, interruptions = self._kept.take()
            core.train(facts, record, int(len(record) * _NOT_LEARNT))
            self._before = core.snapshot()
            begin = 0
            for end, pc in interruptions:
                core.consume(facts, record[begin:end])
                core.interrupted(pc)
                begin = end
            core.consume(facts, record[begin:])
        core.follow(self.machine.hart.pc)
        return (core.snapshot() - self._before).astype(np.float64)

    def _classified(
        self, number: int, begin: int, ran: Intervals, counted: NDArray[np.float64] | None
    ) -> Iterator[Interval]:
        """The intervals of the series that has just run, from ``number`` on; ``counted``: the events of the only one,
        None if they must be estimated."""
        facts = self.machine.facts
        found = self._phases.end(facts, len(ran))
        shares, static = shares_of(found.signatures), self._static.count(facts, ran)
        self._features.add(shares, found.waits, static, found.counted)
        sample = self._sampled(number, int(ran.ends[0]) - begin, found, shares[0], counted)
        rows = zip(ran.ends.tolist(), (found.keys // BUCKETS).tolist(), found.distances.tolist(), strict=True)
        for row, (end, phase, distance) in enumerate(rows):
            place = number + row, begin, end, phase
            instructions, begin = end - begin, end
            if sample is not None:
                category = Category.SIMULATED
            else:
                category = Category.MATCHED if phase in self._of_phase else Category.UNSAMPLED
            if sample is None and self._deferred:
                yield Interval(*place, category, -1, distance, self._unknown)
                continue
            wait = float(found.waits[row])
            estimate = sample or self._estimate(number + row, phase, found.signatures[row], shares[row], wait)
            if estimate is None:
                yield Interval(*place, category, -1, distance, self._unknown)
                continue
            self._last = estimate
            events = counted
            if events is None:
                events = estimate.events_each * instructions
                events = completed(events, static[row], found.counted[row], self.core.config)
            yield Interval(*place, category, estimate.number, distance, events)

    def _sampled(
        self, number: int, instructions: int, found: Found, share: NDArray[np.float64],
        counted: NDArray[np.float64] | None,
    ) -> Sample | None:  # fmt: skip
        """Take the interval with the events ``counted`` as a sample, if it was simulated."""
        if counted is None:
            return None
        key, wait = int(found.keys[0]), float(found.waits[0])
        sample = Sample(number, counted / instructions)
        badly = False
        if key in self._phases.schedule and self.settings.wait_step:
            penalty_cycles = known_penalty_cycles(self._mispredicted, self.core.config)
            self.sampled_again.append(self._samples.relative_error(sample, share, wait, penalty_cycles))
            badly = self.sampled_again[-1] > BADLY
        self._phases.schedule.take(key, badly)
        self._samples.add(sample, share, wait)
        self._of_phase[key // BUCKETS] = sample
        self.table.record_sample(key // BUCKETS, found.signatures[0])
        return sample

    def _estimate(
        self, number: int, phase: int, signature: NDArray[np.int64], share: NDArray[np.float64], wait: float
    ) -> Sample | None:
        """The estimate of the interval ``number``, which was not simulated; None without any."""
        if phase not in self._of_phase:
            return self._guess(number, signature, share, wait)
        return self._samples.estimate(share, wait, number) if self.settings.wait_step else self._of_phase[phase]

    def reestimated(self, intervals: list[Interval]) -> list[Interval]:
        """``intervals``, all that `intervals` yielded, estimated again with the samples that came later.

        Without ``wait_step``, as in the paper, an interval keeps the estimate made when it ended.
        """
        if self.settings.everything or not self.settings.wait_step:
            return intervals
        none = self.settings.unsampled == "none"
        keep = {Category.UNSAMPLED} if none else set()
        return reestimate(intervals, self._samples, self._features, self.core.config, keep)

    def _guess(
        self, number: int, signature: NDArray[np.int64], share: NDArray[np.float64], wait: float
    ) -> Sample | None:
        if self.settings.unsampled == "last":
            return self._last
        if self.settings.unsampled == "closest" and self._of_phase:
            if self.settings.wait_step:
                return self._samples.estimate(share, wait, number)
            sampled = np.zeros(self.table.phases, np.bool_)
            sampled[list(self._of_phase)] = True
            closest = self.table.closest(signature, sampled)
            return None if closest is None else self._of_phase[closest]
        return None


class IntervalFeatures:
    """Features of every interval that a new estimate needs: its signature as shares, its waiting, its static events,
    and what was counted, NaN for what was not."""

    def __init__(self) -> None:
        self._shares: list[NDArray[np.float64]] = []
        self._waits: list[NDArray[np.float64]] = []
        self._static: list[NDArray[np.int64]] = []
        self._counted: list[NDArray[np.float64]] = []

    def add(
        self, shares: NDArray[np.float64], waits: NDArray[np.float64], static: NDArray[np.int64],
        counted: NDArray[np.float64],
    ) -> None:  # fmt: skip
        """Add the next intervals: (n, d), (n,), (n, N_STATIC), (n, COUNTED)."""
        self._shares.append(shares)
        self._waits.append(waits)
        self._static.append(static)
        self._counted.append(counted)

    def all(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """The features of all intervals."""
        static, counted = np.concatenate(self._static), np.concatenate(self._counted)
        return np.concatenate(self._shares), np.concatenate(self._waits), static, counted


def reestimate(
    intervals: list[Interval], samples: Samples, features: IntervalFeatures, config: MachineConfig,
    keep: Collection[Category] = (),
) -> list[Interval]:  # fmt: skip
    """``intervals`` estimated by all ``samples``; simulated ones and those of a category in ``keep`` stay as they are.

    ``features``: of the program's first intervals, at least those of ``intervals``.
    """
    if not len(samples) or not intervals:
        return intervals
    n = len(intervals)
    all_shares, all_waits, all_static, all_counted = features.all()
    shares, waits, static, counted = all_shares[:n], all_waits[:n], all_static[:n], all_counted[:n]
    events, sources = samples.estimates(shares, waits)
    instructions = np.array([one.instructions for one in intervals])
    events = completed(events * instructions[:, None], static, counted, config)
    return [
        one
        if one.category is Category.SIMULATED or one.category in keep
        else Interval(
            one.number,
            one.begin_instructions,
            one.end_instructions,
            one.phase,
            one.category,
            source,
            one.distance,
            each,
        )
        for one, each, source in zip(intervals, events, sources.tolist(), strict=True)
    ]


def table_for(settings: TracerSettings) -> SignatureTable:
    """An empty table of phases."""
    return SignatureTable(
        settings.dimensions, settings.threshold, settings.base, settings.entries, settings.update,
        settings.when_full,
    )  # fmt: skip


def signatures_for(settings: TracerSettings) -> SignatureMaker:
    """What makes the signatures that go into `table_for`'s table."""
    return SignatureMaker(settings.dimensions, settings.signature == "balanced")


def samples_for(settings: TracerSettings) -> Samples:
    """An empty set of samples, in which half the threshold of one phase counts as much as ``wait_step``."""
    reach = settings.threshold / 2 * (2 if settings.base == "2L" else 1)
    return Samples(settings.dimensions, reach, settings.wait_step or 1.0)


def shares_of(signatures: NDArray[np.int64]) -> NDArray[np.float64]:
    """Signatures, (..., d), scaled so that they sum to 1."""
    return np.asarray(signatures / np.maximum(signatures.sum(axis=-1, keepdims=True), 1))


def keep_online(
    machine: Machine, core: InOrderCore, selection: TraceSelection
) -> tuple[TraceSelection, NDArray[np.int64]]:
    """Let fast execution keep the branch predictor of ``core`` up to date if it learns; the core has to `follow` again
    after it has simulated. Returns ``selection`` with what that needs, and mispredictions of fast execution so far,
    (1,), live."""
    held = held_directions(machine, core.config)
    if isinstance(held, HeldDirections):
        core.predict_online(held)
        core.follow()
    return replace(selection, inline=(*selection.inline, held.call)), held.mispredicted


def follows_caches(settings: TracerSettings) -> bool:
    """Whether caches follow fast execution, for samples that begin with their contents, or for waiting."""
    return not settings.everything and (settings.warm_up == "lines" or settings.wait_step > 0)


def profile_selection(following: Following | None) -> TraceSelection:
    """What is recorded of an interval that is not simulated."""
    return replace(TraceSelection() if following is None else following.selection, counts=True)
