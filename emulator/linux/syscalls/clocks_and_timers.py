"""System calls on clocks, sleeping and timers, all in virtual time.

Every public function but `packed_usage` handles the system call of that name.
"""

from __future__ import annotations

import errno
import struct
from functools import partial

from emulator.linux.abi.numbers import CLOCK_TICKS_PER_SECOND, N_SIGNALS, Signal, signed
from emulator.linux.kernel.clock import NANOSECONDS, TimeBase, Timer
from emulator.linux.kernel.process_timers import PosixTimer
from emulator.linux.kernel.scheduler import Scheduler
from emulator.linux.kernel.signals import ThreadSignals
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.waits import Wait, never

_CLOCK_REALTIME, _CLOCK_TAI = 0, 11
_CLOCK_THREAD = 3
_PROCESSOR_CLOCKS = {2, _CLOCK_THREAD}
_WALL_CLOCKS = {_CLOCK_REALTIME, 5, 8, _CLOCK_TAI}
_ELAPSED_CLOCKS = {1, 4, 6, 7, 9}
_COARSE_CLOCKS = {5, 6}
_TIMER_ABSTIME = 1
_SIGEV_SIGNAL, _SIGEV_NONE, _SIGEV_THREAD_ID = 0, 1, 4
_MAX_TIMERS = 64


# Clocks


def clock_gettime(task: Task, clock_id: int, address: int) -> int:
    _write_timespec(task, address, _read_clock(task, signed(clock_id, 32)))
    return 0


def clock_getres(task: Task, clock_id: int, address: int) -> int:
    number = signed(clock_id, 32)
    _read_clock(task, number)
    if address:
        _write_timespec(task, address, 4_000_000 if number in _COARSE_CLOCKS else 1)
    return 0


def gettimeofday(task: Task, address: int, timezone: int) -> int:
    if address:
        _write_timeval(task, address, task.clock.wall())
    if timezone:
        task.memory.write(timezone, bytes(8))
    return 0


def times(task: Task, address: int) -> int:
    tick = NANOSECONDS // CLOCK_TICKS_PER_SECOND
    if address:
        used = task.scheduler.used_nanoseconds(task.process) // tick
        children = task.process.children_nanoseconds // tick
        task.memory.write(address, struct.pack("<4q", used, 0, children, 0))
    return task.clock.elapsed() // tick


def getrusage(task: Task, who: int, address: int) -> int:
    number = signed(who, 32)
    if number not in (-1, 0, 1):
        raise OSError(errno.EINVAL, "getrusage")
    used = task.scheduler.used_nanoseconds(task.process)
    if number == 1:
        used = task.thread.used_nanoseconds
    elif number == -1:
        used = task.process.children_nanoseconds
    resident = 0 if number == -1 else task.memory.mapped_bytes >> 10
    task.memory.write(address, packed_usage(used, resident))
    return 0


# Sleeping


def nanosleep(task: Task, request: int, remaining: int) -> Wait:
    return _sleep(task, task.clock.elapsed() + _read_timespec(task, request), remaining)


def clock_nanosleep(task: Task, clock_id: int, flags: int, request: int, remaining: int) -> Wait:
    number = signed(clock_id, 32)
    duration = _read_timespec(task, request)
    if number in _PROCESSOR_CLOCKS:
        raise OSError(errno.EINVAL, "a sleeping guest uses no processor time")
    if not flags & _TIMER_ABSTIME:
        _read_clock(task, number)
        return _sleep(task, task.clock.elapsed() + duration, remaining)
    return _sleep(task, task.clock.elapsed() + duration - _read_clock(task, number), 0)


def _sleep(task: Task, until: int, remaining: int) -> Wait:
    return Wait(never, task, until, remaining, until=until, if_interrupted=_write_time_left)


def _write_time_left(task: Task, until: int, remaining: int) -> None:
    if remaining:
        _write_timespec(task, remaining, max(0, until - task.clock.elapsed()))


# Interval timers


def setitimer(task: Task, which: int, new: int, old: int) -> int:
    timer = _interval_timer(task, which)
    interval, value = _read_timeval(task, new), _read_timeval(task, new + 16)
    if old:
        _write_interval(task, old, timer)
    task.system.timers.arm(timer, value, interval)
    return 0


def getitimer(task: Task, which: int, address: int) -> int:
    _write_interval(task, address, _interval_timer(task, which))
    return 0


def _interval_timer(task: Task, which: int) -> Timer:
    if which >= len(task.process.timers.interval):
        raise OSError(errno.EINVAL, "interval timer")
    return task.process.timers.interval[which]


