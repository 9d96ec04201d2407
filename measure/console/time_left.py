"""Estimates how long work will still take: a range from the work done so far, or nothing while no task has ended."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

_LATEST = 15  # ended tasks that show the pace, and 5 more for each that is in progress
_SIGMAS = 1.7  # error of the mean of a few costs, in standard deviations
_LEAST_SPREAD = 0.4  # of costs, as a fraction of their mean: a few equal costs prove nothing
_WIDEST = 6.0  # largest ratio of the ends of a range of which both are told
_LEAST_TASKS = 3  # more than a first wave, for a pace without the delay before the first end
_NARROW = 1.25  # a range with a smaller ratio is shown as one number


class TimeLeft:
    """Estimates the time left of ``total`` units of work, of which ``at_once`` tasks are in progress together.

    Tasks that end together (several workers, begun together) do not show the pace, and delays before the first end
    are not repeated. So after a first wave of ``at_once`` tasks there is an upper end only, which counts such a delay
    as work; the tasks of later waves give both ends. The range counts the tasks in progress as done at its lower end,
    and as not begun at its upper end, and widens both by the possible error of the mean of so few tasks. The pace is
    that of the latest tasks, since a machine may become busier or less busy.
    """

    def __init__(self, total: float, at_once: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = total
        self.done = 0.0
        self._at_once = at_once
        self._clock = clock
        self._begun = clock()
        self._ends: deque[tuple[float, float]] = deque(maxlen=_LATEST + 5 * at_once)  # moment and amount

    @property
    def elapsed_seconds(self) -> float:
        """Time since the work began."""
        return self._clock() - self._begun

    def advance(self, amount: float = 1.0) -> None:
        """A task of ``amount`` units has ended."""
        self.done += amount
        self._ends.append((self._clock(), amount))

    def seconds(self) -> tuple[float, float] | None:
        """Lower and upper estimate of the time left; the lower is 0 while little is done, and None before a first wave
        has ended."""
        left = self.total - self.done
        if left <= 0:
            return 0.0, 0.0
        tasks = len(self._ends)
        if tasks < self._at_once:
            return None
        first, first_amount = self._ends[0]
        done = sum(amount for _, amount in self._ends)
        task = done / tasks  # mean amount
        wave = self._at_once * task
        not_begun = wave * math.ceil(left / wave - 1e-9)  # the last tasks take as long where workers have none left
        if tasks < self._at_once + _LEAST_TASKS:
            error = _SIGMAS * _LEAST_SPREAD * math.sqrt(1 / tasks + task / left)
            return 0.0, not_begun * self.elapsed_seconds / done * (1 + error)
        in_progress = min(wave, left)
        since_first = max(0.0, self._clock() - first)
        fast = since_first / (done - first_amount + in_progress)
        slow = since_first / (done - wave)
        error = _SIGMAS * self._spread() * math.sqrt(1 / tasks + task / left)
        low = (left - in_progress / 2) * fast / (1 + error)
        return low, not_begun * slow * (1 + error)

    def _spread(self) -> float:
        """Standard deviation of the time that a task adds, over its mean. It is that of the sums of as many times
        between ends as tasks are in progress, for a single one says nothing where tasks end together."""
        moments = [moment for moment, _ in self._ends]
        gaps = [later - earlier for earlier, later in zip(moments, moments[self._at_once :], strict=False)]
        mean = max(sum(gaps) / len(gaps), 1e-9)
        squares = sum(gap**2 for gap in gaps) / len(gaps)
        return max(_LEAST_SPREAD, math.sqrt(self._at_once * max(0.0, squares / mean**2 - 1)))

    def describe(self) -> str:
        """``2 to 4 min left``, ``up to 4 min left`` where the lower end says little, or that it is not known yet."""
        estimate = self.seconds()
        if estimate is None:
            return "time left not known yet"
        low, high = estimate
        return f"{range_text(low if high <= _WIDEST * max(low, 1.0) else 0.0, high)} left"


def range_text(low: float, high: float) -> str:
    """``2 to 4 min`` for a range of seconds, ``up to 4 min`` for one from 0."""
    if high < 10:
        return "under 10 s"
    unit, seconds = next(one for one in (("h", 3600), ("min", 60), ("s", 1)) if high >= 1.5 * one[1])
    step = 5 if unit == "s" else 1
    first, last = (max(step, step * round(value / seconds / step)) for value in (low, high))
    if low == 0:
        return f"up to {last} {unit}"
    if high <= _NARROW * low or first == last:
        return f"about {last} {unit}"
    return f"{first} to {last} {unit}"


def clock_text(seconds: float) -> str:
    """``3:07`` or ``1:02:03``."""
    whole = max(0, int(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
