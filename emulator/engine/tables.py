"""Tables by guest address: large, and empty but for where the guest has code."""

from __future__ import annotations

import mmap

import numpy as np

GUEST_SPACE = 1 << 31
_MAP_NORESERVE = 0x4000


class Table:
    """A large sparse table of zeros: only the pages that are touched take memory.

    ``longs``: the table as unsigned words of 64 bits, for single ones, which numpy takes ten times as long to give.
    """

    def __init__(self, size_bytes: int) -> None:
        self._map = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        self._view = np.frombuffer(self._map, np.uint8)
        self.longs = memoryview(self._map)[: size_bytes & -8].cast("Q")
        self.address = self._view.ctypes.data

    def view(self, dtype: str) -> np.ndarray:
        return self._view.view(dtype)

    def clear(self) -> None:
        """Zeros everywhere; takes no memory, whoever still holds a view."""
        self._map.madvise(mmap.MADV_DONTNEED)
