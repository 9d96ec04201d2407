"""The threads that wait for words of memory, for `scheduler` and `futex_calls`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from emulator.linux.tasks import Thread
from emulator.memory import GuestMemory


@dataclass(eq=False)
class FutexWaiter:
    """One that waits for the word at ``place``; ``bits``: which wakes it takes; ``tid``: whose number is to be in the
    word, for a lock that is handed over."""

    place: tuple[object, int]
    bits: int
    thread: Thread
    tid: int = 0
    woken: bool = False


class Futexes:
    """The waiters of each word of memory, in order of arrival."""

    def __init__(self, tell: Callable[[Thread], None]) -> None:
        self._tell = tell
        self._waiters: dict[tuple[object, int], dict[FutexWaiter, None]] = {}

    def add(self, memory: GuestMemory, address: int, bits: int, thread: Thread, tid: int = 0) -> FutexWaiter:
        waiter = FutexWaiter(memory.place_of(address), bits, thread, tid)
        self._put(waiter)
        return waiter

    def _put(self, waiter: FutexWaiter) -> None:
        """Behind the others."""
        others = self._waiters.get(waiter.place)
        if others is None:
            self._waiters[waiter.place] = {waiter: None}
        else:
            others[waiter] = None

    def remove(self, waiter: FutexWaiter) -> None:
        """The wait has ended otherwise."""
        waiting = self._waiters.get(waiter.place)
        if waiting is not None:
            waiting.pop(waiter, None)
            if not waiting:
                del self._waiters[waiter.place]

    def wake(self, memory: GuestMemory, address: int, at_most: int, bits: int = 0xFFFF_FFFF) -> int:
        """How many were woken."""
        waiting = self._waiters.get(memory.place_of(address))
        if waiting is None or at_most <= 0:
            return 0
        chosen = list(islice((waiter for waiter in waiting if waiter.bits & bits), at_most))
        for waiter in chosen:
            waiter.woken = True
            self.remove(waiter)
            self._tell(waiter.thread)
        return len(chosen)

    def first(self, memory: GuestMemory, address: int) -> FutexWaiter | None:
        """The waiter that has waited longest for the word; None where no thread waits for it."""
        return next(iter(self._waiters.get(memory.place_of(address), ())), None)

    def move(self, memory: GuestMemory, address: int, target: int, at_most: int) -> int:
        """Let waiters wait for another word instead; how many."""
        chosen = [*self._waiters.get(memory.place_of(address), ())][: max(0, at_most)]
        for waiter in chosen:
            self.remove(waiter)
            waiter.place = memory.place_of(target)
            self._put(waiter)
        return len(chosen)
