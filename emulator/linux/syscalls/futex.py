"""Futex system calls, including PI and robust locks. Every public function handles the system call of that name."""

from __future__ import annotations

import contextlib
import errno
import struct

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.kernel.futex_queues import Futexes, FutexWaiter
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.tasks import Thread
from emulator.linux.kernel.waits import Wait
from emulator.memory import GuestMemory, MemoryFault

_WAIT, _WAKE, _REQUEUE, _CMP_REQUEUE, _WAKE_OP, _WAIT_BITSET, _WAKE_BITSET = 0, 1, 3, 4, 5, 9, 10
_LOCK_PI, _UNLOCK_PI, _TRYLOCK_PI, _LOCK_PI2 = 6, 7, 8, 13
_WAITERS = 0x8000_0000
_CLOCK_REALTIME, _OPERATION = 256, 127
_ALL_BITS = 0xFFFF_FFFF
_OWNER_DIED, _TID_MASK = 0x4000_0000, 0x3FFF_FFFF
_MAX_ROBUST_LOCKS = 2048


def futex(task: Task, address: int, operation: int, value: int, timeout: int, second: int, third: int) -> int | Wait:
    kind, value = operation & _OPERATION, value & _ALL_BITS
    if address % 4:
        raise OSError(errno.EINVAL, "futex")
    if kind in (_WAKE, _WAKE_BITSET):
        bits = _ALL_BITS if kind == _WAKE else third & _ALL_BITS
        if not bits:
            raise OSError(errno.EINVAL, "futex")
        return task.system.futexes.wake(task.memory, address, value - (value >> 31 << 32), bits)
    if kind in (_WAIT, _WAIT_BITSET):
        bits = _ALL_BITS if kind == _WAIT else third & _ALL_BITS
        return _wait(task, address, value, bits, _deadline(task, operation, kind, timeout) if timeout else None)
    if kind in (_LOCK_PI, _LOCK_PI2, _TRYLOCK_PI):
        return _lock(task, address, operation, kind, timeout)
    if kind == _UNLOCK_PI:
        return _unlock(task, address)
    at_most = signed(timeout, 32)
    if kind in (_REQUEUE, _CMP_REQUEUE):
        if kind == _CMP_REQUEUE and task.memory.read_int(address, 4) != third & _ALL_BITS:
            raise OSError(errno.EAGAIN, "futex")
        woken = task.system.futexes.wake(task.memory, address, signed(value, 32))
        return woken + task.system.futexes.move(task.memory, address, second, at_most)
    if kind == _WAKE_OP:
        holds = _wake_op(task, second, third & _ALL_BITS)
        woken = task.system.futexes.wake(task.memory, address, signed(value, 32))
        return woken + (task.system.futexes.wake(task.memory, second, at_most) if holds else 0)
    task.report(f"futex operation {kind}")
    raise OSError(errno.ENOSYS, "futex operation")


def _wait(task: Task, address: int, value: int, bits: int, until: int | None) -> int | Wait:
    if not bits:
        raise OSError(errno.EINVAL, "futex")
    if task.memory.read_int(address, 4) != value:
        raise OSError(errno.EAGAIN, "futex")
    waiter = task.system.futexes.add(task.memory, address, bits, task.thread)
    return _sleep(task, waiter, address, until)


def _sleep(task: Task, waiter: FutexWaiter, address: int, until: int | None) -> Wait:
    """The wait of a thread until it is woken, at most until ``until``."""
    return Wait(
        _woken,
        task.system.futexes,
        waiter,
        until=until,
        at_timeout=_time_out,
        restartable=until is None,
        if_interrupted=Futexes.remove,
        is_notified=True,
        deadlock=f"the guest waits for a lock at {address:#x} that no task can release",
    )


def _woken(futexes: Futexes, waiter: FutexWaiter) -> int | None:
    return 0 if waiter.woken else None


def _time_out(futexes: Futexes, waiter: FutexWaiter) -> int:
    futexes.remove(waiter)
    return -errno.ETIMEDOUT


# PI locks. There is no priority inheritance, because priorities have no effect.


def _lock(task: Task, address: int, operation: int, kind: int, timeout: int) -> int | Wait:
    word, tid = task.memory.read_int(address, 4), task.thread.tid
    if not word & _TID_MASK:
        task.memory.write_int(address, 4, word & (_OWNER_DIED | _WAITERS) | tid)
        return 0
    if word & _TID_MASK == tid:
        raise OSError(errno.EDEADLK, "the thread already has the lock")
    if kind == _TRYLOCK_PI:
        raise OSError(errno.EAGAIN, "locked")
    # FUTEX_LOCK_PI always uses the wall clock; FUTEX_LOCK_PI2 has a flag for it.
    operation |= _CLOCK_REALTIME if kind == _LOCK_PI else 0
    until = _deadline(task, operation, _WAIT_BITSET, timeout)
    task.memory.write_int(address, 4, word | _WAITERS)
    waiter = task.system.futexes.add(task.memory, address, _ALL_BITS, task.thread, tid)
    return _sleep(task, waiter, address, until)


