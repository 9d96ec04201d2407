"""System calls of eventfd, signalfd, timerfd and epoll. Every public method is the system call of that name."""

from __future__ import annotations

import errno
import os
import struct

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.kernel.tasks import WhenStopped
from emulator.linux.syscalls.base import KernelCalls
from emulator.linux.syscalls.optional.signalfd import SignalFile
from emulator.linux.syscalls.poll import wait_with_mask
from emulator.linux.vfs.event_files import EventCounter, EventPoll, TimerFile

_EFD_SEMAPHORE = 1
_ADD, _DELETE, _MODIFY = 1, 2, 3
_TIMER_ABSTIME = 1
_WALL_CLOCKS, _CLOCKS = {0, 8}, {0, 1, 7, 8, 9}
_EVENT_BYTES = 16
_MAX_EVENTS = 1 << 20


class EventCalls(KernelCalls):
    def eventfd2(self, value: int, flags: int) -> int:
        if flags & ~(os.O_CLOEXEC | os.O_NONBLOCK | _EFD_SEMAPHORE):
            raise OSError(errno.EINVAL, "eventfd2")
        file = EventCounter(
            flags & os.O_NONBLOCK | os.O_RDWR, value & 0xFFFF_FFFF, bool(flags & _EFD_SEMAPHORE)
        )
        return self._table.install(file, close_on_exec=bool(flags & os.O_CLOEXEC))

    def signalfd4(self, fd: int, mask: int, size: int, flags: int) -> int:
        if size != 8:
            raise OSError(errno.EINVAL, "sigset size")
        signals = self._memory.read_int(mask, 8)
        if flags & 0xFFFF_FFFF & ~(os.O_CLOEXEC | os.O_NONBLOCK):
            raise OSError(errno.EINVAL, "signalfd4")
        if signed(fd, 32) == -1:
            made = SignalFile(flags & os.O_NONBLOCK, signals, self._scheduler)
            return self._table.install(made, close_on_exec=bool(flags & os.O_CLOEXEC))
        file = self._file(fd)
        if not isinstance(file, SignalFile):
            raise OSError(errno.EINVAL, "signalfd")
        file.set_mask(signals)
        return signed(fd, 32)

    # Timers

    def timerfd_create(self, clock_id: int, flags: int) -> int:
        if clock_id not in _CLOCKS or flags & ~(os.O_CLOEXEC | os.O_NONBLOCK):
            raise OSError(errno.EINVAL, "timerfd_create")
        file = TimerFile(flags & os.O_NONBLOCK | os.O_RDWR, self._kernel.timers, clock_id in _WALL_CLOCKS)
        return self._table.install(file, close_on_exec=bool(flags & os.O_CLOEXEC))

    def timerfd_settime(self, fd: int, flags: int, new: int, old: int) -> int:
        file = self._timer(fd)
        interval, value = self._time(new), self._time(new + 16)
        if old:
            self.timerfd_gettime(fd, old)
        if flags & _TIMER_ABSTIME and value and file.is_wall_clock:
            value = max(1, value - self._clock.epoch_nanoseconds)
        file.arm(value, interval, bool(flags & _TIMER_ABSTIME))
        return 0

    def timerfd_gettime(self, fd: int, address: int) -> int:
        timer = self._timer(fd).timer
        times = (
            *divmod(timer.interval, NANOSECONDS),
            *divmod(self._kernel.timers.remaining(timer), NANOSECONDS),
        )
        self._memory.write(address, struct.pack("<4q", *times))
        return 0

    def _timer(self, fd: int) -> TimerFile:
        file = self._file(fd)
        if not isinstance(file, TimerFile):
            raise OSError(errno.EINVAL, "timerfd")
        return file

    def _time(self, address: int) -> int:
        seconds, nanoseconds = struct.unpack("<qq", self._memory.read(address, 16))
        if seconds < 0 or not 0 <= nanoseconds < NANOSECONDS:
            raise OSError(errno.EINVAL, "time")
        return int(seconds * NANOSECONDS + nanoseconds)

    # epoll

    def epoll_create1(self, flags: int) -> int:
        if flags & ~os.O_CLOEXEC:
            raise OSError(errno.EINVAL, "epoll_create1")
        return self._table.install(EventPoll(), close_on_exec=bool(flags))

    def epoll_ctl(self, epoll: int, operation: int, fd: int, event: int) -> int:
        interests, file = self._epoll(epoll), self._file(fd)
        fd = signed(fd, 32)
        if operation == _DELETE:
            interests.remove(fd, file)
            return 0
        if operation not in (_ADD, _MODIFY):
            raise OSError(errno.EINVAL, "epoll_ctl")
        events, _, data = struct.unpack("<IIQ", self._memory.read(event, _EVENT_BYTES))
        (interests.add if operation == _ADD else interests.change)(fd, file, events, data)
        return 0

    def epoll_pwait(self, epoll: int, events: int, count: int, timeout: int, mask: int, size: int) -> int:
        milliseconds = signed(timeout, 32)
        until = None if milliseconds < 0 else self._clock.elapsed() + milliseconds * 1_000_000
        return self._wait(epoll, events, count, until, mask, size)

    def epoll_pwait2(self, epoll: int, events: int, count: int, timeout: int, mask: int, size: int) -> int:
        until = self._clock.elapsed() + self._time(timeout) if timeout else None
        return self._wait(epoll, events, count, until, mask, size)

    def _wait(self, epoll: int, events: int, count: int, until: int | None, mask: int, size: int) -> int:
        interests = self._epoll(epoll)
        if not 0 < signed(count, 32) <= _MAX_EVENTS:
            raise OSError(errno.EINVAL, "epoll_pwait")

        def ready() -> int | None:
            found = interests.take(count)
            self._memory.write(events, b"".join(struct.pack("<IIQ", e, 0, data) for e, data in found))
            return len(found) or None

        return wait_with_mask(
            self._memory, self._signals, ready, until, lambda: 0, mask, size, WhenStopped.FAILS
        )

    def _epoll(self, fd: int) -> EventPoll:
        file = self._file(fd)
        if not isinstance(file, EventPoll):
            raise OSError(errno.EINVAL, "epoll")
        return file
