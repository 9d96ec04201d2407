"""An online branch predictor: its counters of directions kept up to date while the guest runs fast.

Nothing short tells what a large predictor has learnt: with 65,536 counters and 16 outcomes of history, 200,000
instructions before a sample left 15% too many mispredictions in chess, and training on the sample itself, 13% too few.
And how many there are between samples is in no signature of code: one loop over sorted or shuffled bytes may mispredict
never, or half of its branches.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.timing import layout
from emulator.timing.machine_config import MachineConfig


class HeldCounters(Protocol):
    """`emulator.engine.instrument.held_directions.HeldDirections`."""

    history: NDArray[np.int64]
    counters: NDArray[np.uint8]


class Shape(NamedTuple):
    """What `HeldCounters` are made for. ``history_bits``: outcomes in the history, 0 for counters by address alone."""

    entries: int
    history_bits: int


def online_predictor(config: MachineConfig) -> Shape | None:
    """The counters that fast execution keeps up to date for a core of ``config``; None for a predictor that learns
    nothing."""
    predictor = config.branch_predictor
    if predictor.kind not in ("bimodal", "gshare"):
        return None
    return Shape(predictor.entries, predictor.history_bits if predictor.kind == "gshare" else 0)


class OnlinePredictor:
    """Moves a core's counters of directions and its history to ``held``, which fast execution changes, and back."""

    def __init__(self, held: HeldCounters) -> None:
        self._held = held
        self._is_followed = False

    def follow(self, longs: NDArray[np.int64], counters: NDArray[np.uint32]) -> None:
        """Go on from the history in ``longs`` and from ``counters``, (entries,)."""
        self._held.counters[:] = counters
        self._held.history[0] = longs[layout.S_HISTORY]
        self._is_followed = True

    def leave(self, longs: NDArray[np.int64], counters: NDArray[np.uint32]) -> None:
        """Let the core go on with what was learnt; nothing without `follow` before."""
        if self._is_followed:
            counters[:] = self._held.counters
            longs[layout.S_HISTORY] = self._held.history[0]
            longs[layout.S_PREVIOUS] = -1  # that block ran long ago; fast execution has learnt the last branch
            self._is_followed = False
