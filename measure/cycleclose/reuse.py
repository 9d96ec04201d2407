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


class WaitModel:
    """Cycles an instruction waits for data on a machine, about."""

    def __init__(self, config: MachineConfig) -> None:
        self.line_bits = config.l1d.line_bytes.bit_length() - 1
        levels = [config.l1d] if config.l2 is None else [config.l1d, config.l2]
        below = [config.memory.latency_cycles] if config.l2 is None else [
            config.l2.hit_latency_cycles, config.memory.latency_cycles,
        ]  # fmt: skip
        # A level of larger lines holds as many of its own; what is counted is lines of the first.
        self._levels = [
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
        for lines, latency in self._levels:
            total += expected_misses(reuse_times, instructions, lines) * latency
        return np.asarray(total / np.maximum(instructions, 1))
