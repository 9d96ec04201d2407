"""Naive twins of the kernels that classify intervals and predict phases, as one would write them in Python."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from measure.cycle_close.classifier import Match


class NaiveTable:
    """`measure.cycle_close.classifier.SignatureTable`."""

    def __init__(self, threshold: float, base: str, entries: int, update: str, when_full: str) -> None:
        self.threshold, self.base, self.entries, self.update = threshold, base, entries, update
        self.when_full = when_full
        self.rows: list[list[float]] = []
        self.numbers: list[int] = []
        self.seen: list[int] = []
        self.members: list[int] = []
        self.clock = self.phases = 0

    def classify(self, signature: NDArray[np.int64]) -> Match:
        self.clock += 1
        total = max(int(signature.sum()), 1)
        share = [int(entry) / total for entry in signature]
        apart = [sum((abs(a - b) for a, b in zip(row, share, strict=True)), 0.0) for row in self.rows]
        place, least = -1, float("inf")
        for row, distance in enumerate(apart):
            if distance < least:
                place, least = row, distance
        if self.base == "2L":
            least /= 2
        full = len(self.rows) == self.entries
        if place >= 0 and (least < self.threshold or (full and self.when_full == "closest")):
            self.seen[place] = self.clock
            self.members[place] += 1
            if self.update == "mean":
                weight = 1 / self.members[place]
                self.rows[place] = [
                    own + weight * (new - own) for own, new in zip(self.rows[place], share, strict=True)
                ]
            return Match(self.numbers[place], least, False)
        if full:
            place = self.seen.index(min(self.seen))
        else:
            place = len(self.rows)
            self.rows.append([])
            for numbers in (self.numbers, self.seen, self.members):
                numbers.append(0)
        self.rows[place], self.numbers[place], self.seen[place] = share, self.phases, self.clock
        self.members[place] = 1
        self.phases += 1
        return Match(self.phases - 1, least, True)

    def record_sample(self, phase: int, signature: NDArray[np.int64]) -> None:
        if self.update == "sample" and phase in self.numbers:
            total = max(int(signature.sum()), 1)
            self.rows[self.numbers.index(phase)] = [int(entry) / total for entry in signature]


@dataclass
class NaivePredictor:
    """`measure.cycle_close.predictors.RunLength`, and with no runs `LastValue`."""

    runs: int
    entries: int
    history: list[tuple[int, int]] = field(default_factory=list)
    table: dict[int, tuple[tuple[tuple[int, int], ...], int, int]] = field(default_factory=dict)

    def key(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        recent = tuple(self.history[-self.runs :])
        return hash(recent) % self.entries, recent

    def next_phase(self) -> int | None:
        if not self.history:
            return None
        if self.runs:
            index, recent = self.key()
            entry = self.table.get(index)
            if entry is not None and entry[0] == recent:
                return entry[1]
        return self.history[-1][0]

    def observe(self, phase: int) -> None:
        if not self.history or not self.runs:
            self.history = [(phase, 1)]
            return
        index, recent = self.key()
        entry = self.table.get(index)
        hit = entry is not None and entry[0] == recent
        last, length = self.history[-1]
        if entry is not None and hit and entry[1] == phase:
            self.table[index] = (recent, phase, min(3, entry[2] + 1))
        elif entry is not None and hit and entry[2] > 0:
            self.table[index] = (recent, entry[1], entry[2] - 1)
        elif hit or phase != last:
            self.table[index] = (recent, phase, 0)
        if phase == last:
            self.history[-1] = (last, length + 1)
        else:
            self.history = [*self.history[-self.runs :], (phase, 1)]


class NaiveSchedule:
    """`measure.cycle_close.schedule.SampleSchedule`: by key the intervals to the next sample, and the gap."""

    def __init__(self) -> None:
        self.left: dict[int, int] = {}
        self.gaps: dict[int, int] = {}

    def take(self, key: int, was_badly_estimated: bool) -> None:
        if key not in self.gaps:
            gap = 10
        elif was_badly_estimated:
            gap = max(3, self.gaps[key] // 4)
        else:
            gap = min(4 * self.gaps[key], 512)
        self.gaps[key] = self.left[key] = gap


class NaiveCover:
    """`measure.cycle_close.online_kernel.Cover`: a sample stands for code up to half the threshold of a phase away."""

    def __init__(self, threshold: float, base: str) -> None:
        self.reach = threshold / 2 * (2 if base == "2L" else 1)
        self.samples: list[NDArray[np.float64]] = []

    def has(self, signature: NDArray[np.int64]) -> bool:
        share = signature / max(int(signature.sum()), 1)
        return any(float(np.abs(sample - share).sum()) <= self.reach for sample in self.samples)

    def add(self, signature: NDArray[np.int64]) -> None:
        self.samples.append(signature / max(int(signature.sum()), 1))
