"""System calls on file attributes: permissions, owner, times, extended attributes.

Every public function handles the system call of that name. All files belong to the guest's one user; there are no
extended attributes.
"""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import GID, UID, signed
from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.kernel.task import AT_FDCWD, Task
from emulator.linux.vfs.events import ACCESS, ATTRIB, MODIFY
from emulator.linux.vfs.open_files import Directory
from emulator.linux.vfs.regular_files import RegularFile

_AT_SYMLINK_NOFOLLOW = 0x100
_UTIME_NOW, _UTIME_OMIT = 0x3FFF_FFFF, 0x3FFF_FFFE
_UNCHANGED = 0xFFFF_FFFF
_NAME_BYTES = 256


def fchmod(task: Task, fd: int, mode: int) -> int:
    file = task.file(fd)
    if isinstance(file, RegularFile) and file.writable:
        file.change_mode(mode)
        task.files.notify(file, ATTRIB)
    elif isinstance(file, RegularFile | Directory):
        task.files.change_mode(file.path, mode)
    return 0


def fchmodat(task: Task, directory: int, path: int, mode: int) -> int:
    task.files.change_mode(task.path(directory, path), mode)
    return 0


def fchmodat2(task: Task, directory: int, path: int, mode: int, flags: int) -> int:
    if flags & ~_AT_SYMLINK_NOFOLLOW:
        raise OSError(errno.EINVAL, "fchmodat2 flags")
    where = task.path(directory, path)
    if flags and task.files.status(where, follow=False).mode & 0o170000 == 0o120000:
        raise OSError(errno.EOPNOTSUPP, "permissions of a link")
    return fchmodat(task, directory, path, mode)


def fchown(task: Task, fd: int, user: int, group: int) -> int:
    file = task.file(fd)
    if _check_owner(user, group):
        task.files.notify(file, ATTRIB)
    return 0


def fchownat(task: Task, directory: int, path: int, user: int, group: int, flags: int) -> int:
    if not path or not task.text(path):
        if signed(directory, 32) != AT_FDCWD:
            return fchown(task, directory, user, group)
        _check_owner(user, group)
        return 0
    where, follow = task.path(directory, path), not flags & _AT_SYMLINK_NOFOLLOW
    task.files.status(where, follow)
    if _check_owner(user, group):
        task.files.notify_path(where, ATTRIB, follow)
    return 0


def _check_owner(user: int, group: int) -> bool:
    """Whether an owner is given. Raises OSError(EPERM) unless it is the one owner that all files have."""
    if user & _UNCHANGED not in (UID, _UNCHANGED) or group & _UNCHANGED not in (GID, _UNCHANGED):
        raise OSError(errno.EPERM, "another owner")
    return user & group & _UNCHANGED != _UNCHANGED


def utimensat(task: Task, directory: int, path: int, times: int, flags: int) -> int:
    accessed, modified = _requested_time(task, times), _requested_time(task, times and times + 16)
    if accessed is None and modified is None:
        return 0
    event = MODIFY if accessed is None else ACCESS if modified is None else ATTRIB
    if path:
        where, follow = task.path(directory, path), not flags & _AT_SYMLINK_NOFOLLOW
        task.files.set_times(where, follow, accessed, modified)
        task.files.notify_path(where, event, follow)
        return 0
    if signed(directory, 32) == AT_FDCWD:
        raise OSError(errno.EFAULT, "path")
    file = task.file(directory)
    if isinstance(file, RegularFile) and file.writable:
        task.files.inodes.set_times(file.key, accessed, modified)
    elif isinstance(file, RegularFile | Directory):
        task.files.set_times(file.path, True, accessed, modified)
    task.files.notify(file, event)
    return 0


def _requested_time(task: Task, address: int) -> int | None:
    """The time of a ``struct timespec`` in nanoseconds: now if ``address`` is 0, None to leave it unchanged."""
    if not address:
        return task.clock.wall()
    seconds, nanoseconds = struct.unpack("<qq", task.memory.read(address, 16))
    if nanoseconds in (_UTIME_NOW, _UTIME_OMIT):
        return task.clock.wall() if nanoseconds == _UTIME_NOW else None
    if not 0 <= nanoseconds < NANOSECONDS:
        raise OSError(errno.EINVAL, "time")
    return int(seconds * NANOSECONDS + nanoseconds)


# Extended attributes: no file has any


def getxattr(task: Task, path: int, name: int) -> int:
    task.files.status(task.path(AT_FDCWD, path))
    return _no_attribute(task, name)


def lgetxattr(task: Task, path: int, name: int) -> int:
    task.files.status(task.path(AT_FDCWD, path), follow=False)
    return _no_attribute(task, name)


def fgetxattr(task: Task, fd: int, name: int) -> int:
    task.file(fd)
    return _no_attribute(task, name)


def listxattr(task: Task, path: int) -> int:
    task.files.status(task.path(AT_FDCWD, path))
    return 0


def llistxattr(task: Task, path: int) -> int:
    task.files.status(task.path(AT_FDCWD, path), follow=False)
    return 0


def flistxattr(task: Task, fd: int) -> int:
    task.file(fd)
    return 0


def setxattr(task: Task, path: int) -> int:
    task.files.status(task.path(AT_FDCWD, path))
    raise OSError(errno.EOPNOTSUPP, "extended attributes")


def lsetxattr(task: Task, path: int) -> int:
    task.files.status(task.path(AT_FDCWD, path), follow=False)
    raise OSError(errno.EOPNOTSUPP, "extended attributes")


def fsetxattr(task: Task, fd: int) -> int:
    task.file(fd)
    raise OSError(errno.EOPNOTSUPP, "extended attributes")


def removexattr(task: Task, path: int, name: int) -> int:
    return getxattr(task, path, name)


def lremovexattr(task: Task, path: int, name: int) -> int:
    return lgetxattr(task, path, name)


def fremovexattr(task: Task, fd: int, name: int) -> int:
    return fgetxattr(task, fd, name)


def _no_attribute(task: Task, name: int) -> int:
    if not task.text(name, _NAME_BYTES):
        raise OSError(errno.ERANGE, "empty name")
    raise OSError(errno.ENODATA, "no such attribute")
