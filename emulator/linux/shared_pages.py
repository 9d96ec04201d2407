"""Files that are mapped shared: their pages, which processes map and which reads and writes of the file go to, too.

Pages are kept in memory of the host that every mapping shares, and go back to the file when the last mapping is gone,
at msync, and when the guest ends. Past the end of the file they read as zeros instead of raising SIGBUS.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Hashable
from typing import Protocol

from emulator.memory import PAGE_BYTES, SharedArea

LIMIT_BYTES = 1 << 30
"""Pages kept of all files that are mapped shared; part of them may be mapped no more."""


class Store(Protocol):
    """Where the bytes of a regular file are."""

    def read(self, n_bytes: int, offset: int) -> bytes: ...

    def write(self, data: bytes, offset: int) -> int: ...

    def size_bytes(self) -> int: ...

    def close(self) -> None: ...


class Shared(Protocol):
    """What is mapped shared, as its mappings come, go, and are written back."""

    def join(self) -> None: ...

    def leave(self) -> None: ...

    def write_back(self) -> None: ...


class FilePages:
    """The pages of one file, one of ``files``. ``open_store`` gives the file's bytes for as long as the pages are in
    use."""

    def __init__(self, open_store: Callable[[], Store], files: SharedFiles) -> None:
        self._files = files
        self.area = SharedArea(0)
        self.users = 0
        """Mappings, of all processes."""
        self._can_change = False  # whether somebody may write to a mapping
        self._store = open_store()
        self._length = 0
        self._loaded: set[int] = set()

    def join(self) -> None:
        """One mapping more."""
        self.users += 1

    def leave(self) -> None:
        """A mapping is gone."""
        self._files.leave(self)

    def let_change(self, open_store: Callable[[], Store]) -> None:
        """Somebody may write to a mapping; ``open_store`` gives the file's bytes for writing."""
        if not self._can_change:
            self._can_change = True
            self._store.close()
            self._store = open_store()

    @property
    def loaded_bytes(self) -> int:
        return len(self._loaded) * PAGE_BYTES

    def load(self, offset: int, n_bytes: int) -> None:
        """Make the pages of that part of the file, whole ones, what the file has."""
        if offset + n_bytes > self._length:
            self._length = offset + n_bytes
            os.ftruncate(self.area.descriptor, self._length)
        wanted = range(offset // PAGE_BYTES, (offset + n_bytes) // PAGE_BYTES)
        for first, last in _runs([page for page in wanted if page not in self._loaded]):
            data = self._store.read((last - first) * PAGE_BYTES, first * PAGE_BYTES)
            os.pwrite(self.area.descriptor, data, first * PAGE_BYTES)
        self._loaded.update(wanted)

    def patched(self, data: bytes, offset: int) -> bytes:
        """``data`` of the file at ``offset`` with what the guest has stored meanwhile."""
        found = bytearray(data)
        for start, end in self._parts(offset, len(data)):
            found[start - offset : end - offset] = os.pread(self.area.descriptor, end - start, start)
        return bytes(found)

    def note(self, data: bytes, offset: int) -> None:
        """``data`` was written to the file at ``offset``."""
        for start, end in self._parts(offset, len(data)):
            os.pwrite(self.area.descriptor, data[start - offset : end - offset], start)

    def cut(self, size_bytes: int) -> None:
        """The file ends there now."""
        if size_bytes < self._length:
            os.ftruncate(self.area.descriptor, size_bytes)
            os.ftruncate(self.area.descriptor, self._length)

    def write_back(self) -> None:
        """Give the file what the guest has stored."""
        if not self._can_change:
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
        """The stretches of ``[offset, offset + n_bytes)`` that lie in loaded pages."""
        end = offset + n_bytes
        pages = range(offset // PAGE_BYTES, -(-end // PAGE_BYTES))
        runs = _runs([page for page in pages if page in self._loaded])
        return [(max(offset, a * PAGE_BYTES), min(end, b * PAGE_BYTES)) for a, b in runs]


class SharedFiles:
    """All files that are mapped shared, by what identifies them."""

    def __init__(self) -> None:
        self._pages: dict[Hashable, FilePages] = {}

    def pages(self, key: Hashable) -> FilePages | None:
        return self._pages.get(key)

    def load(self, pages: FilePages, offset: int, n_bytes: int) -> None:
        """Make a part of a file, whole pages of it, what the file has. Raises OSError(ENOMEM)."""
        kept = sum(other.loaded_bytes for other in self._pages.values())
        if kept + n_bytes > LIMIT_BYTES:
            raise OSError(errno.ENOMEM, "pages of files mapped shared")
        pages.load(offset, n_bytes)

    def use(self, key: Hashable, open_store: Callable[[], Store], can_change: bool) -> FilePages:
        """The pages of a file for one more mapping, which may be written to or not. Raises OSError."""
        pages = self._pages.get(key)
        if pages is None:
            pages = self._pages[key] = FilePages(open_store, self)
        if can_change:
            pages.let_change(open_store)
        pages.join()
        return pages

    def leave(self, pages: FilePages) -> None:
        """A mapping is gone."""
        pages.users -= 1
        if not pages.users:
            self._pages = {key: other for key, other in self._pages.items() if other is not pages}
            pages.close()

    def write_back(self) -> None:
        """Give all files what the guest has stored in their pages."""
        for pages in self._pages.values():
            pages.write_back()


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """First and last + 1 of each stretch of consecutive ascending numbers."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = runs[-1][0], number + 1
        else:
            runs.append((number, number + 1))
    return runs
