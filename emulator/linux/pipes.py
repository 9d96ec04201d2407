"""Pipes, and pairs of sockets that are connected with each other."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from emulator.linux.open_files import POLLERR, POLLHUP, POLLIN, POLLOUT, FileStatus, OpenFile

PIPE_BYTES = 65536
_ATOMIC_BYTES = 4096  # PIPE_BUF: writes of no more are not cut up


class _PipeBuffer:
    def __init__(self) -> None:
        self.data = bytearray()
        self.ends: list[PipeEnd] = []

    def stir(self) -> None:
        for end in self.ends:
            end.changes += 1


class PipeEnd(OpenFile):
    """One end of a pipe, or of a pair of sockets: reads from one buffer, writes to another, or does one of them."""

    def __init__(
        self,
        path: str,
        flags: int,
        status: Callable[[], FileStatus],
        source: _PipeBuffer | None,
        target: _PipeBuffer | None,
    ) -> None:
        super().__init__(path, flags, status)
        self._source = source
        self._target = target
        for buffer in (source, target):
            if buffer is not None:
                buffer.ends.append(self)

    @property
    def _has_writer(self) -> bool:
        return self._source is not None and any(end._target is self._source for end in self._source.ends)

    @property
    def _has_reader(self) -> bool:
        return self._target is not None and any(end._source is self._target for end in self._target.ends)

    def read(self, n_bytes: int) -> bytes:
        buffer = self._source
        assert buffer is not None
        if not buffer.data and self._has_writer and n_bytes:
            self.would_block("reads from a pipe that only it can write to")
        data = bytes(buffer.data[:n_bytes])
        del buffer.data[:n_bytes]
        if data:
            buffer.stir()
        return data

    def write(self, data: bytes) -> int:
        """As much as there is room for; small writes wholly or not at all."""
        buffer = self._target
        assert buffer is not None
        if not self._has_reader:
            raise OSError(errno.EPIPE, "no reader")
        room = PIPE_BYTES - len(buffer.data)
        if data and (room == 0 or (len(data) <= _ATOMIC_BYTES and len(data) > room)):
            self.would_block("writes into a full pipe that only it can read from")
        buffer.data += data[:room]
        buffer.stir()
        return min(len(data), room)

    def poll(self) -> int:
        state = 0
        if self._source is not None:
            state |= POLLIN if self._source.data else 0
            state |= 0 if self._has_writer else POLLHUP
        if self._target is not None:
            if not self._has_reader:
                state |= POLLERR if self._source is None else POLLHUP | POLLOUT
            elif PIPE_BYTES - len(self._target.data) >= _ATOMIC_BYTES:
                state |= POLLOUT
        if self._source is not None and self._target is not None and state & POLLHUP:
            state |= POLLIN  # a socket whose peer is gone reads as at its end
        return state

    def close(self) -> None:
        for buffer in (self._source, self._target):
            if buffer is not None and self in buffer.ends:
                buffer.ends.remove(self)
                buffer.stir()


def make_pipe(flags: int, inode: int) -> tuple[PipeEnd, PipeEnd]:
    """The reading and the writing end."""
    buffer = _PipeBuffer()

    def status() -> FileStatus:
        return FileStatus(stat.S_IFIFO | 0o600, 0, inode)

    path = f"pipe:[{inode}]"
    return (
        PipeEnd(path, flags | os.O_RDONLY, status, buffer, None),
        PipeEnd(path, flags | os.O_WRONLY, status, None, buffer),
    )


def make_socket_pair(flags: int, inode: int) -> tuple[PipeEnd, PipeEnd]:
    """Two sockets that are connected with each other, for streams of bytes."""
    there, back = _PipeBuffer(), _PipeBuffer()

    def status() -> FileStatus:
        return FileStatus(stat.S_IFSOCK | 0o600, 0, inode)

    path = f"socket:[{inode}]"
    return (
        PipeEnd(path, flags | os.O_RDWR, status, back, there),
        PipeEnd(path, flags | os.O_RDWR, status, there, back),
    )
