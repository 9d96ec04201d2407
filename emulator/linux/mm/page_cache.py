"""Page cache of the files with shared mappings: mappings, reads and writes of such a file use the same pages.

Pages are kept in host memory that all mappings share. They are written back to the file when the last mapping is
removed, at msync, and when the guest ends. Pages past the end of the file read as zeros instead of raising SIGBUS.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Hashable
from typing import Protocol

from emulator.memory import PAGE_BYTES, SharedArea

LIMIT_BYTES = 1 << 30
"""Limit of the pages kept of all files with shared mappings, including pages that are not mapped any more."""


class Store(Protocol):
    """Access to the bytes of a regular file below the page cache."""

    def read(self, n_bytes: int, offset: int) -> bytes: ...

    def write(self, data: bytes, offset: int) -> int: ...

    def size_bytes(self) -> int: ...

    def close(self) -> None: ...


class Shared(Protocol):
    """An object with shared mappings: `join` and `leave` count them."""

    def join(self) -> None: ...

    def leave(self) -> None: ...

    def write_back(self) -> None: ...


class FilePages:
    """The cached pages of one file of ``files``. ``open_store`` opens the file's bytes for as long as the pages are
    in use."""

    prevents_snapshot = "the host's files or streams open"

    def __init__(self, open_store: Callable[[], Store], files: PageCache) -> None:
        self._files = files
        self.area = SharedArea(0)
        self.users = 0
        """Number of mappings in all processes."""
        self._is_writable = False  # whether a mapping is writable
        self._store = open_store()
        self._length = 0
        self._loaded: set[int] = set()

    def join(self) -> None:
        """Add one mapping."""
        self.users += 1

    def leave(self) -> None:
        """Remove one mapping."""
        self._files.leave(self)

    def make_writable(self, open_store: Callable[[], Store]) -> None:
        """Allow writes to a mapping; ``open_store`` opens the file's bytes for writing."""
        if not self._is_writable:
            self._is_writable = True
            self._store.close()
            self._store = open_store()

    @property
    def loaded_bytes(self) -> int:
        return len(self._loaded) * PAGE_BYTES

    def load(self, offset: int, n_bytes: int) -> None:
        """Read the pages of ``[offset, offset + n_bytes)`` from the file unless they are loaded."""
        if offset + n_bytes > self._length:
            self._length = offset + n_bytes
            os.ftruncate(self.area.descriptor, self._length)
        pages = range(offset // PAGE_BYTES, (offset + n_bytes) // PAGE_BYTES)
        for first, last in _runs([page for page in pages if page not in self._loaded]):
            data = self._store.read((last - first) * PAGE_BYTES, first * PAGE_BYTES)
            os.pwrite(self.area.descriptor, data, first * PAGE_BYTES)
        self._loaded.update(pages)

    def with_loaded_pages(self, data: bytes, offset: int) -> bytes:
        """``data``, read from the file at ``offset``, with the bytes of loaded pages replaced."""
        found = bytearray(data)
        for start, end in self._parts(offset, len(data)):
            found[start - offset : end - offset] = os.pread(self.area.descriptor, end - start, start)
        return bytes(found)

    def update(self, data: bytes, offset: int) -> None:
        """Copy ``data``, written to the file at ``offset``, to the loaded pages."""
        for start, end in self._parts(offset, len(data)):
            os.pwrite(self.area.descriptor, data[start - offset : end - offset], start)

    def truncate(self, size_bytes: int) -> None:
        """Clear the pages beyond ``size_bytes`` after the file was truncated."""
        if size_bytes < self._length:
            os.ftruncate(self.area.descriptor, size_bytes)
            os.ftruncate(self.area.descriptor, self._length)

    def write_back(self) -> None:
        """Write changed pages back to the file."""
        if not self._is_writable:
            return
        size = self._store.size_bytes()
        for first, last in _runs(sorted(self._loaded)):
            start, end = first * PAGE_BYTES, min(last * PAGE_BYTES, size)
            if start < end:
                data = os.pread(self.area.descriptor, end - start, start)
                if data != self._store.read(end - start, start):
                    self._store.write(data, start)

    def close(self) -> None:
        self.write_back()
        self._store.close()

    def _parts(self, offset: int, n_bytes: int) -> list[tuple[int, int]]:
        """The parts ``(start, end)`` of ``[offset, offset + n_bytes)`` that lie in loaded pages."""
        end = offset + n_bytes
        pages = range(offset // PAGE_BYTES, -(-end // PAGE_BYTES))
        runs = _runs([page for page in pages if page in self._loaded])
        return [(max(offset, a * PAGE_BYTES), min(end, b * PAGE_BYTES)) for a, b in runs]


class PageCache:
    """The cached pages of all files with shared mappings, by the key of the file."""

    def __init__(self) -> None:
        self._pages: dict[Hashable, FilePages] = {}

    def pages(self, key: Hashable) -> FilePages | None:
        return self._pages.get(key)

    def load(self, pages: FilePages, offset: int, n_bytes: int) -> None:
        """Load the pages of ``[offset, offset + n_bytes)``. Raises OSError(ENOMEM) beyond LIMIT_BYTES."""
        kept = sum(other.loaded_bytes for other in self._pages.values())
        if kept + n_bytes > LIMIT_BYTES:
            raise OSError(errno.ENOMEM, "pages of files mapped shared")
        pages.load(offset, n_bytes)

    def use(self, key: Hashable, open_store: Callable[[], Store], writable: bool) -> FilePages:
        """The pages of a file for one more mapping; ``writable``: whether it is writable. Raises OSError."""
        pages = self._pages.get(key)
        if pages is None:
            pages = self._pages[key] = FilePages(open_store, self)
        if writable:
            pages.make_writable(open_store)
        pages.join()
        return pages

    def leave(self, pages: FilePages) -> None:
        """Remove one mapping; the pages of the last one are written back and freed."""
        pages.users -= 1
        if not pages.users:
            self._pages = {key: other for key, other in self._pages.items() if other is not pages}
            pages.close()

    def write_back(self) -> None:
        """Write the changed pages of all files back."""
        for pages in self._pages.values():
            pages.write_back()


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """First and last + 1 of each run of consecutive ascending numbers."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = runs[-1][0], number + 1
        else:
            runs.append((number, number + 1))
    return runs
