"""How long work will still take: a range from what was done so far, or nothing while that says too little."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_SIGMAS = 1.7  # how far the mean of a few costs may be off, in standard deviations
_LEAST_SPREAD = 0.4  # of costs, as a share of their mean: a few that are alike prove nothing
_WIDEST = 6.0  # a range whose ends are further apart says nothing
_NARROW = 1.25  # one whose ends are closer is one number


class TimeLeft:
    """Estimates the time left of ``total`` units of work, ``at_once`` pieces of which are in progress together.

    Pieces that end together (several workers, begun together) say nothing of the pace, and what takes long before the
    first of them is not repeated. So nothing is said before pieces of a second wave have ended. The range counts
    the pieces in progress as done at its lower end, and as not begun at its upper end, and widens both by
    how much the mean of so few pieces may be off.
    """

    def __init__(self, total: float, at_once: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = total
        self.done = 0.0
        self._at_once = at_once
        self._clock = clock
        self._begun = clock()
        self._first = 0.0  # when the first piece ended
        self._first_amount = 0.0
        self._pieces = 0
        self._latest = 0.0
        self._gap_squares = 0.0

    @property
    def elapsed_seconds(self) -> float:
        """Since the work began."""
        return self._clock() - self._begun

    def advance(self, amount: float = 1.0) -> None:
        """A piece of work of ``amount`` units has ended."""
        now = self._clock()
        self.done += amount
        self._pieces += 1
        if self._pieces == 1:
            self._first, self._first_amount = now, amount
        else:
            self._gap_squares += (now - self._latest) ** 2
        self._latest = now

    def seconds(self) -> tuple[float, float] | None:
        """The least and the most time that is left, about; None while too little is known."""
        left = self.total - self.done
        if left <= 0:
            return 0.0, 0.0
        if self._pieces < self._at_once + 3:
            return None
        piece = self.done / self._pieces
        in_progress = min(self._at_once * piece, left)
        since_first = self._clock() - self._first
        fast = since_first / (self.done - self._first_amount + in_progress)
        slow = since_first / (self.done - self._at_once * piece)
        doubt = _SIGMAS * self._spread() * math.sqrt(1 / self._pieces + piece / left)
        low = (left - in_progress / 2) * fast / (1 + doubt)
        high = left * slow * (1 + doubt)
        return (low, high) if high <= _WIDEST * max(low, 1.0) else None

    def _spread(self) -> float:
        """Standard deviation of the times between ends, over their mean."""
        gaps = self._pieces - 1
        mean = max((self._latest - self._first) / gaps, 1e-9)
        return max(_LEAST_SPREAD, math.sqrt(max(0.0, self._gap_squares / gaps / mean**2 - 1)))

    def describe(self) -> str:
        """``2 to 4 min left``, or that it is not known yet."""
        found = self.seconds()
        return "time left not known yet" if found is None else f"{_range(*found)} left"


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
