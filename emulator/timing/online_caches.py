"""Online caches: a core's caches kept up to date while the guest runs fast, so that they need no warm-up.

Where replacement does not look at hits (FIFO, random), a cache changes at misses alone. So fast execution looks each
access up in a table of the lines that the cache holds, and calls a kernel for a missing one. The caches' contents are
then those of a full simulation to the bit, which last accesses cannot give: what a FIFO cache holds depends on the
order in which its lines were filled, and a loop may keep missing, or not, because of it. And where stores do not bring
lines in (`write_allocate: false`), last accesses do not tell which lines ever came in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.kernels.jit import BoundKernel
from emulator.timing import layout
from emulator.timing.machine_config import CacheConfig, MachineConfig
from emulator.timing.online_kernel import Arrays, access_missing, drop_all, fetch_missing, hold_all


class HeldTables(Protocol):
    """`emulator.engine.instrument.held_lines.HeldLines`."""

    data: NDArray[np.uint8]
    code: NDArray[np.uint8]
    missing: NDArray[np.int64]

    def connect(self, access: Any, fetch: Any) -> None: ...


def online_line_bits(config: MachineConfig) -> tuple[int, int]:
    """The ``fills`` of a selection for a core of ``config``: log2 of the line sizes of the L1 data cache and of the L1
    instruction cache, 0 for one whose misses are not followed.

    Without FIFO replacement none are: warm-up is faster and good enough. With it those with random replacement are
    followed, too, and in front of an L2 cache with FIFO replacement also those with LRU. All are where stores do not
    bring lines in.
    """
    data, code = (_line_bits(cache, config) for cache in (config.l1d, config.l1i))
    return data, code


def _line_bits(cache: CacheConfig, config: MachineConfig) -> int:
    below = config.l2.replacement if config.l2 is not None else None
    for_whom = [below] if cache.replacement == "lru" else [config.l1d.replacement, config.l1i.replacement, below]
    stores_pass_by = not config.l1d.write_allocate and (cache is config.l1d or below is not None)
    return cache.line_bytes.bit_length() - 1 if "fifo" in for_whom or stores_pass_by else 0


class OnlineCaches:
    """Keeps the caches of a core up to date by ``held``, the tables of a machine's held lines.

    ``data``, ``code``: whether the L1 data cache and the L1 instruction cache are kept up to date; ``below``: whether
    the L2 cache is, which sees nothing but the misses of both. An L1 cache with LRU replacement has a stand-in with
    FIFO replacement, which begins with the lines of the cache at every `follow`: it misses a little more often, and
    what it misses more is mostly in the L2 cache, where a hit changes nothing. ``lends_data``: the L1 data cache gets
    the lines of its stand-in at every `leave`, because last accesses do not tell which lines came in.
    """

    def __init__(self, config: MachineConfig, held: HeldTables) -> None:
        fills = online_line_bits(config)
        self.data, self.code = (
            bits > 0 and cache.replacement != "lru" for bits, cache in zip(fills, (config.l1d, config.l1i), strict=True)
        )
        self.below = all(fills)
        self.lends_data = fills[0] > 0 and not self.data and not config.l1d.write_allocate
        self._held = held
        self._core: Arrays | None = None
        self._arrays: dict[int, Arrays] = {}  # by L1 cache that is followed: the core's, or its stand-in's
        self._calls: tuple[BoundKernel, BoundKernel] | None = None  # translations call them by address

    def follow(self, longs: NDArray[np.int64], words: NDArray[np.uint32]) -> None:
        """Go on from what the caches in the core's arrays hold."""
        held, core, below = self._held, Arrays(longs, words), int(self.below)
        self._core = core
        for cache, is_exact, table in ((layout.L1D, self.data, held.data), (layout.L1I, self.code, held.code)):
            is_followed = len(table) > 0
            self._arrays[cache] = core if is_exact or not is_followed else _stand_in(core, cache)
            if is_followed:
                hold_all(*self._arrays[cache], cache, table)
        data, code = self._arrays[layout.L1D], self._arrays[layout.L1I]
        self._calls = (
            access_missing.bound(held.missing, data, core, held.data, _next_ways(data, layout.L1D), below),
            fetch_missing.bound(held.missing, code, core, held.code, _next_ways(code, layout.L1I), below),
        )
        held.connect(*self._calls)

    def leave(self) -> None:
        """Let the core go on with its caches itself; nothing without `follow` before."""
        for cache, table in ((layout.L1D, self._held.data), (layout.L1I, self._held.code)):
            if len(table) and cache in self._arrays:
                drop_all(*self._arrays[cache], cache, table)
        if self.lends_data and self._core is not None and layout.L1D in self._arrays:
            _lend(self._arrays[layout.L1D], self._core, layout.L1D)
        self._arrays.clear()