def _unlock(task: Task, address: int) -> int:
    if task.memory.read_int(address, 4) & _TID_MASK != task.thread.tid:
        raise OSError(errno.EPERM, "another thread has the lock")
    hand_over_lock(task.system.futexes, task.memory, address, 0)
    return 0


def _deadline(task: Task, operation: int, kind: int, timeout: int) -> int | None:
    """The timeout in elapsed nanoseconds; None without one. Raises OSError(EINVAL)."""
    if not timeout:
        return None
    seconds, nanoseconds = struct.unpack("<qq", task.memory.read(timeout, 16))
    if seconds < 0 or not 0 <= nanoseconds < NANOSECONDS:
        raise OSError(errno.EINVAL, "timeout")
    until = int(seconds * NANOSECONDS + nanoseconds)
    if kind == _WAIT:
        return until + task.clock.elapsed()
    return until - task.clock.epoch_nanoseconds if operation & _CLOCK_REALTIME else until


def _wake_op(task: Task, address: int, encoded: int) -> bool:
    """FUTEX_WAKE_OP: change the word at ``address``; return whether the comparison holds for its old value."""
    operation, comparison = encoded >> 28, encoded >> 24 & 15
    operand, other = signed(encoded >> 12, 12), signed(encoded, 12)
    if operation & 8:
        operand, operation = 1 << (operand & 31), operation & 7
    old = task.memory.read_int(address, 4)
    changes = {0: operand, 1: old + operand, 2: old | operand, 3: old & ~operand, 4: old ^ operand}
    holds = {
        0: signed(old, 32) == other, 1: signed(old, 32) != other, 2: signed(old, 32) < other,
        3: signed(old, 32) <= other, 4: signed(old, 32) > other, 5: signed(old, 32) >= other,
    }  # fmt: skip
    if operation not in changes or comparison not in holds:
        raise OSError(errno.ENOSYS, "futex")
    task.memory.write_int(address, 4, changes[operation])
    return holds[comparison]


# Robust list and clear_child_tid of a thread


def set_robust_list(task: Task, head: int, length: int) -> int:
    if length != 24:
        raise OSError(errno.EINVAL, "robust list")
    task.thread.robust_list = head
    return 0


def get_robust_list(task: Task, tid: int, head: int, length: int) -> int:
    thread = task.scheduler.thread(tid) if tid else task.thread
    if thread is None:
        raise OSError(errno.ESRCH, "thread")
    task.memory.write_int(head, 8, thread.robust_list)
    task.memory.write_int(length, 8, 24)
    return 0


def set_tid_address(task: Task, address: int) -> int:
    task.thread.clear_tid_address = address
    return task.thread.tid


def hand_over_lock(futexes: Futexes, memory: GuestMemory, address: int, mark: int) -> None:
    """Give a PI lock to the thread that has waited longest, or free it; ``mark``: bits to set in its word."""
    next_owner = futexes.first(memory, address)
    futexes.wake(memory, address, 1)
    more = futexes.first(memory, address) is not None
    tid = 0 if next_owner is None else next_owner.tid
    memory.write_int(address, 4, mark | tid | (_WAITERS if more else 0))


def release_futexes(futexes: Futexes, thread: Thread, memory: GuestMemory) -> None:
    """Mark the robust locks of a thread that has ended with OWNER_DIED, and wake the threads that join it."""
    with contextlib.suppress(MemoryFault):  # as in Linux, a damaged list ends at the fault
        _mark_robust(futexes, thread, memory)
    if thread.clear_tid_address:
        try:
            memory.write_int(thread.clear_tid_address, 4, 0)
        except MemoryFault:
            return
        futexes.wake(memory, thread.clear_tid_address, 1)


def _mark_robust(futexes: Futexes, thread: Thread, memory: GuestMemory) -> None:
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
            waiter = futexes.first(memory, lock + offset)
            if waiter is not None and waiter.tid:
                hand_over_lock(futexes, memory, lock + offset, _OWNER_DIED)
            else:
                memory.write_int(lock + offset, 4, word & ~_TID_MASK | _OWNER_DIED)
                futexes.wake(memory, lock + offset, 1)
