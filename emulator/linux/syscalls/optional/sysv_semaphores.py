"""System V semaphores: sets of counters with atomic operations. Every public function handles the system
call of that name."""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from typing import NamedTuple

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.kernel.system import ProcessListener
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.tasks import Process
from emulator.linux.kernel.waits import Wait, WhenStopped
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
    now_seconds,
)

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


@dataclass(eq=False)
class _Waiting:
    """Operations that wait; ``blocking``: the one that has to wait."""

    semaphores: SemaphoreSet
    operations: list[Operation]
    blocking: Operation


class SemaphoreSets(IpcTable[SemaphoreSet], ProcessListener):
    """The semaphore sets of a guest."""

    def __init__(self) -> None:
        super().__init__(MAX_SETS)

    def process_ended(self, process: Process) -> None:
        """Undo the SEM_UNDO operations of the process."""
        for semaphores in self.objects():
            semaphores.undo_all(process)


def semget(task: Task, key: int, count: int, flags: int) -> int:
    table, number = task.system.part(SemaphoreSets), signed(count, 32)
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
    return table.add(SemaphoreSet(signed(key, 32), flags, now_seconds(task.system), number))


def semop(task: Task, identifier: int, operations: int, count: int) -> int | Wait:
    return semtimedop(task, identifier, operations, count, 0)


def semtimedop(task: Task, identifier: int, operations: int, count: int, timeout: int) -> int | Wait:
    count &= 0xFFFF_FFFF
    if not count or signed(identifier, 32) < 0:
        raise OSError(errno.EINVAL, "semop")
    if count > MAX_OPERATIONS:
        raise OSError(errno.E2BIG, "operations")
    parsed = [Operation(*one) for one in struct.iter_unpack("<Hhh", task.memory.read(operations, 6 * count))]
    until = None
    if timeout:
        seconds, nanoseconds = struct.unpack("<qq", task.memory.read(timeout, 16))
        if seconds < 0 or not 0 <= nanoseconds < NANOSECONDS:
            raise OSError(errno.EINVAL, "timeout")
        until = task.clock.elapsed() + seconds * NANOSECONDS + nanoseconds
    semaphores = task.system.part(SemaphoreSets).get(identifier)
    if max(operation.number for operation in parsed) >= len(semaphores.values):
        raise OSError(errno.EFBIG, "number")
    semaphores.check(WRITE_ACCESS if any(operation.change for operation in parsed) else READ_ACCESS)
    blocking = semaphores.operate(parsed, task.process)
    if blocking is None:
        semaphores.operated_seconds = now_seconds(task.system)
        return 0
    if blocking.flags & IPC_NOWAIT:
        raise OSError(errno.EAGAIN, "would wait")
    return Wait(
        _retry_operations,
        task,
        _Waiting(semaphores, parsed, blocking),
        until=until,
        at_timeout=_time_out,
        when_stopped=WhenStopped.FAILS,
        deadlock="the guest waits for ever for a semaphore that no other task changes",
    )


def _retry_operations(task: Task, waiting: _Waiting) -> int | None:
    """Perform the operations and return 0; None if they have to wait."""
    semaphores = waiting.semaphores
    if semaphores.is_removed:
        raise OSError(errno.EIDRM, "removed")
    blocking = semaphores.operate(waiting.operations, task.process)
    if blocking is None:
        semaphores.operated_seconds = now_seconds(task.system)
        return 0
    waiting.blocking = blocking
    if blocking.flags & IPC_NOWAIT:
        raise OSError(errno.EAGAIN, "would wait")
    return None


def _time_out(task: Task, waiting: _Waiting) -> int:
    return -errno.EAGAIN


def semctl(task: Task, identifier: int, number: int, command: int, argument: int) -> int:
    table, command = task.system.part(SemaphoreSets), signed(command, 32)
    if signed(identifier, 32) < 0:
        raise OSError(errno.EINVAL, "semctl")
    if command in (IPC_INFO, _INFO):
        last = (len(table), sum(len(one.values) for one in table.objects())) if command == _INFO else (20, MAX_VALUE)
        facts = (MAX_IN_ALL, MAX_SETS, MAX_IN_ALL, MAX_IN_ALL, MAX_IN_SET, MAX_OPERATIONS, MAX_OPERATIONS)
        task.memory.write(argument, struct.pack("<10i", *facts, last[0], MAX_VALUE, last[1]))
        return table.highest()
    if command in (_STAT, _STAT_ANY):
        identifier, semaphores = table.at(identifier)
        return _write_status(task, semaphores, argument, identifier, command == _STAT)
    if command == _SETVAL and not 0 <= signed(argument, 32) <= MAX_VALUE:
        raise OSError(errno.ERANGE, "value")
    semaphores = table.get(identifier)
    if command == IPC_STAT:
        return _write_status(task, semaphores, argument, 0, checked=True)
    if command == IPC_SET:
        semaphores.set_permissions(task.memory.read(argument, PERMISSION_BYTES), now_seconds(task.system))
    elif command == IPC_RMID:
        table.remove(semaphores)
    elif command in _OF_ONE:
        return _get_one(task, semaphores, signed(number, 32), command)
    elif command == _GETALL:
        semaphores.check(READ_ACCESS)
        task.memory.write(argument, struct.pack(f"<{len(semaphores.values)}H", *semaphores.values))
    elif command in (_SETVAL, _SETALL):
        _set(task, semaphores, signed(number, 32), command, argument)
    else:
        raise OSError(errno.EINVAL, "semctl")
    return 0


def _get_one(task: Task, semaphores: SemaphoreSet, number: int, command: int) -> int:
    semaphores.check(READ_ACCESS)
    if not 0 <= number < len(semaphores.values):
        raise OSError(errno.EINVAL, "number")
    if command == _GETVAL:
        return semaphores.values[number]
    if command == _GETPID:
        return semaphores.users[number]
    arguments = [thread.wait.arguments[-1:] for thread in task.scheduler.waiting if thread.wait is not None]
    waiting = [one for (one,) in filter(None, arguments) if isinstance(one, _Waiting)]
    blocking = [one.blocking for one in waiting if one.semaphores is semaphores]
    for_zero = command == _GETZCNT
    return sum(one.number == number and (one.change == 0) == for_zero for one in blocking)


def _set(task: Task, semaphores: SemaphoreSet, number: int, command: int, argument: int) -> None:
    count = len(semaphores.values)
    if command == _SETVAL:
        if not 0 <= number < count:
            raise OSError(errno.EINVAL, "number")
        semaphores.check(WRITE_ACCESS)
        values = {number: signed(argument, 32)}
    else:
        semaphores.check(WRITE_ACCESS)
        values = dict(enumerate(struct.unpack(f"<{count}H", task.memory.read(argument, 2 * count))))
        if max(values.values()) > MAX_VALUE:
            raise OSError(errno.ERANGE, "value")
    for index, value in values.items():
        semaphores.values[index], semaphores.users[index] = value, task.process.pid
    for process, undo in list(semaphores.undo.items()):
        semaphores.undo[process] = {index: change for index, change in undo.items() if index not in values}
    semaphores.changed_seconds = now_seconds(task.system)


def _write_status(task: Task, semaphores: SemaphoreSet, address: int, result: int, checked: bool) -> int:
    """Write ``struct semid64_ds`` of asm-generic; return ``result``. ``checked``: raise OSError(EACCES)."""
    if checked:
        semaphores.check(READ_ACCESS)
    times = semaphores.operated_seconds, semaphores.changed_seconds
    task.memory.write(address, semaphores.permissions() + struct.pack("<qqQQQ", *times, len(semaphores.values), 0, 0))
    return result
