"""Open file descriptions: their common base class, standard streams, directories and devices.

Each kind implements the operations that make sense for it and inherits the proper error for the others. All
errors are `OSError` with a Linux error number. Path lookup is left to `mounts`; regular files to
`regular_files`, pipes to `pipes`, sockets to `sockets`, eventfd, timerfd and epoll to `event_files`.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, NoReturn, Protocol

from emulator.linux.kernel.clock import EPOCH_SECONDS, NANOSECONDS

POLLIN, POLLOUT, POLLERR, POLLHUP = 1, 4, 8, 16


class WouldBlock(OSError):
    """A read finds no data or a write no room; ``what``: the waiting operation in words, for the deadlock report."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EAGAIN, what)
        self.what = what


class FileTimes(NamedTuple):
    """Times of the last access, modification and status change, in nanoseconds of the guest's wall clock."""

    accessed: int
    modified: int
    changed: int


UNTOUCHED = FileTimes(*[EPOCH_SECONDS * NANOSECONDS] * 3)
"""Times of the files that existed when the guest started; not the host's, so that runs repeat."""


class FileStatus(NamedTuple):
    """The result of ``stat``: type and permission bits, size, and the guest's own inode number."""

    mode: int
    size_bytes: int
    inode: int
    links: int = 1
    times: FileTimes = UNTOUCHED


class OpenFile:
    """An open file description; descriptors that were duplicated share one. ``path`` is absolute."""

    def __init__(self, path: str, flags: int, status: Callable[[], FileStatus]) -> None:
        self.path = path
        self.flags = flags
        self.status = status
        self.references = 0
        self.changes = 0
        """How often data arrived or room was made; edge-triggered epoll compares this count."""
        self.resolved_path: str | None = None
        """The resolved path of a file that was opened by a path, updated by renames; else None."""
        self.is_unlinked = False
        """Whether the name at ``resolved_path`` was removed."""
        self.on_close: Callable[[OpenFile], None] | None = None
        """Called when the last descriptor is closed, before `close`."""

    @property
    def readable(self) -> bool:
        return self.flags & os.O_ACCMODE != os.O_WRONLY

    @property
    def writable(self) -> bool:
        return self.flags & os.O_ACCMODE != os.O_RDONLY

    @property
    def non_blocking(self) -> bool:
        return bool(self.flags & os.O_NONBLOCK)

    is_terminal = False
    waits_for_full_write = False
    """Whether a partial write waits for room for the rest: pipes and stream sockets."""
    is_pollable = True
    """Whether epoll accepts the file: not regular files and directories, which are always ready."""

    def poll(self) -> int:
        """The operations that would not block, as a mask of POLLIN and POLLOUT, with POLLERR and POLLHUP."""
        return (POLLIN if self.readable else 0) | (POLLOUT if self.writable else 0)

    def would_block(self, what: str) -> NoReturn:
        """Raises `WouldBlock`, or a plain OSError(EAGAIN) if the file is non-blocking."""
        if self.non_blocking:
            raise OSError(errno.EAGAIN, what)
        raise WouldBlock(what)

    def read(self, n_bytes: int) -> bytes:
        raise OSError(errno.EINVAL, "read")

    def write(self, data: bytes) -> int:
        raise OSError(errno.EINVAL, "write")

    def read_at(self, n_bytes: int, offset: int) -> bytes:
        raise OSError(errno.ESPIPE, "pread")

    def write_at(self, data: bytes, offset: int) -> int:
        raise OSError(errno.ESPIPE, "pwrite")

    def seek(self, offset: int, whence: int) -> int:
        raise OSError(errno.ESPIPE, "seek")

    def truncate(self, size_bytes: int) -> None:
        raise OSError(errno.EINVAL, "truncate")

    def waiting_bytes(self) -> int:
        """The result of FIONREAD."""
        raise OSError(errno.ENOTTY, "not a file that is read")

    def names(self) -> list[tuple[str, FileStatus]]:
        """Sorted entries of a directory."""
        raise OSError(errno.ENOTDIR, "not a directory")

    def close(self) -> None:
        """Called when the last descriptor is closed."""


