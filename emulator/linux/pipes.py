"""Pipes, with and without a name."""

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
    """One end of a pipe, or both of a named one: ``source`` is what it reads from, ``target`` what it writes to."""

    has_room_later = True

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
        self.is_alone: Callable[[], bool] = lambda: False
        """Whether opening it waits: a named pipe that nobody has opened at the other end."""
        for buffer in (source, target):
            if buffer is not None:
                buffer.ends.append(self)

    @property
    def has_writer(self) -> bool:
        return self._source is not None and any(end._target is self._source for end in self._source.ends)

    @property
    def _has_reader(self) -> bool:
        return self._target is not None and any(end._source is self._target for end in self._target.ends)

    def peek(self, n_bytes: int) -> bytes:
        """What `read` would give, left where it is."""
        buffer = self._source
        assert buffer is not None
        if not buffer.data and self.has_writer and n_bytes:
            self.would_block("reads from a pipe that only it can write to")
        return bytes(buffer.data[:n_bytes])

    def take(self, n_bytes: int) -> None:
        """Remove what was peeked at."""
        assert self._source is not None
        del self._source.data[:n_bytes]
        if n_bytes:
            self._source.stir()

    def read(self, n_bytes: int) -> bytes:
        data = self.peek(n_bytes)
        self.take(len(data))
        return data

    def room(self) -> int:
        """Bytes that a write could put there now."""
        return PIPE_BYTES - len(self._target.data) if self._target is not None else 0

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
            state |= 0 if self.has_writer else POLLHUP
        if self._target is not None:
            if not self._has_reader:
                state |= POLLERR if self._source is None else POLLHUP | POLLOUT
            elif PIPE_BYTES - len(self._target.data) >= _ATOMIC_BYTES:
                state |= POLLOUT
        return state

    def waiting_bytes(self) -> int:
        return len(self._source.data) if self._source is not None else 0

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


class NamedPipe:
    """A pipe that has a name: who opens one end waits for somebody who opens the other."""

    kind = stat.S_IFIFO

    def __init__(self, mode: int) -> None:
        self.mode = mode
        self._buffer = _PipeBuffer()
        self._opened = [0, 0]  # how often it was ever opened for reading, and for writing

    def open(self, path: str, flags: int, status: Callable[[], FileStatus]) -> PipeEnd:
        """One end; `PipeEnd.is_alone` says whether the other one is still to be waited for.

        Raises OSError(ENXIO) for a writer that does not wait and finds no reader.
        """
        if not self._buffer.ends:
            self._buffer = _PipeBuffer()
        buffer = self._buffer
        reads, writes = flags & os.O_ACCMODE != os.O_WRONLY, flags & os.O_ACCMODE != os.O_RDONLY
        others = [end for end in buffer.ends if (end.writable if reads else end.readable)]
        if flags & os.O_NONBLOCK and not reads and not others:
            raise OSError(errno.ENXIO, "no reader")
        self._opened[0] += reads
        self._opened[1] += writes
        end = PipeEnd(path, flags, status, buffer if reads else None, buffer if writes else None)
        if not others and not (reads and writes) and not flags & os.O_NONBLOCK:
            other, before = int(reads), self._opened[reads]
            end.is_alone = lambda: self._opened[other] == before
        return end
