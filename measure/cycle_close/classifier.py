"""Classifies intervals into phases online, with a table of signatures (the cycle-close paper, section 2).

The distance of two signatures is Manhattan's; both sum to the interval's length L, so it lies between 0 and 2L. The
paper gives its threshold in percent without the base; here ``base`` names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from measure.cycle_close.signature_kernel import (
    PHASES,
    REPLACED,
    STATE_FIELDS,
    USED,
    PhaseTable,
    Rules,
    classify,
    entry_of_phase,
    manhattan,
)

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
    never reused. ``arrays``, ``rules``: for kernels.
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
        self.update = update
        self.arrays = PhaseTable(
            np.zeros((entries, dimensions)), np.full(entries, -1, np.int64), np.zeros(entries, np.int64),
            np.zeros(entries, np.int64), np.zeros(STATE_FIELDS, np.int64), np.zeros(dimensions),
        )  # fmt: skip
        self.rules = Rules(float(threshold), 1.0 if base == "L" else 2.0, when_full == "closest", update == "mean")

    @property
    def phases(self) -> int:
        """The number of phases so far, replaced ones included."""
        return int(self.arrays.state[PHASES])

    @property
    def replaced(self) -> int:
        """The number of phases that are no more in the table."""
        return int(self.arrays.state[REPLACED])

    def distances(self, signature: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distance to each entry in use as a fraction of the base."""
        used = int(self.arrays.state[USED])
        return manhattan(self.arrays.signatures, used, signature) / self.rules.base

    def closest(self, signature: NDArray[np.int64], among: NDArray[np.bool_] | None = None) -> int | None:
        """The phase with the closest signature among those that ``among`` (flags by phase number) allows."""
        apart = self.distances(signature)
        phases = self.arrays.phases[: len(apart)]
        if among is not None:
            apart = np.where(among[phases], apart, np.inf)
        if not len(apart) or not np.isfinite(apart.min()):
            return None
        return int(phases[apart.argmin()])

    def classify(self, signature: NDArray[np.int64]) -> Match:
        """The phase of the interval, a new one if none is within the threshold. The smallest distance wins, of equal
        ones the oldest phase."""
        return Match(*classify(self.arrays, self.rules, signature))

    def record_sample(self, phase: int, signature: NDArray[np.int64]) -> None:
        """Update the phase's signature after an interval of it was simulated in detail."""
        place = entry_of_phase(self.arrays, phase)
        if self.update == "sample" and place >= 0:
            self.arrays.signatures[place] = signature / max(int(signature.sum()), 1)

    def contains(self, phase: int) -> bool:
        """Whether the phase is still in the table."""
        return entry_of_phase(self.arrays, phase) >= 0
