"""Finds the phases of intervals online: while a series of intervals runs, without a return to Python after each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.events import BlockFacts
from emulator.execution.intervals import Written
from emulator.kernels.jit import BoundKernel
from measure.cycle_close.classifier import SignatureTable
from measure.cycle_close.live_counts_kernel import COUNTED, Live
from measure.cycle_close.online_kernel import Found, Online, classify_interval, wants_detail
from measure.cycle_close.predictors import Predictor
from measure.cycle_close.samples import Samples
from measure.cycle_close.schedule import SampleSchedule
from measure.cycle_close.signature import SignatureMaker


class OnlinePhases:
    """Finds each interval's signature, waiting and phase, and predicts the next one's; an `IntervalWatcher`, which ends
    a series when the next interval is to be simulated.

    ``table``: of phases; ``schedule``: of samples; ``wait_cycles``: that each miss waits, (COUNTED,); ``wait_step``:
    width of a range of waiting, 0 if neither waiting nor what ``samples`` stand for is looked at. ``live``: what fast
    execution counts.
    """

    def __init__(
        self, table: SignatureTable, signatures: SignatureMaker, predictor: Predictor, wait_cycles: NDArray[np.float64],
        samples: Samples, wait_step: float, live: Live,
    ) -> None:  # fmt: skip
        self.table = table
        self.schedule = SampleSchedule()
        self._wait_cycles = wait_cycles
        self._predictor = predictor
        self.signatures = signatures
        self._samples = samples
        self._wait_step = float(wait_step)
        self._live = live
        self._found: Found
        self._written: Written

    def wants_detail(self) -> bool:
        """Whether the next interval is to be simulated: its predicted phase has no sample, or is due for another, or
        goes on with code that no sample stands for."""
        return bool(wants_detail(self.table.arrays, self._predictor.table, self.schedule.due, self._samples.cover))

    def begin(self, facts: BlockFacts, instructions: int, at_most: int) -> None:
        """Prepare for a series of ``at_most`` intervals, the first of which begins after ``instructions``."""
        self.signatures.extend(facts)
        self._found = Found(
            np.zeros((at_most, self.signatures.dimensions), np.int64), np.zeros(at_most),
            np.zeros(at_most, np.int64), np.zeros(at_most), np.full((at_most, COUNTED), np.nan), np.zeros(1, np.int64),
            instructions,
        )  # fmt: skip

    def watch(self, written: Written) -> BoundKernel:
        """See `IntervalWatcher`."""
        self._written = written
        bound: BoundKernel = classify_interval.bound(self._online, written, self._found)
        return bound

    def end(self, facts: BlockFacts, n_intervals: int) -> Found:
        """What is found of the series, which had ``n_intervals``."""
        found, n = self._found, n_intervals
        if found.state[0] < n:  # blocks of the last interval need entries
            self.signatures.extend(facts)
            starts, blocks, executions = self._written.starts, self._written.blocks, self._written.executions
            mine = slice(starts[n - 1], starts[n])
            self.signatures.give_entries(blocks[mine], executions[mine])
            classify_interval(self._online, self._written, found)
        return Found(
            found.signatures[:n], found.waits[:n], found.keys[:n], found.distances[:n], found.counted[:n],
            found.state, found.begin,
        )  # fmt: skip

    @property
    def _online(self) -> Online:
        return Online(
            self.signatures.places, self.table.arrays, self.table.rules, self._predictor.table,
            self.schedule.due, self._samples.cover, self._wait_step, self._live, self._wait_cycles,
        )  # fmt: skip
