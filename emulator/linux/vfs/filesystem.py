"""The protocol of file systems, and a base class with the errors of what a file system cannot do.

`mounts` finds the file system of a path: procfs, devfs, tmpfs or hostfs. All errors are `OSError`. Keys identify files
in `Inodes`, the page cache, the locks and the events.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol

from emulator.linux.vfs.open_files import DirectoryView, FileStatus, OpenFile

_DESCRIPTORS = "/dev/fd"


class Place(NamedTuple):
    """Where a path leads: ``path`` in ``filesystem``; ``guest_path``: the absolute, normalised path that the guest
    sees."""

    filesystem: Filesystem
    path: str
    guest_path: str


class Special(Protocol):
    """A named pipe or the name of a socket. ``kind``: its file type (S_IFIFO, S_IFSOCK); ``mode``: its permissions."""

    kind: int
    mode: int

    def __hash__(self) -> int: ...

    def open(self, path: str, flags: int, status: Callable[[], FileStatus]) -> OpenFile: ...


class Filesystem(Protocol):
    """A file system. Paths are those that `inner_path` returns."""

    def covers(self, guest_path: str) -> bool:
        """Whether the normalised ``guest_path`` leads into this file system, unless into one that is asked earlier."""
        ...

    def inner_path(self, path: str, guest_path: str) -> str:
        """The path in this file system of ``path``, which is ``guest_path`` when normalised."""
        ...

    def open(self, path: str, flags: int, mode: int, view: DirectoryView) -> OpenFile:
        """Open a file; a new one gets the permissions ``mode``. ``view``: lists a directory with what is mounted in
        it."""
        ...

    def status(self, path: str, follow: bool) -> FileStatus:
        """The status of a file, or with ``follow`` of the file that a link leads to."""
        ...

    def read_link(self, path: str) -> str: ...

    def is_writable(self, path: str) -> bool:
        """Whether the guest may change the file."""
        ...

    def key(self, path: str, follow: bool) -> Hashable:
        """The key of the file."""
        ...

    def resolve(self, path: str, follow: bool) -> str:
        """The guest path of the file with all links resolved; the last one only with ``follow``."""
        ...

    def remove(self, path: str, directory: bool) -> None:
        """Remove a file, or with ``directory`` an empty directory."""
        ...

    def make_directory(self, path: str, mode: int) -> None: ...

    def make_symbolic_link(self, path: str, target: str) -> None: ...

    def make_hard_link(self, path: str, new: Place) -> None:
        """Give the file at ``path`` the further name ``new``."""
        ...

    def make_special(self, path: str, special: Special) -> None:
        """Add a named pipe or the name of a socket; the caller checks that the guest may create files there."""
        ...

    def rename(self, path: str, new: Place) -> None: ...

    def change_mode(self, path: str, mode: int) -> None:
        """Set the permissions of a file; links are followed."""
        ...


class BaseFilesystem:
    """What a file system cannot do: as in Linux, EPERM, and EINVAL for links that are none. A file system of this kind
    is asked only for files that it has, therefore making them fails with EEXIST."""

    def inner_path(self, path: str, guest_path: str) -> str:
        return guest_path

    def read_link(self, path: str) -> str:
        raise OSError(errno.EINVAL, "not a link")

    def is_writable(self, path: str) -> bool:
        return False

    def key(self, path: str, follow: bool) -> Hashable:
        return path

    def resolve(self, path: str, follow: bool) -> str:
        return path

    def remove(self, path: str, directory: bool) -> None:
        raise OSError(errno.EPERM, "files of this file system cannot be removed")

    def make_directory(self, path: str, mode: int) -> None:
        raise OSError(errno.EEXIST, "exists")

    def make_symbolic_link(self, path: str, target: str) -> None:
        raise OSError(errno.EEXIST, "exists")

    def make_hard_link(self, path: str, new: Place) -> None:
        self._must_stay(new)

    def make_special(self, path: str, special: Special) -> None:
        raise OSError(errno.EEXIST, "exists")

    def rename(self, path: str, new: Place) -> None:
        self._must_stay(new)

    def change_mode(self, path: str, mode: int) -> None:
        raise OSError(errno.EPERM, "permissions of this file system cannot be changed")

    def _must_stay(self, new: Place) -> None:
        if new.filesystem is not self:
            raise OSError(errno.EXDEV, "another file system")
        raise OSError(errno.EPERM, "names of this file system cannot be changed")


def normalise(path: str) -> str:
    """An absolute guest path without ``.``, ``..`` and repeated slashes; /dev/fd is /proc/self/fd."""
    normal = posixpath.normpath(path)
    normal = normal[1:] if normal.startswith("//") else normal
    if normal.startswith(_DESCRIPTORS) and normal[len(_DESCRIPTORS) :][:1] in ("", "/"):
        return "/proc/self/fd" + normal[len(_DESCRIPTORS) :]
    return normal
