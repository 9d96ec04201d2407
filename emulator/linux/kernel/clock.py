"""Virtual time: the guest's clocks, sleeping, and timers.

The machine supplies one function, the clock source: nanoseconds of processor time derived from simulated cycles. A
sleeping guest uses none, so a sleep moves the guest's clocks ahead of the source: processor-time clocks show the
source, all others the source plus the time slept. Deadlines are given to the machine in the source's time. Waiting
threads are left to `scheduler`, system calls to `clocks_and_timers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from emulator.errors import EmulatorError

NANOSECONDS = 1_000_000_000
LAST_NANOSECONDS = 1 << 62
"""Upper limit of all deadlines (146 years): later times would not fit in the guest's structures."""

EPOCH_SECONDS = 1_700_000_000
"""The wall clock's value when a guest starts (14 November 2023): fixed, so that runs repeat."""


class Deadlock(EmulatorError):
    """All threads of the guest wait, and no event can ever end a wait."""


class TimeBase(Enum):
    """The time that a clock or timer counts: elapsed time or processor time."""

    ELAPSED = "elapsed"
    PROCESSOR = "processor"


class VirtualClock:
    """The guest's clocks over ``source``, a function that returns virtual nanoseconds of processor time."""

    def __init__(self, source: Callable[[], int]) -> None:
        self.processor = source
        """Returns the nanoseconds of processor time that the guest has used."""
        self._slept_nanoseconds = 0
        self.epoch_nanoseconds = EPOCH_SECONDS * NANOSECONDS

    def elapsed(self) -> int:
        """Nanoseconds since the guest started."""
        return self.processor() + self._slept_nanoseconds

    def wall(self) -> int:
        """Nanoseconds since 1970."""
        return self.epoch_nanoseconds + self.elapsed()

    def now(self, base: TimeBase) -> int:
        return self.processor() if base is TimeBase.PROCESSOR else self.elapsed()

    def sleep_until(self, elapsed_nanoseconds: int) -> None:
        """Let time pass until `elapsed` shows the given value; a past one does nothing."""
        self._slept_nanoseconds += max(0, elapsed_nanoseconds - self.elapsed())

    def to_source(self, base: TimeBase, deadline: int) -> int:
        """A deadline of a clock, converted to the source's time for a guest that does not sleep until then."""
        return deadline if base is TimeBase.PROCESSOR else deadline - self._slept_nanoseconds


@dataclass
class Timer:
    """A timer of the guest; ``deadline`` is None while it is not armed. All in nanoseconds of ``base``."""

    base: TimeBase
    notify: Callable[[int], None]
    """Called when the timer expires, with the overrun: the number of further periods that have already passed."""
    deadline: int | None = None
    interval: int = 0


class Timers:
    """All armed and disarmed timers of a guest.

    ``phase`` in [0, 1) shortens the first period of every periodic timer by that fraction, which models the random
    phase of a sampling timer.
    """

    def __init__(self, clock: VirtualClock, phase: float = 0.0) -> None:
        if not 0 <= phase < 1:
            raise ValueError(f"timer phase {phase}: expected a fraction from 0 up to, not including, 1")
        self._clock = clock
        self._phase = phase
        self._timers: list[Timer] = []

    def add(self, timer: Timer) -> Timer:
        self._timers.append(timer)
        return timer

    def remove(self, timer: Timer) -> None:
        self._timers.remove(timer)

    def arm(self, timer: Timer, value: int, interval: int, absolute: bool = False) -> None:
        """Set a timer as ``setitimer`` does: ``value`` 0 disarms; in nanoseconds."""
        timer.interval = interval = min(interval, LAST_NANOSECONDS)
        value = min(value, LAST_NANOSECONDS)
        if value == 0:
            timer.deadline = None
        elif absolute:
            timer.deadline = value
        else:
            shortened = int(value * self._phase) if interval else 0
            timer.deadline = self._clock.now(timer.base) + value - shortened

    def remaining(self, timer: Timer) -> int:
        """Nanoseconds until the timer expires: 0 when disarmed, at least 1 when armed."""
        return 0 if timer.deadline is None else max(1, timer.deadline - self._clock.now(timer.base))

    def next_deadline(self) -> int | None:
        """Time of the source at which the first timer expires if the guest keeps running; None without one."""
        first = None
        for timer in self._timers:  # a plain loop, because it runs twice at every system call
            if timer.deadline is not None:
                deadline = self._clock.to_source(timer.base, timer.deadline)
                first = deadline if first is None else min(first, deadline)
        return first

    def next_wakeup(self) -> int | None:
        """Elapsed time of the first timer that can wake a sleeping guest; timers of processor time cannot. None without
        one."""
        deadlines = [t.deadline for t in self._timers if t.deadline is not None and t.base is TimeBase.ELAPSED]
        return min(deadlines, default=None)

    def fire(self) -> None:
        """Call `Timer.notify` of every timer that is due, and set periodic ones to the next future period."""
        for timer in list(self._timers):
            now = self._clock.now(timer.base)
            if timer.deadline is None or timer.deadline > now:
                continue
            overrun = (now - timer.deadline) // timer.interval if timer.interval else 0
            timer.deadline = timer.deadline + (overrun + 1) * timer.interval if timer.interval else None
            timer.notify(overrun)