@dataclass(frozen=True)
class CacheContents:
    """What the caches and TLBs of a core hold, to go back to: the tags and stamps of their lines, and their sections
    of ``longs``; and the ``directions`` that its branch predictor has learnt, with the ``history``."""

    tags: NDArray[np.uint32]
    stamps: NDArray[np.int64]
    sections: NDArray[np.int64]
    directions: NDArray[np.uint32]
    history: NDArray[np.int64]

    @classmethod
    def of(cls, longs: NDArray[np.int64], words: NDArray[np.uint32]) -> CacheContents:
        """A copy of what is in a core's arrays."""
        return cls(*(view.copy() for view in _views(longs, words)))

    def put(self, longs: NDArray[np.int64], words: NDArray[np.uint32]) -> None:
        """Write it into the arrays of the same core."""
        saved = self.tags, self.stamps, self.sections, self.directions, self.history
        for view, kept in zip(_views(longs, words), saved, strict=True):
            view[:] = kept


def _views(longs: NDArray[np.int64], words: NDArray[np.uint32]) -> tuple[NDArray[Any], ...]:
    """The fields of `CacheContents`."""
    n_lines = int(longs[layout.L1I + layout.M_HINTS])  # the first cache's hints lie behind all lines
    sections = longs[layout.L1I : layout.DTLB + layout.SECTION]
    first = longs[layout.P_DIRECTIONS]
    directions = words[first : first + longs[layout.P_PREDICTOR_MASK] + 1]
    history = longs[layout.S_HISTORY : layout.S_HISTORY + 1]
    return words[:n_lines], longs[layout.STAMPS : layout.STAMPS + n_lines], sections, directions, history


def _places(arrays: Arrays, cache: int) -> NDArray[np.int64]:
    """The places of a cache's lines among ``words``, (sets, ways); those of their stamps are `layout.STAMPS` more."""
    longs = arrays.longs
    ways, sets = int(longs[cache + layout.M_WAYS]), int(longs[cache + layout.M_SET_MASK]) + 1
    return int(longs[cache + layout.M_BASE]) + np.arange(sets * ways).reshape(sets, ways)


def lines_in(longs: NDArray[np.int64], words: NDArray[np.uint32], cache: int) -> NDArray[np.int64]:
    """The numbers of the lines that ``cache`` holds, (sets, ways); of empty ways that of no line."""
    return words[_places(Arrays(longs, words), cache)].astype(np.int64) >> 1


def _next_ways(arrays: Arrays, cache: int) -> NDArray[np.int64]:
    """The way of each set that is filled next: the one filled longest ago, (sets,)."""
    return arrays.longs[layout.STAMPS + _places(arrays, cache)].argmin(axis=1).astype(np.int64)


def _stand_in(core: Arrays, cache: int) -> Arrays:
    """Arrays with the same lines in ``cache``, filled in the order in which they were used last."""
    found = Arrays(core.longs.copy(), _views(*core)[0].copy())
    places = _places(core, cache)
    stamps = core.longs[layout.STAMPS + places]
    order = np.argsort(stamps, axis=1)
    found.longs[layout.STAMPS + places] = np.take_along_axis(stamps, order, axis=1)
    found.words[places] = np.take_along_axis(core.words[places], order, axis=1)
    found.longs[cache + layout.M_POLICY] = layout.POLICY_FIFO
    return found


def _lend(stand_in: Arrays, core: Arrays, cache: int) -> None:
    """Put the lines of a stand-in into the cache itself."""
    places = _places(core, cache)
    core.words[places] = stand_in.words[places]
    core.longs[layout.STAMPS + places] = stand_in.longs[layout.STAMPS + places]
    core.longs[cache + layout.M_CLOCK] = stand_in.longs[cache + layout.M_CLOCK]
