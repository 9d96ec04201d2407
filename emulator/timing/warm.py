"""Warm-up of a core whose guest ran without it: what its caches hold, from the last access to each line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emulator.lines_kernel import NEVER
from emulator.timing import layout as lay
from emulator.timing.config import MachineConfig
from emulator.timing.warm_kernel import warm_cache

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


def warm_data(
    config: MachineConfig, longs: NDArray[np.int64], words: NDArray[np.uint32], addresses: NDArray[np.uint32],
    ages: NDArray[np.uint32], written: NDArray[np.uint32], since: int, fills: Fills | None,
) -> None:  # fmt: skip
    """`InOrderCore.warm_data`, on the core's arrays."""
    youngest_first = np.argsort(ages, kind="stable")
    at = addresses[youngest_first].astype(np.int64)
    touched = _Touched(
        ages[youngest_first].astype(np.float64),
        np.where(written == NEVER, np.inf, written.astype(np.float64))[youngest_first],
        float(since),
    )
    l1d, l2 = (touched, touched) if fills is None else (touched.by(fills.ago, fills.l1d), touched.by(fills.ago, fills.l2))
    dirty_l1d = l1d if config.l1d.write_policy == "write_back" else l1d.clean()
    _warm(longs, words, lay.L1D, at >> longs[lay.P_L1D_SHIFT], dirty_l1d, _FILLED_BY_LAST_L1)
    if config.dtlb is not None:
        _warm(longs, words, lay.DTLB, at >> longs[lay.P_PAGE_SHIFT], touched.clean(), _FILLED_BY_LAST_L1)
    if config.l2 is not None:
        _warm(longs, words, lay.L2, physical(longs, words, at) >> longs[lay.P_L2_SHIFT], l2, _FILLED_BY_LAST_L2)
    longs[lay.S_DATA_PAGE] = -1


def physical(
    longs: NDArray[np.int64], words: NDArray[np.uint32], addresses: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Where the virtual ``addresses`` are in physical memory."""
    shift = int(longs[lay.P_PAGE_SHIFT])
    frames = words[int(longs[lay.P_FRAMES]) + (addresses >> shift)].astype(np.int64)
    return frames << shift | addresses & ((1 << shift) - 1)


@dataclass(frozen=True)
class _Touched:
    """Ages of the last accesses, ascending, and of the last writes, (n,), and of what the core has seen last."""

    ages: NDArray[np.float64]
    written: NDArray[np.float64]
    since: float

    def by(self, ago: NDArray[np.float64], fills: NDArray[np.float64]) -> _Touched:
        """In fills instead of instructions; the oldest go on at the mean rate. Of equal ones the order is kept."""
        scale = (fills[-1] + 1) / (ago[-1] + 1)

        def convert(ages: NDArray[np.float64]) -> NDArray[np.float64]:
            inside = np.minimum(ages, ago[-1])
            return np.interp(inside, ago, fills) + scale * (ages - inside) + 1e-6 * scale * inside

        ages = np.concatenate([self.ages, self.written, [self.since]])
        finite = np.isfinite(ages)
        ages[finite] = convert(ages[finite])
        n = len(self.ages)
        return _Touched(ages[:n], ages[n : 2 * n], float(ages[-1]))

    def clean(self) -> _Touched:
        """As if nothing had been written."""
        return _Touched(self.ages, np.full(len(self.ages), np.inf), self.since)


def _warm(
    longs: NDArray[np.int64], words: NDArray[np.uint32], cache: int, lines: NDArray[np.int64], touched: _Touched,
    filled_by_last: float,
) -> None:  # fmt: skip
    """Let one cache or TLB hold what it would had ``lines`` been touched so."""
    _, first = np.unique(lines, return_index=True)  # several of them may be one line of this cache
    ages, written = touched.ages, touched.written
    if len(first) < len(lines):
        first.sort()
        lines, ages, written = lines[first], ages[first], written[first]
    ways, sets = int(longs[cache + lay.M_WAYS]), int(longs[cache + lay.M_SET_MASK]) + 1
    n = len(lines) + ways
    warm_cache(
        longs, words, cache, lines, ages, written, touched.since, filled_by_last, np.zeros(sets + 1, np.int64),
        np.zeros(len(lines), np.int64), np.zeros(n, np.int64), np.zeros((3, n)), np.zeros(ways, np.int64),
        np.zeros(ways, np.int64),
    )  # fmt: skip
