"""tmpfs: files, directories, named pipes and socket names in memory: mapped and captured files, and /dev/shm.

Paths are absolute and normalised. There are no symbolic links (EPERM); those are left to `hostfs`. All errors are
`OSError`.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Collection
from functools import partial

from emulator.linux.mm.page_cache import PageCache
from emulator.linux.vfs.inodes import Inodes
from emulator.linux.vfs.open_files import FileStatus, MemoryBudget, OpenFile
from emulator.linux.vfs.pipes import NamedPipe
from emulator.linux.vfs.regular_files import MemoryFile, MemoryNode
from emulator.linux.vfs.sockets import BoundSocket

Special = NamedPipe | BoundSocket
SHARED_MEMORY = "/dev/shm"


class Tmpfs:
    """``capture``: guest paths that can be written; a path that ends in ``/`` includes everything below it."""

    def __init__(
        self, capture: Collection[str], inodes: Inodes, page_cache: PageCache, budget: MemoryBudget
    ) -> None:
        self._inodes = inodes
        self._page_cache = page_cache
        self._budget = budget
        self._files: dict[str, MemoryNode] = {}
        self._specials: dict[str, Special] = {}
        self._directories: set[str] = {"/", "/dev", SHARED_MEMORY}
        self._writable = {posixpath.normpath(path) for path in capture if not path.endswith("/")}
        below = [posixpath.normpath(path) for path in capture if path.endswith("/")]
        self._writable_below = (*below, SHARED_MEMORY)
        for path in self._writable:
            self.add_parents(path)
        for path in below:
            self._directories.add(path)
            self.add_parents(path)

    # Lookup

    def has_file(self, path: str) -> bool:
        return path in self._files or path in self._specials

    def has_directory(self, path: str) -> bool:
        return path in self._directories

    def may_create(self, path: str) -> bool:
        """Whether the guest may create a file at ``path``."""
        return path in self._writable or any(path.startswith(below + "/") for below in self._writable_below)

    def names_in(self, path: str) -> set[str]:
        known = {*self._files, *self._specials, *self._directories} - {"/"}
        return {posixpath.basename(one) for one in known if posixpath.dirname(one) == path}

    def add(self, path: str, contents: bytes) -> None:
        """Add a read-only file."""
        mode = 0o555 if contents[:4] == b"\x7fELF" or contents[:2] == b"#!" else 0o444
        self._files[path] = MemoryNode(contents, mode, self._budget, is_read_only=True)
        self.add_parents(path)

    def add_parents(self, path: str) -> None:
        while path != "/":
            path = posixpath.dirname(path)
            self._directories.add(path)

    def captured(self) -> dict[str, bytes]:
        """Contents of the files that the guest has written to captured paths, by path."""
        return {
            path: bytes(node.data)
            for path, node in self._files.items()
            if not node.is_read_only and not path.startswith(SHARED_MEMORY + "/")
        }

    def special(self, path: str) -> Special | None:
        return self._specials.get(path)

    def status(self, path: str) -> FileStatus:
        node = self._files.get(path)
        if node is not None:
            return self._status_of(node)
        special = self._specials.get(path)
        if special is not None:
            times = self._inodes.times(special)
            return FileStatus(special.kind | special.mode, 0, self._inodes.number(special), 1, times)
        times = self._inodes.times(path)
        mode = 0o1777 if path == SHARED_MEMORY else 0o755
        return FileStatus(stat.S_IFDIR | mode, 4096, self._inodes.number(path), 2, times)

    def _status_of(self, node: MemoryNode) -> FileStatus:
        number, times = self._inodes.number(node), self._inodes.times(node)
        return FileStatus(stat.S_IFREG | node.mode, len(node.data), number, node.links, times)

    def key(self, path: str) -> object:
        """The key of a file in `Inodes`."""
        return self._files.get(path) or self._specials.get(path) or path

    # Changes

    def open(self, path: str, flags: int, mode: int) -> OpenFile:
        special = self._specials.get(path)
        if special is not None:
            return special.open(path, flags, partial(self.status, path))
        node = self._files.get(path)
        if node is None and not flags & os.O_CREAT:
            raise OSError(errno.ENOENT, "not written yet")
        if node is not None and flags & os.O_CREAT and flags & os.O_EXCL:
            raise OSError(errno.EEXIST, "exists")
        if flags & os.O_DIRECTORY:
            raise OSError(errno.ENOTDIR, "a file")
        changes = flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC
        if node is None:
            node = self._make(path, mode)
        elif changes and node.is_read_only:
            raise OSError(errno.EROFS, "not writable for the guest")
        file = self._open_node(path, node, flags)
        if flags & os.O_TRUNC:
            file.truncate(0)
        return file

    def _make(self, path: str, mode: int) -> MemoryNode:
        self._check_parent(path)
        node = self._files[path] = MemoryNode(bytearray(), mode & 0o777, self._budget)
        self._inodes.created(node)
        self._inodes.modified(posixpath.dirname(path))
        return node

    def _open_node(self, path: str, node: MemoryNode, flags: int) -> MemoryFile:
        return MemoryFile(
            path, flags, partial(self._status_of, node), node, self._page_cache, self._inodes
        )

    def unnamed(self, name: str, flags: int) -> MemoryFile:
        """A new file without a name in any directory: memfd_create."""
        node = MemoryNode(bytearray(), 0o777, self._budget, links=0)
        self._inodes.created(node)
        return self._open_node(name, node, flags)

    def add_special(self, path: str, special: Special) -> None:
        """Add a named pipe or the name of a socket; the caller checks that the guest may create files there."""
        self._specials[path] = special
        self._inodes.created(special)

    def remove(self, path: str, directory: bool) -> None:
        if self.has_file(path):
            if directory:
                raise OSError(errno.ENOTDIR, "a file")
            if path in self._specials:
                del self._specials[path]
                return
            self._check_writable(path)
            self._unlink(path)
            return
        if not directory:
            raise OSError(errno.EISDIR, "a directory")
        self._check_writable(path)
        if self.names_in(path):
            raise OSError(errno.ENOTEMPTY, "directory")
        self._directories.remove(path)

    def _unlink(self, path: str) -> None:
        node = self._files.pop(path)
        node.links -= 1
        self._inodes.changed(node)
        self._inodes.modified(posixpath.dirname(path))
        node.release()

    def make_directory(self, path: str) -> None:
        self._check_parent(path)
        self._directories.add(path)
        self._inodes.created(path)

    def link(self, old: str, new: str) -> None:
        """Make a hard link. Raises OSError."""
        if old in self._specials or old not in self._files:
            raise OSError(errno.EPERM, "not a file")
        if new in self._files or new in self._specials or new in self._directories:
            raise OSError(errno.EEXIST, "exists")
        node = self._files[old]
        if node.is_read_only or not self.may_create(new):
            raise OSError(errno.EXDEV, "only within captured paths")
        self._check_parent(new)
        node.links += 1
        self._files[new] = node
        self._inodes.changed(node)

    def rename(self, old: str, new: str) -> None:
        if old in self._directories:
            raise OSError(errno.EXDEV, "directories in memory stay where they are")
        if new in self._directories:
            raise OSError(errno.EISDIR, "a directory")
        if old in self._specials:
            self._specials[new] = self._specials.pop(old)
            return
        self._check_writable(old)
        if not self.may_create(new):
            raise OSError(errno.EXDEV, "only within captured paths")
        self._check_parent(new)
        node = self._files[old]
        if self._files.get(new) is node:
            return  # two names of one file: POSIX says that rename does nothing
        if new in self._files:
            self._unlink(new)
        self._files[new] = self._files.pop(old)
        self._inodes.changed(node)

    def change_mode(self, path: str, mode: int) -> None:
        node: MemoryNode | Special | None = self._files.get(path) or self._specials.get(path)
        self._check_writable(path)
        if node is not None:
            node.mode = mode & 0o777
            self._inodes.changed(node)

    def _check_writable(self, path: str) -> None:
        if path not in self._specials and not self.may_create(path):
            raise OSError(errno.EROFS, "not writable for the guest")

    def _check_parent(self, path: str) -> None:
        if posixpath.dirname(path) not in self._directories:
            raise OSError(errno.ENOENT, "no such directory")
