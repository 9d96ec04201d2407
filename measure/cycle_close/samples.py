"""Estimates the events of a program's intervals from the simulated ones, its samples.

A phase is code, and has the events of its sample. Where data matter, too, intervals have a second coordinate, the
cycles that an instruction waits for memory (`measure.cycle_close.live_counts`), and an interval's events are estimated
from the samples that are closest to it in both coordinates. The first one is the interval's own signature, not that of
its phase, which changes as the phase is sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from common.distinct import distinct
from emulator.timing.machine_events import N_EVENTS, Event
from measure.cycle_close.online_kernel import COVER_FIELDS, EMPTY, UNCOVERED, Cover

_OF_WAITING = np.array([Event.CYCLES, Event.STALL_CYCLES])  # what more waiting for data adds to
_LEAST = 0.5  # lower limit of an estimate, as a fraction of the smallest value among the closest samples


def wait_bucket(wait: float, step: float) -> int:
    """Number of the range of waiting that contains ``wait``; ranges are ``step`` wide, as a fraction of an
    instruction's time including its waiting."""
    return int(np.log1p(wait) / step) if step else 0


@dataclass(frozen=True)
class Sample:
    """A simulated interval: its number, and its events per instruction, (N_EVENTS,)."""

    number: int
    events_each: NDArray[np.float64] = field(repr=False)


