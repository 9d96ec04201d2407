"""Cache simulation: a sweep over many data caches in one pass, and a two-level hierarchy.

LRU, write-allocate; an access counts for the line of its first byte. Timing is left to `emulator.timing`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from emulator.analyzers.analyzer import Analyzer
from emulator.analyzers.batch import Batch
from emulator.analyzers.cache_kernel import hierarchy, sweep
from emulator.errors import EmulatorError

_UNITS = {"K": 1 << 10, "M": 1 << 20}


@dataclass(frozen=True)
class Geometry:
    """``size_bytes`` in sets of ``ways`` lines of ``line_bytes``; written SIZE:WAYS:LINE, such as 32K:8:64."""

    size_bytes: int
    ways: int
    line_bytes: int

    @classmethod
    def parse(cls, text: str) -> Geometry:
        """Parse SIZE:WAYS:LINE. Raises `EmulatorError` for text that is not a valid geometry."""
        try:
            size, ways, line = text.split(":")
            factor = _UNITS.get(size[-1:], 1)
            found = cls(int(size.rstrip("KM")) * factor, int(ways), int(line))
            sets = found.size_bytes / (found.ways * found.line_bytes)
            good = found.line_bytes.bit_count() == 1 and sets == int(sets) and int(sets).bit_count() == 1
        except (ValueError, ZeroDivisionError):
            good = False
        if not good:
            raise EmulatorError(
                f"cache {text!r}: expected SIZE:WAYS:LINE, such as 32K:8:64, with powers of two sets and bytes a line"
            )
        return found

    def __str__(self) -> str:
        return f"{self.size_bytes / 1024:g}K:{self.ways}:{self.line_bytes}"


def tables(caches: list[Geometry]) -> tuple[Any, Any]:
    """Geometry rows (n, 4), and one array of tags for all caches: line + 1, or 0 for an empty way."""
    rows, first = [], 0
    for one in caches:
        sets = one.size_bytes // (one.ways * one.line_bytes)
        rows.append((first, one.ways, sets - 1, one.line_bytes.bit_length() - 1))
        first += sets * one.ways
    return np.array(rows, np.int64), np.zeros(first, np.uint32)


class CacheSweep(Analyzer):
    """Misses of many independent data caches. ``caches``: SIZE:WAYS:LINE separated by commas."""

    selection = "class=memory fields=address"

    def __init__(self, caches: str = "8K:4:64,16K:4:64,32K:8:64,64K:8:64,256K:8:64,1M:16:64") -> None:
        self.caches = [Geometry.parse(text) for text in caches.split(",")]
        self._state = tables(self.caches)
        self.accesses = 0
        self.misses = np.zeros(len(self.caches), np.int64)

    def consume(self, batch: Batch) -> None:
        self.accesses += len(batch)
        sweep(*self._state, self.misses, batch.address)

    def report(self) -> str:
        lines = [f"{self.accesses:>16,}  accesses"]
        for cache, misses in zip(self.caches, self.misses, strict=True):
            lines.append(f"{misses:>16,}  {100 * misses / max(1, self.accesses):6.2f}%  misses of {cache}")
        return "\n".join(lines)


class CacheHierarchy(Analyzer):
    """L1 instruction and data caches over a shared L2, each SIZE:WAYS:LINE."""

    selection = "class=all fields=pc,address"

    def __init__(self, l1i: str = "32K:8:64", l1d: str = "32K:8:64", l2: str = "1M:16:64") -> None:
        self.caches = [Geometry.parse(text) for text in (l1i, l1d, l2)]
        self._state = tables(self.caches)
        self.counts = np.zeros((3, 2), np.int64)
        self._last = np.full(1, -1, np.int64)

    def consume(self, batch: Batch) -> None:
        hierarchy(*self._state, self.counts, self._last, batch.pc, batch.address)

    def report(self) -> str:
        lines = [f"{'accesses':>16}  {'misses':>14}"]
        for name, cache, (all_, missed) in zip(("L1I", "L1D", "L2"), self.caches, self.counts, strict=True):
            lines.append(f"{all_:>16,}  {missed:>14,}  {100 * missed / max(1, all_):6.2f}%  {name} {cache}")
        return "\n".join(lines)
