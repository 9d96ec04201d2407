"""Phases online: a table of signatures, and the entry that an interval's signature belongs to.

The cycle-close paper, section 2. The distance of two signatures is Manhattan's; both sum
to the interval's length L, so it lies between 0 and 2L. The paper gives its threshold in percent and does not
say of what: ``base`` says so here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Base = Literal["L", "2L"]
Update = Literal["sample", "mean", "never"]
WhenFull = Literal["oldest", "closest"]


@dataclass(frozen=True)
class Match:
    """The phase that an interval belongs to, its distance as a fraction of the base, and whether it is new."""

    phase: int
    distance: float
    is_new: bool


class SignatureTable:
    """The signatures of the phases so far.

    ``threshold``: an interval belongs to the closest phase nearer than this fraction of ``base`` ("L": the
    interval's length, "2L": the largest distance there is). ``update``: a phase's signature becomes that of each
    interval that was simulated for it (``sample``, the paper's), the mean of all its intervals (``mean``), or
    stays the first one (``never``). ``when_full``: with ``entries`` phases known, a new one takes the place of
    the phase that was met longest ago (``oldest``), or the interval is put into the closest phase however far
    it is (``closest``). Phase numbers are never used twice.
    """

    def __init__(
        self,
        dimensions: int = 32,
        threshold: float = 0.25,
        base: Base = "2L",
        entries: int = 1024,
        update: Update = "sample",
        when_full: WhenFull = "oldest",
    ) -> None:
        if not 0 < threshold <= 1:
            raise ValueError(f"a threshold of {threshold}, expected more than 0 and at most 1")
        if entries < 1:
            raise ValueError(f"a table of {entries} entries, expected at least 1")
        self.threshold = threshold
        self.base = base
        self.update = update
        self.when_full = when_full
        self._signatures = np.zeros((entries, dimensions))
        self._phases = np.full(entries, -1, np.int64)
        self._met = np.zeros(entries, np.int64)  # when each was met last
        self._members = np.zeros(entries, np.int64)
        self._used = 0
        self._place: dict[int, int] = {}
        self._clock = 0
        self.phases = 0  # ever known
        self.replaced = 0  # phases that lost their place

    def distances(self, signature: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distance to each entry in use as a fraction of the base."""
        from measure.cycleclose.signature_kernel import manhattan

        apart: NDArray[np.float64] = manhattan(self._signatures, self._used, signature)
        return apart if self.base == "L" else apart / 2

    def closest(self, signature: NDArray[np.int64], among: NDArray[np.bool_] | None = None) -> int | None:
        """The phase with the closest signature, of those that ``among`` (by phase number) allows."""
        apart = self.distances(signature)
        if among is not None:
            apart = np.where(among[self._phases[: self._used]], apart, np.inf)
        if not len(apart) or not np.isfinite(apart.min()):
            return None
        return int(self._phases[apart.argmin()])

    def classify(self, signature: NDArray[np.int64]) -> Match:
        """Which phase the interval belongs to; a new one if none is near enough. The smallest distance wins, of
        equal ones the oldest phase."""
        from measure.cycleclose.signature_kernel import nearest

        self._clock += 1
        place, apart = nearest(self._signatures, self._used, signature)
        if self.base == "2L":
            apart /= 2
        full = self._used == len(self._phases)
        if place >= 0 and (apart < self.threshold or (full and self.when_full == "closest")):
            self._met[place] = self._clock
            self._members[place] += 1
            if self.update == "mean":
                share = 1 / self._members[place]
                mean = signature / max(int(signature.sum()), 1)
                self._signatures[place] += share * (mean - self._signatures[place])
            return Match(int(self._phases[place]), apart, False)
        if full:
            place = int(self._met.argmin())
            del self._place[int(self._phases[place])]
            self.replaced += 1
        else:
            place = self._used
            self._used += 1
        phase = self.phases
        self.phases += 1
        self._phases[place] = phase
        self._place[phase] = place
        self._met[place] = self._clock
        self._members[place] = 1
        self._signatures[place] = signature / max(int(signature.sum()), 1)
        return Match(phase, apart, True)

    def sampled(self, phase: int, signature: NDArray[np.int64]) -> None:
        """An interval of ``phase`` was simulated in detail."""
        if self.update == "sample" and phase in self._place:
            self._signatures[self._place[phase]] = signature / max(int(signature.sum()), 1)

    def knows(self, phase: int) -> bool:
        """Whether the phase still has its place."""
        return phase in self._place
