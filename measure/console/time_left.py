"""Estimates how long work will still take: a range from the work done so far, or nothing while that is too little."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_SIGMAS = 1.7  # error of the mean of a few costs, in standard deviations
_LEAST_SPREAD = 0.4  # of costs, as a fraction of their mean: a few equal costs prove nothing
_WIDEST = 6.0  # largest ratio of the ends of a range that is shown
_NARROW = 1.25  # a range with a smaller ratio is shown as one number


class TimeLeft:
    """Estimates the time left of ``total`` units of work, of which ``at_once`` tasks are in progress together.

    Tasks that end together (several workers, begun together) do not show the pace, and delays before the first end
    are not repeated. So there is no estimate before tasks of a second wave have ended. The range counts the tasks in
    progress as done at its lower end, and as not begun at its upper end, and widens both by the possible error of the
    mean of so few tasks.
    """

    def __init__(self, total: float, at_once: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = total
        self.done = 0.0
        self._at_once = at_once
        self._clock = clock
        self._begun = clock()
        self._first = 0.0  # when the first task ended
        self._first_amount = 0.0
        self._tasks = 0  # ended ones
        self._latest = 0.0
        self._gap_squares = 0.0

    @property
    def elapsed_seconds(self) -> float:
        """Time since the work began."""
        return self._clock() - self._begun

    def advance(self, amount: float = 1.0) -> None:
        """A task of ``amount`` units has ended."""
        now = self._clock()
        self.done += amount
        self._tasks += 1
        if self._tasks == 1:
            self._first, self._first_amount = now, amount
        else:
            self._gap_squares += (now - self._latest) ** 2
        self._latest = now

    def seconds(self) -> tuple[float, float] | None:
        """Lower and upper estimate of the time left; None while too little is done."""
        left = self.total - self.done
        if left <= 0:
            return 0.0, 0.0
        if self._tasks < self._at_once + 3:
            return None
        task = self.done / self._tasks  # mean amount
        in_progress = min(self._at_once * task, left)
        since_first = self._clock() - self._first
        fast = since_first / (self.done - self._first_amount + in_progress)
        slow = since_first / (self.done - self._at_once * task)
        error = _SIGMAS * self._spread() * math.sqrt(1 / self._tasks + task / left)
        low = (left - in_progress / 2) * fast / (1 + error)
        high = left * slow * (1 + error)
        return (low, high) if high <= _WIDEST * max(low, 1.0) else None

    def _spread(self) -> float:
        """Standard deviation of the times between ends, over their mean."""
        gaps = self._tasks - 1
        mean = max((self._latest - self._first) / gaps, 1e-9)
        return max(_LEAST_SPREAD, math.sqrt(max(0.0, self._gap_squares / gaps / mean**2 - 1)))

    def describe(self) -> str:
        """``2 to 4 min left``, or that it is not known yet."""
        estimate = self.seconds()
        return "time left not known yet" if estimate is None else f"{_range(*estimate)} left"


def _range(low: float, high: float) -> str:
    if high < 10:
        return "under 10 s"
    unit, seconds = next(one for one in (("h", 3600), ("min", 60), ("s", 1)) if high >= 1.5 * one[1])
    step = 5 if unit == "s" else 1
    first, last = (max(step, step * round(value / seconds / step)) for value in (low, high))
    if high <= _NARROW * low or first == last:
        return f"about {last} {unit}"
    return f"{first} to {last} {unit}"


def clock_text(seconds: float) -> str:
    """``3:07`` or ``1:02:03``."""
    whole = max(0, int(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
