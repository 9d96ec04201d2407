"""Classifies intervals into phases online, with a table of signatures (the cycle-close paper, section 2).

The distance of two signatures is Manhattan's; both sum to the interval's length L, so it lies between 0 and 2L. The
paper gives its threshold in percent without the base; here ``base`` names it.
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

    ``threshold``: an interval belongs to the closest phase within this fraction of ``base`` ("L": the interval's
    length, "2L": the largest possible distance). ``update``: a phase's signature is that of its last simulated
    interval (``sample``, the paper's), the mean of all its intervals (``mean``), or its first one (``never``).
    ``when_full``: with ``entries`` phases in the table, a new phase replaces the one that was least recently matched
    (``oldest``), or the interval is put into the closest phase at any distance (``closest``). Phase numbers are
    never reused.
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
        self._last_seen = np.zeros(entries, np.int64)  # clock of the last match
        self._members = np.zeros(entries, np.int64)
        self._used = 0
        self._place: dict[int, int] = {}
        self._clock = 0
        self.phases = 0  # in all, replaced ones included
        self.replaced = 0

    def distances(self, signature: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distance to each entry in use as a fraction of the base."""
        from measure.cycle_close.signature_kernel import manhattan

        apart: NDArray[np.float64] = manhattan(self._signatures, self._used, signature)
        return apart if self.base == "L" else apart / 2

    def closest(self, signature: NDArray[np.int64], among: NDArray[np.bool_] | None = None) -> int | None:
        """The phase with the closest signature among those that ``among`` (flags by phase number) allows."""
        apart = self.distances(signature)
        if among is not None:
            apart = np.where(among[self._phases[: self._used]], apart, np.inf)
        if not len(apart) or not np.isfinite(apart.min()):
            return None
        return int(self._phases[apart.argmin()])

    def classify(self, signature: NDArray[np.int64]) -> Match:
        """The phase of the interval, a new one if none is within the threshold. The smallest distance wins, of equal
        ones the oldest phase."""
        from measure.cycle_close.signature_kernel import nearest

        self._clock += 1
        place, apart = nearest(self._signatures, self._used, signature)
        if self.base == "2L":
            apart /= 2
        full = self._used == len(self._phases)
        if place >= 0 and (apart < self.threshold or (full and self.when_full == "closest")):
            self._last_seen[place] = self._clock
            self._members[place] += 1
            if self.update == "mean":
                share = 1 / self._members[place]
                mean = signature / max(int(signature.sum()), 1)
                self._signatures[place] += share * (mean - self._signatures[place])
            return Match(int(self._phases[place]), apart, False)
        if full:
            place = int(self._last_seen.argmin())
            del self._place[int(self._phases[place])]
            self.replaced += 1
        else:
            place = self._used
            self._used += 1
        phase = self.phases
        self.phases += 1
        self._phases[place] = phase
        self._place[phase] = place
        self._last_seen[place] = self._clock
        self._members[place] = 1
        self._signatures[place] = signature / max(int(signature.sum()), 1)
        return Match(phase, apart, True)

    def record_sample(self, phase: int, signature: NDArray[np.int64]) -> None:
        """Update the phase's signature after an interval of it was simulated in detail."""
        if self.update == "sample" and phase in self._place:
            self._signatures[self._place[phase]] = signature / max(int(signature.sum()), 1)

    def contains(self, phase: int) -> bool:
        """Whether the phase is still in the table."""
        return phase in self._place
