"""Followed caches: caches and TLBs that are kept up to date while the guest runs fast, and count their misses.

Fast execution looks each access up in tables of what the first-level caches and TLBs hold, and calls a kernel for the
rest (`emulator.engine.instrument.followed_lines`). So their contents, and those of the L2 cache, are at any time what a
full simulation would leave: a sample needs no warm-up, whatever the replacement. And of each interval the misses are
known, which signatures of code do not show.

Not quite the same: accesses of a block that do not write their time, and the order of uses within one; stores that go
through a write-through cache, which are passed on only if they miss it; pages of more than `MOST_LINES` lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.events import HELD, HELD_WRITTEN, PAGE_OUT, TOUCH_EPOCH
from emulator.timing import layout
from emulator.timing.core_arrays import build_core
from emulator.timing.followed_kernel import MOST_LINES, Side, access_missing, fetch_missing
from emulator.timing.machine_config import MachineConfig
from emulator.timing.machine_events import N_EVENTS


class LineTables(Protocol):
    """`emulator.engine.instrument.followed_lines.FollowedLines`."""

    data: NDArray[np.uint8]
    code: NDArray[np.uint8]
    data_times: NDArray[np.uint32]
    code_times: NDArray[np.uint32]
    missing: NDArray[np.int64]

    def connect(self, access: Any, fetch: Any) -> None: ...


def line_bits(config: MachineConfig) -> tuple[int, int]:
    """The ``followed_lines`` of a selection for caches of ``config``."""
    return config.l1d.line_bytes.bit_length() - 1, config.l1i.line_bytes.bit_length() - 1


@dataclass(frozen=True)
class CacheContents:
    """What the caches and TLBs of a core hold: the tags and stamps of their lines, and their sections of ``longs``."""

    tags: NDArray[np.uint32]
    stamps: NDArray[np.int64]
    sections: NDArray[np.int64]

    @classmethod
    def of(cls, longs: NDArray[np.int64], words: NDArray[np.uint32]) -> CacheContents:
        """A copy of what is in a core's arrays."""
        return cls(*(view.copy() for view in _views(longs, words)))

    def put(self, longs: NDArray[np.int64], words: NDArray[np.uint32]) -> None:
        """Write it into the arrays of a core of the same machine."""
        for view, kept in zip(_views(longs, words), (self.tags, self.stamps, self.sections), strict=True):
            view[:] = kept


def _views(longs: NDArray[np.int64], words: NDArray[np.uint32]) -> tuple[NDArray[Any], ...]:
    """The fields of `CacheContents`."""
    n_lines = int(longs[layout.L1I + layout.M_HINTS])  # the first cache's hints lie behind all lines
    stamps = longs[layout.STAMPS : layout.STAMPS + n_lines]
    return words[:n_lines], stamps, longs[layout.L1I : layout.DTLB + layout.SECTION]


@dataclass(frozen=True)
class FollowedState:
    """What followed caches are at a moment, to go back to: their ``contents``, the times of the lines that each
    first-level cache holds, by place, and the remaining fields of both `Side`."""

    contents: CacheContents
    times: tuple[NDArray[np.uint32], ...]
    others: tuple[NDArray[Any], ...]


