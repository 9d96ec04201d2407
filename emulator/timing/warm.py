"""Warm-up of a core after functional execution: sets caches and TLBs from the time of the last access to each line."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from emulator.timing import layout
from emulator.timing.machine_config import MachineConfig
from emulator.timing.online_caches import OnlineCaches, lines_in
from emulator.timing.order_kernel import first_of_each, merge_by_age, youngest_first
from emulator.timing.warm_kernel import LastAccesses, Scratch, gather_history, to_fills, warm_cache

WARM_UP_FACTOR = 8  # the most recent lines, this many times a cache's capacity, fill almost all its sets


@dataclass(frozen=True)
class Fills:
    """Lines filled into a cache of each level, as a function of time. ``ago``: (n,) instructions before now, ascending
    from 0; ``l1d``, ``l2``: (n,) fills since then, in lines of any length, of which the caches hold ``l1d_lines`` and
    ``l2_lines``; 0 if ``ago`` does not go back to the start. Used for random replacement."""

    ago: NDArray[np.float64]
    l1d: NDArray[np.float64]
    l2: NDArray[np.float64]
    l1d_lines: float = 0.0
    l2_lines: float = 0.0


@dataclass(frozen=True)
class Touched:
    """Lines of memory in any order, (n,) each: ``addresses``; ``ages``: instructions since the last access;
    ``written``: instructions since the last write, `emulator.events.NEVER` without one."""

    addresses: NDArray[np.uint32]
    ages: NDArray[np.uint32]
    written: NDArray[np.uint32]


def warm_caches(
    config: MachineConfig, longs: NDArray[np.int64], words: NDArray[np.uint32], data: Touched, code: Touched,
    since: int, fills: Fills | None, online: OnlineCaches | None = None,
) -> None:  # fmt: skip
    """`InOrderCore.warm_caches` on the core's arrays; ``online`` tells which caches fast execution keeps
    up to date: they stay as they are."""
    line = layout.P_L1D_SHIFT, layout.P_L1I_SHIFT, layout.P_PAGE_SHIFT, layout.P_L2_SHIFT
    l1d_shift, l1i_shift, page_shift, l2_shift = (int(longs[place]) for place in line)
    order = youngest_first(data.ages)
    l1d = _History.of([data], order[: _most_lines(config)], since)  # the others are for the L2 cache alone
    if config.l1d.write_policy != "write_back":
        l1d = l1d.without_writes()
    if online is not None and online.lends_data:  # the cache has the lines that came in: the order of use is left
        held = l1d.of_lines(l1d_shift, lines_in(longs, words, layout.L1D)).without_writes()
        _warm_one(longs, words, layout.L1D, held.addresses >> l1d_shift, held)
    elif online is None or not online.data:
        _warm_one(longs, words, layout.L1D, l1d.addresses >> l1d_shift, l1d.in_fills(fills, "l1d"))
    if config.dtlb is not None:
        _warm_one(longs, words, layout.DTLB, l1d.addresses >> page_shift, l1d.without_writes())
    if len(code.addresses):
        l1i = _History.of([code], youngest_first(code.ages), since).without_writes()
        # How often a loop misses in a FIFO cache depends on the order in which its lines were filled, for ever: the
        # same lines in another order may miss a quarter as often. Last fetches do not tell that order, and ages of
        # lines that ran in one interval are guesses. The fetches do, from whatever the cache held before.
        if config.l1i.replacement != "fifo":
            _warm_one(longs, words, layout.L1I, l1i.addresses >> l1i_shift, l1i)
        if config.itlb is not None:
            _warm_one(longs, words, layout.ITLB, l1i.addresses >> page_shift, l1i)
    if config.l2 is not None and not (online is not None and online.below):
        fetched = _fetched_from_l2(longs, code)
        both_order = merge_by_age(data.ages, order, fetched.ages, youngest_first(fetched.ages))
        both = _History.of([data, fetched], both_order, since)
        lines = physical_addresses(longs, words, both.addresses) >> l2_shift
        _warm_one(longs, words, layout.L2, lines, both.in_fills(fills, "l2"))
    longs[[layout.S_FETCH_LINE, layout.S_FETCH_PAGE, layout.S_DATA_PAGE]] = -1


def _most_lines(config: MachineConfig) -> int:
    """How many of the most recently accessed lines the L1D cache and the DTLB need."""
    lines = WARM_UP_FACTOR * (config.l1d.size_bytes // config.l1d.line_bytes)
    pages = config.dtlb.entries if config.dtlb is not None else 0
    return max(lines, WARM_UP_FACTOR * pages, pages * config.memory.page_bytes // config.l1d.line_bytes)


def _fetched_from_l2(longs: NDArray[np.int64], code: Touched) -> Touched:
    """The lines of ``code`` that the L2 cache was asked for of late: those that do not fit into their set of the L1I
    cache together.

    The others have been in the L1I cache since their first fetch, so they grow old in the L2 cache, however young their
    last fetch is. The L2 cache's own contents tell whether it still holds them.
    """
    ways, mask = int(longs[layout.L1I + layout.M_WAYS]), int(longs[layout.L1I + layout.M_SET_MASK])
    sets = code.addresses >> np.uint32(longs[layout.P_L1I_SHIFT]) & np.uint32(mask)
    is_seen = np.bincount(sets, minlength=mask + 1)[sets] > ways
    return Touched(code.addresses[is_seen], code.ages[is_seen], code.written[is_seen])


def physical_addresses(
    longs: NDArray[np.int64], words: NDArray[np.uint32], addresses: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The physical addresses of the virtual ``addresses``."""
    shift = int(longs[layout.P_PAGE_SHIFT])
    frames = words[int(longs[layout.P_FRAMES]) + (addresses >> shift)].astype(np.int64)
    return frames << shift | addresses & ((1 << shift) - 1)


