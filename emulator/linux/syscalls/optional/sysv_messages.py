"""System V message queues. Every public method of `MessageCalls` is the system call of that name."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import NamedTuple

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.kernel.tasks import Wait
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


class MessageCalls(KernelCalls):
    def msgget(self, key: int, flags: int) -> int:
        table = self._queues
        known = table.known(key, flags)
        if known is not None:
            table.check_mode(known[1], flags)
            return known[0]
        return table.add(MessageQueue(signed(key, 32), flags, self._now()))

    def msgsnd(self, identifier: int, address: int, size: int, flags: int) -> int:
        (kind,) = struct.unpack("<q", self._memory.read(address, 8))
        if size > MAX_MESSAGE_BYTES or signed(identifier, 32) < 0 or kind < 1:
            raise OSError(errno.EINVAL, "msgsnd")
        message = Message(kind, self._memory.read(address + 8, size))
        queue = self._queues.get(identifier)
        queue.check(WRITE_ACCESS)

        def ready() -> int | None:
            self._must_be_there(queue)
            if not queue.has_room(size):
                return None
            queue.put(message)
            queue.sender, queue.sent_seconds = self._owner.pid, self._now()
            return 0

        return self._wait(
            ready, flags, errno.EAGAIN, "sends to a full queue that no other task receives from"
        )

    def msgrcv(self, identifier: int, address: int, size: int, kind: int, flags: int) -> int:
        selected = signed(kind, 64)
        if signed(identifier, 32) < 0 or size >> 63:
            raise OSError(errno.EINVAL, "msgrcv")
        if flags & _COPY:
            self._scheduler.report("msgrcv with MSG_COPY")
            raise OSError(errno.ENOSYS, "MSG_COPY")
        queue = self._queues.get(identifier)
        queue.check(READ_ACCESS)

        def ready() -> int | None:
            self._must_be_there(queue)
            at = queue.find(selected, flags)
            if at is None:
                return None
            if len(queue.messages[at].data) > size and not flags & _NOERROR:
                raise OSError(errno.E2BIG, "message")
            message = queue.take(at)
            queue.receiver, queue.received_seconds = self._owner.pid, self._now()
            data = message.data[:size]
            self._memory.write(address, struct.pack("<q", message.kind) + data)
            return len(data)

        return self._wait(ready, flags, errno.ENOMSG, "receives from a queue that no other task sends to")

    def msgctl(self, identifier: int, command: int, address: int) -> int:
        table, command = self._queues, signed(command, 32)
        if command < 0 or signed(identifier, 32) < 0:
            raise OSError(errno.EINVAL, "msgctl")
        if command in (IPC_INFO, _INFO):
            used = (
                sum(one.n_bytes for one in table.objects()),
                sum(len(one.messages) for one in table.objects()),
            )
            pool, kept, headers = (len(table), used[1], used[0]) if command == _INFO else (512, 16384, 16384)
            facts = pool, kept, MAX_MESSAGE_BYTES, MAX_QUEUE_BYTES, MAX_QUEUES, 16, headers, 0xFFFF
            self._memory.write(address, struct.pack("<7iH2x", *facts))
            return table.highest()
        if command in (_STAT, _STAT_ANY):
            identifier, queue = table.at(identifier)
            return self._write_status(queue, address, identifier, command == _STAT)
        queue = table.get(identifier)
        if command == IPC_STAT:
            return self._write_status(queue, address, 0, checked=True)
        if command == IPC_SET:
            packed = self._memory.read(address, PERMISSION_BYTES + 48)
            (most_bytes,) = struct.unpack_from("<Q", packed, PERMISSION_BYTES + 40)
            if most_bytes > MAX_QUEUE_BYTES:
                raise OSError(errno.EPERM, "more bytes than a queue may have")
            queue.set_permissions(packed, self._now())
            queue.most_bytes = most_bytes
        elif command == IPC_RMID:
            table.remove(queue)
        else:
            raise OSError(errno.EINVAL, "msgctl")
        return 0

    def _write_status(self, queue: MessageQueue, address: int, result: int, checked: bool) -> int:
        """Write ``struct msqid64_ds`` of asm-generic; return ``result``. ``checked``: raise OSError(EACCES)."""
        if checked:
            queue.check(READ_ACCESS)
        self._memory.write(
            address,
            queue.permissions()
            + struct.pack(
                "<qqqQQQiiQQ", queue.sent_seconds, queue.received_seconds, queue.changed_seconds, queue.n_bytes,
                len(queue.messages), queue.most_bytes, queue.sender, queue.receiver, 0, 0,
            ),
        )  # fmt: skip
        return result

    @staticmethod
    def _must_be_there(queue: MessageQueue) -> None:
        if queue.is_removed:
            raise OSError(errno.EIDRM, "removed")

    @staticmethod
    def _wait(ready: Callable[[], int | None], flags: int, error: int, what: str) -> int:
        result = ready()
        if result is not None:
            return result
        if flags & IPC_NOWAIT:
            raise OSError(error, "would wait")
        raise Wait(ready, deadlock=f"the guest waits for ever: it {what}")

    @property
    def _queues(self) -> IpcTable[MessageQueue]:
        return self._scheduler.queues

    def _now(self) -> int:
        return self._clock.wall() // NANOSECONDS