class FollowedCaches:
    """The caches and TLBs of ``config``, empty, that follow a guest through its ``tables``.

    ``seed``, ``place_pages``: as of the core that gets the contents. ``events``: (N_EVENTS,) int64 of caches and TLBs
    since the last `clear_events`, live; ``saved_cycles``: (1,), those that misses of data did not wait since then,
    because others were under way.
    """

    def __init__(self, config: MachineConfig, tables: LineTables, seed: int = 0, place_pages: bool = True) -> None:
        longs, words = build_core(config, seed, place_pages)
        self._longs, self._words = longs, words
        self.events = longs[layout.COUNTS : layout.COUNTS + N_EVENTS]
        tlbs = config.dtlb, config.itlb
        sizes = zip((config.l1d, config.l1i), tlbs, strict=True)
        self._data, self._code = (
            Side(
                longs, words, held, times, np.zeros(cache.sets, np.int64), np.zeros(tlb.sets if tlb else 1, np.int64),
                np.zeros(tlb.entries if tlb else 1, np.uint32), np.zeros(3, np.int64),
            )
            for (cache, tlb), held, times in zip(
                sizes, (tables.data, tables.code), (tables.data_times, tables.code_times), strict=True
            )
        )  # fmt: skip
        self._sides = (
            (self._data, layout.L1D, layout.DTLB, layout.P_L1D_SHIFT),
            (self._code, layout.L1I, layout.ITLB, layout.P_L1I_SHIFT),
        )
        self.saved_cycles = self._data.group[2:]
        self._calls = access_missing.bound(tables.missing, self._data), fetch_missing.bound(tables.missing, self._code)
        tables.connect(*self._calls)

    def clear_events(self) -> None:
        """Set ``events`` and ``saved_cycles`` to 0."""
        self.events[:] = 0
        self.saved_cycles[:] = 0

    def contents(self, instructions: int) -> CacheContents:
        """What a core would hold after so many ``instructions`` of the guest."""
        self._settle(instructions)
        return CacheContents.of(self._longs, self._words)

    def state(self, instructions: int) -> FollowedState:
        """What `restore` goes back to, after so many ``instructions`` of the guest."""
        contents = self.contents(instructions)
        times = tuple(side.times[self._lines_in(cache, side)] for side, cache, _, _ in self._sides)
        others = tuple(array.copy() for side, *_ in self._sides for array in side[4:])
        return FollowedState(contents, times, others)

    def restore(self, saved: FollowedState) -> None:
        """Go back to what was ``saved``."""
        for side, cache, _, _ in self._sides:
            side.held[self._lines_in(cache, side)] = 0
        saved.contents.put(self._longs, self._words)
        others = iter(saved.others)
        for (side, cache, tlb, shift), times in zip(self._sides, saved.times, strict=True):
            lines, tags = self._lines_in(cache, side), self._tags(cache)
            side.held[lines] = np.where(tags[tags >> 1 < len(side.held)] & 1, HELD_WRITTEN, HELD)
            side.times[lines] = times
            for array in side[4:]:
                array[:] = next(others)
            if self._has_tlb(tlb):
                page_bits = int(self._longs[layout.P_PAGE_SHIFT] - self._longs[shift])
                side.held[lines[~np.isin(lines >> page_bits, self._tags(tlb) >> 1)]] |= PAGE_OUT
        self.clear_events()

    def _settle(self, instructions: int) -> None:
        """Put into tags and stamps what the tables of followed lines tell: which lines are dirty, and the order of
        accesses."""
        now = np.uint32((TOUCH_EPOCH + instructions) & 0xFFFFFFFF)
        longs, words = self._longs, self._words
        writes_back = bool(longs[layout.P_WRITE_BACK])
        for side, cache, tlb, shift in self._sides:
            places = self._places(cache)
            tags = words[places]
            is_held = tags >> 1 < len(side.held)
            lines = tags[is_held] >> 1
            if cache == layout.L1D and writes_back:
                words[places[is_held]] = lines << 1 | (side.held[lines] & HELD_WRITTEN == HELD_WRITTEN)
            if longs[cache + layout.M_POLICY] == layout.POLICY_LRU:
                self._stamp(cache, places[is_held], now - side.times[lines])
            if self._has_tlb(tlb) and longs[tlb + layout.M_POLICY] == layout.POLICY_LRU:
                pages = self._places(tlb)
                pages = pages[longs[layout.STAMPS + pages] > 0]
                ages = now - side.page_times[pages - int(longs[tlb + layout.M_BASE])]
                page_bits = int(longs[layout.P_PAGE_SHIFT] - longs[shift])
                if 1 << page_bits <= MOST_LINES:
                    times = side.times.reshape(-1, 1 << page_bits)[words[pages] >> 1]
                    ages = np.minimum(ages, (now - times).min(axis=1))
                self._stamp(tlb, pages, ages)

    def _stamp(self, cache: int, places: NDArray[np.int64], ages: NDArray[np.uint32]) -> None:
        """Stamp the lines at ``places`` in the order of their ``ages``."""
        order = np.argsort(ages, kind="stable")[::-1]
        self._longs[layout.STAMPS + places[order]] = np.arange(1, len(order) + 1)
        self._longs[cache + layout.M_CLOCK] = len(order)

    def _has_tlb(self, tlb: int) -> bool:
        return bool(self._longs[layout.P_DTLB if tlb == layout.DTLB else layout.P_ITLB])

    def _places(self, cache: int) -> NDArray[np.int64]:
        """The places of a cache's lines among ``words``; those of their stamps are `layout.STAMPS` more."""
        longs = self._longs
        n = int(longs[cache + layout.M_WAYS] * (longs[cache + layout.M_SET_MASK] + 1))
        return int(longs[cache + layout.M_BASE]) + np.arange(n)

    def _tags(self, cache: int) -> NDArray[np.uint32]:
        return self._words[self._places(cache)]

    def _lines_in(self, cache: int, side: Side) -> NDArray[np.uint32]:
        """The numbers of the lines that ``cache`` holds, by place, without empty ways."""
        lines: NDArray[np.uint32] = self._tags(cache) >> np.uint32(1)
        return lines[lines < len(side.held)]
