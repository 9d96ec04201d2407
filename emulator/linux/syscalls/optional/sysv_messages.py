"""System V message queues. Every public function handles the system call of that name."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.waits import Wait
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

MAX_QUEUES, MAX_MESSAGE_BYTES, MAX_QUEUE_BYTES = 32, 8192, 16384
"""MSGMNI, MSGMAX, MSGMNB; MSGMNB also limits the number of messages of a queue."""

_STAT, _INFO, _STAT_ANY = 11, 12, 13
_NOERROR, _EXCEPT, _COPY = 0o10000, 0o20000, 0o40000


class Message(NamedTuple):
    kind: int
    data: bytes


class MessageQueue(IpcObject):
    def __init__(self, key: int, mode: int, now: int) -> None:
        super().__init__(key, mode, now)
        self.messages: list[Message] = []
        self.n_bytes = 0
        self.most_bytes = MAX_QUEUE_BYTES
        self.sent_seconds = self.received_seconds = 0
        self.sender = self.receiver = 0

    def has_room(self, n_bytes: int) -> bool:
        return self.n_bytes + n_bytes <= self.most_bytes and len(self.messages) < self.most_bytes

    def put(self, message: Message) -> None:
        self.messages.append(message)
        self.n_bytes += len(message.data)

    def find(self, kind: int, flags: int) -> int | None:
        """Index of the message that msgrcv with ``kind`` selects: 0: the first; positive: the first of that kind (or,
        with MSG_EXCEPT, of another kind); negative: the first of the lowest kind up to ``-kind``. None without one."""
        if kind < 0:
            candidates = [(one.kind, at) for at, one in enumerate(self.messages) if one.kind <= -kind]
            return min(candidates)[1] if candidates else None
        for at, message in enumerate(self.messages):
            if not kind or (message.kind != kind if flags & _EXCEPT else message.kind == kind):
                return at
        return None

    def take(self, at: int) -> Message:
        message = self.messages.pop(at)
        self.n_bytes -= len(message.data)
        return message


def msgget(task: Task, key: int, flags: int) -> int:
    table = task.system.part(MessageQueues)
    known = table.known(key, flags)
    if known is not None:
        table.check_mode(known[1], flags)
        return known[0]
    return table.add(MessageQueue(signed(key, 32), flags, now_seconds(task.system)))


def msgsnd(task: Task, identifier: int, address: int, size: int, flags: int) -> int | Wait:
    (kind,) = struct.unpack("<q", task.memory.read(address, 8))
    if size > MAX_MESSAGE_BYTES or signed(identifier, 32) < 0 or kind < 1:
        raise OSError(errno.EINVAL, "msgsnd")
    message = Message(kind, task.memory.read(address + 8, size))
    queue = task.system.part(MessageQueues).get(identifier)
    queue.check(WRITE_ACCESS)

    return _wait(
        _put,
        (task, queue, message),
        flags,
        errno.EAGAIN,
        "sends to a full queue that no other task receives from",
    )


def _put(task: Task, queue: MessageQueue, message: Message) -> int | None:
    """Add a message to a queue and return 0; None if it has no room."""
    _check_exists(queue)
    if not queue.has_room(len(message.data)):
        return None
    queue.put(message)
    queue.sender, queue.sent_seconds = task.process.pid, now_seconds(task.system)
    return 0


def msgrcv(task: Task, identifier: int, address: int, size: int, kind: int, flags: int) -> int | Wait:
    selected = signed(kind, 64)
    if signed(identifier, 32) < 0 or size >> 63:
        raise OSError(errno.EINVAL, "msgrcv")
    if flags & _COPY:
        task.report("msgrcv with MSG_COPY")
        raise OSError(errno.ENOSYS, "MSG_COPY")
    queue = task.system.part(MessageQueues).get(identifier)
    queue.check(READ_ACCESS)

    arguments = (task, queue, address, size, selected, flags)
    return _wait(_receive, arguments, flags, errno.ENOMSG, "receives from a queue that no other task sends to")


def _receive(task: Task, queue: MessageQueue, address: int, size: int, kind: int, flags: int) -> int | None:
    """Take the message of ``kind`` from a queue, write it and return its bytes; None without one."""
    _check_exists(queue)
    at = queue.find(kind, flags)
    if at is None:
        return None
    if len(queue.messages[at].data) > size and not flags & _NOERROR:
        raise OSError(errno.E2BIG, "message")
    message = queue.take(at)
    queue.receiver, queue.received_seconds = task.process.pid, now_seconds(task.system)
    data = message.data[:size]
    task.memory.write(address, struct.pack("<q", message.kind) + data)
    return len(data)


def msgctl(task: Task, identifier: int, command: int, address: int) -> int:
    table, command = task.system.part(MessageQueues), signed(command, 32)
    if command < 0 or signed(identifier, 32) < 0:
        raise OSError(errno.EINVAL, "msgctl")
    if command in (IPC_INFO, _INFO):
        used = (
            sum(one.n_bytes for one in table.objects()),
            sum(len(one.messages) for one in table.objects()),
        )
        pool, kept, headers = (len(table), used[1], used[0]) if command == _INFO else (512, 16384, 16384)
        facts = pool, kept, MAX_MESSAGE_BYTES, MAX_QUEUE_BYTES, MAX_QUEUES, 16, headers, 0xFFFF
        task.memory.write(address, struct.pack("<7iH2x", *facts))
        return table.highest()
    if command in (_STAT, _STAT_ANY):
        identifier, queue = table.at(identifier)
        return _write_status(task, queue, address, identifier, command == _STAT)
    queue = table.get(identifier)
    if command == IPC_STAT:
        return _write_status(task, queue, address, 0, checked=True)
    if command == IPC_SET:
        packed = task.memory.read(address, PERMISSION_BYTES + 48)
        (most_bytes,) = struct.unpack_from("<Q", packed, PERMISSION_BYTES + 40)
        if most_bytes > MAX_QUEUE_BYTES:
            raise OSError(errno.EPERM, "more bytes than a queue may have")
        queue.set_permissions(packed, now_seconds(task.system))
        queue.most_bytes = most_bytes
    elif command == IPC_RMID:
        table.remove(queue)
    else:
        raise OSError(errno.EINVAL, "msgctl")
    return 0


def _write_status(task: Task, queue: MessageQueue, address: int, result: int, checked: bool) -> int:
    """Write ``struct msqid64_ds`` of asm-generic; return ``result``. ``checked``: raise OSError(EACCES)."""
    if checked:
        queue.check(READ_ACCESS)
    task.memory.write(
        address,
        queue.permissions()
        + struct.pack(
            "<qqqQQQiiQQ", queue.sent_seconds, queue.received_seconds, queue.changed_seconds, queue.n_bytes,
            len(queue.messages), queue.most_bytes, queue.sender, queue.receiver, 0, 0,
        ),
    )  # fmt: skip
    return result


def _check_exists(queue: MessageQueue) -> None:
    if queue.is_removed:
        raise OSError(errno.EIDRM, "removed")


def _wait(
    retry: Callable[..., int | None], arguments: tuple[Any, ...], flags: int, error: int, what: str
) -> int | Wait:
    """The result of ``retry(*arguments)``; without one OSError(error) with IPC_NOWAIT, else a `Wait`."""
    result = retry(*arguments)
    if result is not None:
        return result
    if flags & IPC_NOWAIT:
        raise OSError(error, "would wait")
    return Wait(retry, *arguments, deadlock=f"the guest waits for ever: it {what}")


class MessageQueues(IpcTable[MessageQueue]):
    """The message queues of a guest."""

    def __init__(self) -> None:
        super().__init__(MAX_QUEUES)
