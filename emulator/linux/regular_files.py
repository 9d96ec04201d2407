"""Regular files: kept in this process, or files of the host. All errors are `OSError` with a Linux error number."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from emulator.linux.open_files import FileStatus, MemoryBudget, OpenFile
from emulator.linux.shared_pages import SharedFiles, Store


class _Positioned(OpenFile):
    """A file with a position; the kinds below only read and write at offsets."""

    _position = 0
    can_be_watched = False

    def read(self, n_bytes: int) -> bytes:
        data = self.read_at(n_bytes, self._position)
        self._position += len(data)
        return data

    def write(self, data: bytes) -> int:
        if self.flags & os.O_APPEND:
            self._position = self.status().size_bytes
        written = self.write_at(data, self._position)
        self._position += written
        return written

    def seek(self, offset: int, whence: int) -> int:
        if whence == os.SEEK_SET:
            position = offset
        elif whence == os.SEEK_CUR:
            position = self._position + offset
        elif whence == os.SEEK_END:
            position = self.status().size_bytes + offset
        elif whence in (os.SEEK_DATA, os.SEEK_HOLE):  # files have no holes, but one at their end
            size = self.status().size_bytes
            if not 0 <= offset < size:
                raise OSError(errno.ENXIO, "offset")
            position = offset if whence == os.SEEK_DATA else size
        else:
            raise OSError(errno.EINVAL, "whence")
        if not 0 <= position < 1 << 63:
            raise OSError(errno.EINVAL, "offset")
        self._position = position
        return position


class RegularFile(_Positioned):
    """A regular file. ``key`` identifies it among the ones in ``shared``; ``changed`` is called after each change."""

    def __init__(
        self,
        path: str,
        flags: int,
        status: Callable[[], FileStatus],
        key: Hashable,
        shared: SharedFiles,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(path, flags, status)
        self.key = key
        self._shared = shared
        self._changed = changed

    def open_store(self) -> Store:
        """The bytes of the file, for longer than this stays open. Raises OSError."""
        raise NotImplementedError

    def _read(self, n_bytes: int, offset: int) -> bytes:
        raise NotImplementedError

    def _write(self, data: bytes, offset: int) -> int:
        raise NotImplementedError

    def _cut(self, size_bytes: int) -> None:
        raise NotImplementedError

    def read_at(self, n_bytes: int, offset: int) -> bytes:
        data, pages = self._read(n_bytes, offset), self._shared.pages(self.key)
        return data if pages is None else pages.patched(data, offset)

    def write_at(self, data: bytes, offset: int) -> int:
        written, pages = self._write(data, offset), self._shared.pages(self.key)
        if pages is not None:
            pages.note(data[:written], offset)
        self._changed()
        return written

    def truncate(self, size_bytes: int) -> None:
        pages = self._shared.pages(self.key)
        if pages is not None:
            pages.write_back()
        self._cut(size_bytes)
        if pages is not None:
            pages.cut(size_bytes)
        self._changed()

    def change_mode(self, mode: int) -> None:
        """Set the permissions."""
        raise NotImplementedError

    def waiting_bytes(self) -> int:
        return max(0, self.status().size_bytes - self._position)


@dataclass(eq=False)
class MemoryNode:
    """A file kept in this process, under any number of names. ``mode``: its permissions."""

    data: bytes | bytearray
    mode: int
    budget: MemoryBudget
    is_read_only: bool = False
    links: int = 1
    uses: int = 0
    """By open files and mappings: without these and without a name it is gone."""

    def read(self, n_bytes: int, offset: int) -> bytes:
        return bytes(self.data[offset : offset + n_bytes])

    def write(self, data: bytes, offset: int) -> int:
        if data and offset + len(data) > len(self.data):
            self.resize(offset + len(data))
        self._changeable()[offset : offset + len(data)] = data
        return len(data)

    def _changeable(self) -> bytearray:
        """The contents, which were somebody else's bytes until somebody changes them: programs are large."""
        if not isinstance(self.data, bytearray):
            self.data = bytearray(self.data)
        return self.data

    def resize(self, size_bytes: int) -> None:
        """Raises OSError(ENOSPC)."""
        growth = size_bytes - len(self.data)
        self.budget.take(growth)
        if growth < 0:
            del self._changeable()[size_bytes:]
        else:
            self._changeable().extend(bytes(growth))

    def size_bytes(self) -> int:
        return len(self.data)

    def close(self) -> None:
        """One use less."""
        self.uses -= 1
        self.release()

    def release(self) -> None:
        """Forget the contents if nobody can reach them any more."""
        if not self.uses and not self.links:
            self.resize(0)


class MemoryFile(RegularFile):
    """A file whose contents are kept in this process."""

    def __init__(
        self,
        path: str,
        flags: int,
        status: Callable[[], FileStatus],
        node: MemoryNode,
        shared: SharedFiles,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(path, flags, status, node, shared, changed)
        self._node = node
        node.uses += 1

    def open_store(self) -> Store:
        self._node.uses += 1
        return self._node

    def _read(self, n_bytes: int, offset: int) -> bytes:
        return self._node.read(n_bytes, offset)

    def _write(self, data: bytes, offset: int) -> int:
        return self._node.write(data, offset)

    def _cut(self, size_bytes: int) -> None:
        self._node.resize(size_bytes)

    def change_mode(self, mode: int) -> None:
        self._node.mode = mode & 0o777

    def close(self) -> None:
        self._node.close()


class _HostStore:
    """The bytes of a file of the host, through a descriptor of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)

    def read(self, n_bytes: int, offset: int) -> bytes:
        return os.pread(self._descriptor, n_bytes, offset)

    def write(self, data: bytes, offset: int) -> int:
        return os.pwrite(self._descriptor, data, offset)

    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)


class HostFile(RegularFile):
    """A regular file of the host, opened by `host_tree`; owns its descriptor."""

    def __init__(
        self,
        path: str,
        flags: int,
        status: Callable[[], FileStatus],
        descriptor: int,
        key: Hashable,
        shared: SharedFiles,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(path, flags, status, key, shared, changed)
        self._descriptor = descriptor

    def open_store(self) -> Store:
        return _HostStore(self._descriptor)

    def _read(self, n_bytes: int, offset: int) -> bytes:
        return os.pread(self._descriptor, n_bytes, offset)

    def _write(self, data: bytes, offset: int) -> int:
        return os.pwrite(self._descriptor, data, offset)

    def _cut(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)

    def change_mode(self, mode: int) -> None:
        os.fchmod(self._descriptor, mode & 0o777)

    def close(self) -> None:
        os.close(self._descriptor)
