"""inotify system calls. Every public function handles the system call of that name."""

from __future__ import annotations

import errno
import os
import stat

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.task import AT_FDCWD, Task
from emulator.linux.syscalls.optional.inotify import EXCL_UNLINK, ONESHOT, InotifyFile, InotifyRegistry
from emulator.linux.vfs.events import ALL_EVENTS

_ONLYDIR, _DONT_FOLLOW, _MASK_CREATE, _MASK_ADD = 0x0100_0000, 0x0200_0000, 0x1000_0000, 0x2000_0000
_WATCH_BITS = ALL_EVENTS | EXCL_UNLINK | ONESHOT
_ALWAYS_REPORTED = 0x4000_E000  # IN_UNMOUNT, IN_Q_OVERFLOW, IN_IGNORED, IN_ISDIR
_VALID_MASK = _WATCH_BITS | _ALWAYS_REPORTED | _ONLYDIR | _DONT_FOLLOW | _MASK_CREATE | _MASK_ADD


def inotify_init1(task: Task, flags: int) -> int:
    if flags & 0xFFFF_FFFF & ~(os.O_CLOEXEC | os.O_NONBLOCK):
        raise OSError(errno.EINVAL, "inotify_init1")
    file = task.files.listener(InotifyRegistry).new_instance(flags & os.O_NONBLOCK)
    return task.descriptors.install(file, close_on_exec=bool(flags & os.O_CLOEXEC))


def inotify_add_watch(task: Task, fd: int, path: int, mask: int) -> int:
    if not mask & _VALID_MASK:
        raise OSError(errno.EINVAL, "no events")
    opened = task.file(fd)
    if mask & _MASK_ADD and mask & _MASK_CREATE:
        raise OSError(errno.EINVAL, "adds and creates")
    file, follow = _instance(opened), not mask & _DONT_FOLLOW
    where = task.path(AT_FDCWD, path)
    status = task.files.status(where, follow)
    if mask & _ONLYDIR and not stat.S_ISDIR(status.mode):
        raise OSError(errno.ENOTDIR, "not a directory")
    key = task.files.key(where, follow)
    existing = task.files.listener(InotifyRegistry).find(file, key)
    if existing is None:
        return file.add_watch(key, mask & _WATCH_BITS)
    if mask & _MASK_CREATE:
        raise OSError(errno.EEXIST, "watched already")
    existing.mask = mask & _WATCH_BITS | (existing.mask if mask & _MASK_ADD else 0)
    return existing.number


def inotify_rm_watch(task: Task, fd: int, number: int) -> int:
    _instance(task.file(fd)).remove_number(signed(number, 32))
    return 0


def _instance(file: object) -> InotifyFile:
    if not isinstance(file, InotifyFile):
        raise OSError(errno.EINVAL, "inotify")
    return file
