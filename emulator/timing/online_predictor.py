"""An online branch predictor: its counters of directions kept up to date while the guest runs fast.

A sample can begin with caches that were warmed up from last accesses, but nothing short tells what a large predictor
has learnt: with 65,536 counters and 16 outcomes of history, 200,000 instructions before a sample left 15% too many
mispredictions in chess, and training on the sample itself, 13% too few.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.timing import layout
from emulator.timing.machine_config import MachineConfig

_SMALL = 8192 * 3
"""Counters times penalty [cycles] up to which training on a part of the sample is good enough, and faster."""
_COSTLY_CYCLES = 8
"""Penalty of a misprediction from which on it matters how many there are between samples, which only counting them as
they happen tells, however few counters there are: with 512, and a penalty of 20 cycles, a loop over sorted or shuffled
bytes was 20% to 29% off."""


class HeldCounters(Protocol):
    """`emulator.engine.instrument.held_directions.HeldDirections`."""

    history: NDArray[np.int64]
    counters: NDArray[np.uint8]


class Shape(NamedTuple):
    """What `HeldCounters` are made for. ``history_bits``: outcomes in the history, 0 for counters by address alone."""

    entries: int
    history_bits: int


def online_predictor(config: MachineConfig) -> Shape | None:
    """The counters that fast execution should keep up to date for a core of ``config``; None where training on a part
    of the sample is good enough: there are few counters, and a misprediction costs little."""
    predictor = config.branch_predictor
    if predictor.kind not in ("bimodal", "gshare"):
        return None
    penalty = config.pipeline.mispredict_penalty_cycles
    if penalty < _COSTLY_CYCLES and predictor.entries * penalty <= _SMALL:
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
