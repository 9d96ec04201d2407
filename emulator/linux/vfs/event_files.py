"""eventfd, timerfd and epoll as open files."""

from __future__ import annotations

import errno
import stat
import struct
from dataclasses import dataclass

from emulator.linux.kernel.clock import TimeBase, Timer, Timers
from emulator.linux.vfs.open_files import POLLERR, POLLHUP, POLLIN, POLLOUT, FileStatus, OpenFile

_COUNTER_MAX = (1 << 64) - 2
EPOLLONESHOT, EPOLLET = 1 << 30, 1 << 31
_MAX_DEPTH = 5


def _status() -> FileStatus:
    return FileStatus(stat.S_IFREG | 0o600, 0, 1)


class EventCounter(OpenFile):
    """eventfd: a write adds to the counter; a read returns and clears it (as a semaphore: subtracts one)."""

    def __init__(self, flags: int, value: int, is_semaphore: bool) -> None:
        super().__init__("anon_inode:[eventfd]", flags, _status)
        self._value = value
        self._is_semaphore = is_semaphore

    def read(self, n_bytes: int) -> bytes:
        if n_bytes < 8:
            raise OSError(errno.EINVAL, "eventfd")
        if not self._value:
            self.would_block("reads an empty event counter that no other task adds to")
        taken = 1 if self._is_semaphore else self._value
        self._value -= taken
        return struct.pack("<Q", taken)

    def write(self, data: bytes) -> int:
        if len(data) < 8:
            raise OSError(errno.EINVAL, "eventfd")
        (added,) = struct.unpack_from("<Q", data)
        if added > _COUNTER_MAX:
            raise OSError(errno.EINVAL, "eventfd")
        if self._value + added > _COUNTER_MAX:
            self.would_block("adds to a full event counter that no other task reads")
        self._value += added
        return 8

    def poll(self) -> int:
        return (POLLIN if self._value else 0) | (POLLOUT if self._value < _COUNTER_MAX else 0)


class TimerFile(OpenFile):
    """timerfd: a read returns how often the timer has expired since the last read."""

    def __init__(self, flags: int, timers: Timers, is_wall_clock: bool) -> None:
        super().__init__("anon_inode:[timerfd]", flags, _status)
        self._expired = 0
        self._timers = timers
        self.is_wall_clock = is_wall_clock
        self.timer = timers.add(Timer(TimeBase.ELAPSED, self._notify))

    def _notify(self, overrun: int) -> None:
        self._expired += 1 + overrun

    def arm(self, value: int, interval: int, absolute: bool) -> None:
        """Set the timer, as `Timers.arm` does, and clear the count of expirations."""
        self._expired = 0
        self._timers.arm(self.timer, value, interval, absolute)

    def read(self, n_bytes: int) -> bytes:
        if n_bytes < 8:
            raise OSError(errno.EINVAL, "timerfd")
        if not self._expired:
            self.would_block("reads a timer that is not armed")
        taken, self._expired = self._expired, 0
        return struct.pack("<Q", taken)

    def poll(self) -> int:
        return POLLIN if self._expired else 0

    def close(self) -> None:
        self._timers.remove(self.timer)


@dataclass
class _Interest:
    file: OpenFile
    events: int
    data: int
    seen: tuple[int, int] = (0, -1)  # for edges: the last ready mask, and the file's count of changes then


class EventPoll(OpenFile):
    """epoll: an interest list, and which of its files are ready. Closing a file removes it from the list."""

    def __init__(self) -> None:
        super().__init__("anon_inode:[eventpoll]", 2, _status)
        self._interests: dict[tuple[int, OpenFile], _Interest] = {}

    def add(self, descriptor: int, file: OpenFile, events: int, data: int) -> None:
        if (descriptor, file) in self._interests:
            raise OSError(errno.EEXIST, "epoll")
        if file is self or (isinstance(file, EventPoll) and file.reaches(self, _MAX_DEPTH)):
            raise OSError(errno.ELOOP, "epoll")
        if not file.is_pollable:
            raise OSError(errno.EPERM, "epoll")
        self._interests[descriptor, file] = _Interest(file, events, data)

    def change(self, descriptor: int, file: OpenFile, events: int, data: int) -> None:
        if (descriptor, file) not in self._interests:
            raise OSError(errno.ENOENT, "epoll")
        self._interests[descriptor, file] = _Interest(file, events, data)

    def remove(self, descriptor: int, file: OpenFile) -> None:
        if self._interests.pop((descriptor, file), None) is None:
            raise OSError(errno.ENOENT, "epoll")

    def reaches(self, other: EventPoll, depth: int) -> bool:
        """Whether ``other`` is in this interest list or in a nested one; also true if the nesting is too deep."""
        return depth == 0 or any(
            interest.file is other or (isinstance(interest.file, EventPoll) and interest.file.reaches(other, depth - 1))
            for interest in self._interests.values()
        )

    def take(self, at_most: int) -> list[tuple[int, int]]:
        """Events and data of at most ``at_most`` ready files; consumes edges and one-shots."""
        found: list[tuple[int, int]] = []
        ready = self._ready()[:at_most]
        for key in ready:
            interest = self._interests[key]
            state = interest.file.poll()
            found.append((state & (interest.events | POLLERR | POLLHUP), interest.data))
            interest.seen = (state, interest.file.changes)
            if interest.events & EPOLLONESHOT:
                interest.events = 0
        # Round robin: the files just reported move to the end of the list.
        for key in ready:
            self._interests[key] = self._interests.pop(key)
        return found

    def _ready(self) -> list[tuple[int, OpenFile]]:
        """The keys of the interests in ready files, in the order of the list."""
        for key in [key for key, interest in self._interests.items() if interest.file.references == 0]:
            del self._interests[key]
        return [key for key, interest in self._interests.items() if self._is_ready(interest)]

    @staticmethod
    def _is_ready(interest: _Interest) -> bool:
        if not interest.events & ~(EPOLLET | EPOLLONESHOT):
            return False
        state = interest.file.poll()
        if not interest.events & EPOLLET:
            return bool(state & (interest.events | POLLERR | POLLHUP))
        before, changes = interest.seen
        fresh = state if interest.file.changes != changes else state & ~before
        interest.seen = (before & state, changes)
        return bool(fresh & (interest.events | POLLERR | POLLHUP))

    def poll(self) -> int:
        return POLLIN if self._ready() else 0
