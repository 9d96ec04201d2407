"""fcntl, flock and ioctl: flags, locks and terminals. Every public function handles the system call of that name."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Hashable

from emulator.linux.abi.numbers import PID, Signal, signed
from emulator.linux.kernel import job_control as jobs
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.waits import Wait
from emulator.linux.vfs.descriptor_table import MAX_DESCRIPTORS
from emulator.linux.vfs.file_locks import END, READ_LOCK, UNLOCK, WRITE_LOCK, FileLocks, Lock, lock_key
from emulator.linux.vfs.open_files import OpenFile
from emulator.linux.vfs.pipes import PipeEnd

_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_SETFL, _F_GETLK, _F_SETLK, _F_SETLKW = range(8)
_F_OFD_GETLK, _F_OFD_SETLK, _F_OFD_SETLKW = 36, 37, 38
_F_DUPFD_CLOEXEC, _F_SETPIPE_SZ, _F_GETPIPE_SZ = 1030, 1031, 1032
_FD_CLOEXEC = 1
_SETTABLE_FLAGS = os.O_APPEND | os.O_NONBLOCK
_NOT_KEPT_FLAGS = os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_CLOEXEC | os.O_NOCTTY
_LOCK_SH, _LOCK_EX, _LOCK_NB, _LOCK_UN = 1, 2, 4, 8

_TCGETS, _TCSETS, _TCSETSF, _TIOCGWINSZ, _FIONBIO = 0x5401, 0x5402, 0x5404, 0x5413, 0x5421
_TIOCGPGRP, _TIOCSPGRP, _TIOCGSID, _TIOCSCTTY, _TIOCSWINSZ = 0x540F, 0x5410, 0x5429, 0x540E, 0x5414
_TCSBRK, _TCFLSH = 0x5409, 0x540B
_FIONREAD, _FIONCLEX, _FIOCLEX = 0x541B, 0x5450, 0x5451
_TERMINAL_WITHOUT_EFFECT = {*range(_TCSETS, _TCSETSF + 1), _TCSBRK, _TCFLSH}
# struct termios of a terminal in its usual state: modes, line discipline, control characters
_TERMIOS = struct.pack("<IIIIB", 0x500, 0x5, 0xBF, 0x8A3B, 0) + bytes.fromhex(
    "03 1c 7f 15 04 00 01 00 11 13 1a 00 12 0f 17 16 00 00 00"
)
_WINDOW_SIZE = struct.pack("<HHHH", 24, 80, 0, 0)


def fcntl(task: Task, fd: int, command: int, argument: int) -> int | Wait:
    file, fd = task.file(fd), signed(fd, 32)
    if command in (_F_DUPFD, _F_DUPFD_CLOEXEC):
        if argument >= MAX_DESCRIPTORS:
            raise OSError(errno.EINVAL, "descriptor")
        return task.descriptors.install(file, argument, close_on_exec=command == _F_DUPFD_CLOEXEC)
    if command == _F_GETFD:
        return _FD_CLOEXEC if task.descriptors.close_on_exec(fd) else 0
    if command == _F_SETFD:
        task.descriptors.set_close_on_exec(fd, bool(argument & _FD_CLOEXEC))
        return 0
    if command == _F_GETFL:
        return file.flags & ~_NOT_KEPT_FLAGS
    if command == _F_SETFL:
        file.flags = file.flags & ~_SETTABLE_FLAGS | argument & _SETTABLE_FLAGS
        return 0
    if command in (_F_GETLK, _F_SETLK, _F_SETLKW):
        return _lock(task, file, task.process.pid, argument, command == _F_GETLK, command == _F_SETLKW)
    if command in (_F_OFD_GETLK, _F_OFD_SETLK, _F_OFD_SETLKW):
        return _lock(task, file, file, argument, command == _F_OFD_GETLK, command == _F_OFD_SETLKW)
    if command in (_F_GETPIPE_SZ, _F_SETPIPE_SZ):
        if not isinstance(file, PipeEnd):
            raise OSError(errno.EBADF, "not a pipe")
        return file.resize(argument & 0xFFFF_FFFF if command == _F_SETPIPE_SZ else None)
    task.report(f"fcntl command {command}")
    raise OSError(errno.EINVAL, "fcntl")


# Locks


def _lock(task: Task, file: OpenFile, owner: object, address: int, only_asks: bool, waits: bool) -> int | Wait:
    """Set the lock of ``struct flock`` at ``address``; with ``only_asks`` write a conflicting lock there
    instead."""
    kind, whence, start, length = struct.unpack("<hh4xqq", task.memory.read(address, 24))
    if kind not in (READ_LOCK, WRITE_LOCK, UNLOCK) or whence not in (
        os.SEEK_SET,
        os.SEEK_CUR,
        os.SEEK_END,
    ):
        raise OSError(errno.EINVAL, "lock")
    if whence == os.SEEK_CUR:
        start += file.seek(0, os.SEEK_CUR)
    elif whence == os.SEEK_END:
        start += file.status().size_bytes
    end = start + length if length else END
    start, end = min(start, end), max(start, end)
    if start < 0 or end > END:
        raise OSError(errno.EINVAL if start < 0 else errno.EOVERFLOW, "lock")
    process = task.process.pid if owner == task.process.pid else -1
    requested, key, locks = Lock(owner, kind, start, end, process), lock_key(file), task.files.locks
    if only_asks:
        found = locks.conflict(key, requested)
        if found is None:
            task.memory.write_int(address, 2, UNLOCK)
        else:
            length = 0 if found.end == END else found.end - found.start
            packed = struct.pack("<hh4xqqi", found.kind, os.SEEK_SET, found.start, length, found.process)
            task.memory.write(address, packed)
        return 0
    if (kind == READ_LOCK and not file.readable) or (kind == WRITE_LOCK and not file.writable):
        raise OSError(errno.EBADF, "not open for that access")
    return _set_lock(task, key, requested, waits)


def _set_lock(task: Task, key: object, requested: Lock, waits: bool) -> int | Wait:
    if _take_lock(task.files.locks, key, requested) is not None:
        return 0
    if not waits:
        raise OSError(errno.EAGAIN, "locked")
    return Wait(
        _take_lock, task.files.locks, key, requested,
        restartable=True, deadlock="the guest waits for a file lock that no task releases",
    )  # fmt: skip


def _take_lock(locks: FileLocks, key: Hashable, requested: Lock) -> int | None:
    """Set a lock and return 0; None if it conflicts with another one."""
    if requested.kind != UNLOCK and locks.conflict(key, requested) is not None:
        return None
    locks.set(key, requested)
    return 0


def flock(task: Task, fd: int, operation: int) -> int | Wait:
    file = task.file(fd)
    kind = {_LOCK_SH: READ_LOCK, _LOCK_EX: WRITE_LOCK, _LOCK_UN: UNLOCK}.get(operation & ~_LOCK_NB)
    if kind is None:
        raise OSError(errno.EINVAL, "flock")
    return _set_lock(task, ("whole", lock_key(file)), Lock(file, kind, 0, END, -1), not operation & _LOCK_NB)


# Devices


def ioctl(task: Task, fd: int, request: int, argument: int) -> int:
    file, request = task.file(fd), request & 0xFFFF_FFFF
    if request == _FIONBIO:
        on = task.memory.read_int(argument, 4) != 0
        file.flags = file.flags & ~os.O_NONBLOCK | (os.O_NONBLOCK if on else 0)
    elif request in (_FIOCLEX, _FIONCLEX):
        task.descriptors.set_close_on_exec(signed(fd, 32), request == _FIOCLEX)
    elif request == _FIONREAD:
        task.memory.write_int(argument, 4, file.waiting_bytes())
    elif not file.is_terminal:
        raise OSError(errno.ENOTTY, "not a terminal")
    elif request == _TCGETS:
        task.memory.write(argument, _TERMIOS)
    elif request == _TIOCGWINSZ:
        task.memory.write(argument, _WINDOW_SIZE)
    elif request in (_TIOCGPGRP, _TIOCSPGRP, _TIOCGSID, _TIOCSCTTY):
        _terminal_ioctl(task, request, argument)
    elif request in _TERMINAL_WITHOUT_EFFECT:
        jobs.check_terminal(task.scheduler, task.process, Signal.SIGTTOU)
    elif request != _TIOCSWINSZ:
        task.report(f"ioctl {request:#x} of a terminal")
        raise OSError(errno.ENOTTY, "ioctl")
    return 0


def _terminal_ioctl(task: Task, request: int, argument: int) -> None:
    """ioctl requests for the session of the terminal and for its foreground process group."""
    if task.process.session != jobs.TERMINAL_SESSION:
        raise OSError(errno.EPERM if request == _TIOCSCTTY else errno.ENOTTY, "of another session")
    if request == _TIOCGPGRP:
        task.memory.write_int(argument, 4, task.scheduler.foreground_group or PID)
    elif request == _TIOCGSID:
        task.memory.write_int(argument, 4, task.process.session)
    elif request == _TIOCSPGRP:
        jobs.check_terminal(task.scheduler, task.process, Signal.SIGTTOU)
        group = signed(task.memory.read_int(argument, 4), 32)
        if group < 0:
            raise OSError(errno.EINVAL, "group")
        found = jobs.members(task.scheduler, group)
        if not found:
            raise OSError(errno.ESRCH, "group")
        if found[0].session != task.process.session:
            raise OSError(errno.EPERM, "a group of another session")
        task.scheduler.foreground_group = group
