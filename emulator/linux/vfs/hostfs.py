"""hostfs: a directory of the host as a file system, with the guest's own inode numbers and times.

`host_directory` walks the host's directories and keeps the guest inside. Named pipes and names of sockets are kept in
memory, over the host's directories. All errors are `OSError`.
"""

from __future__ import annotations

import copy
import errno
import os
import posixpath
import stat
from collections.abc import Collection, Hashable
from functools import partial
from pathlib import Path
from typing import Protocol

from emulator.linux.mm.page_cache import PageCache
from emulator.linux.vfs.filesystem import BaseFilesystem, Place, Special, normalise
from emulator.linux.vfs.host_directory import HostDirectory
from emulator.linux.vfs.inodes import Inodes
from emulator.linux.vfs.open_files import DirectoryView, FileStatus, OpenFile, open_directory
from emulator.linux.vfs.regular_files import HostFile


class Namespace(Protocol):
    """The part of the mount table that a mounted directory of the host looks at. Paths are guest paths."""

    def is_outside(self, filesystem: HostFs, path: str) -> bool:
        """Whether a path leads into another file system than ``filesystem``."""
        ...

    def key(self, path: str, follow: bool = True) -> Hashable: ...

    def cover(self, path: str, special: Special) -> None:
        """Keep a special file in memory at ``path``."""
        ...


class HostListing:
    """An open directory of the host; its entries need no walk from the root."""

    def __init__(self, descriptor: int, filesystem: HostFs) -> None:
        self._descriptor = descriptor
        self._filesystem = filesystem

    def names(self) -> list[str]:
        return os.listdir(self._descriptor)

    def status(self, name: str) -> FileStatus:
        """The status of an entry; links are not followed."""
        return self._filesystem.status_of(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False))

    def close(self) -> None:
        os.close(self._descriptor)


