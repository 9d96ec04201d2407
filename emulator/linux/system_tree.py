"""Files that the kernel makes, such as those in /proc, as files of the guest's file system.

What is in them is left to `system_files`. All errors are `OSError`.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from typing import TYPE_CHECKING, Protocol

from emulator.linux.open_files import Directory, FileStatus, MemoryBudget, OpenFile
from emulator.linux.regular_files import MemoryFile, MemoryNode

if TYPE_CHECKING:
    from emulator.linux.file_paths import FilePaths

_READABLE = 0o444


class SystemFiles(Protocol):
    """Files that the kernel makes: /proc and the like. Paths are absolute and normal."""

    def covers(self, path: str) -> bool:
        """Whether there is such a file; the other methods are asked only then."""
        ...

    def contents(self, path: str) -> bytes: ...

    def names(self, path: str) -> list[str] | None:
        """Sorted names in a directory; None for what is none."""
        ...

    def target(self, path: str) -> str | None:
        """The absolute path that a link to a file leads to; None for what is none."""
        ...

    def program(self, path: str) -> tuple[str, bytes] | None:
        """Path and contents of the program that a link to a running one leads to; None for what is none."""
        ...

    def link(self, path: str) -> str:
        """What readlink tells. Raises OSError(EINVAL) for what is no link."""
        ...

    def descriptor(self, path: str) -> OpenFile | None:
        """The open file that a link of a descriptor stands for."""
        ...


class SystemTree:
    """``system``: what is there; ``files``: the file system that links lead into."""

    def __init__(self, system: SystemFiles, files: FilePaths) -> None:
        self.system = system
        self._files = files

    def covers(self, path: str) -> bool:
        return self.system.covers(path)

    def open(self, path: str, flags: int, mode: int) -> OpenFile:
        opened = self.system.descriptor(path)
        if opened is not None:
            return opened
        target = self.system.target(path)
        if target is not None:
            return self._files.open(target, flags, mode)
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            raise OSError(errno.EACCES, "files of the system are read-only")
        names = self.system.names(path)
        if names is not None:
            return Directory(path, flags, lambda: self.status(path), lambda: self._listed(path, names))
        if flags & os.O_DIRECTORY:
            raise OSError(errno.ENOTDIR, "a file")
        contents = bytearray(self.system.contents(path))
        # Nobody writes to it, so it takes nothing from the budget of files in memory.
        node = MemoryNode(contents, _READABLE, MemoryBudget(len(contents)), is_read_only=True)
        status = FileStatus(stat.S_IFREG | _READABLE, 0, self._files.inodes.number(path))
        return MemoryFile(path, flags, lambda: status, node, self._files.shared, lambda: None)

    def status(self, path: str, follow: bool = True) -> FileStatus:
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

    def _listed(self, path: str, names: list[str]) -> list[tuple[str, FileStatus]]:
        found = [(".", self.status(path)), ("..", self._files.status(posixpath.dirname(path)))]
        return found + [(name, self.status(posixpath.join(path, name), follow=False)) for name in names]