@dataclass(frozen=True)
class _History:
    """Last accesses, youngest first: ``addresses``, ``ages`` (ascending) and ages of the last writes, ``written``
    (infinite without one), (n,) each; ``since``: the age of the core's last simulated instruction. ``filling``: where
    ages are in fills, the lines that the cache holds and its fills from the start, else both are 0."""

    addresses: NDArray[np.int64]
    ages: NDArray[np.float64]
    written: NDArray[np.float64]
    since: float
    filling: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def of(cls, parts: list[Touched], order: NDArray[np.int64], since: int) -> _History:
        """The lines of ``parts``, one after the other, those in ``order``, (n,), youngest first."""
        addresses, ages, written = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("addresses", "ages", "written")
        )
        n = len(order)
        made = np.empty(n, np.int64), np.empty(n), np.empty(n)
        gather_history(order, addresses, ages, written, *made)
        return cls(*made, float(since))

    def in_fills(self, fills: Fills | None, level: str) -> _History:
        """The same with ages in fills instead of instructions; beyond ``fills.ago`` at the mean rate. Keeps the order
        of equal ages."""
        if fills is None:
            return self
        ago, since, size = fills.ago, getattr(fills, level), getattr(fills, f"{level}_lines")
        ages = np.concatenate([self.ages, self.written, [self.since]])
        to_fills(ago, np.ascontiguousarray(since), float((since[-1] + 1) / (ago[-1] + 1)), ages)
        n = len(self.ages)
        return _History(self.addresses, ages[:n], ages[n : 2 * n], float(ages[-1]), (size, float(since[-1])))

    def of_lines(self, shift: int, lines: NDArray[np.int64]) -> _History:
        """The accesses to ``lines``, of ``1 << shift`` bytes."""
        kept = np.isin(self.addresses >> shift, lines)
        return replace(self, addresses=self.addresses[kept], ages=self.ages[kept], written=self.written[kept])

    def without_writes(self) -> _History:
        """The same without any write."""
        return replace(self, written=np.full(len(self.ages), np.inf))


def _warm_one(
    longs: NDArray[np.int64], words: NDArray[np.uint32], cache: int, lines: NDArray[np.int64], touched: _History
) -> None:  # fmt: skip
    """Set one cache or TLB to the state after the accesses ``touched`` to ``lines``."""
    first = first_of_each(lines)  # several entries may lie in one line of this cache
    ages, written = touched.ages, touched.written
    if len(first) < len(lines):
        lines, ages, written = lines[first], ages[first], written[first]
    ways, sets = int(longs[cache + layout.M_WAYS]), int(longs[cache + layout.M_SET_MASK]) + 1
    n = len(lines) + ways
    scratch = Scratch(
        np.zeros(sets + 1, np.int64), np.zeros(len(lines), np.int64), np.zeros(n, np.int64), np.zeros((3, n)),
        np.zeros(ways, np.int64), np.zeros(ways, np.int64), np.zeros(1),
    )  # fmt: skip
    accesses = LastAccesses(lines, ages, written)
    warm_cache(longs, words, cache, accesses, touched.since, touched.filling, scratch)
