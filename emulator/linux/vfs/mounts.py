"""The mount table: which file system a guest path leads into.

A path is asked for in order: procfs, devfs, tmpfs (files in memory and captured paths, which cover the host's
directories), and the directory of the host with the longest mount point. `hostfs` follows symbolic links; a link that
leads out of a directory of the host is followed here, from the guest's root. All paths are absolute; all errors but
those of `mount_host` are `OSError`.
"""

from __future__ import annotations

import copy
import errno
import posixpath
from collections.abc import Callable, Collection, Hashable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from emulator.linux.mm.page_cache import PageCache
from emulator.linux.vfs.devfs import DevFs
from emulator.linux.vfs.filesystem import Filesystem, Place, Special, normalise
from emulator.linux.vfs.host_directory import MAX_LINKS, LeavesTree
from emulator.linux.vfs.hostfs import HostFs, HostListing
from emulator.linux.vfs.inodes import Inodes
from emulator.linux.vfs.open_files import FileStatus
from emulator.linux.vfs.procfs_tree import ProcFsTree
from emulator.linux.vfs.tmpfs import Tmpfs

_Self = TypeVar("_Self")
_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")


def follow_across_mounts(
    method: Callable[Concatenate[_Self, str, _Rest], _Result],
) -> Callable[Concatenate[_Self, str, _Rest], _Result]:
    """A method on a path that is called again with the link's target when a link leads out of its directory of the host
    (`LeavesTree`).

    Raises OSError(ELOOP) after MAX_LINKS such links."""

    @wraps(method)
    def followed(self: _Self, path: str, *rest: _Rest.args, **named: _Rest.kwargs) -> _Result:
        for _ in range(MAX_LINKS):
            try:
                return method(self, path, *rest, **named)
            except LeavesTree as leads:
                path = leads.path
        raise OSError(errno.ELOOP, "symbolic links")

    return followed


class Mounts:
    """The file systems that one process sees; processes share ``tmpfs`` and the directories of the host."""

    def __init__(self, devfs: DevFs, tmpfs: Tmpfs) -> None:
        self.procfs: ProcFsTree | None = None
        self._devfs = devfs
        self.tmpfs = tmpfs
        self._hosts: list[HostFs] = []  # the longest mount point first
        self._over_hosts: tuple[Filesystem, ...] = ()
        self._in_order: tuple[Filesystem, ...] = ()  # the file system that is asked first comes first
        self._set_order()

    def _set_order(self) -> None:
        first = () if self.procfs is None else (self.procfs,)
        self._over_hosts = (*first, self._devfs, self.tmpfs)
        self._in_order = (*self._over_hosts, *self._hosts)

    def mount_procfs(self, procfs: ProcFsTree) -> None:
        """Mount /proc and /sys of the process."""
        self.procfs = procfs
        self._set_order()

    def mount_host(
        self, root: Path, mount: str, writable: Collection[str], inodes: Inodes, page_cache: PageCache
    ) -> None:
        """Mount a directory of the host. ``writable``: guest paths that the guest may change.

        Raises `EmulatorError` when ``root`` is not a directory."""
        allowed = [posixpath.normpath(path) for path in writable]
        inner = [_below(mount, path) for path in allowed if _lies_in(path, mount)]
        if any(_lies_in(mount, path) for path in allowed):
            inner = ["/"]
        for hidden in [host for host in self._hosts if host.mount == mount]:
            self._hosts.remove(hidden)
            hidden.close()
        self._hosts.append(HostFs(root, mount, inner, self, inodes, page_cache))
        self._hosts.sort(key=_mount_length, reverse=True)
        self.tmpfs.add_mount_point(mount)
        self._set_order()

    def fork(self, devfs: DevFs) -> Mounts:
        """The same file systems with the devices of another process."""
        other = copy.copy(self)
        other._devfs = devfs
        other._set_order()
        return other

    def with_inodes(self, devfs: DevFs, inodes: Inodes) -> Mounts:
        """The same file systems with other inode numbers and times; procfs is left to the caller."""
        other = self.fork(devfs)
        other.tmpfs = self.tmpfs.with_inodes(inodes)
        other._hosts = [host.with_inodes(inodes) for host in self._hosts]
        other._set_order()
        return other

    def close(self) -> None:
        """Close the directories of the host, which are gone afterwards."""
        for host in self._hosts:
            host.close()
        self._hosts.clear()
        self._set_order()

    def guest_path(self, host: Path) -> str | None:
        """The guest path of a host file below the guest's root; None for other files."""
        for mounted in self._hosts:
            if mounted.mount == "/" and host.resolve().is_relative_to(mounted.root):
                return "/" + str(host.resolve().relative_to(mounted.root))
        return None

    # Lookup

    def find(self, path: str) -> Place:
        """The file system that ``path`` leads into, and the path in it. Raises OSError(ENOENT) if there is none."""
        guest_path = normalise(path)
        for filesystem in self._in_order:
            if filesystem.covers(guest_path):
                return Place(filesystem, filesystem.inner_path(path, guest_path), guest_path)
        raise OSError(errno.ENOENT, "not in a directory that the guest sees")

    @follow_across_mounts
    def status(self, path: str, follow: bool = True) -> FileStatus:
        place = self.find(path)
        return place.filesystem.status(place.path, follow)

    @follow_across_mounts
    def key(self, path: str, follow: bool = True) -> Hashable:
        place = self.find(path)
        return place.filesystem.key(place.path, follow)

    def is_outside(self, filesystem: HostFs, path: str) -> bool:
        """Whether a guest path leads into another file system than ``filesystem``. The answer holds for all processes,
        therefore no file in /proc is inside."""
        try:
            return normalise(path).startswith("/proc/") or self.find(path).filesystem is not filesystem
        except FileNotFoundError:
            return True

    def cover(self, path: str, special: Special) -> None:
        """Keep a special file in memory at ``path``, in a directory of the host."""
        self.tmpfs.make_special(path, special)

    # Directories

    def entries(self, path: str) -> list[tuple[str, FileStatus]]:
        """The sorted entries of the directory at the normalised ``path``: those of the host, and what is mounted or
        kept in memory in it."""
        names = self._devfs.names(path) | self.tmpfs.names(path)
        listing = self._host_listing(path)
        try:
            if listing is not None:
                names.update(listing.names())
            found = [(".", self.status(path)), ("..", self.status(posixpath.dirname(path)))]
            return found + [(name, self._entry_status(path, name, listing)) for name in sorted(names)]
        finally:
            if listing is not None:
                listing.close()

    def _host_listing(self, path: str) -> HostListing | None:
        """The directory of the host at ``path``, also if it is covered by a directory in memory."""
        for host in self._hosts:
            if host.covers(path):
                return host.listing(host.inner_path(path, path))
        return None

    def _entry_status(self, directory: str, name: str, listing: HostListing | None) -> FileStatus:
        """The status of an entry of ``directory``; ``listing``: the host's directory, if any, which saves the walk."""
        path = posixpath.join(directory, name)
        if listing is None or any(filesystem.covers(path) for filesystem in self._over_hosts):
            return self.status(path, follow=False)
        return listing.status(name)


def _mount_length(host: HostFs) -> int:
    return len(host.mount)


def _lies_in(path: str, directory: str) -> bool:
    return (path + "/").startswith(directory.rstrip("/") + "/")


def _below(directory: str, path: str) -> str:
    """``path`` as a path that begins at ``directory``."""
    return "/" + path[len(directory) :].strip("/")
