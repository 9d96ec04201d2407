"""Futex system calls, including PI and robust locks. Every public method is the system call of that name."""

from __future__ import annotations

import contextlib
import errno
import struct
from typing import NoReturn

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.clock import NANOSECONDS, VirtualClock
from emulator.linux.kernel.futex_queues import FutexWaiter
from emulator.linux.kernel.scheduler import Scheduler
from emulator.linux.kernel.tasks import Thread, Wait
from emulator.memory import GuestMemory, MemoryFault

_WAIT, _WAKE, _REQUEUE, _CMP_REQUEUE, _WAKE_OP, _WAIT_BITSET, _WAKE_BITSET = 0, 1, 3, 4, 5, 9, 10
_LOCK_PI, _UNLOCK_PI, _TRYLOCK_PI, _LOCK_PI2 = 6, 7, 8, 13
_WAITERS = 0x8000_0000
_CLOCK_REALTIME, _OPERATION = 256, 127
_ALL_BITS = 0xFFFF_FFFF
_OWNER_DIED, _TID_MASK = 0x4000_0000, 0x3FFF_FFFF
_MAX_ROBUST_LOCKS = 2048


class FutexCalls:
    def __init__(self, memory: GuestMemory, clock: VirtualClock, scheduler: Scheduler) -> None:
        self._memory = memory
        self._clock = clock
        self._scheduler = scheduler
        self._futexes = scheduler.futexes

    def futex(self, address: int, operation: int, value: int, timeout: int, second: int, third: int) -> int:
        kind, value = operation & _OPERATION, value & _ALL_BITS
        if address % 4:
            raise OSError(errno.EINVAL, "futex")
        if kind in (_WAKE, _WAKE_BITSET):
            bits = _ALL_BITS if kind == _WAKE else third & _ALL_BITS
            if not bits:
                raise OSError(errno.EINVAL, "futex")
            return self._futexes.wake(self._memory, address, value - (value >> 31 << 32), bits)
        if kind in (_WAIT, _WAIT_BITSET):
            bits = _ALL_BITS if kind == _WAIT else third & _ALL_BITS
            return self._wait(
                address, value, bits, self._deadline(operation, kind, timeout) if timeout else None
            )
        if kind in (_LOCK_PI, _LOCK_PI2, _TRYLOCK_PI):
            return self._lock(address, operation, kind, timeout)
        if kind == _UNLOCK_PI:
            return self._unlock(address)
        at_most = signed(timeout, 32)
        if kind in (_REQUEUE, _CMP_REQUEUE):
            if kind == _CMP_REQUEUE and self._memory.read_int(address, 4) != third & _ALL_BITS:
                raise OSError(errno.EAGAIN, "futex")
            woken = self._futexes.wake(self._memory, address, signed(value, 32))
            return woken + self._futexes.move(self._memory, address, second, at_most)
        if kind == _WAKE_OP:
            holds = self._wake_op(second, third & _ALL_BITS)
            woken = self._futexes.wake(self._memory, address, signed(value, 32))
            return woken + (self._futexes.wake(self._memory, second, at_most) if holds else 0)
        self._scheduler.report(f"futex operation {kind}")
        raise OSError(errno.ENOSYS, "futex operation")

    def _wait(self, address: int, value: int, bits: int, until: int | None) -> int:
        if not bits:
            raise OSError(errno.EINVAL, "futex")
        if self._memory.read_int(address, 4) != value:
            raise OSError(errno.EAGAIN, "futex")
        waiter = self._futexes.add(self._memory, address, bits, self._scheduler.current)
        self._sleep(waiter, address, until)

    def _sleep(self, waiter: FutexWaiter, address: int, until: int | None) -> NoReturn:
        """Block the current thread until it is woken, at most until ``until``."""

        def timed_out() -> int:
            self._futexes.remove(waiter)
            return -errno.ETIMEDOUT

        raise Wait(
            lambda: 0 if waiter.woken else None,
            until,
            timed_out,
            restartable=until is None,
            interrupted=lambda: self._futexes.remove(waiter),
            is_notified=True,
            deadlock=f"the guest waits for a lock at {address:#x} that no task can release",
        )

    # PI locks. There is no priority inheritance, because priorities have no effect.

    def _lock(self, address: int, operation: int, kind: int, timeout: int) -> int:
        word, tid = self._memory.read_int(address, 4), self._scheduler.current.tid
        if not word & _TID_MASK:
            self._memory.write_int(address, 4, word & (_OWNER_DIED | _WAITERS) | tid)
            return 0
        if word & _TID_MASK == tid:
            raise OSError(errno.EDEADLK, "the thread already has the lock")
        if kind == _TRYLOCK_PI:
            raise OSError(errno.EAGAIN, "locked")
        # FUTEX_LOCK_PI always uses the wall clock; FUTEX_LOCK_PI2 has a flag for it.
        operation |= _CLOCK_REALTIME if kind == _LOCK_PI else 0
        until = self._deadline(operation, _WAIT_BITSET, timeout)
        self._memory.write_int(address, 4, word | _WAITERS)
        waiter = self._futexes.add(self._memory, address, _ALL_BITS, self._scheduler.current, tid)
        self._sleep(waiter, address, until)

    def _unlock(self, address: int) -> int:
        if self._memory.read_int(address, 4) & _TID_MASK != self._scheduler.current.tid:
            raise OSError(errno.EPERM, "another thread has the lock")
        hand_over_lock(self._scheduler, self._memory, address, 0)
        return 0

    def _deadline(self, operation: int, kind: int, timeout: int) -> int | None:
        """The timeout in elapsed nanoseconds; None without one. Raises OSError(EINVAL)."""
        if not timeout:
            return None
        seconds, nanoseconds = struct.unpack("<qq", self._memory.read(timeout, 16))
        if seconds < 0 or not 0 <= nanoseconds < NANOSECONDS:
            raise OSError(errno.EINVAL, "timeout")
        until = int(seconds * NANOSECONDS + nanoseconds)
        if kind == _WAIT:
            return until + self._clock.elapsed()
        return until - self._clock.epoch_nanoseconds if operation & _CLOCK_REALTIME else until

    def _wake_op(self, address: int, encoded: int) -> bool:
        """FUTEX_WAKE_OP: change the word at ``address``; return whether the comparison holds for its old value."""
        operation, comparison = encoded >> 28, encoded >> 24 & 15
        operand, other = signed(encoded >> 12, 12), signed(encoded, 12)
        if operation & 8:
            operand, operation = 1 << (operand & 31), operation & 7
        old = self._memory.read_int(address, 4)
        changes = {0: operand, 1: old + operand, 2: old | operand, 3: old & ~operand, 4: old ^ operand}
        holds = {
            0: signed(old, 32) == other, 1: signed(old, 32) != other, 2: signed(old, 32) < other,
            3: signed(old, 32) <= other, 4: signed(old, 32) > other, 5: signed(old, 32) >= other,
        }  # fmt: skip
        if operation not in changes or comparison not in holds:
            raise OSError(errno.ENOSYS, "futex")
        self._memory.write_int(address, 4, changes[operation])
        return holds[comparison]

    # Robust list and clear_child_tid of a thread

    def set_robust_list(self, head: int, length: int) -> int:
        if length != 24:
            raise OSError(errno.EINVAL, "robust list")
        self._scheduler.current.robust_list = head
        return 0

    def get_robust_list(self, tid: int, head: int, length: int) -> int:
        thread = self._scheduler.thread(tid) if tid else self._scheduler.current
        if thread is None:
            raise OSError(errno.ESRCH, "thread")
        self._memory.write_int(head, 8, thread.robust_list)
        self._memory.write_int(length, 8, 24)
        return 0

    def set_tid_address(self, address: int) -> int:
        self._scheduler.current.clear_tid_address = address
        return self._scheduler.current.tid


