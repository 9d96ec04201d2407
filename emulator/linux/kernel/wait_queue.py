"""The queue of waiting threads, and which of their wait conditions have to be checked again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from emulator.linux.kernel.tasks import Thread
from emulator.linux.kernel.waits import Wait


class WaitQueue:
    """Waiting threads in the order in which they began to wait.

    Most waits are checked after every event. A wait with `is_notified` is checked when it begins, after `notify`, at
    its timeout, and when a signal may have ended any wait: hundreds of threads may wait for one lock. ``timed``:
    threads whose wait has a timeout.
    """

    def __init__(self) -> None:
        self._order: dict[Thread, int] = {}  # ascending
        self._always: dict[Thread, None] = {}  # checked after every event
        self.timed: dict[Thread, None] = {}
        self._notified: dict[Thread, None] = {}  # notified since the last check
        self._check_all = False
        self._next_number = 0

    def __bool__(self) -> bool:
        return bool(self._order)

    def __iter__(self) -> Iterator[Thread]:
        return iter(self._order)

    def __contains__(self, thread: object) -> bool:
        return thread in self._order

    def add(self, thread: Thread, wait: Wait) -> None:
        """Add ``thread`` with its wait; a thread that already waits gets the new wait and keeps its place."""
        if thread in self._order:
            self._always.pop(thread, None)
            self.timed.pop(thread, None)
        else:
            self._order[thread] = self._next_number
            self._next_number += 1
        thread.wait = wait
        if wait.until is not None:
            self.timed[thread] = None
        (self._notified if wait.is_notified else self._always)[thread] = None

    def remove(self, thread: Thread) -> None:
        """Remove a thread if it waits."""
        thread.wait = None
        self._order.pop(thread, None)
        self._notified.pop(thread, None)
        if self._always:
            self._always.pop(thread, None)
        if self.timed:
            self.timed.pop(thread, None)

    def notify(self, thread: Thread) -> None:
        """Have the wait of ``thread`` checked: its event has happened."""
        if thread in self._order:
            self._notified[thread] = None

    def check_all(self) -> None:
        """Have all waits checked next time: an event happened that may end any of them."""
        self._check_all = True

    @property
    def is_quiet(self) -> bool:
        """Whether no wait has to be checked: all waiting threads will be notified."""
        return not (self._notified or self._always or self.timed or self._check_all)

    def to_check(self, elapsed: Callable[[], int]) -> list[Thread]:
        """The threads whose waits have to be checked now, in order; clears their notifications.

        ``elapsed`` returns the elapsed nanoseconds."""
        notified, self._notified = self._notified, {}
        if self._check_all:
            self._check_all = False
            return list(self._order)
        if not self.timed and not self._always:
            return sorted(notified, key=self._order.__getitem__) if len(notified) > 1 else [*notified]
        found = {**self._always, **notified}
        if self.timed:
            now = elapsed()
            found.update(dict.fromkeys(t for t in self.timed if t.wait is None or (t.wait.until or 0) <= now))
        return sorted(found, key=self._order.__getitem__)

    def ends(self) -> list[int]:
        """Timeouts of the waits in elapsed nanoseconds, without those of stopped processes."""
        if not self.timed:
            return []
        return [
            thread.wait.until
            for thread in self.timed
            if thread.wait is not None and thread.wait.until is not None and not thread.process.stopped
        ]