@dataclass
class MemoryBudget:
    """Bytes that kept output and files in memory may still take."""

    left_bytes: int

    def take(self, n_bytes: int) -> None:
        if n_bytes > self.left_bytes:
            raise OSError(errno.ENOSPC, "files in memory")
        self.left_bytes -= n_bytes


class Stream(OpenFile):
    """A standard stream: passed through to a host descriptor, or read from and written to a buffer."""

    def __init__(
        self,
        path: str,
        flags: int,
        status: Callable[[], FileStatus],
        host: int | bytearray,
        is_terminal: bool,
        budget: MemoryBudget,
    ) -> None:
        super().__init__(path, flags, status)
        self._host = host
        self._budget = budget
        self.is_terminal = is_terminal
        self.before_reading: Callable[[int], None] | None = None
        """Called with the host descriptor before each read, which may block for ever."""
        self.was_read = False

    @property
    def prevents_snapshot(self) -> str:
        return "the host's files or streams open" if self.is_host else ""

    @property
    def is_host(self) -> bool:
        """Whether the stream is passed through to a host descriptor."""
        return isinstance(self._host, int)

    def read(self, n_bytes: int) -> bytes:
        self.was_read = True
        if isinstance(self._host, int):
            if self.before_reading is not None:
                self.before_reading(self._host)
            return os.read(self._host, n_bytes)
        data = bytes(self._host[:n_bytes])
        del self._host[:n_bytes]
        return data

    def write(self, data: bytes) -> int:
        if isinstance(self._host, int):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._host, rest) :]
        else:
            self._budget.take(len(data))
            self._host += data
        return len(data)


class DirectoryView(Protocol):
    """A file system as one process sees it."""

    def status(self, path: str, follow: bool = True) -> FileStatus: ...

    def entries(self, path: str) -> list[tuple[str, FileStatus]]:
        """The sorted entries of the directory at ``path``."""
        ...


class Directory(OpenFile):
    """A directory; its entries are listed at the first read, and again after a rewind."""

    def __init__(
        self,
        path: str,
        flags: int,
        status: Callable[[], FileStatus],
        entries: Callable[[], list[tuple[str, FileStatus]]],
    ) -> None:
        super().__init__(path, flags, status)
        self._list = entries
        self.is_pollable = False
        self._entries: list[tuple[str, FileStatus]] | None = None
        self.position = 0

    def read(self, n_bytes: int) -> bytes:
        raise OSError(errno.EISDIR, "read")

    def names(self) -> list[tuple[str, FileStatus]]:
        if self._entries is None:
            self._entries = self._list()
        return self._entries

    def seek(self, offset: int, whence: int) -> int:
        if whence != os.SEEK_SET or offset < 0:
            raise OSError(errno.EINVAL, "seek in a directory")
        self.position = offset
        if offset == 0:
            self._entries = None
        return offset


def open_directory(path: str, flags: int, view: DirectoryView) -> Directory:
    """The directory at the normalised ``path`` of ``view``. Raises OSError(EISDIR) unless it is opened for reading."""
    if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_CREAT:
        raise OSError(errno.EISDIR, "a directory")
    return Directory(path, flags, partial(view.status, path), partial(view.entries, path))


class Device(OpenFile):
    """``null``, ``zero``, ``full`` and (seeded) ``random``."""

    def __init__(
        self, path: str, flags: int, status: Callable[[], FileStatus], kind: str, generator: random.Random
    ) -> None:
        super().__init__(path, flags, status)
        self._kind = kind
        self.is_zeros = kind == "zero"
        self._generator = generator

    def read(self, n_bytes: int) -> bytes:
        if self._kind == "null":
            return b""
        return self._generator.randbytes(n_bytes) if self._kind == "random" else bytes(n_bytes)

    def write(self, data: bytes) -> int:
        if self._kind == "full":
            raise OSError(errno.ENOSPC, "full device")
        return len(data)

    def read_at(self, n_bytes: int, offset: int) -> bytes:
        return self.read(n_bytes)

    def write_at(self, data: bytes, offset: int) -> int:
        return self.write(data)

    def seek(self, offset: int, whence: int) -> int:
        return 0
