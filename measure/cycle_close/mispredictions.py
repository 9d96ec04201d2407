"""Mispredictions of each interval, exact where fast execution keeps the branch predictor up to date.

Intervals with the same code can differ in them as in their waiting for memory, and on a machine with a deep pipeline
that is most of their difference. Where they are known, no sample has to stand for them: an estimate gets the interval's
own, and the cycles that they take (`measure.cycle_close.estimated_events`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.engine.instrument.held_directions import HeldDirections
from emulator.execution.intervals import Written
from emulator.kernels.jit import BoundKernel
from emulator.machine import Machine
from emulator.timing.machine_config import MachineConfig
from emulator.timing.online_predictor import online_predictor
from measure.cycle_close.mispredictions_kernel import take_mispredictions

UNKNOWN = np.zeros(0, np.int64)
"""In place of a live count of mispredictions, where there is none."""


class MispredictionWatcher:
    """Counts the mispredictions of a series of intervals; an `IntervalWatcher`. ``live``: (1,) those since the last
    boundary, or `UNKNOWN`."""

    def __init__(self, live: NDArray[np.int64]) -> None:
        self._live = live
        self._counts = np.zeros(0)

    def begin(self, at_most: int) -> MispredictionWatcher:
        """Prepare for a series of ``at_most`` intervals."""
        self._counts = np.full(at_most, np.nan)
        return self

    def watch(self, written: Written) -> BoundKernel:
        """See `IntervalWatcher`."""
        bound: BoundKernel = take_mispredictions.bound(written.job, self._live, self._counts)
        return bound

    def end(self, n_intervals: int) -> NDArray[np.float64]:
        """Mispredictions of the series' intervals, (n,); NaN where they are not known."""
        if n_intervals and len(self._live) and np.isnan(self._counts[n_intervals - 1]):  # the guest has ended in it
            self._counts[n_intervals - 1], self._live[0] = self._live[0], 0
        return self._counts[:n_intervals]


def known_penalty_cycles(live: NDArray[np.int64], config: MachineConfig) -> int:
    """The penalty of a misprediction if ``live``, a count of them, is not `UNKNOWN`, else 0."""
    return config.pipeline.mispredict_penalty_cycles if len(live) else 0


def followed_alone(machine: Machine, config: MachineConfig) -> HeldDirections | None:
    """Counters for a run that simulates nothing; None where `online_predictor` wants none."""
    shape = online_predictor(config)
    return None if shape is None else machine.hold_directions(*shape)
