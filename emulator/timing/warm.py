"""Warm-up of a core whose guest ran without it: what its caches hold, from the last access to each line."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from emulator.events import NEVER
from emulator.timing import layout as lay
from emulator.timing.config import MachineConfig
from emulator.timing.order_kernel import first_of_each, youngest_first
from emulator.timing.warm_kernel import to_fills, warm_cache

# FIFO: the share of lines that were brought in by their last access, found on the shipped workloads. A cache below sees
# only what misses above it, and hardly any line twice.
_FILLED_BY_LAST_L1, _FILLED_BY_LAST_L2 = 0.75, 1.0


@dataclass(frozen=True)
class Fills:
    """How many lines were brought into a cache of each size since when: ``ago``: (n,) instructions, ascending from 0;
    ``l1d``, ``l2``: (n,), in any unit. Replacement at random depends on it."""

    ago: NDArray[np.float64]
    l1d: NDArray[np.float64]
    l2: NDArray[np.float64]


@dataclass(frozen=True)
class Touched:
    """Lines of memory, (n,) each: ``addresses``, instructions since they were accessed last, and since they were
    written last, `emulator.events.NEVER` for not at all. In any order."""

    addresses: NDArray[np.uint32]
    ages: NDArray[np.uint32]
    written: NDArray[np.uint32]


def warm_caches(
    config: MachineConfig, longs: NDArray[np.int64], words: NDArray[np.uint32], data: Touched, code: Touched,
    since: int, fills: Fills | None,
) -> None:  # fmt: skip
    """`InOrderCore.warm_caches`, on the core's arrays."""
    line = lay.P_L1D_SHIFT, lay.P_L1I_SHIFT, lay.P_PAGE_SHIFT, lay.P_L2_SHIFT
    l1d_shift, l1i_shift, page_shift, l2_shift = (int(longs[place]) for place in line)
    l1d = _History.of([data], since)
    if config.l1d.write_policy != "write_back":
        l1d = l1d.clean()
    _warm(longs, words, lay.L1D, l1d.addresses >> l1d_shift, l1d.by(fills, "l1d"), _FILLED_BY_LAST_L1)
    if config.dtlb is not None:
        _warm(longs, words, lay.DTLB, l1d.addresses >> page_shift, l1d.clean(), _FILLED_BY_LAST_L1)
    if len(code.addresses):
        l1i = _History.of([code], since).clean()
        _warm(longs, words, lay.L1I, l1i.addresses >> l1i_shift, l1i, _FILLED_BY_LAST_L1)
        if config.itlb is not None:
            _warm(longs, words, lay.ITLB, l1i.addresses >> page_shift, l1i, _FILLED_BY_LAST_L1)
    if config.l2 is not None:
        both = _History.of([data, code], since)
        lines = physical(longs, words, both.addresses) >> l2_shift
        _warm(longs, words, lay.L2, lines, both.by(fills, "l2"), _FILLED_BY_LAST_L2)
    longs[[lay.S_FETCH_LINE, lay.S_FETCH_PAGE, lay.S_DATA_PAGE]] = -1


def physical(
    longs: NDArray[np.int64], words: NDArray[np.uint32], addresses: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where the virtual ``addresses`` are in physical memory."""
    shift = int(longs[lay.P_PAGE_SHIFT])
    frames = words[int(longs[lay.P_FRAMES]) + (addresses >> shift)].astype(np.int64)
    return frames << shift | addresses & ((1 << shift) - 1)


@dataclass(frozen=True)
class _History:
    """``addresses``, their ages, ascending, and ages of their last writes, (n,); and of the last that the core has
    seen."""

    addresses: NDArray[np.int64]
    ages: NDArray[np.float64]
    written: NDArray[np.float64]
    since: float

    @classmethod
    def of(cls, parts: list[Touched], since: int) -> _History:
        addresses, ages, written = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("addresses", "ages", "written")
        )
        order = youngest_first(ages)
        written = written[order]
        return cls(
            addresses[order].astype(np.int64),
            ages[order].astype(np.float64),
            np.where(written == NEVER, np.inf, written.astype(np.float64)),
            float(since),
        )

    def by(self, fills: Fills | None, level: str) -> _History:
        """In fills instead of instructions; the oldest go on at the mean rate. Of equal ones the order is kept."""
        if fills is None:
            return self
        ago, since = fills.ago, getattr(fills, level)
        ages = np.concatenate([self.ages, self.written, [self.since]])
        to_fills(ago, np.ascontiguousarray(since), float((since[-1] + 1) / (ago[-1] + 1)), ages)
        n = len(self.ages)
        return _History(self.addresses, ages[:n], ages[n : 2 * n], float(ages[-1]))

    def clean(self) -> _History:
        """As if nothing had been written."""
        return replace(self, written=np.full(len(self.ages), np.inf))


def _warm(
    longs: NDArray[np.int64], words: NDArray[np.uint32], cache: int, lines: NDArray[np.int64], touched: _History,
    filled_by_last: float,
) -> None:  # fmt: skip
    """Let one cache or TLB hold what it would had ``lines`` been touched so."""
    first = first_of_each(lines)  # several of them may be one line of this cache
    ages, written = touched.ages, touched.written
    if len(first) < len(lines):
        lines, ages, written = lines[first], ages[first], written[first]
    ways, sets = int(longs[cache + lay.M_WAYS]), int(longs[cache + lay.M_SET_MASK]) + 1
    n = len(lines) + ways
    warm_cache(
        longs, words, cache, lines, ages, written, touched.since, filled_by_last, np.zeros(sets + 1, np.int64),
        np.zeros(len(lines), np.int64), np.zeros(n, np.int64), np.zeros((3, n)), np.zeros(ways, np.int64),
        np.zeros(ways, np.int64),
    )  # fmt: skip
