"""Tables by guest address: large, and empty but for where the guest has code."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np

GUEST_SPACE = 1 << 31
_MAP_NORESERVE = 0x4000
# Blocks from which on large pages are worth their memory: 4 KiB of one is 100 blocks, and a fault takes a microsecond.
MUCH_CODE = 4000


def use_large_pages(area: mmap.mmap) -> None:
    """Let the host give large pages where nothing has been touched yet, if it has any."""
    with contextlib.suppress(OSError):
        area.madvise(mmap.MADV_HUGEPAGE)


class Table:
    """A large sparse table of zeros: only the pages that are touched take memory."""

    def __init__(self, size_bytes: int) -> None:
        self._map = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        self._view = np.frombuffer(self._map, np.uint8)
        self.address = self._view.ctypes.data

    def view(self, dtype: str) -> np.ndarray:
        return self._view.view(dtype)

    def expect(self, n_blocks: int) -> None:
        """Something about so many blocks is about to be written."""
        if n_blocks >= MUCH_CODE:
            use_large_pages(self._map)
