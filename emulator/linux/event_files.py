"""Files that are made of events: counters (eventfd), timers (timerfd) and sets of files to watch (epoll)."""

from __future__ import annotations

import errno
import stat
import struct
from dataclasses import dataclass

from emulator.linux.clock import TimeBase, Timer, Timers
from emulator.linux.open_files import POLLERR, POLLHUP, POLLIN, POLLOUT, FileStatus, OpenFile

_COUNTER_MAX = (1 << 64) - 2
EPOLLONESHOT, EPOLLET = 1 << 30, 1 << 31
_MAX_DEPTH = 5


def _status() -> FileStatus:
    return FileStatus(stat.S_IFREG | 0o600, 0, 1)


class EventCounter(OpenFile):
    """eventfd: writes add to a counter, a read takes it (or, as a semaphore, one of it)."""

    def __init__(self, flags: int, value: int, is_semaphore: bool) -> None:
        super().__init__("anon_inode:[eventfd]", flags, _status)
        self._value = value
        self._is_semaphore = is_semaphore

    def read(self, n_bytes: int) -> bytes:
        if n_bytes < 8:
            raise OSError(errno.EINVAL, "eventfd")
        if not self._value:
            self.would_block("reads an event counter that nobody adds to")
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
            self.would_block("adds to a full event counter that nobody reads")
        self._value += added
        return 8

    def poll(self) -> int:
        return (POLLIN if self._value else 0) | (POLLOUT if self._value < _COUNTER_MAX else 0)


class TimerFile(OpenFile):
    """timerfd: a read gives how often the timer has expired since the last one."""

    def __init__(self, flags: int, timers: Timers, is_wall_clock: bool) -> None:
        super().__init__("anon_inode:[timerfd]", flags, _status)
        self._expired = 0
        self._timers = timers
        self.is_wall_clock = is_wall_clock
        self.timer = timers.add(Timer(TimeBase.ELAPSED, self._notify))

    def _notify(self, overrun: int) -> None:
        self._expired += 1 + overrun

    def arm(self, value: int, interval: int, absolute: bool) -> None:
        """Set it, as `Timers.arm` does; what has expired before is forgotten."""
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
class _Watch:
    file: OpenFile
    events: int
    data: int
    seen: tuple[int, int] = (0, -1)  # for edges: what was ready last, and the file's count of changes then


class EventPoll(OpenFile):
    """epoll: which of many files are ready. A file that is closed is watched no more."""

    def __init__(self) -> None:
        super().__init__("anon_inode:[eventpoll]", 2, _status)
        self._watches: dict[tuple[int, OpenFile], _Watch] = {}

    def add(self, descriptor: int, file: OpenFile, events: int, data: int) -> None:
        if (descriptor, file) in self._watches:
            raise OSError(errno.EEXIST, "epoll")
        if file is self or (isinstance(file, EventPoll) and file.reaches(self, _MAX_DEPTH)):
            raise OSError(errno.ELOOP, "epoll")
        if not file.can_be_watched:
            raise OSError(errno.EPERM, "epoll")
        self._watches[descriptor, file] = _Watch(file, events, data)

    def change(self, descriptor: int, file: OpenFile, events: int, data: int) -> None:
        if (descriptor, file) not in self._watches:
            raise OSError(errno.ENOENT, "epoll")
        self._watches[descriptor, file] = _Watch(file, events, data)

    def remove(self, descriptor: int, file: OpenFile) -> None:
        if self._watches.pop((descriptor, file), None) is None:
            raise OSError(errno.ENOENT, "epoll")

    def reaches(self, other: EventPoll, depth: int) -> bool:
        """Whether ``other`` is watched from here, directly or through further sets; also when that goes too deep."""
        return depth == 0 or any(
            watch.file is other
            or (isinstance(watch.file, EventPoll) and watch.file.reaches(other, depth - 1))
            for watch in self._watches.values()
        )

    def take(self, at_most: int) -> list[tuple[int, int]]:
        """Events and data of files that are ready; edges and one-shots are used up."""
        found: list[tuple[int, int]] = []
        for watch in self._ready():
            if len(found) == at_most:
                break
            state = watch.file.poll()
            found.append((state & (watch.events | POLLERR | POLLHUP), watch.data))
            watch.seen = (state, watch.file.changes)
            if watch.events & EPOLLONESHOT:
                watch.events = 0
        # The next time others come first.
        for key in [key for key, watch in self._watches.items() if (watch.data in {d for _, d in found})]:
            self._watches[key] = self._watches.pop(key)
        return found

    def _ready(self) -> list[_Watch]:
        for key in [key for key, watch in self._watches.items() if watch.file.references == 0]:
            del self._watches[key]
        return [watch for watch in self._watches.values() if self._is_ready(watch)]

    @staticmethod
    def _is_ready(watch: _Watch) -> bool:
        if not watch.events & ~(EPOLLET | EPOLLONESHOT):
            return False
        state = watch.file.poll()
        if not watch.events & EPOLLET:
            return bool(state & (watch.events | POLLERR | POLLHUP))
        before, changes = watch.seen
        fresh = state if watch.file.changes != changes else state & ~before
        watch.seen = (before & state, changes)
        return bool(fresh & (watch.events | POLLERR | POLLHUP))

    def poll(self) -> int:
        return POLLIN if self._ready() else 0
