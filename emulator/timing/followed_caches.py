"""Followed caches: caches and TLBs that are kept up to date while the guest runs fast, and count their misses.

Fast execution looks each access up in tables of what the first-level caches and TLBs hold, and calls a kernel for the
rest (`emulator.engine.instrument.followed_lines`). So their contents, and those of the L2 cache, are at any time what a
full simulation would leave, to the bit: a sample needs no warm-up, whatever the replacement. And of each interval the
misses are known, which signatures of code do not show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.events import HELD, HELD_WRITTEN, PAGE_OUT, TOUCH_EPOCH
from emulator.timing import layout
from emulator.timing.core_arrays import build_core
from emulator.timing.followed_kernel import PENDING, SAVED, Side, access_missing, fetch_missing, has_small_pages
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


def follows_stores(config: MachineConfig) -> bool:
    """The ``follows_stores`` of a selection for caches of ``config``: stores that go through change the next level."""
    return config.l1d.write_policy == "write_through" and config.l2 is not None


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


class _Followed(NamedTuple):
    """A first-level cache: its side, the section of the cache and of its TLB in ``longs``, None without one, and how
    many bits the number of a line has more than that of its page."""

    side: Side
    cache: int
    tlb: int | None
    page_bits: int


class FollowedCaches:
    """The caches and TLBs of ``config``, empty, that follow a guest through its ``tables``.

    ``seed``, ``place_pages``: as of the core that gets the contents. ``events``: (N_EVENTS,) int64 of caches and TLBs
    since the last `clear_events`, live; ``saved_cycles``: (1,), those that misses of data did not wait since then,
    because others were under way, or because they were stores.
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
                np.zeros(tlb.entries if tlb else 1, np.uint32), np.zeros(PENDING, np.int64),
            )
            for (cache, tlb), held, times in zip(
                sizes, (tables.data, tables.code), (tables.data_times, tables.code_times), strict=True
            )
        )  # fmt: skip
        self._sides = tuple(
            _Followed(side, level, tlb if longs[has_tlb] else None, int(longs[layout.P_PAGE_SHIFT] - longs[line_shift]))
            for side, level, line_shift, tlb, has_tlb in (
                (self._data, layout.L1D, layout.P_L1D_SHIFT, layout.DTLB, layout.P_DTLB),
                (self._code, layout.L1I, layout.P_L1I_SHIFT, layout.ITLB, layout.P_ITLB),
            )
        )
        self.saved_cycles = self._data.pending[SAVED : SAVED + 1]
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
        times = tuple(one.side.times[self._held(one)[1]] for one in self._sides)
        others = tuple(array.copy() for one in self._sides for array in one.side[4:])
        return FollowedState(contents, times, others)

    def restore(self, saved: FollowedState) -> None:
        """Go back to what was ``saved``."""
        for one in self._sides:
            one.side.held[self._held(one)[1]] = 0
        saved.contents.put(self._longs, self._words)
        others = iter(saved.others)
        for one, times in zip(self._sides, saved.times, strict=True):
            places, lines = self._held(one)
            held = one.side.held
            held[lines] = np.where(self._words[places] & 1, HELD_WRITTEN, HELD)
            one.side.times[lines] = times
            for array in one.side[4:]:
                array[:] = next(others)
            if one.tlb is not None:
                pages = self._words[self._places(one.tlb)] >> 1
                held[lines[~np.isin(lines >> one.page_bits, pages)]] |= PAGE_OUT
        self.clear_events()

    def _settle(self, instructions: int) -> None:
        """Put into tags and stamps what the tables of followed lines tell: which lines are dirty, and the order of
        accesses."""
        now = np.uint32((TOUCH_EPOCH + instructions) & 0xFFFFFFFF)
        longs, words = self._longs, self._words
        writes_back = bool(longs[layout.P_WRITE_BACK])
        for one in self._sides:
            side, tlb = one.side, one.tlb
            places, lines = self._held(one)
            if one.cache == layout.L1D and writes_back:
                words[places] = lines << 1 | (side.held[lines] & HELD_WRITTEN == HELD_WRITTEN)
            if longs[one.cache + layout.M_POLICY] == layout.POLICY_LRU:
                self._stamp(one.cache, places, now - side.times[lines])
            if tlb is not None and longs[tlb + layout.M_POLICY] == layout.POLICY_LRU:
                pages = self._places(tlb)
                pages = pages[longs[layout.STAMPS + pages] > 0]
                known = now - side.page_times[pages - int(longs[tlb + layout.M_BASE])]
                self._stamp(tlb, pages, np.minimum(known, self._page_ages(one, words[pages] >> 1, lines, now)))

    def _page_ages(
        self, one: _Followed, pages: NDArray[np.integer[Any]], lines: NDArray[np.uint32], now: np.uint32
    ) -> NDArray[np.uint32]:
        """How long ago a line of each of ``pages`` was accessed: of small pages any line, of large ones one of
        ``lines``, which the cache holds (see `followed_kernel.youngest_line`)."""
        times, never = one.side.times, np.uint32(0xFFFFFFFF)
        if has_small_pages(self._longs, one.cache, one.page_bits):
            return (now - times.reshape(-1, 1 << one.page_bits)[pages]).min(axis=1)
        ages, of = now - times[lines], lines >> np.uint32(one.page_bits)
        return np.array([ages[of == page].min(initial=never) for page in pages], np.uint32)

    def _stamp(self, cache: int, places: NDArray[np.int64], ages: NDArray[np.uint32]) -> None:
        """Stamp the lines at ``places`` in the order of their ``ages``."""
        order = np.argsort(ages, kind="stable")[::-1]
        self._longs[layout.STAMPS + places[order]] = np.arange(1, len(order) + 1)
        self._longs[cache + layout.M_CLOCK] = len(order)

    def _places(self, cache: int) -> NDArray[np.int64]:
        """The places of a cache's lines among ``words``; those of their stamps are `layout.STAMPS` more."""
        longs = self._longs
        n = int(longs[cache + layout.M_WAYS] * (longs[cache + layout.M_SET_MASK] + 1))
        return int(longs[cache + layout.M_BASE]) + np.arange(n)

    def _held(self, one: _Followed) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """The places of a first-level cache among ``words`` that hold a line, and the numbers of these lines."""
        places = self._places(one.cache)
        lines = self._words[places] >> np.uint32(1)
        is_held = lines < len(one.side.held)
        return places[is_held], lines[is_held]
