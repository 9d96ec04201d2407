"""When phases are sampled again."""

from __future__ import annotations

import numpy as np

from measure.cycle_close.online_kernel import EMPTY, Due, place_of

BADLY = 0.1  # error of an estimate, as a fraction of the interval's cycles, from which it counts as bad
_FIRST_GAP, _LEAST_GAP = 10, 3  # [intervals] between samples of a phase
_GAP_GROWTH = 4  # factor to the next gap; after a sample that was estimated badly, divisor
_LONGEST_GAP = 512  # behaviour that changes late is found within so many


class SampleSchedule:
    """When each phase and range of waiting that has a sample is sampled again: after so many more of its intervals.

    Samples get rarer, and more frequent again after a sample that differed from its estimate. Behaviour may drift
    without a change of code or waiting: misses are counted, but not how many of them are under way at once.

    Keys are those of `measure.cycle_close.online_kernel.Found`. ``due``: for kernels, which count intervals down.
    """

    def __init__(self) -> None:
        self.due = _empty(1024)
        self._gaps: dict[int, int] = {}  # [intervals] before the next sample

    def __contains__(self, key: int) -> bool:
        return key in self._gaps

    def take(self, key: int, was_badly_estimated: bool) -> None:
        """A sample of ``key`` was taken: find out when the next is due. ``was_badly_estimated``: it differed much from
        its estimate, if there was one."""
        last = self._gaps.get(key)
        if last is None:
            gap = _FIRST_GAP
        elif was_badly_estimated:
            gap = max(_LEAST_GAP, last // _GAP_GROWTH)
        else:
            gap = min(_GAP_GROWTH * last, _LONGEST_GAP)
        self._gaps[key] = gap
        if 2 * len(self._gaps) > len(self.due.keys):
            before, self.due = self.due, _empty(2 * len(self.due.keys))
            for place in np.flatnonzero(before.keys != EMPTY).tolist():
                self._put(int(before.keys[place]), int(before.intervals[place]))
        self._put(key, gap)

    def count(self, key: int) -> bool:
        """Count an interval of ``key``, which has a sample; whether it is to be the next one."""
        place = place_of(self.due, key)
        self.due.intervals[place] -= 1
        return bool(self.due.intervals[place] < 0)

    def _put(self, key: int, intervals: int) -> None:
        place = place_of(self.due, key)
        self.due.keys[place], self.due.intervals[place] = key, intervals


def _empty(size: int) -> Due:
    return Due(np.full(size, EMPTY, np.int64), np.zeros(size, np.int64))
