"""System V shared memory: segments and attachments. Every public function handles the system call of that name."""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.system import System
from emulator.linux.kernel.task import Task
from emulator.linux.syscalls.optional.sysv_ipc import (
    EXECUTE_ACCESS,
    IPC_INFO,
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
from emulator.memory import (
    ADDRESS_SPACE_BYTES,
    EXEC,
    PAGE_BYTES,
    PAGE_SHIFT,
    READ,
    WRITE,
    SharedArea,
    page_ceiling,
)

MAX_SEGMENTS = 128
LIMIT_BYTES = 1 << 30
"""Limit of all segments together, attached or not; the guest's memory limit applies, too."""

_RDONLY, _RND, _REMAP, _EXEC = 0o10000, 0o20000, 0o40000, 0o100000
_LOCK, _UNLOCK, _STAT, _INFO, _STAT_ANY = 11, 12, 13, 14, 15
_DEST, _LOCKED = 0o1000, 0o2000
_MAP_FIXED = 0x10


class Segment(IpcObject):
    """A shared memory segment. ``users``: number of attachments; ``is_doomed``: it is removed with the last one."""

    prevents_snapshot = "System V shared memory"

    def __init__(self, key: int, mode: int, now: int, size_bytes: int, creator: int) -> None:
        super().__init__(key, mode, now)
        self.size_bytes = size_bytes
        self.creator = creator
        self.last_user = 0
        self.attached_seconds = self.detached_seconds = 0
        self.users = 0
        self.is_locked = self.is_doomed = False
        self._area: SharedArea | None = None

    @property
    def area(self) -> SharedArea:
        """The pages of the segment, allocated at the first attachment."""
        if self._area is None:
            self._area = SharedArea(page_ceiling(self.size_bytes))
        return self._area


class Segments(IpcTable[Segment]):
    """The shared memory segments of a guest."""

    def __init__(self) -> None:
        super().__init__(MAX_SEGMENTS)


class Attachment:
    """One attachment of a segment, as `Mappings` counts shared mappings (`page_cache.Shared`)."""

    def __init__(self, segment: Segment, system: System) -> None:
        self.segment = segment
        self._system = system

    def join(self) -> None:
        self.segment.users += 1

    def leave(self) -> None:
        """The attachment of a process was removed."""
        segment, system = self.segment, self._system
        segment.users -= 1
        segment.detached_seconds = now_seconds(system)
        segment.last_user = system.scheduler.acting.process.pid
        if segment.is_doomed and not segment.users:
            system.part(Segments).remove(segment)

    def write_back(self) -> None:
        """Nothing: a segment has no file."""


def shmget(task: Task, key: int, size: int, flags: int) -> int:
    table = task.system.part(Segments)
    known = table.known(key, flags)
    if known is not None:
        identifier, segment = known
        if size > segment.size_bytes:
            raise OSError(errno.EINVAL, "greater than the segment")
        table.check_mode(segment, flags)
        return identifier
    if not 1 <= size <= ADDRESS_SPACE_BYTES:
        raise OSError(errno.EINVAL, "size")
    kept = sum(page_ceiling(one.size_bytes) for one in table.objects())
    if kept + page_ceiling(size) > min(LIMIT_BYTES, task.memory.limit_bytes):
        raise OSError(errno.ENOSPC, "shared memory")
    return table.add(Segment(signed(key, 32), flags, now_seconds(task.system), size, task.process.pid))


def shmat(task: Task, identifier: int, address: int, flags: int) -> int:
    if address & PAGE_BYTES - 1:
        if not flags & _RND:
            raise OSError(errno.EINVAL, "address")
        address &= -PAGE_BYTES
        if not address and flags & _REMAP:
            raise OSError(errno.EINVAL, "address")
    elif not address and flags & _REMAP:
        raise OSError(errno.EINVAL, "nothing to map over")
    segment = task.system.part(Segments).get(identifier)
    access, permission = READ_ACCESS, READ
    if not flags & _RDONLY:
        access, permission = access | WRITE_ACCESS, permission | WRITE
    if flags & _EXEC:
        access, permission = access | EXECUTE_ACCESS, permission | EXEC
    segment.check(access)
    length = page_ceiling(segment.size_bytes)
    if address and address + length > ADDRESS_SPACE_BYTES:
        raise OSError(errno.EINVAL, "address")
    if address and not flags & _REMAP and not task.memory.is_free(address, length):
        raise OSError(errno.EINVAL, "the range is already mapped")
    where = task.process.mappings.attach(
        address, length, _MAP_FIXED if address else 0, permission, segment.area,
        f"/SYSV{segment.key & 0xFFFF_FFFF:08x} (deleted)", Attachment(segment, task.system),
    )  # fmt: skip
    segment.users += 1
    segment.attached_seconds, segment.last_user = now_seconds(task.system), task.process.pid
    return where


def shmdt(task: Task, address: int) -> int:
    if address & PAGE_BYTES - 1 or not task.process.mappings.detach(address, Attachment):
        raise OSError(errno.EINVAL, "no segment is attached there")
    return 0


def shmctl(task: Task, identifier: int, command: int, address: int) -> int:
    table, command = task.system.part(Segments), signed(command, 32)
    if command < 0 or signed(identifier, 32) < 0:
        raise OSError(errno.EINVAL, "shmctl")
    if command == IPC_INFO:
        pages = min(LIMIT_BYTES, task.memory.limit_bytes) >> PAGE_SHIFT
        task.memory.write(
            address,
            struct.pack("<9Q", ADDRESS_SPACE_BYTES, 1, MAX_SEGMENTS, MAX_SEGMENTS, pages, 0, 0, 0, 0),
        )
        return table.highest()
    if command == _INFO:
        pages = sum(page_ceiling(one.size_bytes) for one in table.objects()) >> PAGE_SHIFT
        task.memory.write(address, struct.pack("<i4x5Q", len(table), pages, pages, 0, 0, 0))
        return table.highest()
    if command in (_STAT, _STAT_ANY):
        identifier, segment = table.at(identifier)
        return _write_status(task, segment, address, identifier, command == _STAT)
    segment = table.get(identifier)
    if command == IPC_STAT:
        return _write_status(task, segment, address, 0, checked=True)
    if command == IPC_SET:
        segment.set_permissions(task.memory.read(address, PERMISSION_BYTES), now_seconds(task.system))
    elif command == IPC_RMID:
        segment.key, segment.is_doomed = 0, True
        if not segment.users:
            table.remove(segment)
    elif command in (_LOCK, _UNLOCK):
        segment.is_locked = command == _LOCK
    else:
        raise OSError(errno.EINVAL, "shmctl")
    return 0


def _write_status(task: Task, segment: Segment, address: int, result: int, checked: bool) -> int:
    """Write ``struct shmid64_ds`` of asm-generic; return ``result``. ``checked``: raise OSError(EACCES)."""
    if checked:
        segment.check(READ_ACCESS)
    mode = (_DEST if segment.is_doomed else 0) | (_LOCKED if segment.is_locked else 0)
    task.memory.write(
        address,
        segment.permissions(mode)
        + struct.pack(
            "<QqqqiiQQQ", segment.size_bytes, segment.attached_seconds, segment.detached_seconds,
            segment.changed_seconds, segment.creator, segment.last_user, segment.users, 0, 0,
        ),
    )  # fmt: skip
    return result
