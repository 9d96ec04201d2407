"""System calls that watch files (inotify). Every public method is the system call of that name."""

from __future__ import annotations

import errno
import os
import stat

from emulator.linux.abi import signed
from emulator.linux.calls import AT_FDCWD, KernelCalls
from emulator.linux.watch_files import ALL_EVENTS, EXCL_UNLINK, ONESHOT, WatchFile

_ONLYDIR, _DONT_FOLLOW, _MASK_CREATE, _MASK_ADD = 0x0100_0000, 0x0200_0000, 0x1000_0000, 0x2000_0000
_KEPT = ALL_EVENTS | EXCL_UNLINK | ONESHOT
_TOLD_ANYWAY = 0x4000_E000  # unmounted, overflow, ignored, a directory
_KNOWN = _KEPT | _TOLD_ANYWAY | _ONLYDIR | _DONT_FOLLOW | _MASK_CREATE | _MASK_ADD


class WatchCalls(KernelCalls):
    def inotify_init1(self, flags: int) -> int:
        if flags & 0xFFFF_FFFF & ~(os.O_CLOEXEC | os.O_NONBLOCK):
            raise OSError(errno.EINVAL, "inotify_init1")
        file = self._files.watches.new_instance(flags & os.O_NONBLOCK)
        return self._table.install(file, close_on_exec=bool(flags & os.O_CLOEXEC))

    def inotify_add_watch(self, fd: int, path: int, mask: int) -> int:
        if not mask & _KNOWN:
            raise OSError(errno.EINVAL, "no events")
        opened = self._file(fd)
        if mask & _MASK_ADD and mask & _MASK_CREATE:
            raise OSError(errno.EINVAL, "adds and creates")
        file, follow = self._instance(opened), not mask & _DONT_FOLLOW
        where = self._path(AT_FDCWD, path)
        status = self._files.status(where, follow)
        if mask & _ONLYDIR and not stat.S_ISDIR(status.mode):
            raise OSError(errno.ENOTDIR, "not a directory")
        key = self._files.key(where, follow)
        known = self._files.watches.find(file, key)
        if known is None:
            return file.watch(key, mask & _KEPT)
        if mask & _MASK_CREATE:
            raise OSError(errno.EEXIST, "watched already")
        known.mask = mask & _KEPT | (known.mask if mask & _MASK_ADD else 0)
        return known.number

    def inotify_rm_watch(self, fd: int, number: int) -> int:
        self._instance(self._file(fd)).end_number(signed(number, 32))
        return 0

    @staticmethod
    def _instance(file: object) -> WatchFile:
        if not isinstance(file, WatchFile):
            raise OSError(errno.EINVAL, "inotify")
        return file
