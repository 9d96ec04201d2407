"""The counters of regions that count on branches: what each stands for, and adding them up to executions of blocks.

`emulator.engine.emit.counter_placement` says where a region counts and what its counters stand for: some executions of
some of its blocks. Regions of equal blocks share their counters, so that a guest that starts the same program again and
again needs no more of them.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.engine.address_tables import Table
from emulator.errors import EmulatorError

MAX_COUNTERS = 1 << 21
_MAX_TERMS = 1 << 25
_HEADER = struct.Struct("<I")


class Sums(NamedTuple):
    """What the counters of a region stand for. ``n_terms``: (n_counters,) terms of each; ``terms``: all terms, one
    after the other: the place of a block in the region, or its complement (``~place``) for one execution less."""

    n_terms: NDArray[np.uint16]
    terms: NDArray[np.int16]

    def packed(self) -> bytes:
        """The sums as the bytes of a file; `unpacked_sums` reads them."""
        return _HEADER.pack(len(self.n_terms)) + self.n_terms.tobytes() + self.terms.tobytes()


NO_SUMS = Sums(np.zeros(0, np.uint16), np.zeros(0, np.int16))


def unpacked_sums(raw: bytes) -> Sums:
    """The sums that `Sums.packed` has written."""
    (n,) = _HEADER.unpack_from(raw)
    at = _HEADER.size + 2 * n
    return Sums(np.frombuffer(raw, np.uint16, n, _HEADER.size), np.frombuffer(raw, np.int16, -1, at))


def sums_of(sums: Iterable[Iterable[tuple[int, int]]], pcs: Sequence[int]) -> Sums:
    """The sums of a region with blocks at ``pcs``. ``sums``: for each counter, blocks and how often each counts."""
    places = {pc: place for place, pc in enumerate(pcs)}
    lists = [
        [place if times > 0 else ~place for pc, times in one for place in (places[pc],) * abs(times)] for one in sums
    ]
    return Sums(
        np.array([len(one) for one in lists], np.uint16),
        np.array([term for one in lists for term in one], np.int16),
    )


class BranchCounters:
    """The counters of a hart.

    ``values``: (MAX_COUNTERS,) int64, in the hart's state, where translations increment them. For kernels: ``n``: (1,)
    number of counters, live; ``starts``: (MAX_COUNTERS + 1,) uint32, the first term of each; ``terms``: int32, numbers
    of blocks, or their complements for one execution less. Threads that compile add counters while the guest runs:
    ``n`` is written last.
    """

    def __init__(self, values: NDArray[np.int64]) -> None:
        self.values = values
        tables = Table(4 * (MAX_COUNTERS + 1)), Table(4 * _MAX_TERMS)
        self.starts: NDArray[np.uint32] = tables[0].view("u4")
        self.terms: NDArray[np.int32] = tables[1].view("i4")
        self.n = np.zeros(1, np.int64)
        self._first: dict[bytes, int] = {}  # by what they stand for
        self._lock = threading.Lock()

    def add(self, sums: Sums, numbers: NDArray[np.int32]) -> int:
        """Counters that stand for ``sums``; the number of the first. ``numbers``: of the region's blocks, by place.

        Raises `EmulatorError` when there are too many.
        """
        terms = np.where(sums.terms >= 0, numbers[sums.terms], ~numbers[~sums.terms]).astype(np.int32)
        key = sums.n_terms.tobytes() + terms.tobytes()
        with self._lock:
            known = self._first.get(key)
            if known is not None:
                return known
            first, n_new = int(self.n[0]), len(sums.n_terms)
            start = int(self.starts[first])
            if first + n_new > MAX_COUNTERS or start + len(terms) > _MAX_TERMS:
                raise EmulatorError(
                    f"got more than {MAX_COUNTERS:,} counters of branches in all programs that the guest has executed, "
                    "the most that the translator has; count fewer programs in one run"
                )
            self.terms[start : start + len(terms)] = terms
            self.starts[first + 1 : first + n_new + 1] = start + np.cumsum(sums.n_terms, dtype=np.uint32)
            self._first[key] = first
            self.n[0] = first + n_new
            return first

    def add_up(self, counts: NDArray[np.int64]) -> None:
        """Add what the counters stand for to ``counts``, executions by number of the block, and set them to 0."""
        n = int(self.n[0])
        counted = np.flatnonzero(self.values[:n])
        if not len(counted):
            return
        starts = self.starts[: n + 1].astype(np.int64)
        n_terms = starts[counted + 1] - starts[counted]
        ends = np.cumsum(n_terms)
        places = np.arange(ends[-1]) + np.repeat(starts[counted] - (ends - n_terms), n_terms)
        terms = self.terms[places]
        times = np.repeat(self.values[counted], n_terms)
        np.add.at(counts, np.where(terms >= 0, terms, ~terms), np.where(terms >= 0, times, -times))
        self.values[counted] = 0
