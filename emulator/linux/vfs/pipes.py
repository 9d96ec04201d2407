"""Pipes and named pipes (FIFOs)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from functools import partial

from emulator.linux.vfs.open_files import POLLERR, POLLHUP, POLLIN, POLLOUT, FileStatus, OpenFile
from emulator.memory import PAGE_BYTES

DEFAULT_SLOTS = 16
MAX_BYTES = 1 << 20
"""Largest size that a process without privileges can set (/proc/sys/fs/pipe-max-size)."""


class _PipeBuffer:
    """The ring buffer of a pipe, as in Linux: each of ``n_slots`` slots is a page that a write may fill in part, so
    that writes of at most a page (PIPE_BUF) are atomic."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ends: list[PipeEnd] = []
        self.n_slots = DEFAULT_SLOTS
        self._slots: list[int] = []  # bytes in each used slot
        self._consumed_bytes = 0  # bytes read of the first slot, which is freed only when it is empty

    def put(self, data: bytes) -> int:
        """Append the bytes that have room; return their number."""
        done = 0
        rest = len(data) % PAGE_BYTES
        if rest and self._slots:
            last = self._slots[-1] + (self._consumed_bytes if len(self._slots) == 1 else 0)
            if last + rest <= PAGE_BYTES:
                self._slots[-1] += rest
                done = rest
        while done < len(data) and self.has_room:
            self._slots.append(min(PAGE_BYTES, len(data) - done))
            done += self._slots[-1]
        self.data += data[:done]
        return done

    def take(self, n_bytes: int) -> None:
        """Remove the first bytes."""
        del self.data[:n_bytes]
        while n_bytes:
            part = min(n_bytes, self._slots[0])
            self._slots[0] -= part
            self._consumed_bytes += part
            n_bytes -= part
            if not self._slots[0]:
                del self._slots[0]
                self._consumed_bytes = 0

    @property
    def has_room(self) -> bool:
        return len(self._slots) < self.n_slots

    @property
    def free_bytes(self) -> int:
        """Bytes in the empty slots."""
        return (self.n_slots - len(self._slots)) * PAGE_BYTES

    def resize(self, size_bytes: int) -> int:
        """Set the capacity, rounded up to a power of two of pages; return it. Raises OSError."""
        if size_bytes > 1 << 31:
            raise OSError(errno.EINVAL, "size of a pipe")
        n_slots = 1 << (max(1, -(-size_bytes // PAGE_BYTES)) - 1).bit_length()
        if n_slots > self.n_slots and n_slots * PAGE_BYTES > MAX_BYTES:
            raise OSError(errno.EPERM, "size of a pipe")
        if n_slots < len(self._slots):
            raise OSError(errno.EBUSY, "the pipe holds more than that")
        self.n_slots = n_slots
        self.count_change()
        return n_slots * PAGE_BYTES

    def count_change(self) -> None:
        """Record a change of the contents at both ends, for edge-triggered epoll."""
        for end in self.ends:
            end.changes += 1


class PipeEnd(OpenFile):
    """One end of a pipe, or both ends of a named one: it reads from ``source`` and writes to ``target``."""

    waits_for_full_write = True

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
        self._awaited: tuple[list[int], int, int] | None = None
        for buffer in (source, target):
            if buffer is not None:
                buffer.ends.append(self)

    def wait_for_other_end(self, opened: list[int], end: int) -> None:
        """Let the open wait until ``opened[end]``, the number of opens of the other end, grows."""
        self._awaited = opened, end, opened[end]

    def waits_for_other_end(self) -> bool:
        """Whether the open still has to wait: a named pipe whose other end was not opened yet."""
        if self._awaited is None:
            return False
        opened, end, before = self._awaited
        return opened[end] == before

    @property
    def has_writer(self) -> bool:
        return self._source is not None and any(end._target is self._source for end in self._source.ends)

    @property
    def _has_reader(self) -> bool:
        return self._target is not None and any(end._source is self._target for end in self._target.ends)

    def peek(self, n_bytes: int) -> bytes:
        """The bytes that `read` would return, without removing them. Raises `WouldBlock`."""
        buffer = self._source
        assert buffer is not None
        if not buffer.data and self.has_writer and n_bytes:
            self.would_block("reads from an empty pipe that no other task writes to")
        return bytes(buffer.data[:n_bytes])

    def take(self, n_bytes: int) -> None:
        """Remove the first ``n_bytes`` bytes, after `peek`."""
        assert self._source is not None
        self._source.take(n_bytes)
        if n_bytes:
            self._source.count_change()

    def read(self, n_bytes: int) -> bytes:
        data = self.peek(n_bytes)
        self.take(len(data))
        return data

    def room(self) -> int:
        """Bytes of free slots that a write could fill."""
        return self._target.free_bytes if self._target is not None else 0

    def resize(self, size_bytes: int | None) -> int:
        """The capacity in bytes, after setting it unless ``size_bytes`` is None. Raises OSError."""
        buffer = self._target or self._source
        assert buffer is not None
        return buffer.n_slots * PAGE_BYTES if size_bytes is None else buffer.resize(size_bytes)

    def write(self, data: bytes) -> int:
        """Write the bytes that have room, and return their number; a write of at most a page is atomic."""
        buffer = self._target
        assert buffer is not None
        if not self._has_reader:
            raise OSError(errno.EPIPE, "no reader")
        done = buffer.put(data)
        if data and not done:
            self.would_block("writes into a full pipe that no other task reads from")
        buffer.count_change()
        return done

    def poll(self) -> int:
        state = 0
        if self._source is not None:
            state |= POLLIN if self._source.data else 0
            state |= 0 if self.has_writer else POLLHUP
        if self._target is not None:
            if not self._has_reader:
                state |= POLLERR if self._source is None else POLLHUP | POLLOUT
            elif self._target.has_room:
                state |= POLLOUT
        return state

    def waiting_bytes(self) -> int:
        return len(self._source.data) if self._source is not None else 0

    def close(self) -> None:
        for buffer in (self._source, self._target):
            if buffer is not None and self in buffer.ends:
                buffer.ends.remove(self)
                buffer.count_change()


def make_pipe(flags: int, inode: int) -> tuple[PipeEnd, PipeEnd]:
    """The reading and the writing end."""
    buffer, status = _PipeBuffer(), partial(FileStatus, stat.S_IFIFO | 0o600, 0, inode)
    path = f"pipe:[{inode}]"
    return (
        PipeEnd(path, flags | os.O_RDONLY, status, buffer, None),
        PipeEnd(path, flags | os.O_WRONLY, status, None, buffer),
    )


class NamedPipe:
    """A named pipe (FIFO): opening one end waits until the other end is opened."""

    kind = stat.S_IFIFO

    def __init__(self, mode: int) -> None:
        self.mode = mode
        self._buffer = _PipeBuffer()
        self._opened = [0, 0]  # number of opens so far, for reading and for writing

    def open(self, path: str, flags: int, status: Callable[[], FileStatus]) -> PipeEnd:
        """Open one end; `PipeEnd.waits_for_other_end` returns whether the open has to wait for the other end.

        Raises OSError(ENXIO) for a non-blocking open for writing without a reader.
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
            end.wait_for_other_end(self._opened, int(reads))
        return end
