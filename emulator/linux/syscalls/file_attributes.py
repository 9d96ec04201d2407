"""System calls on file attributes: permissions, owner, times, extended attributes.

Every public method is the call of that name. All files belong to the guest's one user; there are no extended
attributes.
"""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import GID, UID, signed
from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.syscalls.base import AT_FDCWD, KernelCalls
from emulator.linux.vfs.events import ACCESS, ATTRIB, MODIFY
from emulator.linux.vfs.open_files import Directory
from emulator.linux.vfs.regular_files import RegularFile

_AT_SYMLINK_NOFOLLOW = 0x100
_UTIME_NOW, _UTIME_OMIT = 0x3FFF_FFFF, 0x3FFF_FFFE
_UNCHANGED = 0xFFFF_FFFF
_NAME_BYTES = 256


class AttributeCalls(KernelCalls):
    def fchmod(self, fd: int, mode: int) -> int:
        file = self._file(fd)
        if isinstance(file, RegularFile) and file.writable:
            file.change_mode(mode)
            self._notify(file, ATTRIB)
        elif isinstance(file, RegularFile | Directory):
            self._files.change_mode(file.path, mode)
        return 0

    def fchmodat(self, directory: int, path: int, mode: int) -> int:
        self._files.change_mode(self._path(directory, path), mode)
        return 0

    def fchmodat2(self, directory: int, path: int, mode: int, flags: int) -> int:
        if flags & ~_AT_SYMLINK_NOFOLLOW:
            raise OSError(errno.EINVAL, "fchmodat2 flags")
        where = self._path(directory, path)
        if flags and self._files.status(where, follow=False).mode & 0o170000 == 0o120000:
            raise OSError(errno.EOPNOTSUPP, "permissions of a link")
        return self.fchmodat(directory, path, mode)

    def fchown(self, fd: int, user: int, group: int) -> int:
        file = self._file(fd)
        if self._check_owner(user, group):
            self._notify(file, ATTRIB)
        return 0

    def fchownat(self, directory: int, path: int, user: int, group: int, flags: int) -> int:
        if not path or not self._text(path):
            if signed(directory, 32) != AT_FDCWD:
                return self.fchown(directory, user, group)
            self._check_owner(user, group)
            return 0
        where, follow = self._path(directory, path), not flags & _AT_SYMLINK_NOFOLLOW
        self._files.status(where, follow)
        if self._check_owner(user, group):
            self._files.notify_path(where, ATTRIB, follow)
        return 0

    @staticmethod
    def _check_owner(user: int, group: int) -> bool:
        """Whether an owner is given. Raises OSError(EPERM) unless it is the one owner that all files have."""
        if user & _UNCHANGED not in (UID, _UNCHANGED) or group & _UNCHANGED not in (GID, _UNCHANGED):
            raise OSError(errno.EPERM, "another owner")
        return user & group & _UNCHANGED != _UNCHANGED

    def utimensat(self, directory: int, path: int, times: int, flags: int) -> int:
        accessed, modified = self._requested_time(times), self._requested_time(times and times + 16)
        if accessed is None and modified is None:
            return 0
        event = MODIFY if accessed is None else ACCESS if modified is None else ATTRIB
        if path:
            where, follow = self._path(directory, path), not flags & _AT_SYMLINK_NOFOLLOW
            self._files.set_times(where, follow, accessed, modified)
            self._files.notify_path(where, event, follow)
            return 0
        if signed(directory, 32) == AT_FDCWD:
            raise OSError(errno.EFAULT, "path")
        file = self._file(directory)
        if isinstance(file, RegularFile) and file.writable:
            self._files.inodes.set_times(file.key, accessed, modified)
        elif isinstance(file, RegularFile | Directory):
            self._files.set_times(file.path, True, accessed, modified)
        self._notify(file, event)
        return 0

    def _requested_time(self, address: int) -> int | None:
        """The time of a ``struct timespec`` in nanoseconds: now if ``address`` is 0, None to leave it unchanged."""
        if not address:
            return self._clock.wall()
        seconds, nanoseconds = struct.unpack("<qq", self._memory.read(address, 16))
        if nanoseconds in (_UTIME_NOW, _UTIME_OMIT):
            return self._clock.wall() if nanoseconds == _UTIME_NOW else None
        if not 0 <= nanoseconds < NANOSECONDS:
            raise OSError(errno.EINVAL, "time")
        return int(seconds * NANOSECONDS + nanoseconds)

    # Extended attributes: no file has any

    def getxattr(self, path: int, name: int) -> int:
        self._files.status(self._path(AT_FDCWD, path))
        return self._no_attribute(name)

    def lgetxattr(self, path: int, name: int) -> int:
        self._files.status(self._path(AT_FDCWD, path), follow=False)
        return self._no_attribute(name)

    def fgetxattr(self, fd: int, name: int) -> int:
        self._file(fd)
        return self._no_attribute(name)

    def listxattr(self, path: int) -> int:
        self._files.status(self._path(AT_FDCWD, path))
        return 0

    def llistxattr(self, path: int) -> int:
        self._files.status(self._path(AT_FDCWD, path), follow=False)
        return 0

    def flistxattr(self, fd: int) -> int:
        self._file(fd)
        return 0

    def setxattr(self, path: int) -> int:
        self._files.status(self._path(AT_FDCWD, path))
        raise OSError(errno.EOPNOTSUPP, "extended attributes")

    def lsetxattr(self, path: int) -> int:
        self._files.status(self._path(AT_FDCWD, path), follow=False)
        raise OSError(errno.EOPNOTSUPP, "extended attributes")

    def fsetxattr(self, fd: int) -> int:
        self._file(fd)
        raise OSError(errno.EOPNOTSUPP, "extended attributes")

    def removexattr(self, path: int, name: int) -> int:
        return self.getxattr(path, name)

    def lremovexattr(self, path: int, name: int) -> int:
        return self.lgetxattr(path, name)

    def fremovexattr(self, fd: int, name: int) -> int:
        return self.fgetxattr(fd, name)

    def _no_attribute(self, name: int) -> int:
        if not self._text(name, _NAME_BYTES):
            raise OSError(errno.ERANGE, "empty name")
        raise OSError(errno.ENODATA, "no such attribute")
