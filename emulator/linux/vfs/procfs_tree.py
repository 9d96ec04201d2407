"""procfs: the files of /proc and /sys as open files, directories and links.

Their contents are left to `procfs`. All errors are `OSError`.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from functools import partial
from typing import Protocol

from emulator.linux.mm.page_cache import PageCache
from emulator.linux.vfs.filesystem import BaseFilesystem
from emulator.linux.vfs.inodes import Inodes
from emulator.linux.vfs.open_files import Directory, DirectoryView, FileStatus, MemoryBudget, OpenFile
from emulator.linux.vfs.regular_files import MemoryFile, MemoryNode

_READABLE = 0o444


class ProcFsProvider(Protocol):
    """Contents of the files in /proc and /sys. Paths are absolute and normalised."""

    def covers(self, path: str) -> bool:
        """Whether such a file exists; the other methods are called only for those paths."""
        ...

    def contents(self, path: str) -> bytes: ...

    def names(self, path: str) -> list[str] | None:
        """Sorted names in a directory; None if ``path`` is not a directory."""
        ...

    def target(self, path: str) -> str | None:
        """The absolute path that a link to a file leads to; None if ``path`` is not such a link."""
        ...

    def program(self, path: str) -> tuple[str, bytes] | None:
        """Path and contents of the program that a link such as /proc/self/exe leads to; None if ``path`` is none."""
        ...

    def link(self, path: str) -> str:
        """The result of readlink. Raises OSError(EINVAL) if ``path`` is not a link."""
        ...

    def descriptor(self, path: str) -> OpenFile | None:
        """The open file that a link such as /proc/self/fd/3 stands for; None if ``path`` is not such a link."""
        ...


class LinkTargets(Protocol):
    """The part of the file system that links of /proc lead into."""

    inodes: Inodes
    page_cache: PageCache

    def open(self, path: str, flags: int, mode: int) -> OpenFile: ...

    def status(self, path: str, follow: bool = True) -> FileStatus: ...


class ProcFsTree(BaseFilesystem):
    """``system``: contents of the files; ``files``: the file system that links lead into."""

    def __init__(self, system: ProcFsProvider, files: LinkTargets) -> None:
        self.system = system
        self._files = files

    def covers(self, guest_path: str) -> bool:
        return self.system.covers(guest_path)

    def open(self, path: str, flags: int, mode: int, view: DirectoryView) -> OpenFile:
        opened = self.system.descriptor(path)
        if opened is not None:
            return opened
        target = self.system.target(path)
        if target is not None:
            return self._files.open(target, flags, mode)
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            raise OSError(errno.EACCES, "files in /proc and /sys are read-only")
        names = self.system.names(path)
        if names is not None:
            return Directory(path, flags, partial(self.status, path, follow=True), partial(self._entries, path, names))
        if flags & os.O_DIRECTORY:
            raise OSError(errno.ENOTDIR, "a file")
        contents = bytearray(self.system.contents(path))
        # The file is read-only, so it takes nothing from the budget of files in memory.
        node = MemoryNode(contents, _READABLE, MemoryBudget(len(contents)), is_read_only=True)
        status = partial(FileStatus, stat.S_IFREG | _READABLE, 0, self._files.inodes.number(path))
        return MemoryFile(path, flags, status, node, self._files.page_cache, self._files.inodes)

    def status(self, path: str, follow: bool) -> FileStatus:
        opened, target = self.system.descriptor(path), self.system.target(path)
        if follow and opened is not None:
            return opened.status()
        if follow and target is not None:
            return self._files.status(target)
        number = self._files.inodes.number(path)
        if opened is not None or target is not None:
            return FileStatus(stat.S_IFLNK | 0o777, 0, number)
        if self.system.names(path) is not None:
            return FileStatus(stat.S_IFDIR | 0o555, 0, number, 2)
        self.system.contents(path)
        return FileStatus(stat.S_IFREG | _READABLE, 0, number)

    def read_link(self, path: str) -> str:
        return self.system.link(path)

    def _entries(self, path: str, names: list[str]) -> list[tuple[str, FileStatus]]:
        found = [(".", self.status(path, follow=True)), ("..", self._files.status(posixpath.dirname(path)))]
        return found + [(name, self.status(posixpath.join(path, name), follow=False)) for name in names]
