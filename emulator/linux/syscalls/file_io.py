"""System calls on descriptors: reading, writing, opening, duplicating.

Every public function handles the system call of that name.
"""

from __future__ import annotations

import errno
import os

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.waits import Wait
from emulator.linux.syscalls.transfers import (
    accessed,
    accessible_bytes,
    checked_offset,
    gather,
    install_both,
    modified,
    readable,
    scatter,
    writable,
    write_all,
)
from emulator.linux.vfs.descriptor_table import MAX_DESCRIPTORS
from emulator.linux.vfs.events import MODIFY
from emulator.linux.vfs.file_locks import lock_key
from emulator.memory import READ, WRITE

_CLOSE_RANGE_CLOEXEC = 4
_MFD_CLOEXEC, _MFD_ALLOW_SEALING, _MFD_NOEXEC_SEAL, _MFD_EXEC = 1, 2, 8, 16
_MEMORY_NAME_BYTES = 250
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE, _FALLOC_ZERO_RANGE = 1, 2, 16
_AT_CURRENT_POSITION = (1 << 64) - 1
_ZEROED_BYTES = 1 << 20


# Reading and writing


def read(task: Task, fd: int, address: int, count: int) -> int:
    file = readable(task, fd)
    count = accessible_bytes(task, address, count, WRITE)
    data = file.read(count)
    task.memory.write(address, data)
    return accessed(task, file, len(data))


def write(task: Task, fd: int, address: int, count: int) -> int | Wait:
    file = writable(task, fd)
    return write_all(task, file, task.memory.read(address, accessible_bytes(task, address, count, READ)))


def readv(task: Task, fd: int, vectors: int, count: int) -> int:
    file = readable(task, fd)
    return accessed(task, file, scatter(task, vectors, count, lambda n_bytes, _: file.read(n_bytes)))


def writev(task: Task, fd: int, vectors: int, count: int) -> int | Wait:
    file = writable(task, fd)
    return write_all(task, file, gather(task, vectors, count))


def pread64(task: Task, fd: int, address: int, count: int, offset: int) -> int:
    file = readable(task, fd)
    data = file.read_at(accessible_bytes(task, address, count, WRITE), checked_offset(offset))
    task.memory.write(address, data)
    return accessed(task, file, len(data))


def pwrite64(task: Task, fd: int, address: int, count: int, offset: int) -> int:
    file = writable(task, fd)
    data = task.memory.read(address, accessible_bytes(task, address, count, READ))
    return modified(task, file, file.write_at(data, checked_offset(offset)))


def preadv(task: Task, fd: int, vectors: int, count: int, offset: int) -> int:
    file, start = readable(task, fd), checked_offset(offset)
    done = scatter(task, vectors, count, lambda n_bytes, done: file.read_at(n_bytes, start + done))
    return accessed(task, file, done)


def pwritev(task: Task, fd: int, vectors: int, count: int, offset: int) -> int:
    file = writable(task, fd)
    return modified(task, file, file.write_at(gather(task, vectors, count), checked_offset(offset)))


def preadv2(task: Task, fd: int, vectors: int, count: int, offset: int, high: int, flags: int) -> int:
    _no_flags(task, flags, "preadv2")
    if offset == _AT_CURRENT_POSITION:
        return readv(task, fd, vectors, count)
    return preadv(task, fd, vectors, count, offset)


def pwritev2(task: Task, fd: int, vectors: int, count: int, offset: int, high: int, flags: int) -> int | Wait:
    _no_flags(task, flags, "pwritev2")
    if offset == _AT_CURRENT_POSITION:
        return writev(task, fd, vectors, count)
    return pwritev(task, fd, vectors, count, offset)


def _no_flags(task: Task, flags: int, name: str) -> None:
    if flags & 0xFFFF_FFFF:
        task.report(f"{name} with flags {flags & 0xFFFF_FFFF:#x}")
        raise OSError(errno.EOPNOTSUPP, "flags")


def lseek(task: Task, fd: int, offset: int, whence: int) -> int:
    return task.file(fd).seek(signed(offset, 64), signed(whence, 32))


def ftruncate(task: Task, fd: int, length: int) -> int:
    file = task.file(fd)
    if not file.writable:
        raise OSError(errno.EINVAL, "not open for writing")
    file.truncate(checked_offset(length))
    task.files.notify(file, MODIFY)
    return 0


