"""System calls on clocks, sleeping and timers, all in virtual time.

Every public method but `release` and `continue_from` is the system call of that name.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.linux.abi.numbers import CLOCK_TICKS_PER_SECOND, N_SIGNALS, Signal, signed
from emulator.linux.kernel.clock import NANOSECONDS, TimeBase, Timer
from emulator.linux.kernel.signals import SI_KERNEL, SI_TIMER, SignalInfo, ThreadSignals
from emulator.linux.kernel.tasks import Wait
from emulator.linux.syscalls.base import KernelCalls

if TYPE_CHECKING:
    from emulator.linux.kernel.linux_kernel import LinuxKernel

_CLOCK_REALTIME, _CLOCK_TAI = 0, 11
_CLOCK_THREAD = 3
_PROCESSOR_CLOCKS = {2, _CLOCK_THREAD}
_WALL_CLOCKS = {_CLOCK_REALTIME, 5, 8, _CLOCK_TAI}
_ELAPSED_CLOCKS = {1, 4, 6, 7, 9}
_COARSE_CLOCKS = {5, 6}
_TIMER_ABSTIME = 1
_SIGEV_SIGNAL, _SIGEV_NONE, _SIGEV_THREAD_ID = 0, 1, 4
_MAX_TIMERS = 64


@dataclass
class _PosixTimer:
    timer: Timer
    clock_id: int
    overrun: int = 0


class TimeCalls(KernelCalls):
    def __init__(self, kernel: LinuxKernel) -> None:
        super().__init__(kernel)
        self._timers = timers = kernel.timers
        signals = self._signals
        self._interval_timers = [
            timers.add(Timer(base, lambda _, signal=signal: signals.send(SignalInfo(signal, SI_KERNEL))))  # type: ignore[misc]
            for base, signal in (
                (TimeBase.ELAPSED, Signal.SIGALRM),
                (TimeBase.PROCESSOR, Signal.SIGVTALRM),
                (TimeBase.PROCESSOR, Signal.SIGPROF),
            )
        ]
        self._posix_timers: dict[int, _PosixTimer] = {}

    def continue_from(self, other: TimeCalls) -> None:
        """Copy the interval timers of ``other``: they survive execve."""
        for timer, before in zip(self._interval_timers, other._interval_timers, strict=True):
            timer.deadline, timer.interval = before.deadline, before.interval

    def release(self) -> None:
        """Remove all timers of this process."""
        for timer in [*self._interval_timers, *(posix.timer for posix in self._posix_timers.values())]:
            self._timers.remove(timer)
        self._interval_timers.clear()
        self._posix_timers.clear()

    # Clocks

    def clock_gettime(self, clock_id: int, address: int) -> int:
        self._write_timespec(address, self._read_clock(signed(clock_id, 32)))
        return 0

    def clock_getres(self, clock_id: int, address: int) -> int:
        number = signed(clock_id, 32)
        self._read_clock(number)
        if address:
            self._write_timespec(address, 4_000_000 if number in _COARSE_CLOCKS else 1)
        return 0

    def gettimeofday(self, address: int, timezone: int) -> int:
        if address:
            self._write_timeval(address, self._clock.wall())
        if timezone:
            self._memory.write(timezone, bytes(8))
        return 0

    def times(self, address: int) -> int:
        tick = NANOSECONDS // CLOCK_TICKS_PER_SECOND
        if address:
            used = self._scheduler.used_nanoseconds(self._owner) // tick
            children = self._owner.children_nanoseconds // tick
            self._memory.write(address, struct.pack("<4q", used, 0, children, 0))
        return self._clock.elapsed() // tick

    def getrusage(self, who: int, address: int) -> int:
        number = signed(who, 32)
        if number not in (-1, 0, 1):
            raise OSError(errno.EINVAL, "getrusage")
        used = self._scheduler.used_nanoseconds(self._owner)
        if number == 1:
            used = self._scheduler.current.used_nanoseconds
        elif number == -1:
            used = self._owner.children_nanoseconds
        resident = 0 if number == -1 else self._memory.mapped_bytes >> 10
        self._memory.write(address, packed_usage(used, resident))
        return 0

    # Sleeping

    def nanosleep(self, request: int, remaining: int) -> int:
        return self._sleep(self._clock.elapsed() + self._read_timespec(request), remaining)

    def clock_nanosleep(self, clock_id: int, flags: int, request: int, remaining: int) -> int:
        number = signed(clock_id, 32)
        duration = self._read_timespec(request)
        if number in _PROCESSOR_CLOCKS:
            raise OSError(errno.EINVAL, "a sleeping guest uses no processor time")
        if not flags & _TIMER_ABSTIME:
            self._read_clock(number)
            return self._sleep(self._clock.elapsed() + duration, remaining)
        return self._sleep(self._clock.elapsed() + duration - self._read_clock(number), 0)

    def _sleep(self, until: int, remaining: int) -> int:
        def interrupted() -> None:
            if remaining:
                self._write_timespec(remaining, max(0, until - self._clock.elapsed()))

        raise Wait(lambda: None, until, interrupted=interrupted)

    # Interval timers

    def setitimer(self, which: int, new: int, old: int) -> int:
        timer = self._interval_timer(which)
        interval, value = self._read_timeval(new), self._read_timeval(new + 16)
        if old:
            self._write_interval(old, timer)
        self._timers.arm(timer, value, interval)
        return 0

    def getitimer(self, which: int, address: int) -> int:
        self._write_interval(address, self._interval_timer(which))
        return 0

    def _interval_timer(self, which: int) -> Timer:
        if which >= len(self._interval_timers):
            raise OSError(errno.EINVAL, "interval timer")
        return self._interval_timers[which]

    def _write_interval(self, address: int, timer: Timer) -> None:
        microseconds = -(-self._timers.remaining(timer) // 1000)
        self._write_timeval(address, timer.interval)
        self._write_timeval(address + 16, microseconds * 1000)

    # POSIX timers

    def timer_create(self, clock_id: int, event: int, identifier: int) -> int:
        number = signed(clock_id, 32)
        self._read_clock(number)
        timer_id = next(k for k in range(_MAX_TIMERS + 1) if k not in self._posix_timers)
        if timer_id == _MAX_TIMERS:
            raise OSError(errno.EAGAIN, "timers")
        value, signal, notify, tid = timer_id, int(Signal.SIGALRM), _SIGEV_SIGNAL, 0
        if event:
            value, signal, notify, tid = struct.unpack("<Qiii", self._memory.read(event, 20))
        if notify not in (_SIGEV_SIGNAL, _SIGEV_NONE, _SIGEV_THREAD_ID):
            raise OSError(errno.EINVAL, "notification by thread")
        if notify != _SIGEV_NONE and not 1 <= signal <= N_SIGNALS:
            raise OSError(errno.EINVAL, "signal")

        def expired(overrun: int) -> None:
            self._posix_timers[timer_id].overrun = overrun
            if notify != _SIGEV_NONE:
                fields = struct.pack("<iiQ", timer_id, min(overrun, 2**31 - 1), value)
                self._signals.send(SignalInfo(signal, SI_TIMER, fields), self._signals_of(tid, notify))

        base = TimeBase.PROCESSOR if self._is_processor_clock(number) else TimeBase.ELAPSED
        self._memory.write_int(identifier, 4, timer_id)
        self._posix_timers[timer_id] = _PosixTimer(self._timers.add(Timer(base, expired)), number)
        return 0

    def timer_settime(self, timer_id: int, flags: int, new: int, old: int) -> int:
        posix = self._posix_timer(timer_id)
        interval, value = self._read_timespec(new), self._read_timespec(new + 16)
        if old:
            self.timer_gettime(timer_id, old)
        absolute = bool(flags & _TIMER_ABSTIME)
        if absolute and value and posix.clock_id in _WALL_CLOCKS:
            value = max(1, value - self._clock.epoch_nanoseconds)
        self._timers.arm(posix.timer, value, interval, absolute)
        return 0

    def timer_gettime(self, timer_id: int, address: int) -> int:
        timer = self._posix_timer(timer_id).timer
        self._write_timespec(address, timer.interval)
        self._write_timespec(address + 16, self._timers.remaining(timer))
        return 0

    def timer_getoverrun(self, timer_id: int) -> int:
        return min(self._posix_timer(timer_id).overrun, 2**31 - 1)

    def timer_delete(self, timer_id: int) -> int:
        self._timers.remove(self._posix_timer(timer_id).timer)
        del self._posix_timers[timer_id]
        return 0

    def _signals_of(self, tid: int, notify: int) -> ThreadSignals | None:
        """The signals of the thread to notify; None: any thread of the process."""
        thread = self._scheduler.thread(tid) if notify == _SIGEV_THREAD_ID else None
        return None if thread is None else thread.signals

    def _posix_timer(self, timer_id: int) -> _PosixTimer:
        if timer_id not in self._posix_timers:
            raise OSError(errno.EINVAL, "timer")
        return self._posix_timers[timer_id]

    # Inner parts

    @staticmethod
    def _is_processor_clock(number: int) -> bool:
        if number < 0:  # a clock of a process or thread: the inverted pid above three bits of kind
            return True
        return number in _PROCESSOR_CLOCKS

    def _read_clock(self, number: int) -> int:
        if self._is_processor_clock(number):
            return self._processor_time(number)
        if number in _WALL_CLOCKS:
            return self._clock.wall()
        if number in _ELAPSED_CLOCKS:
            return self._clock.elapsed()
        raise OSError(errno.EINVAL, "clock")

    def _processor_time(self, number: int) -> int:
        """Processor time of the process or thread of a clock id. Raises OSError(EINVAL)."""
        self._scheduler.charge_current()
        if number in _PROCESSOR_CLOCKS:
            of_thread, which = number == _CLOCK_THREAD, 0
        else:  # a clock id is the inverted pid above three bits; bit 2 is set for a thread
            of_thread, which = bool(number & 4), ~(number >> 3)
        if of_thread:
            thread = self._scheduler.thread(which) if which else self._scheduler.current
            if thread is None or thread.process is not self._owner:
                raise OSError(errno.EINVAL, "clock of a thread of another process")
            return thread.used_nanoseconds
        process = self._scheduler.processes.get(which) if which else self._owner
        if process is None:
            raise OSError(errno.EINVAL, "clock of a process that does not exist")
        return self._scheduler.used_nanoseconds(process)

    def _read_timespec(self, address: int) -> int:
        seconds, nanoseconds = struct.unpack("<qq", self._memory.read(address, 16))
        if seconds < 0 or not 0 <= nanoseconds < NANOSECONDS:
            raise OSError(errno.EINVAL, "time")
        return int(seconds * NANOSECONDS + nanoseconds)

    def _write_timespec(self, address: int, nanoseconds: int) -> None:
        self._memory.write(address, struct.pack("<qq", *divmod(nanoseconds, NANOSECONDS)))

    def _read_timeval(self, address: int) -> int:
        seconds, microseconds = struct.unpack("<qq", self._memory.read(address, 16))
        if seconds < 0 or not 0 <= microseconds < 1_000_000:
            raise OSError(errno.EINVAL, "time")
        return int(seconds * NANOSECONDS + microseconds * 1000)

    def _write_timeval(self, address: int, nanoseconds: int) -> None:
        seconds, rest = divmod(nanoseconds, NANOSECONDS)
        self._memory.write(address, struct.pack("<qq", seconds, rest // 1000))


def packed_usage(processor_nanoseconds: int, resident_kilobytes: int) -> bytes:
    """``struct rusage`` with all processor time as user time."""
    seconds, rest = divmod(processor_nanoseconds, NANOSECONDS)
    return struct.pack("<18q", seconds, rest // 1000, 0, 0, resident_kilobytes, *[0] * 13)
