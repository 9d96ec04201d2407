"""Large sparse tables indexed by guest address, which take memory only where the guest has code."""

from __future__ import annotations

import mmap

import numpy as np

GUEST_SPACE = 1 << 31
_MAP_NORESERVE = 0x4000


class Table:
    """A large sparse table of zeros: only the pages that are touched take memory.

    ``bytes``, ``ints``, ``longs``: memory views of 8-, 32- and 64-bit unsigned words, which read and write single words
    several times as fast as numpy.
    """

    def __init__(self, size_bytes: int) -> None:
        self._map = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        self._view = np.frombuffer(self._map, np.uint8)
        self.bytes = memoryview(self._map)
        whole = self.bytes[: size_bytes & -8]
        self.ints, self.longs = whole.cast("I"), whole.cast("Q")
        self.address = self._view.ctypes.data

    def view(self, dtype: str) -> np.ndarray:
        return self._view.view(dtype)

    def find(self, byte: bytes, first: int, end: int) -> int:
        """The first place of ``byte`` in the range from ``first`` to before ``end``; -1 where the range has none."""
        return self._map.find(byte, first, end)

    def clear(self, first: int = 0) -> None:
        """Set the table to zeros from byte ``first`` on, which begins a page, and give its memory back; views stay
        valid."""
        self._map.madvise(mmap.MADV_DONTNEED, first)