def _write_interval(task: Task, address: int, timer: Timer) -> None:
    microseconds = -(-task.system.timers.remaining(timer) // 1000)
    _write_timeval(task, address, timer.interval)
    _write_timeval(task, address + 16, microseconds * 1000)


# POSIX timers


def timer_create(task: Task, clock_id: int, event: int, identifier: int) -> int:
    number = signed(clock_id, 32)
    _read_clock(task, number)
    timer_id = next(k for k in range(_MAX_TIMERS + 1) if k not in task.process.timers.posix)
    if timer_id == _MAX_TIMERS:
        raise OSError(errno.EAGAIN, "timers")
    value, signal, notify, tid = timer_id, int(Signal.SIGALRM), _SIGEV_SIGNAL, 0
    if event:
        value, signal, notify, tid = struct.unpack("<Qiii", task.memory.read(event, 20))
    if notify not in (_SIGEV_SIGNAL, _SIGEV_NONE, _SIGEV_THREAD_ID):
        raise OSError(errno.EINVAL, "notification by thread")
    if notify != _SIGEV_NONE and not 1 <= signal <= N_SIGNALS:
        raise OSError(errno.EINVAL, "signal")

    base = TimeBase.PROCESSOR if _is_processor_clock(number) else TimeBase.ELAPSED
    task.memory.write_int(identifier, 4, timer_id)
    receiver = partial(_signals_of, task.scheduler, tid if notify == _SIGEV_THREAD_ID else None)
    posix = PosixTimer(timer_id, number, task.signals, None if notify == _SIGEV_NONE else signal, value, receiver)
    task.process.timers.add_posix(posix, base)
    return 0


def timer_settime(task: Task, timer_id: int, flags: int, new: int, old: int) -> int:
    posix = _posix_timer(task, timer_id)
    interval, value = _read_timespec(task, new), _read_timespec(task, new + 16)
    if old:
        timer_gettime(task, timer_id, old)
    absolute = bool(flags & _TIMER_ABSTIME)
    if absolute and value and posix.clock_id in _WALL_CLOCKS:
        value = max(1, value - task.clock.epoch_nanoseconds)
    task.system.timers.arm(posix.timer, value, interval, absolute)
    return 0


def timer_gettime(task: Task, timer_id: int, address: int) -> int:
    timer = _posix_timer(task, timer_id).timer
    _write_timespec(task, address, timer.interval)
    _write_timespec(task, address + 16, task.system.timers.remaining(timer))
    return 0


def timer_getoverrun(task: Task, timer_id: int) -> int:
    return _posix_timer(task, timer_id).overrun


def timer_delete(task: Task, timer_id: int) -> int:
    task.process.timers.remove_posix(_posix_timer(task, timer_id).number)
    return 0


def _signals_of(scheduler: Scheduler, tid: int | None) -> ThreadSignals | None:
    """The signals of the thread to notify; None: any thread of the process."""
    thread = None if tid is None else scheduler.thread(tid)
    return None if thread is None else thread.signals


def _posix_timer(task: Task, timer_id: int) -> PosixTimer:
    if timer_id not in task.process.timers.posix:
        raise OSError(errno.EINVAL, "timer")
    return task.process.timers.posix[timer_id]


# Inner parts


def _is_processor_clock(number: int) -> bool:
    if number < 0:  # a clock of a process or thread: the inverted pid above three bits of kind
        return True
    return number in _PROCESSOR_CLOCKS


def _read_clock(task: Task, number: int) -> int:
    if _is_processor_clock(number):
        return _processor_time(task, number)
    if number in _WALL_CLOCKS:
        return task.clock.wall()
    if number in _ELAPSED_CLOCKS:
        return task.clock.elapsed()
    raise OSError(errno.EINVAL, "clock")


def _processor_time(task: Task, number: int) -> int:
    """Processor time of the process or thread of a clock id. Raises OSError(EINVAL)."""
    task.scheduler.charge_current()
    if number in _PROCESSOR_CLOCKS:
        of_thread, which = number == _CLOCK_THREAD, 0
    else:  # a clock id is the inverted pid above three bits; bit 2 is set for a thread
        of_thread, which = bool(number & 4), ~(number >> 3)
    if of_thread:
        thread = task.scheduler.thread(which) if which else task.thread
        if thread is None or thread.process is not task.process:
            raise OSError(errno.EINVAL, "clock of a thread of another process")
        return thread.used_nanoseconds
    process = task.scheduler.processes.get(which) if which else task.process
    if process is None:
        raise OSError(errno.EINVAL, "clock of a process that does not exist")
    return task.scheduler.used_nanoseconds(process)


def _read_timespec(task: Task, address: int) -> int:
    seconds, nanoseconds = struct.unpack("<qq", task.memory.read(address, 16))
    if seconds < 0 or not 0 <= nanoseconds < NANOSECONDS:
        raise OSError(errno.EINVAL, "time")
    return int(seconds * NANOSECONDS + nanoseconds)


def _write_timespec(task: Task, address: int, nanoseconds: int) -> None:
    task.memory.write(address, struct.pack("<qq", *divmod(nanoseconds, NANOSECONDS)))


def _read_timeval(task: Task, address: int) -> int:
    seconds, microseconds = struct.unpack("<qq", task.memory.read(address, 16))
    if seconds < 0 or not 0 <= microseconds < 1_000_000:
        raise OSError(errno.EINVAL, "time")
    return int(seconds * NANOSECONDS + microseconds * 1000)


def _write_timeval(task: Task, address: int, nanoseconds: int) -> None:
    seconds, rest = divmod(nanoseconds, NANOSECONDS)
    task.memory.write(address, struct.pack("<qq", seconds, rest // 1000))


def packed_usage(processor_nanoseconds: int, resident_kilobytes: int) -> bytes:
    """``struct rusage`` with all processor time as user time."""
    seconds, rest = divmod(processor_nanoseconds, NANOSECONDS)
    return struct.pack("<18q", seconds, rest // 1000, 0, 0, resident_kilobytes, *[0] * 13)
