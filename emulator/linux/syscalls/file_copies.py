"""System calls that copy data between files: sendfile, splice and others.

Every public function handles the system call of that name.
Data for which the target has no room stays in the source.
"""

from __future__ import annotations

import errno
import os

from emulator.linux.kernel.task import Task
from emulator.linux.kernel.waits import Wait
from emulator.linux.syscalls.transfers import (
    accessed,
    checked_offset,
    gather,
    modified,
    readable,
    scatter,
    writable,
    write_all,
    write_some,
)
from emulator.linux.vfs.open_files import OpenFile
from emulator.linux.vfs.pipes import PipeEnd
from emulator.linux.vfs.regular_files import RegularFile

_AT_ONCE_BYTES = 1 << 20
_SPLICE_F_NONBLOCK = 2


def sendfile(task: Task, out_fd: int, in_fd: int, offset: int, count: int) -> int:
    source, target = readable(task, in_fd), writable(task, out_fd)
    start = _position(task, source, offset)
    data = source.read_at(min(count, _AT_ONCE_BYTES), start)
    done = write_some(task, target.write, data, signals=True) if data else 0
    _set_position(task, source, offset, start + done)
    accessed(task, source, done)
    return modified(task, target, done)


def copy_file_range(
    task: Task, in_fd: int, in_offset: int, out_fd: int, out_offset: int, count: int, flags: int
) -> int:
    source, target = readable(task, in_fd), writable(task, out_fd)
    if flags or not isinstance(source, RegularFile) or not isinstance(target, RegularFile):
        raise OSError(errno.EINVAL, "copy_file_range")
    if target.flags & os.O_APPEND:
        raise OSError(errno.EBADF, "open for appending")
    start, to = _position(task, source, in_offset), _position(task, target, out_offset)
    count = min(count, _AT_ONCE_BYTES)
    if source.key == target.key and start < to + count and to < start + count:
        raise OSError(errno.EINVAL, "the ranges overlap")
    data = source.read_at(count, start)
    done = target.write_at(data, to) if data else 0
    _set_position(task, source, in_offset, start + done)
    _set_position(task, target, out_offset, to + done)
    accessed(task, source, done)
    return modified(task, target, done)


def splice(task: Task, in_fd: int, in_offset: int, out_fd: int, out_offset: int, count: int, flags: int) -> int:
    source, target = readable(task, in_fd), writable(task, out_fd)
    for file, offset in ((source, in_offset), (target, out_offset)):
        if isinstance(file, PipeEnd) and offset:
            raise OSError(errno.ESPIPE, "a pipe has no offset")
    count = min(count, _AT_ONCE_BYTES)
    if isinstance(source, PipeEnd):
        data = _peek(source, count, flags)
        if out_offset:
            to = _position(task, target, out_offset)
            done = target.write_at(data, to)
            _set_position(task, target, out_offset, to + done)
        else:
            done = write_some(task, target.write, data, signals=True) if data else 0
        source.take(done)
        return modified(task, target, done)
    if not isinstance(target, PipeEnd):
        raise OSError(errno.EINVAL, "neither is a pipe")
    count = min(count, _room(target, flags))
    if in_offset or isinstance(source, RegularFile):
        start = _position(task, source, in_offset)
        data = source.read_at(count, start)
        _set_position(task, source, in_offset, start + len(data))
    else:
        data = source.read(count)
    accessed(task, source, len(data))
    return write_some(task, target.write, data, signals=True) if data else 0


def tee(task: Task, in_fd: int, out_fd: int, count: int, flags: int) -> int:
    source, target = readable(task, in_fd), writable(task, out_fd)
    if not isinstance(source, PipeEnd) or not isinstance(target, PipeEnd):
        raise OSError(errno.EINVAL, "not two pipes")
    data = _peek(source, min(count, _room(target, flags)), flags)
    return write_some(task, target.write, data, signals=True) if data else 0


def vmsplice(task: Task, fd: int, vectors: int, count: int, flags: int) -> int | Wait:
    file = task.file(fd)
    if not isinstance(file, PipeEnd):
        raise OSError(errno.EBADF, "not a pipe")
    if file.writable:
        return write_all(task, file, gather(task, vectors, count))
    return scatter(task, vectors, count, lambda n_bytes, _: file.read(n_bytes))


# Inner parts


def _position(task: Task, file: OpenFile, offset: int) -> int:
    """The start of a copy: the number at guest address ``offset``, or the file's position if that is 0."""
    return checked_offset(task.memory.read_int(offset, 8)) if offset else file.seek(0, os.SEEK_CUR)


def _set_position(task: Task, file: OpenFile, offset: int, position: int) -> None:
    if offset:
        task.memory.write_int(offset, 8, position)
    else:
        file.seek(position, os.SEEK_SET)


def _peek(pipe: PipeEnd, count: int, flags: int) -> bytes:
    if flags & _SPLICE_F_NONBLOCK and not pipe.waiting_bytes() and pipe.has_writer:
        raise OSError(errno.EAGAIN, "empty")
    return pipe.peek(count)


def _room(pipe: PipeEnd, flags: int) -> int:
    """Bytes that the pipe has room for, at least one. Raises OSError(EAGAIN) and `WouldBlock`."""
    room = pipe.room()
    if not room:
        if flags & _SPLICE_F_NONBLOCK:
            raise OSError(errno.EAGAIN, "full")
        pipe.would_block("writes into a full pipe that no other task reads from")
    return room