class Samples:
    """All samples of a program.

    ``step``: difference of waiting (see `wait_bucket`) that counts as much as a difference of ``reach`` in signatures
    that sum to 1.
    """

    def __init__(self, dimensions: int, reach: float, step: float) -> None:
        self._reach, self._step = reach, step
        self._shares = np.zeros((64, dimensions))
        self._waits = np.zeros(64)
        self._scaled = np.zeros(64)  # log(1 + wait) over the step
        self._events = np.zeros((64, N_EVENTS))
        self._numbers = np.zeros(64, np.int64)
        self._n = 0
        self._cover_state = np.zeros(COVER_FIELDS, np.int64)
        self._cover_state[UNCOVERED] = EMPTY

    @property
    def cover(self) -> Cover:
        """Which code the samples stand for; until another is added."""
        return Cover(self._shares[: self._n], self._reach, self._cover_state)

    def __len__(self) -> int:
        return self._n

    def add(self, sample: Sample, share: NDArray[np.float64], wait: float) -> None:
        """Add a sample with its signature, (d,), that sums to 1, and its waiting."""
        n = self._n
        if n == len(self._waits):
            self._shares, self._waits, self._scaled, self._events, self._numbers = (
                np.concatenate([part, np.zeros_like(part)])
                for part in (self._shares, self._waits, self._scaled, self._events, self._numbers)
            )
        self._shares[n], self._waits[n], self._events[n] = share, wait, sample.events_each
        self._numbers[n], self._scaled[n] = sample.number, np.log1p(wait) / self._step
        self._n = n + 1
        self._cover_state[UNCOVERED] = EMPTY

    def estimate(self, share: NDArray[np.float64], wait: float, number: int) -> Sample:
        """The estimate of the interval ``number`` from at least one sample; its number is that of the closest
        sample."""
        from measure.cycle_close.samples_kernel import NEIGHBOURS, neighbours

        n, places, weights = self._n, np.empty(NEIGHBOURS, np.int64), np.empty(NEIGHBOURS)
        more_cycles = neighbours(
            self._shares[:n],
            self._waits[:n],
            self._scaled[:n],
            self._numbers[:n],
            share,
            wait,
            number,
            self._reach,
            self._step,
            places,
            weights,
        )
        closest = self._events[places]
        events = weights @ closest
        events[_OF_WAITING] += more_cycles
        return Sample(int(self._numbers[places[0]]), np.maximum(events, _LEAST * closest.min(axis=0)))

    def relative_error(self, sample: Sample, share: NDArray[np.float64], wait: float, penalty_cycles: int = 0) -> float:
        """Error of the estimate of a simulated interval, ``sample``, by these samples, as a fraction of its cycles.

        ``penalty_cycles``: of a misprediction, where estimates get the interval's own mispredictions, else 0.
        """
        own, estimated = sample.events_each, self.estimate(share, wait, sample.number).events_each
        more = own[Event.BRANCHES_MISPREDICTED] - estimated[Event.BRANCHES_MISPREDICTED]
        cycles = estimated[Event.CYCLES] + penalty_cycles * more
        return float(abs(cycles / own[Event.CYCLES] - 1))

    def estimates(
        self, shares: NDArray[np.float64], waits: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Estimates of the program's first intervals, with signatures ``shares``, (k, d), and ``waits``, (k,), from at
        least one sample.

        Returns events per instruction, (k, N_EVENTS), and the numbers of the closest samples, (k,).
        """
        from measure.cycle_close.samples_kernel import NEIGHBOURS, neighbours_of_all

        n, k = self._n, len(waits)
        places, weights, more = np.empty((k, NEIGHBOURS), np.int64), np.empty((k, NEIGHBOURS)), np.empty(k)
        own = self._waits[:n]
        neighbours_of_all(
            self._shares[:n], own, self._scaled[:n], self._numbers[:n], shares, waits, self._reach, self._step,
            places, weights, more,
        )  # fmt: skip
        events = np.zeros((k, N_EVENTS))
        for column in range(NEIGHBOURS):
            events += weights[:, column, None] * self._events[places[:, column]]
        events[:, _OF_WAITING] += more[:, None]
        # Extrapolation from a few samples is limited.
        least = _LEAST * self._events[places].min(axis=1)
        return np.maximum(events, least), self._numbers[places[:, 0]]

    def more_for(self, shares: NDArray[np.float64], chosen: Sequence[int]) -> list[int]:
        """Indices of the intervals with signatures ``shares``, (k, d), that are to be samples, too, so that some sample
        stands for the code of each; ``chosen``: indices of those that will be samples anyway. Typical ones first."""
        left = np.arange(len(shares))
        for row in (*self._shares[: self._n], *shares[list(chosen)]):
            left = left[np.abs(shares[left] - row).sum(axis=1) > self._reach]
        more: list[int] = []
        while len(left):
            typical = int(left[most_typical(shares[left])])
            more.append(typical)
            left = left[np.abs(shares[left] - shares[typical]).sum(axis=1) > self._reach]
        return more

    def typical(self, shares: NDArray[np.float64], waits: NDArray[np.float64], at_most: int) -> NDArray[np.int64]:
        """Indices of the intervals, (k,) ascending, that would be good samples for all of them.

        ``shares``: (n, d) signatures; ``waits``: (n,). k-medoids, by the distance that `estimate` uses.
        """
        from measure.cycle_close.medoids import medoids

        points = np.column_stack([shares / self._reach, np.log1p(waits) / self._step])
        indices: NDArray[np.int64] = medoids(points, np.random.default_rng(0).random(at_most - 1))
        return indices


def choose_samples(
    waits: NDArray[np.float64], shares: NDArray[np.float64], step: float, at_least: int = 1
) -> NDArray[np.int64]:
    """Indices of the intervals of a phase to simulate, ascending.

    ``waits``: (n,); ``shares``: (n, d) signatures that sum to 1. Waiting times (on a scale of ratios) are cut into even
    ranges around targets from the shortest to the longest, at most ``step`` apart, and an interval is taken from each
    range that has any: of those within an eighth of ``step`` of the target, or of the waiting time closest to it, the
    one with the signature closest to their mean, the first of equals. If waiting differs by at most a quarter of
    ``step``, it carries no information, and the phase is cut into ``at_least`` parts in time instead. Where ranges
    without intervals leave fewer than ``at_least``, others are taken, too, evenly in time.
    """
    scale = np.log1p(waits)
    low, high = float(scale.min()), float(scale.max())
    if not step or high - low <= step / 4:
        parts = np.array_split(np.arange(len(waits)), min(at_least, len(waits)))
        return distinct(np.array([mine[most_typical(shares[mine])] for mine in parts]))
    targets = np.linspace(low, high, max(at_least, 1 + int(np.ceil((high - low) / step))))
    nearest = np.rint((scale - low) / (high - low) * (len(targets) - 1)).astype(np.int64)
    chosen = []
    for number in distinct(nearest).tolist():
        mine = np.flatnonzero(nearest == number)
        off = np.abs(scale[mine] - targets[number])
        middle = targets[number] if off.min() <= step / 8 else scale[mine[off.argmin()]]
        mine = mine[np.abs(scale[mine] - middle) <= step / 8]
        chosen.append(int(mine[most_typical(shares[mine])]))
    return with_others(np.array(chosen), len(waits), at_least)


def with_others(chosen: NDArray[np.int64], n: int, at_least: int) -> NDArray[np.int64]:
    """The indices ``chosen``, of 0 to n - 1, with others evenly between, if they are fewer than ``at_least`` and n;
    ascending."""
    missing = min(at_least, n) - len(chosen)
    if missing <= 0:
        return np.sort(chosen)
    others = np.setdiff1d(np.arange(n), chosen)
    return np.sort(np.concatenate([chosen, others[np.linspace(0, len(others) - 1, missing).astype(np.int64)]]))


def most_typical(shares: NDArray[np.float64]) -> int:
    """The row of the signatures ``shares``, (n, d), that is closest to their mean, the first of equals."""
    return int(np.abs(shares - shares.mean(axis=0)).sum(axis=1).argmin())
