"""Tracing a program cycle-close: emulate, find phases, simulate in detail what stands for each phase.

The cycle-close paper, section 3. Before each interval the next phase is predicted; one that has no sample yet
is simulated in detail, all else is emulated fast, and afterwards put into a phase by its signature. An emulated
interval gets the events of its phase's sample, or is *unsampled* when there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from emulator.events import BlockFacts, TraceSelection
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from measure.cycleclose.classifier import Base, SignatureTable, Update, WhenFull
from measure.cycleclose.predictors import predictor_named
from measure.cycleclose.signature import SignatureMaker
from measure.cycleclose.warmup import RecordQueue

_RECORD = TraceSelection(blocks=True, addresses=True)
_COUNTS = TraceSelection(counts=True)


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
    warm_references: int = 50_000
    warm_branches: int = 50_000
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


@dataclass(frozen=True)
class _Sample:
    number: int
    events_each: NDArray[np.float64]  # per instruction


class CoreObserver:
    """The core as an observer that translations need not stop exactly for."""

    selection = _RECORD

    def __init__(self, core: InOrderCore) -> None:
        self.core = core

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        self.core.consume(facts, stream)


class Tracer:
    """Traces ``machine``, which has no timing core of its own, with ``core`` for what is simulated.

    Virtual time is a cycle an instruction, in every mode, so that the guest does the same whatever is simulated.
    """

    def __init__(self, machine: Machine, core: InOrderCore, settings: Settings) -> None:
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
        self._samples: dict[int, _Sample] = {}
        self._last: _Sample | None = None
        self._detail = CoreObserver(core)
        warm = settings.warm_references > 0 or settings.warm_branches > 0
        self._queue = (
            RecordQueue(settings.warm_references, settings.warm_branches)
            if warm and not settings.everything
            else None
        )

    def intervals(self) -> Iterator[Interval]:
        """Run the program; yields each interval as soon as it has run, the last one however short."""
        machine, number = self.machine, 0
        watching = [self._queue] if self._queue is not None else []
        machine.observe(_COUNTS, watching)
        running = True
        while running:
            begin = machine.instructions
            in_detail = self.wants_detail()
            before = self._enter_detail(watching) if in_detail else None
            running = machine.advance_to_instructions(begin + self.settings.interval_instructions)
            if before is not None:
                machine.drain()
                counted = (self.core.snapshot() - before).astype(np.float64)
                if not self.settings.everything:
                    machine.observe(_COUNTS, watching)
            if machine.instructions == begin:
                return
            yield self._classify(number, begin, counted if before is not None else None)
            number += 1

    def wants_detail(self) -> bool:
        """Whether the next interval is to be simulated: its phase, if predicted rightly, has no sample."""
        if self.settings.everything:
            return True
        predicted = self._predictor.next_phase()
        return predicted is not None and self.table.knows(predicted) and predicted not in self._samples

    def _enter_detail(self, watching: list[RecordQueue]) -> NDArray[np.int64]:
        """Warm the core up; its counters where the interval begins."""
        if self._queue is not None:
            self.machine.drain()
            tail = self._queue.tail(self.machine.facts)
            self.core.consume(self.machine.facts, tail)
        self.machine.observe(_COUNTS, [self._detail, *watching])
        return self.core.snapshot()

    def _classify(self, number: int, begin: int, counted: NDArray[np.float64] | None) -> Interval:
        machine = self.machine
        end = machine.instructions
        signature = self._signatures.take(machine.facts, machine.block_counts)
        match = self.table.classify(signature)
        phase = match.phase
        self._predictor.observe(phase)
        if counted is not None:
            category, sample = Category.SIMULATED, _Sample(number, counted / (end - begin))
            if phase not in self._samples or not self.settings.everything:
                self._samples[phase] = sample
            self.table.sampled(phase, signature)
        elif phase in self._samples:
            category, sample = Category.MATCHED, self._samples[phase]
        else:
            category, guessed = Category.UNSAMPLED, self._guess(signature)
            if guessed is None:
                nothing = np.full(len(self.core.counters), np.nan)
                return Interval(number, begin, end, phase, category, -1, match.distance, nothing)
            sample = guessed
        self._last = sample
        return Interval(
            number, begin, end, phase, category, sample.number, match.distance, sample.events_each * (end - begin)
        )  # fmt: skip

    def _guess(self, signature: NDArray[np.int64]) -> _Sample | None:
        if self.settings.unsampled == "last":
            return self._last
        if self.settings.unsampled == "closest" and self._samples:
            sampled = np.zeros(self.table.phases, np.bool_)
            sampled[list(self._samples)] = True
            closest = self.table.closest(signature, sampled)
            return None if closest is None else self._samples[closest]
        return None
