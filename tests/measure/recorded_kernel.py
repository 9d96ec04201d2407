"""A kernel's answers to perf_event_open, in place of a machine that has them."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from measure.host.perf_event import SOFTWARE, Event


class RecordedKernel:
    """Answers as a kernel with ``counters`` hardware counters does; ``level``: perf_event_paranoid; ``unknown``: events
    that the processor does not have."""

    def __init__(
        self, counters: int = 6, level: int = 1, unknown: Sequence[Event] = (), forbidden: bool = False
    ) -> None:
        self._counters, self._level, self._unknown, self._forbidden = counters, level, unknown, forbidden

    def open_group(self, events: Sequence[Event], without_kernel: bool) -> int:
        if self._forbidden or (self._level >= 2 and not without_kernel):
            return errno.EACCES
        hardware = [event for event in events if event.type != SOFTWARE]
        if hardware and not self._counters:
            return errno.ENOENT
        if any(event in self._unknown for event in hardware):
            return errno.ENOENT
        return errno.EINVAL if len(hardware) > self._counters else 0

    def paranoid(self) -> int:
        return self._level
