"""tmpfs: files, directories, named pipes and socket names in memory: mapped and captured files, /dev/shm, and the
guest's root where no directory of the host is its root.

Files in memory may lie anywhere in the guest's file system, over directories of the host: paths are guest paths,
absolute and normalised. There are no symbolic links (EPERM); those are left to `hostfs`. All errors are `OSError`.
"""

from __future__ import annotations

import copy
import errno
import os
import posixpath
import stat
from collections.abc import Collection, Hashable
from functools import partial
from typing import NoReturn

from emulator.linux.mm.page_cache import PageCache
from emulator.linux.vfs.filesystem import BaseFilesystem, Place, Special
from emulator.linux.vfs.inodes import Inodes
from emulator.linux.vfs.open_files import DirectoryView, FileStatus, MemoryBudget, OpenFile, open_directory
from emulator.linux.vfs.regular_files import MemoryFile, MemoryNode

SHARED_MEMORY = "/dev/shm"
TEMPORARY = "/tmp"
_STICKY = (SHARED_MEMORY, TEMPORARY)  # directories that every user may write to


class Tmpfs(BaseFilesystem):
    """``capture``: guest paths that can be written; a path that ends in ``/`` includes everything below it.
    ``is_root``: everything can be written that is not in a directory of the host or in /dev; there is a /tmp."""

    def __init__(
        self, capture: Collection[str], is_root: bool, inodes: Inodes, page_cache: PageCache, budget: MemoryBudget
    ) -> None:
        self._is_root = is_root
        self._inodes = inodes
        self._page_cache = page_cache
        self._budget = budget
        self._files: dict[str, MemoryNode] = {}
        self.refused: dict[str, None] = {}  # paths of given files that the guest tried to change
        self._specials: dict[str, Special] = {}
        self._directories: set[str] = {"/", "/dev", SHARED_MEMORY, *([TEMPORARY] if is_root else [])}
        self._mount_points: set[str] = set()
        self._writable = {posixpath.normpath(path) for path in capture if not path.endswith("/")}
        below = [posixpath.normpath(path) for path in capture if path.endswith("/")]
        self._writable_below = (*below, SHARED_MEMORY)
        for path in self._writable:
            self.add_parents(path)
        for path in below:
            self._directories.add(path)
            self.add_parents(path)

    def with_inodes(self, inodes: Inodes) -> Tmpfs:
        """The same files with other inode numbers and times."""
        other = copy.copy(self)
        other._inodes = inodes
        other.refused = {}
        return other

    # Lookup

    def covers(self, guest_path: str) -> bool:
        """Whether the path is a file or a directory in memory, a mount point, or may be created in memory."""
        return (
            guest_path in self._directories
            or guest_path in self._files
            or guest_path in self._specials
            or guest_path in self._mount_points
            or self._may_create(guest_path)
        )

    def _exists(self, path: str) -> bool:
        return self._is_file(path) or self._is_directory(path)

    def _is_file(self, path: str) -> bool:
        return path in self._files or path in self._specials

    def _is_directory(self, path: str) -> bool:
        return path in self._directories or path in self._mount_points

    def _may_create(self, path: str) -> bool:
        """Whether the guest may create a file at ``path``."""
        if self._is_captured(path) or not self._is_root:
            return self._is_captured(path)
        return not any(path == one or path.startswith(one + "/") for one in ("/dev", *self._mount_points))

    def _is_captured(self, path: str) -> bool:
        return path in self._writable or any(path.startswith(below + "/") for below in self._writable_below)

    def names(self, path: str) -> set[str]:
        """The names of files in memory and mount points in a directory, which may be one of the host."""
        known = {*self._files, *self._specials, *self._directories, *self._mount_points} - {"/"}
        return {posixpath.basename(one) for one in known if posixpath.dirname(one) == path}

    def add(self, path: str, contents: bytes) -> None:
        """Add a read-only file."""
        mode = 0o555 if contents[:4] == b"\x7fELF" or contents[:2] == b"#!" else 0o444
        self._files[path] = MemoryNode(contents, mode, self._budget, is_read_only=True)
        self.add_parents(path)

    def add_mount_point(self, path: str) -> None:
        """Show a directory at ``path``, where a directory of the host is mounted."""
        self._mount_points.add(path)
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

    def status(self, path: str, follow: bool) -> FileStatus:
        node = self._files.get(path)
        if node is not None:
            return self._status_of(node)
        special = self._specials.get(path)
        if special is not None:
            return self._status_of_special(special)
        self._must_exist(path)
        times = self._inodes.times(path)
        mode = 0o1777 if path in _STICKY else 0o755
        return FileStatus(stat.S_IFDIR | mode, 4096, self._inodes.number(path), 2, times)

    def _status_of_special(self, special: Special) -> FileStatus:
        times = self._inodes.times(special)
        return FileStatus(special.kind | special.mode, 0, self._inodes.number(special), 1, times)

    def _status_of(self, node: MemoryNode) -> FileStatus:
        number, times = self._inodes.number(node), self._inodes.times(node)
        return FileStatus(stat.S_IFREG | node.mode, len(node.data), number, node.links, times)

    def read_link(self, path: str) -> str:
        self._must_exist(path)
        raise OSError(errno.EINVAL, "not a link")

    def is_writable(self, path: str) -> bool:
        if self._is_read_only(path):
            return False
        return self._may_create(path) or path in self._specials or self._may_create(path + "/x")

    def _is_read_only(self, path: str) -> bool:
        """Whether ``path`` is a mapped file that no captured path lets the guest change."""
        return path in self._files and self._files[path].is_read_only and not self._is_captured(path)

    def key(self, path: str, follow: bool) -> Hashable:
        self._must_exist(path)
        return self._files.get(path) or self._specials.get(path) or path

    # Changes

    def open(self, path: str, flags: int, mode: int, view: DirectoryView) -> OpenFile:
        if self._is_directory(path):
            return open_directory(path, flags, view)
        special = self._specials.get(path)
        if special is not None:
            return special.open(path, flags, partial(self._status_of_special, special))
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
            self._refuse(path)
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
        return MemoryFile(path, flags, partial(self._status_of, node), node, self._page_cache, self._inodes)

    def unnamed(self, name: str, flags: int) -> MemoryFile:
        """A new file without a name in any directory: memfd_create."""
        node = MemoryNode(bytearray(), 0o777, self._budget, links=0)
        self._inodes.created(node)
        return self._open_node(name, node, flags)

    def make_special(self, path: str, special: Special) -> None:
        self._specials[path] = special
        self._inodes.created(special)

    def remove(self, path: str, directory: bool) -> None:
        self._must_exist(path)
        if path in self._mount_points:
            raise OSError(errno.EBUSY, "a directory of the host")
        if self._is_file(path):
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
        if self.names(path):
            raise OSError(errno.ENOTEMPTY, "directory")
        self._directories.remove(path)

    def _unlink(self, path: str) -> None:
        node = self._files.pop(path)
        node.links -= 1
        self._inodes.changed(node)
        self._inodes.modified(posixpath.dirname(path))
        node.release()

    def make_directory(self, path: str, mode: int) -> None:
        if self._exists(path):
            raise OSError(errno.EEXIST, "exists")
        self._check_parent(path)
        self._directories.add(path)
        self._inodes.created(path)

    def make_symbolic_link(self, path: str, target: str) -> None:
        raise OSError(errno.EEXIST if self._exists(path) else errno.EPERM, "no links in memory")

    def make_hard_link(self, path: str, new: Place) -> None:
        self._must_exist(path)
        if path not in self._files:
            raise OSError(errno.EPERM, "not a file")
        self._link(self._files[path], new.guest_path)

    def _link(self, node: MemoryNode, new: str) -> None:
        if new in self._files or new in self._specials or new in self._directories:
            raise OSError(errno.EEXIST, "exists")
        if node.is_read_only or not self._may_create(new):
            raise OSError(errno.EXDEV, "only within captured paths")
        self._check_parent(new)
        node.links += 1
        self._files[new] = node
        self._inodes.changed(node)

    def rename(self, path: str, new: Place) -> None:
        """As in `Filesystem`; named pipes and names of sockets may move anywhere."""
        self._must_exist(path)
        if not self._is_file(path):
            raise OSError(errno.EXDEV, "directories in memory stay where they are")
        self._rename(path, new.guest_path)

    def _rename(self, old: str, new: str) -> None:
        if new in self._directories:
            raise OSError(errno.EISDIR, "a directory")
        if old in self._specials:
            self._specials[new] = self._specials.pop(old)
            return
        self._check_writable(old)
        if not self._may_create(new):
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
        self._must_exist(path)
        node: MemoryNode | Special | None = self._files.get(path) or self._specials.get(path)
        self._check_writable(path)
        if node is not None:
            node.mode = mode & 0o777
            self._inodes.changed(node)

    def _must_exist(self, path: str) -> None:
        if not self._exists(path):
            raise OSError(errno.ENOENT, "not written yet")

    def _check_writable(self, path: str) -> None:
        if self._is_read_only(path):
            self._refuse(path)
        if path not in self._specials and not self._may_create(path):
            raise OSError(errno.EROFS, "not writable for the guest")

    def _refuse(self, path: str) -> NoReturn:
        self.refused[path] = None
        raise OSError(errno.EROFS, "not writable for the guest")

    def _check_parent(self, path: str) -> None:
        if posixpath.dirname(path) not in self._directories:
            raise OSError(errno.ENOENT, "no such directory")
