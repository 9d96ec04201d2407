"""Wait queues of futexes, by the memory word that the threads wait for; the system calls are in `futex`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from emulator.linux.kernel.tasks import Thread
from emulator.memory import GuestMemory


@dataclass(eq=False)
class FutexWaiter:
    """A thread that waits for a futex word. ``word``: the word, as `GuestMemory.place_of` identifies it; ``bits``: the
    bitset of the wakes that it accepts; ``tid``: the number to store in the word of a PI lock that it receives."""

    word: tuple[object, int]
    bits: int
    thread: Thread
    tid: int = 0
    woken: bool = False


class Futexes:
    """The waiters of each futex word, in order of arrival."""

    def __init__(self, notify: Callable[[Thread], None]) -> None:
        self._notify = notify
        self._waiters: dict[tuple[object, int], dict[FutexWaiter, None]] = {}

    def add(self, memory: GuestMemory, address: int, bits: int, thread: Thread, tid: int = 0) -> FutexWaiter:
        waiter = FutexWaiter(memory.place_of(address), bits, thread, tid)
        self._append(waiter)
        return waiter

    def _append(self, waiter: FutexWaiter) -> None:
        """Append to the queue of its word."""
        others = self._waiters.get(waiter.word)
        if others is None:
            self._waiters[waiter.word] = {waiter: None}
        else:
            others[waiter] = None

    def remove(self, waiter: FutexWaiter) -> None:
        """Remove a waiter: woken, timed out or interrupted."""
        waiting = self._waiters.get(waiter.word)
        if waiting is not None:
            waiting.pop(waiter, None)
            if not waiting:
                del self._waiters[waiter.word]

    def wake(self, memory: GuestMemory, address: int, at_most: int, bits: int = 0xFFFF_FFFF) -> int:
        """Wake at most ``at_most`` waiters whose bitset matches; return their number."""
        waiting = self._waiters.get(memory.place_of(address))
        if waiting is None or at_most <= 0:
            return 0
        chosen = list(islice((waiter for waiter in waiting if waiter.bits & bits), at_most))
        for waiter in chosen:
            waiter.woken = True
            self.remove(waiter)
            self._notify(waiter.thread)
        return len(chosen)

    def first(self, memory: GuestMemory, address: int) -> FutexWaiter | None:
        """The waiter that has waited longest for the word, or None."""
        return next(iter(self._waiters.get(memory.place_of(address), ())), None)

    def move(self, memory: GuestMemory, address: int, target: int, at_most: int) -> int:
        """Requeue at most ``at_most`` waiters to the word at ``target``; return their number."""
        chosen = [*self._waiters.get(memory.place_of(address), ())][: max(0, at_most)]
        for waiter in chosen:
            self.remove(waiter)
            waiter.word = memory.place_of(target)
            self._append(waiter)
        return len(chosen)