def hand_over_lock(scheduler: Scheduler, memory: GuestMemory, address: int, mark: int) -> None:
    """Give a PI lock to the thread that has waited longest, or free it; ``mark``: bits to set in its word."""
    next_owner = scheduler.futexes.first(memory, address)
    scheduler.futexes.wake(memory, address, 1)
    more = scheduler.futexes.first(memory, address) is not None
    tid = 0 if next_owner is None else next_owner.tid
    memory.write_int(address, 4, mark | tid | (_WAITERS if more else 0))


def release_futexes(scheduler: Scheduler, thread: Thread, memory: GuestMemory) -> None:
    """Mark the robust locks of a thread that has ended with OWNER_DIED, and wake the threads that join it."""
    with contextlib.suppress(MemoryFault):  # as in Linux, a damaged list ends at the fault
        _mark_robust(scheduler, thread, memory)
    if thread.clear_tid_address:
        try:
            memory.write_int(thread.clear_tid_address, 4, 0)
        except MemoryFault:
            return
        scheduler.futexes.wake(memory, thread.clear_tid_address, 1)


def _mark_robust(scheduler: Scheduler, thread: Thread, memory: GuestMemory) -> None:
    if not thread.robust_list:
        return
    head = thread.robust_list
    entry, offset, pending = struct.unpack("<QqQ", memory.read(head, 24))
    locks = [pending & ~1] if pending & ~1 else []
    while entry & ~1 != head and len(locks) < _MAX_ROBUST_LOCKS:
        locks.append(entry & ~1)
        entry = memory.read_int(entry & ~1, 8)
    for lock in locks:
        word = memory.read_int(lock + offset, 4)
        if word & _TID_MASK == thread.tid:
            waiter = scheduler.futexes.first(memory, lock + offset)
            if waiter is not None and waiter.tid:
                hand_over_lock(scheduler, memory, lock + offset, _OWNER_DIED)
            else:
                memory.write_int(lock + offset, 4, word & ~_TID_MASK | _OWNER_DIED)
                scheduler.futexes.wake(memory, lock + offset, 1)
