"""Divides a time limit between the search, the validation of its result on fresh runs, and writing the results."""

from __future__ import annotations

import time
from collections.abc import Callable

from measure.console.time_left import clock_text

_WRITING_SECONDS = 10.0  # for the page with its pictures and the campaign files, on a busy machine
_WRITING_SHARE = 0.2  # of a short limit
_VALIDATION_SHARE = 0.5  # of the limit at most, however much there is to validate


class Budget:
    """A time limit of ``seconds`` from now on, None for none. Moments are those of ``clock``."""

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._begun = clock()

    @property
    def measuring_ends(self) -> float | None:
        """The moment at which searching and validating must end; None without a limit."""
        if self.seconds is None:
            return None
        return self._begun + self.seconds - min(_WRITING_SECONDS, _WRITING_SHARE * self.seconds)

    def search_ends(self, validation_seconds: float) -> float | None:
        """The moment at which the search must end to leave ``validation_seconds`` for the validation."""
        if self.seconds is None or self.measuring_ends is None:
            return None
        return self.measuring_ends - min(validation_seconds, _VALIDATION_SHARE * self.seconds)

    def is_over(self) -> bool:
        """Whether no more measurements may be made."""
        return self.measuring_ends is not None and self._clock() >= self.measuring_ends

    def describe(self) -> str:
        """``1:20 of 4:00 left``, or the time so far where there is no limit."""
        elapsed = self._clock() - self._begun
        if self.seconds is None:
            return f"{clock_text(elapsed)} so far"
        return f"{clock_text(self.seconds - elapsed)} of {clock_text(self.seconds)} left"

    @property
    def name(self) -> str:
        """The limit in words, for messages."""
        return "no time limit" if self.seconds is None else f"the time limit of {self.seconds / 60:g} min"
