"""Threads that wait, and which of them are to be asked whether they still do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from emulator.linux.tasks import Thread, Wait


class WaitQueue:
    """In the order in which the threads began to wait.

    Most are asked whenever something has happened. One whose wait `is_told` is asked when it begins, when somebody has
    told it, when its time is over, and when a signal may have ended any wait: there may be hundreds that wait for one
    lock. ``timed``: those whose waits have an end.
    """

    def __init__(self) -> None:
        self._places: dict[Thread, int] = {}  # ascending
        self._always: dict[Thread, None] = {}  # asked whatever has happened
        self.timed: dict[Thread, None] = {}
        self._told: dict[Thread, None] = {}  # to be asked next time
        self._everybody = False
        self._next_place = 0

    def __bool__(self) -> bool:
        return bool(self._places)

    def __iter__(self) -> Iterator[Thread]:
        return iter(self._places)

    def __contains__(self, thread: object) -> bool:
        return thread in self._places

    def add(self, thread: Thread, wait: Wait) -> None:
        """``thread`` begins to wait, or waits for something else from now on, in the same place."""
        if thread in self._places:
            self._always.pop(thread, None)
            self.timed.pop(thread, None)
        else:
            self._places[thread] = self._next_place
            self._next_place += 1
        thread.wait = wait
        if wait.until is not None:
            self.timed[thread] = None
        (self._told if wait.is_told else self._always)[thread] = None

    def remove(self, thread: Thread) -> None:
        """It waits no more, if it did."""
        thread.wait = None
        self._places.pop(thread, None)
        self._told.pop(thread, None)
        if self._always:
            self._always.pop(thread, None)
        if self.timed:
            self.timed.pop(thread, None)

    def tell(self, thread: Thread) -> None:
        """What the thread waits for has happened."""
        if thread in self._places:
            self._told[thread] = None

    def ask_everybody(self) -> None:
        """Something has happened that may end any wait."""
        self._everybody = True

    @property
    def is_quiet(self) -> bool:
        """Whether no wait has to be asked: all threads that wait will be told."""
        return not (self._told or self._always or self.timed or self._everybody)

    def to_ask(self, elapsed: Callable[[], int]) -> list[Thread]:
        """Those to be asked now, in order; they are told no more. ``elapsed``: tells nanoseconds."""
        told, self._told = self._told, {}
        if self._everybody:
            self._everybody = False
            return list(self._places)
        if not self.timed and not self._always:
            return sorted(told, key=self._places.__getitem__) if len(told) > 1 else [*told]
        found = {**self._always, **told}
        if self.timed:
            now = elapsed()
            found.update(dict.fromkeys(t for t in self.timed if t.wait is None or (t.wait.until or 0) <= now))
        return sorted(found, key=self._places.__getitem__)

    def ends(self) -> list[int]:
        """Elapsed nanoseconds at which waits end, but for those whose time stands still with their process."""
        if not self.timed:
            return []
        return [
            thread.wait.until
            for thread in self.timed
            if thread.wait is not None and thread.wait.until is not None and not thread.process.stopped
        ]