def fallocate(task: Task, fd: int, mode: int, offset: int, length: int) -> int:
    file = writable(task, fd)
    start, length = checked_offset(offset), checked_offset(length)
    if not length:
        raise OSError(errno.EINVAL, "fallocate")
    if start + length >> 63:
        raise OSError(errno.EFBIG, "fallocate")
    keeps_size = bool(mode & _FALLOC_KEEP_SIZE)
    if mode & ~_FALLOC_KEEP_SIZE not in (0, _FALLOC_PUNCH_HOLE, _FALLOC_ZERO_RANGE):
        raise OSError(errno.EOPNOTSUPP, "fallocate mode")
    if mode & _FALLOC_PUNCH_HOLE and not keeps_size:
        raise OSError(errno.EOPNOTSUPP, "fallocate mode")
    size = file.status().size_bytes
    if not keeps_size and start + length > size:
        file.truncate(start + length)
    if mode & ~_FALLOC_KEEP_SIZE:
        end = min(start + length, size)
        for here in range(start, end, _ZEROED_BYTES):
            file.write_at(bytes(min(_ZEROED_BYTES, end - here)), here)
    task.files.notify(file, MODIFY)
    return 0


def fsync(task: Task, fd: int) -> int:
    task.file(fd)
    return 0


def fdatasync(task: Task, fd: int) -> int:
    return fsync(task, fd)


def sync_file_range(task: Task, fd: int) -> int:
    return fsync(task, fd)


def syncfs(task: Task, fd: int) -> int:
    return fsync(task, fd)


def readahead(task: Task, fd: int) -> int:
    return fsync(task, fd)


def fadvise64(task: Task, fd: int) -> int:
    return fsync(task, fd)


def sync(task: Task) -> int:
    return 0


# Opening, closing, duplicating


def close(task: Task, fd: int) -> int:
    _close(task, signed(fd, 32))
    return 0


def _close(task: Task, descriptor: int) -> None:
    """Close a descriptor; releases the process's locks on the file, and with the last descriptor flock's locks."""
    file, locks = task.descriptors.file(descriptor), task.files.locks
    task.descriptors.close(descriptor)
    if locks.release(task.process.pid, lock_key(file)) or locks.release_closed():
        task.scheduler.recheck_waits = True


def close_range(task: Task, first: int, last: int, flags: int) -> int:
    if flags & ~_CLOSE_RANGE_CLOEXEC or first > last:
        raise OSError(errno.EINVAL, "close_range")
    for descriptor, _ in task.descriptors.items():
        if first <= descriptor <= last & 0xFFFF_FFFF:
            if flags:
                task.descriptors.set_close_on_exec(descriptor, True)
            else:
                _close(task, descriptor)
    return 0


def dup(task: Task, fd: int) -> int:
    return task.descriptors.install(task.file(fd))


def dup3(task: Task, old: int, new: int, flags: int) -> int:
    file, target = task.file(old), signed(new, 32)
    if signed(old, 32) == target or flags & ~os.O_CLOEXEC:
        raise OSError(errno.EINVAL, "dup3")
    if not 0 <= target < MAX_DESCRIPTORS:
        raise OSError(errno.EBADF, "dup3")
    if any(number == target for number, _ in task.descriptors.items()):
        file.references += 1  # keeps the file open if closing the target drops its last descriptor
        _close(task, target)
        file.references -= 1
    return task.descriptors.install(file, close_on_exec=bool(flags), at=target)


def pipe2(task: Task, address: int, flags: int) -> int:
    if flags & ~(os.O_CLOEXEC | os.O_NONBLOCK):
        raise OSError(errno.EINVAL, "pipe2")
    if not task.memory.valid_range(address, 8, WRITE):
        raise OSError(errno.EFAULT, "pipe2")
    close_on_exec = bool(flags & os.O_CLOEXEC)
    return install_both(task, address, task.files.make_pipe(flags), close_on_exec)


def memfd_create(task: Task, name: int, flags: int) -> int:
    if flags & ~(_MFD_CLOEXEC | _MFD_ALLOW_SEALING | _MFD_NOEXEC_SEAL | _MFD_EXEC):
        raise OSError(errno.EINVAL, "memfd_create")
    raw = task.memory.read_cstring(name, _MEMORY_NAME_BYTES)
    if raw is None:
        raise OSError(errno.EINVAL, "name")
    file = task.files.unnamed(f"/memfd:{os.fsdecode(raw)} (deleted)", os.O_RDWR)
    return task.descriptors.install(file, close_on_exec=bool(flags & _MFD_CLOEXEC))
