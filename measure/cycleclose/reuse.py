"""What an interval waits for memory, from how it reuses memory: the data that signatures of code do not see.

Two intervals with the same code can differ many times in their misses. The emulator counts after how long each line
is touched again; from that follow the misses of a cache of any size, and from these, with the machine's latencies, how
many cycles an instruction waits. It is no estimate of CPI but a coordinate: intervals of a phase that are close in it
behave alike, and between two that were simulated the others can be interpolated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.timing.config import MachineConfig
from emulator.timing.warm import Fills


class WaitModel:
    """Cycles an instruction waits for data on a machine, about."""

    def __init__(self, config: MachineConfig) -> None:
        self.line_bits = config.l1d.line_bytes.bit_length() - 1
        levels = [config.l1d] if config.l2 is None else [config.l1d, config.l2]
        below = [config.memory.latency_cycles] if config.l2 is None else [
            config.l2.hit_latency_cycles, config.memory.latency_cycles,
        ]  # fmt: skip
        # A level of larger lines holds as many of its own; what is counted is lines of the first.
        self.levels = [
            (level.size_bytes / config.l1d.line_bytes, latency)
            for level, latency in zip(levels, below, strict=True)
        ]

    def cycles_each(
        self, reuse_times: NDArray[np.int64], instructions: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Waiting of each interval, in cycles an instruction, ``(n,)``.

        ``reuse_times``: ``(n, bins)`` as `emulator.intervals.Intervals` has them; ``instructions``: ``(n,)``.
        """
        from measure.cycleclose.reuse_kernel import expected_misses

        total = np.zeros(len(instructions))
        for lines, latency in self.levels:
            total += expected_misses(reuse_times, instructions, lines) * latency
        return np.asarray(total / np.maximum(instructions, 1))


class FillHistory:
    """How many lines came into the data caches of a machine with random replacement, interval after interval.

    Empty where no cache replaces at random, and where no reuse times are counted: then nobody asks.
    """

    def __init__(self, config: MachineConfig) -> None:
        model = WaitModel(config)
        self._lines = [lines for lines, _ in model.levels]
        levels = [config.l1d] if config.l2 is None else [config.l1d, config.l2]
        self._is_wanted = any(level.replacement == "random" for level in levels)
        self._n = 0
        self._ends = np.zeros(1024, np.int64)
        self._fills = [np.zeros(1024) for _ in levels]

    def add(self, ends: NDArray[np.int64], reuse_times: NDArray[np.int64]) -> None:
        """Intervals that end after ``ends``, (n,), instructions, with ``reuse_times``, (n, bins)."""
        from measure.cycleclose.reuse_kernel import add_evictions

        if not self._is_wanted:
            return
        first, self._n = self._n, self._n + len(ends)
        while self._n >= len(self._ends):
            self._ends = np.concatenate([self._ends, np.zeros_like(self._ends)])
            self._fills = [np.concatenate([fills, np.zeros_like(fills)]) for fills in self._fills]
        self._ends[first + 1 : self._n + 1] = ends
        for lines, fills in zip(self._lines, self._fills, strict=True):
            add_evictions(self._ends, reuse_times, first, lines, fills)

    def before(self, instructions: int) -> Fills | None:
        """Those before a moment of the intervals so far."""
        if self._n == 0:
            return None
        ends = self._ends[: self._n + 1]
        at = np.concatenate([ends[ends < instructions], [instructions]])
        fills = [np.interp(at, ends, mine[: self._n + 1]) for mine in self._fills]
        since = [(mine[-1] - mine)[::-1] for mine in fills]
        return Fills((instructions - at)[::-1].astype(np.float64), since[0], since[-1])
