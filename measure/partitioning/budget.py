"""Divides a time limit between the search, the validation of its result on fresh runs, and writing the results."""

from __future__ import annotations

import time
from collections.abc import Callable

from measure.console.machine_load import load_per_processor
from measure.console.time_left import clock_text

_WRITING_SECONDS = 10.0  # for the page with its pictures and the campaign files; more where load is above 1
_WRITING_SHARE = 0.2  # of a short limit
VALIDATION_SHARE = 0.5  # of the limit at most, however much there is to validate
_COMPARING_SECONDS = 30.0  # to compare the runs of a group whose test the limit ended
_COMPARING_SHARE = 0.1  # of a short limit


class Budget:
    """A time limit of ``seconds``, of which ``spent_seconds`` are over; None for none. Moments are those of ``clock``.

    ``load``: returns how busy the machine is, see `load_per_processor`: at the end, everything takes longer by it.
    """

    def __init__(
        self,
        seconds: float | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        spent_seconds: float = 0.0,
        load: Callable[[], float] = load_per_processor,
    ) -> None:
        self.seconds = seconds
        self._clock, self._load = clock, load
        self._begun = clock() - spent_seconds

    @property
    def measuring_ends(self) -> float | None:
        """The moment at which searching and validating must end; None without a limit."""
        if self.seconds is None:
            return None
        writing = _WRITING_SECONDS * max(1.0, self._load())
        return self._begun + self.seconds - min(writing, _WRITING_SHARE * self.seconds)

    def search_ends(self, validation_seconds: float) -> float | None:
        """The moment at which the search must end to leave ``validation_seconds`` for the validation."""
        if self.seconds is None or self.measuring_ends is None:
            return None
        return self.measuring_ends - min(validation_seconds, VALIDATION_SHARE * self.seconds)

    @property
    def comparing_begins(self) -> float | None:
        """The moment at which runs must end to be compared before `measuring_ends`; None without a limit."""
        if self.seconds is None or self.measuring_ends is None:
            return None
        return self.measuring_ends - min(_COMPARING_SECONDS, _COMPARING_SHARE * self.seconds)

    @property
    def comparing_ends(self) -> float | None:
        """The moment at which comparing runs must end; None without a limit. A machine that has become busier moves
        `measuring_ends`: half of the time that was kept for comparing is left even so."""
        if self.seconds is None or self.measuring_ends is None:
            return None
        kept = min(_COMPARING_SECONDS, _COMPARING_SHARE * self.seconds)
        return min(max(self.measuring_ends, self._clock() + kept / 2), self._begun + self.seconds)

    @property
    def elapsed_seconds(self) -> float:
        """The time since the limit began."""
        return self._clock() - self._begun

    def is_over(self) -> bool:
        """Whether no more measurements may be made."""
        return self.measuring_ends is not None and self._clock() >= self.measuring_ends

    def describe(self) -> str:
        """``1:20 of 4:00 left``, or the time so far where there is no limit."""
        if self.seconds is None:
            return f"{clock_text(self.elapsed_seconds)} so far"
        return f"{clock_text(self.seconds - self.elapsed_seconds)} of {clock_text(self.seconds)} left"

    @property
    def name(self) -> str:
        """The limit in words, for messages."""
        return "no time limit" if self.seconds is None else f"the time limit of {self.seconds / 60:g} min"
