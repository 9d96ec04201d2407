"""Open regular files of tmpfs (in memory) and of hostfs. All errors are `OSError` with a Linux error number."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from emulator.linux.mm.page_cache import PageCache, Store
from emulator.linux.vfs.inodes import Inodes
from emulator.linux.vfs.open_files import FileStatus, MemoryBudget, OpenFile


class _Positioned(OpenFile):
    """A file with a position; subclasses only read and write at offsets."""

    _position = 0
    is_pollable = False

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
        elif whence in (os.SEEK_DATA, os.SEEK_HOLE):  # the only hole of a file is at its end
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
    """A regular file. ``key``: its key in the ``page_cache`` and in ``inodes``, which get the time of each change."""

    def __init__(
        self,
        path: str,
        flags: int,
        status: Callable[[], FileStatus],
        key: Hashable,
        page_cache: PageCache,
        inodes: Inodes,
    ) -> None:
        super().__init__(path, flags, status)
        self.key = key
        self._page_cache = page_cache
        self._inodes = inodes

    def open_store(self) -> Store:
        """Access to the bytes of the file that outlives this open file. Raises OSError."""
        raise NotImplementedError

    def _read(self, n_bytes: int, offset: int) -> bytes:
        raise NotImplementedError

    def _write(self, data: bytes, offset: int) -> int:
        raise NotImplementedError

    def _truncate(self, size_bytes: int) -> None:
        raise NotImplementedError

    def read_at(self, n_bytes: int, offset: int) -> bytes:
        data, pages = self._read(n_bytes, offset), self._page_cache.pages(self.key)
        return data if pages is None else pages.with_loaded_pages(data, offset)

    def write_at(self, data: bytes, offset: int) -> int:
        written, pages = self._write(data, offset), self._page_cache.pages(self.key)
        if pages is not None:
            pages.update(data[:written], offset)
        self._inodes.modified(self.key)
        return written

    def truncate(self, size_bytes: int) -> None:
        pages = self._page_cache.pages(self.key)
        if pages is not None:
            pages.write_back()
        self._truncate(size_bytes)
        if pages is not None:
            pages.truncate(size_bytes)
        self._inodes.modified(self.key)

    def change_mode(self, mode: int) -> None:
        """Set the permissions."""
        raise NotImplementedError

    def waiting_bytes(self) -> int:
        return max(0, self.status().size_bytes - self._position)


@dataclass(eq=False)
class MemoryNode:
    """The inode of a file in memory, which has any number of names. ``mode``: its permissions."""

    data: bytes | bytearray
    mode: int
    budget: MemoryBudget
    is_read_only: bool = False
    links: int = 1
    uses: int = 0
    """Number of open files and mappings; without these and without a name the contents are freed."""

    def read(self, n_bytes: int, offset: int) -> bytes:
        return bytes(self.data[offset : offset + n_bytes])

    def write(self, data: bytes, offset: int) -> int:
        if data and offset + len(data) > len(self.data):
            self.resize(offset + len(data))
        self._writable_data()[offset : offset + len(data)] = data
        return len(data)

    def _writable_data(self) -> bytearray:
        """The contents as a bytearray; mapped bytes are copied only at the first write, as programs are large."""
        if not isinstance(self.data, bytearray):
            self.data = bytearray(self.data)
        return self.data

    def resize(self, size_bytes: int) -> None:
        """Set the size; new bytes are zeros. Raises OSError(ENOSPC)."""
        growth = size_bytes - len(self.data)
        self.budget.take(growth)
        if growth < 0:
            del self._writable_data()[size_bytes:]
        else:
            self._writable_data().extend(bytes(growth))

    def size_bytes(self) -> int:
        return len(self.data)

    def close(self) -> None:
        """Drop one use."""
        self.uses -= 1
        self.release()

    def release(self) -> None:
        """Free the contents if the file has neither names nor uses."""
        if not self.uses and not self.links:
            self.resize(0)


class MemoryFile(RegularFile):
    """An open file of tmpfs."""

    def __init__(
        self,
        path: str,
        flags: int,
        status: Callable[[], FileStatus],
        node: MemoryNode,
        page_cache: PageCache,
        inodes: Inodes,
    ) -> None:
        super().__init__(path, flags, status, node, page_cache, inodes)
        self._node = node
        node.uses += 1

    def open_store(self) -> Store:
        self._node.uses += 1
        return self._node

    def _read(self, n_bytes: int, offset: int) -> bytes:
        return self._node.read(n_bytes, offset)

    def _write(self, data: bytes, offset: int) -> int:
        return self._node.write(data, offset)

    def _truncate(self, size_bytes: int) -> None:
        self._node.resize(size_bytes)

    def change_mode(self, mode: int) -> None:
        self._node.mode = mode & 0o777

    def close(self) -> None:
        self._node.close()


class _HostStore:
    """The bytes of a host file, read and written through a duplicated descriptor."""

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
    """An open regular file of hostfs; owns its host descriptor."""

    prevents_snapshot = "the host's files or streams open"

    def __init__(
        self,
        path: str,
        flags: int,
        status: Callable[[], FileStatus],
        descriptor: int,
        key: Hashable,
        page_cache: PageCache,
        inodes: Inodes,
    ) -> None:
        super().__init__(path, flags, status, key, page_cache, inodes)
        self._descriptor = descriptor

    def open_store(self) -> Store:
        return _HostStore(self._descriptor)

    def _read(self, n_bytes: int, offset: int) -> bytes:
        return os.pread(self._descriptor, n_bytes, offset)

    def _write(self, data: bytes, offset: int) -> int:
        return os.pwrite(self._descriptor, data, offset)

    def _truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)

    def change_mode(self, mode: int) -> None:
        os.fchmod(self._descriptor, mode & 0o777)

    def close(self) -> None:
        os.close(self._descriptor)
