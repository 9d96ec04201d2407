"""Models how long an interval waits for memory, from its reuse times: data behaviour that code signatures cannot show.

Two intervals with the same code can differ many times in their misses. The emulator counts after how long each line
is touched again; the misses of a cache of any size follow from that, and with the machine's latencies the cycles that
an instruction waits. The result is no estimate of CPI but a coordinate: intervals of a phase that are close in it
behave alike, and between two simulated intervals others can be interpolated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.timing.machine_config import MachineConfig
from emulator.timing.warm import Fills


class WaitModel:
    """Estimated cycles per instruction that a machine waits for data, for one interval after another.

    Misses of a cache with LRU replacement follow from an interval's own reuse times. With random replacement, and
    nearly so with FIFO, they depend on the number of lines that have come in since a line was touched, which may be
    long ago for a large cache. That number is therefore kept for all intervals so far.
    """

    def __init__(self, config: MachineConfig) -> None:
        self.line_bits = config.l1d.line_bytes.bit_length() - 1
        caches = [config.l1d] if config.l2 is None else [config.l1d, config.l2]
        below = [config.memory.latency_cycles] if config.l2 is None else [
            config.l2.hit_latency_cycles, config.memory.latency_cycles,
        ]  # fmt: skip
        # Sizes are in lines of the first level, since these are counted, even for levels with larger lines.
        self._lines = [cache.size_bytes / config.l1d.line_bytes for cache in caches]
        self._latencies = below
        self._has_history = [cache.replacement != "lru" for cache in caches]
        self._n = 0
        self._ends = np.zeros(1024, np.int64)
        self._fills = [np.zeros(1024) for _ in caches]

    def add(self, ends: NDArray[np.int64], reuse_times: NDArray[np.int64]) -> NDArray[np.float64]:
        """Waiting of the next intervals, in cycles per instruction, ``(n,)``.

        ``ends``: (n,) instructions from the start to each interval's end; ``reuse_times``: ``(n, bins)`` as in
        `emulator.execution.intervals.Intervals`.
        """
        from measure.cycle_close.reuse_kernel import add_evictions, expected_misses

        first, self._n = self._n, self._n + len(ends)
        while self._n >= len(self._ends):
            self._ends = np.concatenate([self._ends, np.zeros_like(self._ends)])
            self._fills = [np.concatenate([fills, np.zeros_like(fills)]) for fills in self._fills]
        self._ends[first + 1 : self._n + 1] = ends
        instructions = ends - self._ends[first : self._n]
        total = np.zeros(len(ends))
        for lines, latency, has_history, fills in zip(
            self._lines, self._latencies, self._has_history, self._fills, strict=True
        ):
            if has_history:
                add_evictions(self._ends, reuse_times, first, lines, fills)
                total += (fills[first + 1 : self._n + 1] - fills[first : self._n]) * latency
            else:
                total += expected_misses(reuse_times, instructions, lines) * latency
        return np.asarray(total / np.maximum(instructions, 1))

    def fills_before(self, instructions: int) -> Fills | None:
        """Lines that came into the data caches before a moment of the intervals so far.

        None when they are not needed: without intervals, or if all replacement is LRU.
        """
        if self._n == 0 or not any(self._has_history):
            return None
        ends = self._ends[: self._n + 1]
        at = np.concatenate([ends[ends < instructions], [instructions]])
        ago = (instructions - at)[::-1].astype(np.float64)
        since = []
        for has_history, all_fills in zip(self._has_history, self._fills, strict=True):
            fills = np.interp(at, ends, all_fills[: self._n + 1])
            since.append((fills[-1] - fills)[::-1] if has_history else ago)
        return Fills(ago, since[0], since[-1])
