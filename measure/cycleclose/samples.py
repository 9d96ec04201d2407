"""What the simulated intervals of a phase say about its others.

A phase is code. Where its data matter, too, intervals have a second coordinate, how many cycles an instruction waits
for memory (`measure.cycleclose.reuse`), and the events of an interval are interpolated between the two samples that
waited least more and least less.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


def wait_bucket(wait: float, step: float) -> int:
    """Number of the range of waiting that an interval is in: each is ``step``, a share of an instruction's time
    including its waiting, wide."""
    return int(np.log1p(wait) / step) if step else 0


@dataclass(frozen=True)
class Sample:
    """A simulated interval: its number, its waiting [cycles an instruction], and events an instruction."""

    number: int
    wait: float
    events_each: NDArray[np.float64] = field(repr=False)


class PhaseSamples:
    """The samples of one phase, by their waiting."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def add(self, sample: Sample) -> None:
        """Keep a sample; it takes the place of one that waited as long."""
        waits = [one.wait for one in self.samples]
        place = bisect_left(waits, sample.wait)
        if place < len(waits) and waits[place] == sample.wait:
            self.samples[place] = sample
        else:
            self.samples.insert(place, sample)

    def differ(self, step: float) -> bool:
        """Whether they tell what waiting for memory does: it differs by more than a quarter of ``step``."""
        scale = [float(np.log1p(one.wait)) for one in (self.samples[0], self.samples[-1])]
        return step > 0 and scale[1] - scale[0] > step / 4

    def estimate(self, wait: float) -> tuple[NDArray[np.float64], int]:
        """Events an instruction of an interval that waits so long, and the number of the sample closest to it.

        Between two samples in proportion; beyond the outermost one, as that one.
        """
        samples = self.samples
        place = bisect_left([one.wait for one in samples], wait)
        if place == 0:
            return samples[0].events_each, samples[0].number
        if place == len(samples):
            return samples[-1].events_each, samples[-1].number
        less, more = samples[place - 1], samples[place]
        share = (wait - less.wait) / (more.wait - less.wait)
        events = less.events_each + share * (more.events_each - less.events_each)
        return events, (less if share < 0.5 else more).number


def spread(
    waits: NDArray[np.float64], shares: NDArray[np.float64], step: float, at_least: int = 1
) -> NDArray[np.int64]:
    """Which intervals of a phase to simulate, ascending: typical ones at evenly spaced waiting times (on a scale of
    ratios), from the shortest to the longest, no further apart than ``step``.

    ``waits``: (n,); ``shares``: (n, d) signatures that sum to 1. Where the waiting of all differs by no more than a
    quarter of ``step`` it says nothing, and the phase is cut into ``at_least`` stretches in time. Of those within an
    eighth of ``step`` of a wanted time, or of a stretch, the one with the signature closest to their mean is taken, the
    first of equals.
    """
    scale = np.log1p(waits)
    low, high = float(scale.min()), float(scale.max())
    if step and high - low > step / 4:
        targets = np.linspace(low, high, max(at_least, 1 + int(np.ceil((high - low) / step))))
        near = [np.flatnonzero(np.abs(scale - target) <= step / 8) for target in targets]
    else:
        near = np.array_split(np.arange(len(waits)), min(at_least, len(waits)))
    return np.unique([
        mine[np.abs(shares[mine] - shares[mine].mean(axis=0)).sum(axis=1).argmin()] for mine in near if len(mine)
    ])  # fmt: skip
