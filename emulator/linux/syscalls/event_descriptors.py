"""System calls of eventfd, timerfd and epoll. Every public function handles the system call of that name."""

from __future__ import annotations

import errno
import os
import struct

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.waits import Wait, WhenStopped
from emulator.linux.syscalls.poll import wait_with_mask
from emulator.linux.vfs.event_files import EventCounter, EventPoll, TimerFile

_EFD_SEMAPHORE = 1
_ADD, _DELETE, _MODIFY = 1, 2, 3
_TIMER_ABSTIME = 1
_WALL_CLOCKS, _CLOCKS = {0, 8}, {0, 1, 7, 8, 9}
_EVENT_BYTES = 16
_MAX_EVENTS = 1 << 20


def eventfd2(task: Task, value: int, flags: int) -> int:
    if flags & ~(os.O_CLOEXEC | os.O_NONBLOCK | _EFD_SEMAPHORE):
        raise OSError(errno.EINVAL, "eventfd2")
    file = EventCounter(flags & os.O_NONBLOCK | os.O_RDWR, value & 0xFFFF_FFFF, bool(flags & _EFD_SEMAPHORE))
    return task.descriptors.install(file, close_on_exec=bool(flags & os.O_CLOEXEC))


# Timers


def timerfd_create(task: Task, clock_id: int, flags: int) -> int:
    if clock_id not in _CLOCKS or flags & ~(os.O_CLOEXEC | os.O_NONBLOCK):
        raise OSError(errno.EINVAL, "timerfd_create")
    file = TimerFile(flags & os.O_NONBLOCK | os.O_RDWR, task.system.timers, clock_id in _WALL_CLOCKS)
    return task.descriptors.install(file, close_on_exec=bool(flags & os.O_CLOEXEC))


def timerfd_settime(task: Task, fd: int, flags: int, new: int, old: int) -> int:
    file = _timer(task, fd)
    interval, value = _time(task, new), _time(task, new + 16)
    if old:
        timerfd_gettime(task, fd, old)
    if flags & _TIMER_ABSTIME and value and file.is_wall_clock:
        value = max(1, value - task.clock.epoch_nanoseconds)
    file.arm(value, interval, bool(flags & _TIMER_ABSTIME))
    return 0


def timerfd_gettime(task: Task, fd: int, address: int) -> int:
    timer = _timer(task, fd).timer
    times = (
        *divmod(timer.interval, NANOSECONDS),
        *divmod(task.system.timers.remaining(timer), NANOSECONDS),
    )
    task.memory.write(address, struct.pack("<4q", *times))
    return 0


def _timer(task: Task, fd: int) -> TimerFile:
    file = task.file(fd)
    if not isinstance(file, TimerFile):
        raise OSError(errno.EINVAL, "timerfd")
    return file


def _time(task: Task, address: int) -> int:
    seconds, nanoseconds = struct.unpack("<qq", task.memory.read(address, 16))
    if seconds < 0 or not 0 <= nanoseconds < NANOSECONDS:
        raise OSError(errno.EINVAL, "time")
    return int(seconds * NANOSECONDS + nanoseconds)


# epoll


def epoll_create1(task: Task, flags: int) -> int:
    if flags & ~os.O_CLOEXEC:
        raise OSError(errno.EINVAL, "epoll_create1")
    return task.descriptors.install(EventPoll(), close_on_exec=bool(flags))


def epoll_ctl(task: Task, epoll: int, operation: int, fd: int, event: int) -> int:
    interests, file = _epoll(task, epoll), task.file(fd)
    fd = signed(fd, 32)
    if operation == _DELETE:
        interests.remove(fd, file)
        return 0
    if operation not in (_ADD, _MODIFY):
        raise OSError(errno.EINVAL, "epoll_ctl")
    events, _, data = struct.unpack("<IIQ", task.memory.read(event, _EVENT_BYTES))
    (interests.add if operation == _ADD else interests.change)(fd, file, events, data)
    return 0


def epoll_pwait(task: Task, epoll: int, events: int, count: int, timeout: int, mask: int, size: int) -> int | Wait:
    milliseconds = signed(timeout, 32)
    until = None if milliseconds < 0 else task.clock.elapsed() + milliseconds * 1_000_000
    return _wait(task, epoll, events, count, until, mask, size)


def epoll_pwait2(task: Task, epoll: int, events: int, count: int, timeout: int, mask: int, size: int) -> int | Wait:
    until = task.clock.elapsed() + _time(task, timeout) if timeout else None
    return _wait(task, epoll, events, count, until, mask, size)


def _wait(task: Task, epoll: int, events: int, count: int, until: int | None, mask: int, size: int) -> int | Wait:
    interests = _epoll(task, epoll)
    if not 0 < signed(count, 32) <= _MAX_EVENTS:
        raise OSError(errno.EINVAL, "epoll_pwait")

    return wait_with_mask(
        task,
        _take_events,
        (task, interests, events, count),
        until,
        mask,
        size,
        when_stopped=WhenStopped.FAILS,
    )


def _take_events(task: Task, interests: EventPoll, events: int, count: int) -> int | None:
    """Write the events of at most ``count`` ready files to ``events``; their number, None without any."""
    found = interests.take(count)
    task.memory.write(events, b"".join(struct.pack("<IIQ", e, 0, data) for e, data in found))
    return len(found) or None


def _epoll(task: Task, fd: int) -> EventPoll:
    file = task.file(fd)
    if not isinstance(file, EventPoll):
        raise OSError(errno.EINVAL, "epoll")
    return file
