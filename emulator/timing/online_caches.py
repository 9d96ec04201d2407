"""Online caches: a core's caches kept up to date while the guest runs fast, so that they need no warm-up.

Where replacement does not look at hits (FIFO, random), a cache changes at misses alone. So fast execution looks each
access up in a table of the lines that the cache holds, and calls a kernel for a missing one. The caches' contents are
then those of a full simulation to the bit, which last accesses cannot give: what a FIFO cache holds depends on the
order in which its lines were filled, and a loop may keep missing, or not, because of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import BoundKernel
from emulator.timing import layout
from emulator.timing.machine_config import MachineConfig
from emulator.timing.online_kernel import access_missing, drop_all, fetch_missing, hold_all


class HeldTables(Protocol):
    """`emulator.engine.instrument.held_lines.HeldLines`."""

    data: NDArray[np.uint8]
    code: NDArray[np.uint8]
    missing: NDArray[np.int64]

    def connect(self, access: Any, fetch: Any) -> None: ...


def online_line_bits(config: MachineConfig) -> tuple[int, int]:
    """The ``fills`` of a selection for a core of ``config``: log2 of the line sizes of the L1 data cache and of the L1
    instruction cache, 0 for one that is warmed up instead.

    Without FIFO replacement all are warmed up, which is faster and good enough. With it those with random replacement
    are kept up to date, too, for the sake of an L2 cache with FIFO replacement.
    """
    first_level = config.l1d, config.l1i
    has_fifo = any(cache is not None and cache.replacement == "fifo" for cache in (*first_level, config.l2))
    data, code = (
        cache.line_bytes.bit_length() - 1 if has_fifo and cache.replacement != "lru" else 0 for cache in first_level
    )
    return data, code


class OnlineCaches:
    """Keeps the caches of a core up to date by ``held``, the tables of a machine's held lines.

    ``data``, ``code``: whether the L1 data cache and the L1 instruction cache are kept up to date; ``below``: whether
    the L2 cache is, which sees nothing but the misses of both.
    """

    def __init__(self, config: MachineConfig, held: HeldTables) -> None:
        self.data, self.code = (bits > 0 for bits in online_line_bits(config))
        self.below = self.data and self.code
        self._held = held
        self._calls: tuple[BoundKernel, BoundKernel] | None = None  # translations call them by address

    def follow(self, longs: NDArray[np.int64], words: NDArray[np.uint32]) -> None:
        """Go on from what the caches in the core's arrays hold."""
        held = self._held
        for cache, table in self._followed():
            hold_all(longs, words, cache, table)
        self._calls = (
            access_missing.bound(held.missing, longs, words, held.data, _next_ways(longs, layout.L1D), int(self.below)),
            fetch_missing.bound(held.missing, longs, words, held.code, _next_ways(longs, layout.L1I), int(self.below)),
        )
        held.connect(*self._calls)

    def leave(self, longs: NDArray[np.int64], words: NDArray[np.uint32]) -> None:
        """Let the core go on with its caches itself."""
        for cache, table in self._followed():
            drop_all(longs, words, cache, table)

    def _followed(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """The L1 caches that are kept up to date, with their tables."""
        for cache, table in ((layout.L1D, self._held.data), (layout.L1I, self._held.code)):
            if len(table):
                yield cache, table


def _next_ways(longs: NDArray[np.int64], cache: int) -> NDArray[np.int64]:
    """The way of each set that is filled next: the one filled longest ago, (sets,)."""
    ways, sets = int(longs[cache + layout.M_WAYS]), int(longs[cache + layout.M_SET_MASK]) + 1
    first = layout.STAMPS + int(longs[cache + layout.M_BASE])
    return longs[first : first + sets * ways].reshape(sets, ways).argmin(axis=1).astype(np.int64)
