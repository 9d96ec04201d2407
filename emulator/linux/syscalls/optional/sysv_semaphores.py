"""System V semaphores: sets of counters with atomic operations. Every public method of `SemaphoreCalls` is the system
call of that name."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.kernel.tasks import Process, Wait, WhenStopped
from emulator.linux.syscalls.base import KernelCalls
from emulator.linux.syscalls.optional.sysv_ipc import (
    IPC_INFO,
    IPC_NOWAIT,
    IPC_RMID,
    IPC_SET,
    IPC_STAT,
    PERMISSION_BYTES,
    READ_ACCESS,
    WRITE_ACCESS,
    IpcObject,
    IpcTable,
)

if TYPE_CHECKING:
    from emulator.linux.kernel.scheduler import Scheduler

MAX_SETS, MAX_IN_SET, MAX_IN_ALL, MAX_OPERATIONS, MAX_VALUE = 128, 32000, 32000, 500, 32767
"""SEMMNI, SEMMSL, SEMMNS, SEMOPM, SEMVMX."""

_GETPID, _GETVAL, _GETALL, _GETNCNT, _GETZCNT, _SETVAL, _SETALL, _STAT, _INFO, _STAT_ANY = range(11, 21)
_OF_ONE = (_GETPID, _GETVAL, _GETNCNT, _GETZCNT)
_SEM_UNDO = 0x1000


class Operation(NamedTuple):
    """``struct sembuf``."""

    number: int
    change: int
    flags: int


class SemaphoreSet(IpcObject):
    """``values`` and ``users`` (pid of the last change) by semaphore number; ``undo``: by process, the changes to add
    when it ends, by semaphore number."""

    def __init__(self, key: int, mode: int, now: int, count: int) -> None:
        super().__init__(key, mode, now)
        self.values = [0] * count
        self.users = [0] * count
        self.undo: dict[Process, dict[int, int]] = {}
        self.operated_seconds = 0

    def operate(self, operations: list[Operation], process: Process) -> Operation | None:
        """Perform all operations and return None, or none of them and return the blocking one. Raises
        OSError(ERANGE)."""
        values: dict[int, int] = {}
        undo = dict(self.undo.get(process, {}))
        for operation in operations:
            number, change, flags = operation
            value = values.get(number, self.values[number])
            if value if not change else value + change < 0:
                return operation
            if value + change > MAX_VALUE:
                raise OSError(errno.ERANGE, "semaphore")
            if flags & _SEM_UNDO:
                undo[number] = undo.get(number, 0) - change
                if not -MAX_VALUE - 1 <= undo[number] <= MAX_VALUE:
                    raise OSError(errno.ERANGE, "undo")
            values[number] = value + change
        for number, value in values.items():
            self.values[number], self.users[number] = value, process.pid
        undo = {number: change for number, change in undo.items() if change}
        if undo:
            self.undo[process] = undo
        else:
            self.undo.pop(process, None)
        return None

    def undo_all(self, process: Process) -> None:
        """Undo the changes of a process that has ended."""
        for number, change in self.undo.pop(process, {}).items():
            self.values[number] = min(max(0, self.values[number] + change), MAX_VALUE)
            self.users[number] = process.pid


class SemaphoreWait(Wait):
    """A wait for ``semaphores``; ``blocking``: the operation that has to wait."""

    def __init__(
        self, semaphores: SemaphoreSet, operations: list[Operation], process: Process, blocking: Operation,
        until: int | None, now: Callable[[], int],
    ) -> None:  # fmt: skip
        super().__init__(
            self._retry, until, lambda: -errno.EAGAIN, when_stopped=WhenStopped.FAILS,
            deadlock="the guest waits for ever for a semaphore that no other task changes",
        )  # fmt: skip
        self.semaphores = semaphores
        self.blocking = blocking
        self._operations = operations
        self._process = process
        self._now = now

    def _retry(self) -> int | None:
        if self.semaphores.is_removed:
            raise OSError(errno.EIDRM, "removed")
        blocking = self.semaphores.operate(self._operations, self._process)
        if blocking is None:
            self.semaphores.operated_seconds = self._now()
            return 0
        self.blocking = blocking
        if blocking.flags & IPC_NOWAIT:
            raise OSError(errno.EAGAIN, "would wait")
        return None


def undo_semaphores(scheduler: Scheduler, process: Process) -> None:
    """Undo the SEM_UNDO operations of a process that has ended."""
    for semaphores in scheduler.semaphores.objects():
        semaphores.undo_all(process)


class SemaphoreCalls(KernelCalls):
    def semget(self, key: int, count: int, flags: int) -> int:
        table, number = self._sets, signed(count, 32)
        if not 0 <= number <= MAX_IN_SET:
            raise OSError(errno.EINVAL, "count")
        known = table.known(key, flags)
        if known is not None:
            identifier, semaphores = known
            if number > len(semaphores.values):
                raise OSError(errno.EINVAL, "more than the set has")
            table.check_mode(semaphores, flags)
            return identifier
        if not number:
            raise OSError(errno.EINVAL, "a set of none")
        if sum(len(one.values) for one in table.objects()) + number > MAX_IN_ALL:
            raise OSError(errno.ENOSPC, "semaphores")
        return table.add(SemaphoreSet(signed(key, 32), flags, self._now(), number))

    def semop(self, identifier: int, operations: int, count: int) -> int:
        return self.semtimedop(identifier, operations, count, 0)

    def semtimedop(self, identifier: int, operations: int, count: int, timeout: int) -> int:
        count &= 0xFFFF_FFFF
        if not count or signed(identifier, 32) < 0:
            raise OSError(errno.EINVAL, "semop")
        if count > MAX_OPERATIONS:
            raise OSError(errno.E2BIG, "operations")
        parsed = [
            Operation(*one) for one in struct.iter_unpack("<Hhh", self._memory.read(operations, 6 * count))
        ]
        until = None
        if timeout:
            seconds, nanoseconds = struct.unpack("<qq", self._memory.read(timeout, 16))
            if seconds < 0 or not 0 <= nanoseconds < NANOSECONDS:
                raise OSError(errno.EINVAL, "timeout")
            until = self._clock.elapsed() + seconds * NANOSECONDS + nanoseconds
        semaphores = self._sets.get(identifier)
        if max(operation.number for operation in parsed) >= len(semaphores.values):
            raise OSError(errno.EFBIG, "number")
        semaphores.check(WRITE_ACCESS if any(operation.change for operation in parsed) else READ_ACCESS)
        blocking = semaphores.operate(parsed, self._owner)
        if blocking is None:
            semaphores.operated_seconds = self._now()
            return 0
        if blocking.flags & IPC_NOWAIT:
            raise OSError(errno.EAGAIN, "would wait")
        raise SemaphoreWait(semaphores, parsed, self._owner, blocking, until, self._now)

    def semctl(self, identifier: int, number: int, command: int, argument: int) -> int:
        table, command = self._sets, signed(command, 32)
        if signed(identifier, 32) < 0:
            raise OSError(errno.EINVAL, "semctl")
        if command in (IPC_INFO, _INFO):
            last = (
                (len(table), sum(len(one.values) for one in table.objects()))
                if command == _INFO
                else (20, MAX_VALUE)
            )
            facts = (MAX_IN_ALL, MAX_SETS, MAX_IN_ALL, MAX_IN_ALL, MAX_IN_SET, MAX_OPERATIONS, MAX_OPERATIONS)
            self._memory.write(argument, struct.pack("<10i", *facts, last[0], MAX_VALUE, last[1]))
            return table.highest()
        if command in (_STAT, _STAT_ANY):
            identifier, semaphores = table.at(identifier)
            return self._write_status(semaphores, argument, identifier, command == _STAT)
        if command == _SETVAL and not 0 <= signed(argument, 32) <= MAX_VALUE:
            raise OSError(errno.ERANGE, "value")
        semaphores = table.get(identifier)
        if command == IPC_STAT:
            return self._write_status(semaphores, argument, 0, checked=True)
        if command == IPC_SET:
            semaphores.set_permissions(self._memory.read(argument, PERMISSION_BYTES), self._now())
        elif command == IPC_RMID:
            table.remove(semaphores)
        elif command in _OF_ONE:
            return self._get_one(semaphores, signed(number, 32), command)
        elif command == _GETALL:
            semaphores.check(READ_ACCESS)
            self._memory.write(argument, struct.pack(f"<{len(semaphores.values)}H", *semaphores.values))
        elif command in (_SETVAL, _SETALL):
            self._set(semaphores, signed(number, 32), command, argument)
        else:
            raise OSError(errno.EINVAL, "semctl")
        return 0

    def _get_one(self, semaphores: SemaphoreSet, number: int, command: int) -> int:
        semaphores.check(READ_ACCESS)
        if not 0 <= number < len(semaphores.values):
            raise OSError(errno.EINVAL, "number")
        if command == _GETVAL:
            return semaphores.values[number]
        if command == _GETPID:
            return semaphores.users[number]
        waiting = [
            thread.wait.blocking
            for thread in self._scheduler.waiting
            if isinstance(thread.wait, SemaphoreWait) and thread.wait.semaphores is semaphores
        ]
        for_zero = command == _GETZCNT
        return sum(one.number == number and (one.change == 0) == for_zero for one in waiting)

    def _set(self, semaphores: SemaphoreSet, number: int, command: int, argument: int) -> None:
        count = len(semaphores.values)
        if command == _SETVAL:
            if not 0 <= number < count:
                raise OSError(errno.EINVAL, "number")
            semaphores.check(WRITE_ACCESS)
            values = {number: signed(argument, 32)}
        else:
            semaphores.check(WRITE_ACCESS)
            values = dict(enumerate(struct.unpack(f"<{count}H", self._memory.read(argument, 2 * count))))
            if max(values.values()) > MAX_VALUE:
                raise OSError(errno.ERANGE, "value")
        for index, value in values.items():
            semaphores.values[index], semaphores.users[index] = value, self._owner.pid
        for process, undo in list(semaphores.undo.items()):
            semaphores.undo[process] = {
                index: change for index, change in undo.items() if index not in values
            }
        semaphores.changed_seconds = self._now()

    def _write_status(self, semaphores: SemaphoreSet, address: int, result: int, checked: bool) -> int:
        """Write ``struct semid64_ds`` of asm-generic; return ``result``. ``checked``: raise OSError(EACCES)."""
        if checked:
            semaphores.check(READ_ACCESS)
        times = semaphores.operated_seconds, semaphores.changed_seconds
        self._memory.write(
            address, semaphores.permissions() + struct.pack("<qqQQQ", *times, len(semaphores.values), 0, 0)
        )
        return result

    @property
    def _sets(self) -> IpcTable[SemaphoreSet]:
        return self._scheduler.semaphores

    def _now(self) -> int:
        return self._clock.wall() // NANOSECONDS