class HostFs(BaseFilesystem):
    """The directory ``root`` of the host, mounted at the guest path ``mount``. ``writable``: paths in it that the guest
    may change. Raises `EmulatorError` when ``root`` is not a directory."""

    def __init__(
        self,
        root: Path,
        mount: str,
        writable: Collection[str],
        namespace: Namespace,
        inodes: Inodes,
        page_cache: PageCache,
    ) -> None:
        self._directory = HostDirectory(root, mount, writable, partial(namespace.is_outside, self))
        self.mount = mount
        self._namespace = namespace
        self._inodes = inodes
        self._page_cache = page_cache

    def with_inodes(self, inodes: Inodes) -> HostFs:
        """The same file system with other inode numbers and times."""
        other = copy.copy(self)
        other._inodes = inodes
        return other

    def close(self) -> None:
        self._directory.close()

    @property
    def root(self) -> Path:
        """The resolved directory of the host."""
        return self._directory.directory

    # Lookup

    def covers(self, guest_path: str) -> bool:
        return self.mount == "/" or guest_path == self.mount or guest_path.startswith(self.mount + "/")

    def inner_path(self, path: str, guest_path: str) -> str:
        """The path is not normalised if possible: ``..`` after a link leads elsewhere."""
        if self.mount == "/":
            return path
        is_below = path == self.mount or path.startswith(self.mount + "/")
        return (path if is_below else guest_path)[len(self.mount) :] or "/"

    def open(self, path: str, flags: int, mode: int, view: DirectoryView) -> OpenFile:
        opened = self._directory.open(path, flags, mode)
        descriptor, host = opened.descriptor, os.fstat(opened.descriptor)
        if stat.S_ISDIR(host.st_mode):
            os.close(descriptor)
            return open_directory(opened.path, flags, view)
        key = (host.st_dev, host.st_ino)
        if opened.is_new:
            self._inodes.created(key)
            self._changed_directory(path)
        elif flags & os.O_TRUNC:
            self._inodes.modified(key)
            pages = self._page_cache.pages(key)
            if pages is not None:
                pages.truncate(0)
        file = HostFile(
            normalise(self._guest_path(path)), flags, partial(self._opened_status, descriptor), descriptor, key,
            self._page_cache, self._inodes,
        )  # fmt: skip
        file.resolved_path = opened.path
        return file

    def status(self, path: str, follow: bool) -> FileStatus:
        return self.status_of(self._directory.status(path, follow))

    def status_of(self, host: os.stat_result) -> FileStatus:
        """The status that the guest sees of a file with the host's status ``host``."""
        key = (host.st_dev, host.st_ino)
        size_bytes = 4096 if stat.S_ISDIR(host.st_mode) else host.st_size
        number, times = self._inodes.number(key), self._inodes.times(key)
        return FileStatus(host.st_mode, size_bytes, number, host.st_nlink, times)

    def _opened_status(self, descriptor: int) -> FileStatus:
        return self.status_of(os.fstat(descriptor))

    def read_link(self, path: str) -> str:
        return self._directory.read_link(path)

    def is_writable(self, path: str) -> bool:
        return self._directory.is_writable(path)

    def key(self, path: str, follow: bool) -> Hashable:
        host = self._directory.status(path, follow)
        return host.st_dev, host.st_ino

    def resolve(self, path: str, follow: bool) -> str:
        return self._directory.resolve(path, follow)

    def listing(self, path: str) -> HostListing | None:
        """The open directory at ``path``, which the caller closes; None if there is none."""
        try:
            opened = self._directory.open(path, os.O_RDONLY | os.O_DIRECTORY, 0)
        except OSError:
            return None
        return HostListing(opened.descriptor, self)

    # Changes

    def remove(self, path: str, directory: bool) -> None:
        key = self._key_of_last_name(path)
        self._directory.remove(path, directory)
        self._forget(key)
        self._changed_directory(path)

    def make_directory(self, path: str, mode: int) -> None:
        self._directory.make_directory(path, mode)
        self._inodes.created(self._followed_key(path, follow=True))
        self._changed_directory(path)

    def make_symbolic_link(self, path: str, target: str) -> None:
        self._directory.make_symbolic_link(target, path)
        self._inodes.created(self._followed_key(path, follow=False))
        self._changed_directory(path)

    def make_hard_link(self, path: str, new: Place) -> None:
        self._must_be_here(new)
        self._directory.make_hard_link(path, new.path)
        self._inodes.changed(self._followed_key(new.path, follow=False))
        self._changed_directory(new.path)

    def make_special(self, path: str, special: Special) -> None:
        self._namespace.cover(normalise(self._guest_path(path)), special)

    def rename(self, path: str, new: Place) -> None:
        self._must_be_here(new)
        key = self._followed_key(path, follow=False)
        replaced = None if self._is_same(new.path, key) else self._key_of_last_name(new.path)
        self._directory.rename(path, new.path)
        self._forget(replaced)
        self._inodes.changed(key)
        self._changed_directory(path)
        self._changed_directory(new.path)

    def change_mode(self, path: str, mode: int) -> None:
        self._directory.change_mode(path, mode)
        self._inodes.changed(self._followed_key(path, follow=True))

    def _followed_key(self, path: str, follow: bool) -> Hashable:
        """The key of a file, also if a link leads to it in another file system."""
        return self._namespace.key(self._guest_path(path), follow)

    def _must_be_here(self, new: Place) -> None:
        if new.filesystem is not self:
            raise OSError(errno.EXDEV, "another file system")

    def _guest_path(self, path: str) -> str:
        return path if self.mount == "/" else self.mount + path

    def _changed_directory(self, path: str) -> None:
        """Set the times of the directory of ``path`` after a name in it has changed; it may be covered by tmpfs."""
        guest_path = self._guest_path(path)
        self._inodes.modified(self._namespace.key(posixpath.dirname(guest_path.rstrip("/")) or "/"))

    def _key_of_last_name(self, path: str) -> Hashable | None:
        """The key of a file whose only name is ``path``; None for a file with other names, and without a file."""
        try:
            host = self._directory.status(path, follow=False)
        except FileNotFoundError:
            return None
        return (host.st_dev, host.st_ino) if host.st_nlink == 1 or stat.S_ISDIR(host.st_mode) else None

    def _forget(self, key: Hashable | None) -> None:
        """Forget a file whose last name was removed: the host may reuse its inode number."""
        if key is not None:
            self._inodes.forget(key)

    def _is_same(self, path: str, key: Hashable) -> bool:
        try:
            return self._followed_key(path, follow=False) == key
        except FileNotFoundError:
            return False
