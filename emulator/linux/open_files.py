"""What a file descriptor refers to: streams, directories, devices, and what all of them have in common.

Each kind implements the operations that make sense for it and inherits the proper error for the others. All
errors are `OSError` with a Linux error number. Which path leads to which file is left to `files`; regular files to
`regular_files`, pipes to `pipes`, sockets to `sockets`, files made of events to `event_files`.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from emulator.linux.clock import DEFAULT_EPOCH_SECONDS, NANOSECONDS

POLLIN, POLLOUT, POLLERR, POLLHUP = 1, 4, 8, 16


class WouldBlock(OSError):
    """A file has nothing to give or no room now; ``what`` the guest does that has to wait, in words."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EAGAIN, what)
        self.what = what


class FileTimes(NamedTuple):
    """When a file was read, written, and changed in any way; nanoseconds of the guest's wall clock."""

    accessed: int
    modified: int
    changed: int


UNTOUCHED = FileTimes(*[DEFAULT_EPOCH_SECONDS * NANOSECONDS] * 3)
"""Of what the guest found when it started, whatever the host says: so that runs repeat."""


class FileStatus(NamedTuple):
    """What ``stat`` tells: type and permission bits, size, and the guest's own inode number."""

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
        """How often something arrived or room was made: what an edge is to who watches the file."""
        self.place: str | None = None
        """The path without links that it was opened by, if it was; a later one when it was renamed since."""
        self.is_unlinked = False
        """Whether the name at ``place`` is gone."""
        self.on_close: Callable[[OpenFile], None] | None = None
        """Called when the last descriptor is gone, before `close`."""

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
    has_room_later = False
    """Whether a write that took a part waits for room for the rest: pipes and streams."""
    can_be_watched = True
    """Whether epoll takes it: not files and directories, which are always ready."""

    def poll(self) -> int:
        """What could be done without waiting: POLLIN, POLLOUT, and whether the other side is gone."""
        return (POLLIN if self.readable else 0) | (POLLOUT if self.writable else 0)

    def would_block(self, what: str) -> NoReturn:
        """Raises OSError(EAGAIN): a `WouldBlock` unless the file does not wait."""
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
        """What FIONREAD tells."""
        raise OSError(errno.ENOTTY, "not a file that is read")

    def names(self) -> list[tuple[str, FileStatus]]:
        """Sorted entries of a directory."""
        raise OSError(errno.ENOTDIR, "not a directory")

    def close(self) -> None:
        """The last descriptor is gone."""


@dataclass
class MemoryBudget:
    """How many bytes kept output and files in memory may still take."""

    left_bytes: int

    def take(self, n_bytes: int) -> None:
        if n_bytes > self.left_bytes:
            raise OSError(errno.ENOSPC, "files in memory")
        self.left_bytes -= n_bytes


class Stream(OpenFile):
    """A standard stream: a host descriptor passed through, or bytes in and bytes out."""

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
        """Called with a host descriptor that is about to be read, which may wait for ever."""

    @property
    def is_host(self) -> bool:
        """Whether a stream of the host is passed through."""
        return isinstance(self._host, int)

    def read(self, n_bytes: int) -> bytes:
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


class Directory(OpenFile):
    """A directory; its entries are listed when they are first asked for, and anew after a rewind."""

    def __init__(
        self,
        path: str,
        flags: int,
        status: Callable[[], FileStatus],
        entries: Callable[[], list[tuple[str, FileStatus]]],
    ) -> None:
        super().__init__(path, flags, status)
        self._list = entries
        self.can_be_watched = False
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
