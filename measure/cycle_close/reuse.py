"""Models how long an interval waits for memory, from its reuse times: data behaviour that code signatures cannot show.

Two intervals with the same code can differ many times in their misses. The emulator counts after how long each line
is touched again; the misses of a cache of any size follow from that, in the same way those of a TLB from the times of
pages, and with the machine's latencies the cycles that an instruction waits. The result is no estimate of CPI but a
coordinate: intervals of a phase that are close in it behave alike, and between two simulated intervals others can be
interpolated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.engine.reuse_counts import (
    LINE_SET_FIELDS,
    LINE_SETS,
    PAGE_BITS,
    PAGE_FIELDS,
    PAGE_SET_FIELDS,
    PAGE_SETS,
    TURN_SETS,
    bin_edges,
    turn_bin_starts,
)
from emulator.events import TraceSelection
from emulator.timing.machine_config import MachineConfig
from emulator.timing.warm import Fills
from measure.cycle_close.reuse_kernel import Waits, add_waits, room_for_distances
from measure.cycle_close.set_kernel import SetCounts, room_for_classes


def _set_counts(sets: int, units: int, first: int, counted: int) -> tuple[int, int, int, int]:
    """A level's entry of `SetCounts`: ``sets`` of lines of ``units`` that are counted each."""
    return min(sets, max(counted // units, 1)), units.bit_length() - 1, first, counted


class WaitModel:
    """Estimated cycles per instruction that a machine waits for data and page walks, for one interval after another.

    Misses of a cache with LRU replacement are taken to follow from an interval's own reuse times, as if what was
    executed before it had been alike. With random replacement, and
    nearly so with FIFO, they depend on the number of lines that have come in since a line was touched, which may be
    long ago for a large cache. That number is therefore kept for all intervals so far.

    ``selection``: what has to be recorded of an interval. ``arrays``: for kernels.
    """

    def __init__(self, config: MachineConfig) -> None:
        line_bits = config.l1d.line_bytes.bit_length() - 1
        turn_sets = min(config.l1d.sets, TURN_SETS)
        self.selection = TraceSelection(counts=True, line_bits=line_bits, reuse_times=True, set_mask=turn_sets - 1)
        caches = [config.l1d] if config.l2 is None else [config.l1d, config.l2]
        below = [config.memory.latency_cycles] if config.l2 is None else [
            config.l2.hit_latency_cycles, config.memory.latency_cycles,
        ]  # fmt: skip
        self._n_caches = len(caches)
        # Sizes are in lines of the first level, since these are counted, even for levels with larger lines; the TLB's
        # in the emulator's pages.
        sizes = [cache.size_bytes / config.l1d.line_bytes for cache in caches]
        has_history = [cache.replacement != "lru" for cache in caches]
        first_bins = [0] * len(caches)
        sets = [
            _set_counts(cache.sets, cache.line_bytes // config.l1d.line_bytes, LINE_SET_FIELDS, LINE_SETS)
            for cache in caches
        ]
        if config.dtlb is not None:
            units = config.memory.page_bytes >> PAGE_BITS
            sizes.append(config.dtlb.entries * units)
            below.append(config.dtlb.miss_penalty_cycles)
            has_history.append(config.dtlb.replacement != "lru")
            first_bins.append(PAGE_FIELDS)
            sets.append(_set_counts(config.dtlb.sets, units, PAGE_SET_FIELDS, PAGE_SETS))
        turn_bins, edges = turn_bin_starts(), bin_edges()
        # Half a turn less: the access itself is one, too. Simulated sets have more misses than with a whole one less.
        turn_middles = np.maximum(turn_bins[:-1] + turn_bins[1:] - (np.diff(turn_bins) == 1) - 1, 0) / 2
        self.arrays = Waits(
            np.zeros(1, np.int64), np.zeros(1024, np.int64), np.array(sizes, np.float64), np.array(below, np.float64),
            np.array(has_history), np.zeros((len(sizes), 1024)), np.array(first_bins),
            SetCounts(*np.array(sets).T.copy()), np.array([turn_sets]), turn_bins,
            turn_middles, (edges[:-1] + edges[1:]) / 2,
            room_for_distances(), room_for_classes(),
        )  # fmt: skip

    def make_room(self, n: int) -> None:
        """Make room in ``arrays`` for ``n`` more intervals."""
        has = self.arrays
        if int(has.state[0]) + n >= len(has.ends):
            more = n + len(has.ends)
            self.arrays = has._replace(
                ends=np.concatenate([has.ends, np.zeros(more, np.int64)]),
                fills=np.concatenate([has.fills, np.zeros((len(has.fills), more))], axis=1),
            )

    def add(self, ends: NDArray[np.int64], reuse_times: NDArray[np.int64]) -> NDArray[np.float64]:
        """Waiting of the next intervals, in cycles per instruction, ``(n,)``.

        ``ends``: (n,) instructions from the start to each interval's end; ``reuse_times``: ``(n, REUSE_FIELDS)`` as
        in `emulator.execution.intervals.Intervals`.
        """
        self.make_room(len(ends))
        out = np.zeros(len(ends))
        add_waits(self.arrays, np.ascontiguousarray(ends), np.ascontiguousarray(reuse_times), out)
        return out

    def fills_before(self, instructions: int) -> Fills | None:
        """Lines that came into the data caches before a moment of the intervals so far.

        None when they are not needed: without intervals, or if all replacement is LRU.
        """
        n, has_history = int(self.arrays.state[0]), self.arrays.has_history[: self._n_caches].tolist()
        if n == 0 or not any(has_history):
            return None
        ends = self.arrays.ends[: n + 1]
        at = np.concatenate([ends[ends < instructions], [instructions]])
        ago = (instructions - at)[::-1].astype(np.float64)
        since, lines = [], []
        for level, is_kept in enumerate(has_history):
            fills = np.interp(at, ends, self.arrays.fills[level, : n + 1])
            since.append((fills[-1] - fills)[::-1] if is_kept else ago)
            lines.append(float(self.arrays.lines[level]) if is_kept else 0.0)
        return Fills(ago, since[0], since[-1], lines[0], lines[-1])
