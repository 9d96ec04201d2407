"""The timers of a process: its three interval timers (setitimer) and its POSIX timers (timer_create)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from emulator.linux.abi.numbers import Signal
from emulator.linux.kernel.clock import TimeBase, Timer, Timers
from emulator.linux.kernel.signals import SI_KERNEL, SI_TIMER, SignalInfo, SignalState, ThreadSignals

_MAX_OVERRUN = 2**31 - 1
_INTERVAL_TIMERS = (
    (TimeBase.ELAPSED, Signal.SIGALRM),
    (TimeBase.PROCESSOR, Signal.SIGVTALRM),
    (TimeBase.PROCESSOR, Signal.SIGPROF),
)


@dataclass(eq=False)
class PosixTimer:
    """A POSIX timer. ``number``: its id; ``signal``: sent at each expiration, None to send none; ``value``: its
    ``si_value``; ``receiver``: gives the signals of the thread to send to, or None for any thread of the process."""

    number: int
    clock_id: int
    signals: SignalState
    signal: int | None
    value: int
    receiver: Callable[[], ThreadSignals | None]
    overrun: int = 0
    timer: Timer = field(init=False)

    def expired(self, overrun: int) -> None:
        self.overrun = min(overrun, _MAX_OVERRUN)
        if self.signal is not None:
            fields = struct.pack("<iiQ", self.number, self.overrun, self.value)
            self.signals.send(SignalInfo(self.signal, SI_TIMER, fields), self.receiver())


class ProcessTimers:
    """``interval``: the interval timers, in the order of their numbers; ``posix``: the POSIX timers by id."""

    def __init__(self, timers: Timers, signals: SignalState) -> None:
        self._timers = timers
        self.interval = [timers.add(Timer(base, partial(_send, signals, signal))) for base, signal in _INTERVAL_TIMERS]
        self.posix: dict[int, PosixTimer] = {}

    def add_posix(self, posix: PosixTimer, base: TimeBase) -> None:
        posix.timer = self._timers.add(Timer(base, posix.expired))
        self.posix[posix.number] = posix

    def remove_posix(self, number: int) -> None:
        self._timers.remove(self.posix.pop(number).timer)

    def continue_from(self, other: ProcessTimers) -> None:
        """Copy the interval timers of ``other``: they survive execve."""
        for timer, before in zip(self.interval, other.interval, strict=True):
            timer.deadline, timer.interval = before.deadline, before.interval

    def release(self) -> None:
        """Remove all timers: the process has ended or executes another program."""
        for timer in [*self.interval, *(posix.timer for posix in self.posix.values())]:
            self._timers.remove(timer)
        self.interval.clear()
        self.posix.clear()


def _send(signals: SignalState, signal: int, overrun: int) -> None:
    signals.send(SignalInfo(signal, SI_KERNEL))
