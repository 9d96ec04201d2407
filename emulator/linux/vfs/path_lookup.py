"""Path lookup in the guest's file system: procfs, devices, tmpfs and directories of the host.

Mapped and captured paths are compared after ``.`` and ``..`` are removed. `hostfs` follows symbolic links; a link that
leads out of a host directory is followed here, from the guest's root. Files in memory are in `tmpfs`, /proc and /sys in
`procfs_tree`. Changing files is left to `files`. All paths are absolute, as `FilePaths.absolute` returns them; all
errors but those of the constructor are `OSError`.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
import stat
from collections.abc import Callable, Collection, Hashable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from emulator.errors import EmulatorError
from emulator.linux.mm.page_cache import PageCache
from emulator.linux.vfs.descriptor_table import DescriptorTable
from emulator.linux.vfs.hostfs import MAX_LINKS, HostFs, LeavesTree
from emulator.linux.vfs.inodes import Inodes
from emulator.linux.vfs.open_files import Device, Directory, FileStatus, MemoryBudget, OpenFile
from emulator.linux.vfs.procfs_tree import ProcFsProvider, ProcFsTree
from emulator.linux.vfs.regular_files import HostFile
from emulator.linux.vfs.tmpfs import Special, Tmpfs

_DEVICES = {
    "/dev/null": "null",
    "/dev/zero": "zero",
    "/dev/full": "full",
    "/dev/random": "random",
    "/dev/urandom": "random",
}
STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTORS, _TERMINAL = "/dev/fd", "/dev/tty"
_OF_UNKNOWN_SIZE = 1 << 20  # enough for files in /proc, whose ``st_size`` is 0


_Self = TypeVar("_Self", bound="FilePaths")
_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")


def follow_across_trees(
    method: Callable[Concatenate[_Self, str, _Rest], _Result],
) -> Callable[Concatenate[_Self, str, _Rest], _Result]:
    """A method on a path that is called again with the link's target when a link leads out of its tree (`LeavesTree`).

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


class FilePaths:
    """The file system of a guest; see `files.VirtualFiles` for the parameters."""

    def __init__(
        self,
        root: Path | None,
        mapped: Mapping[str, Path | str | bytes],
        capture: Collection[str],
        writable: Collection[str],
        seed: int,
        budget: MemoryBudget,
    ) -> None:
        for path in [*mapped, *capture, *writable]:
            if not path.startswith("/"):
                raise EmulatorError(
                    f"guest path {path!r} is relative: expected an absolute one, such as /{path}"
                )
        self.inodes = Inodes()
        self.page_cache = PageCache()
        self.descriptors = DescriptorTable()
        self.working_directory = "/"
        self.umask = 0o022
        self._generator = random.Random(f"devices {seed}")
        self._memory = Tmpfs(capture, self.inodes, self.page_cache, budget)
        self._trees: dict[str, HostFs] = {}
        self._procfs: ProcFsTree | None = None
        if root is not None:
            self._trees["/"] = HostFs(root, "/", writable, self._is_outside)
        for path, source in mapped.items():
            self._map(posixpath.normpath(path), source, writable)
        for path in self._trees:
            self._memory.add_parents(path)

    def mount_procfs(self, system: ProcFsProvider) -> None:
        """Mount ``system`` as /proc and /sys; it shows them as the process of these files sees them."""
        self._procfs = ProcFsTree(system, self)

    def absolute(self, path: str, directory: int | None = None) -> str:
        """``path`` as an absolute path, relative to the directory of a descriptor or to the working directory."""
        if path.startswith("/"):
            return path
        base = self.working_directory
        if directory is not None:
            file = self.descriptors.file(directory)
            if not isinstance(file, Directory):
                raise OSError(errno.ENOTDIR, "not a directory")
            base = file.path
        return posixpath.join(base, path)

    @follow_across_trees
    def open(self, path: str, flags: int, mode: int) -> OpenFile:
        normal, mode = self._normalise(path), mode & ~self.umask
        if self._procfs_at(normal) is not None:
            return self._mounted_procfs.open(normal, flags, mode)
        if normal in STREAMS:
            return self.descriptors.file(STREAMS[normal])
        if normal == _TERMINAL:
            return self._terminal()
        if normal in _DEVICES:
            return Device(normal, flags, partial(self._device_status, normal), _DEVICES[normal], self._generator)
        if self._is_memory_directory(normal):
            return self._open_directory(normal, flags)
        if self._memory.has_file(normal) or self._memory.may_create(normal):
            return self._memory.open(normal, flags, mode)
        return self._open_host_file(path, normal, flags, mode)

    def _open_host_file(self, path: str, normal: str, flags: int, mode: int) -> OpenFile:
        tree, inner = self._tree(path)
        opened = tree.open(inner, flags, mode)
        descriptor, host = opened.descriptor, os.fstat(opened.descriptor)
        if stat.S_ISDIR(host.st_mode):
            os.close(descriptor)
            return self._open_directory(opened.path, flags)
        key = (host.st_dev, host.st_ino)
        if opened.is_new:
            self.inodes.created(key)
            self._changed_directory(path)
        elif flags & os.O_TRUNC:
            self.inodes.modified(key)
            pages = self.page_cache.pages(key)
            if pages is not None:
                pages.truncate(0)
        file = HostFile(
            normal, flags, partial(self._opened_status, descriptor), descriptor, key, self.page_cache, self.inodes
        )  # fmt: skip
        file.resolved_path = opened.path
        return file

    def contents(self, path: str) -> bytes:
        """The whole contents of a regular file."""
        file = self.open(self.absolute(path), os.O_RDONLY, 0)
        try:
            return file.read_at(file.status().size_bytes or _OF_UNKNOWN_SIZE, 0)
        finally:
            if file.references == 0:
                file.close()

    def guest_path(self, host: Path) -> str | None:
        """The guest path of a host file below the guest's root; None for other files."""
        tree = self._trees.get("/")
        try:
            return None if tree is None else "/" + str(host.resolve().relative_to(tree.directory))
        except ValueError:
            return None

    @follow_across_trees
    def status(self, path: str, follow: bool = True) -> FileStatus:
        normal = self._normalise(path)
        if self._procfs_at(normal) is not None:
            return self._mounted_procfs.status(normal, follow)
        if normal in STREAMS:
            return self.descriptors.file(STREAMS[normal]).status()
        if normal in _DEVICES or normal == _TERMINAL:
            return self._device_status(normal)
        if self._is_in_memory(normal):
            return self._memory.status(normal)
        if self._memory.may_create(normal):
            raise OSError(errno.ENOENT, "not written yet")
        tree, inner = self._tree(path)
        return self._host_status(tree.status(inner, follow))

    def special(self, path: str) -> Special | None:
        """The named pipe or bound socket at ``path``, or None."""
        return self._memory.special(self._normalise(path))

    @follow_across_trees
    def is_writable(self, path: str) -> bool:
        normal = self._normalise(path)
        if self._procfs_at(normal) is not None:
            return False
        if self._is_system_file(normal) or self._memory.may_create(normal):
            return True
        if self._memory.special(normal) is not None:
            return True
        if self._is_in_memory(normal):
            return self._memory.may_create(normal + "/x")
        tree, inner = self._tree(path)
        return tree.is_writable(inner)

    @follow_across_trees
    def read_link(self, path: str) -> str:
        normal = self._normalise(path)
        if self._procfs_at(normal) is not None:
            return self._mounted_procfs.system.link(normal)
        if self._is_in_memory(normal) or self._is_system_file(normal):
            raise OSError(errno.EINVAL, "not a link")
        tree, inner = self._tree(path)
        return tree.read_link(inner)

    def running_program(self, path: str) -> tuple[str, bytes] | None:
        """Path and contents of the program that a path such as /proc/self/exe stands for; None for other paths."""
        normal = self._normalise(path)
        return self._mounted_procfs.system.program(normal) if self._procfs_at(normal) is not None else None

    def open_file_at(self, path: str) -> OpenFile | None:
        """The open file that a path such as /proc/self/fd/3 stands for; None for other paths."""
        normal = self._normalise(path)
        return self._mounted_procfs.system.descriptor(normal) if self._procfs_at(normal) is not None else None

    def descriptor_path(self, path: str) -> str:
        """The path of the open file that a path such as /proc/self/fd/3 stands for; other paths as they are."""
        opened = self.open_file_at(path)
        return path if opened is None else opened.path

    def inode_of(self, path: str) -> int:
        """The inode number of a file; 0 if it does not exist."""
        try:
            return self.status(path).inode
        except OSError:
            return 0

    @follow_across_trees
    def key(self, path: str, follow: bool = True) -> Hashable:
        """The key of a file in `Inodes`, the page cache, the locks and the events."""
        normal = self._normalise(path)
        if self._is_in_memory(normal) or self._is_system_file(normal):
            return self._memory.key(normal)
        tree, inner = self._tree(path)
        host = tree.status(inner, follow)
        return host.st_dev, host.st_ino

    @follow_across_trees
    def resolve(self, path: str, follow: bool) -> str:
        """The path of a file with all links in its directories resolved, and with ``follow`` the last one, too.

        Raises OSError."""
        normal = self._normalise(path)
        if self._is_in_memory(normal) or self._is_system_file(normal) or self._memory.may_create(normal):
            return normal
        tree, inner = self._tree(path)
        return tree.resolve(inner, follow)

    def resolve_parent(self, path: str) -> str:
        """``path`` with the links of its directory resolved, not the last component: for calls with two paths."""
        directory, name = posixpath.split(path.rstrip("/"))
        if name in ("", ".", ".."):
            return path
        return posixpath.join(self.resolve(directory or "/", follow=True), name) + (
            "/" if path.endswith("/") else ""
        )

    def add_if_missing(self, path: str, contents: bytes) -> None:
        """Add a file with ``contents`` at ``path`` unless one exists: the guest's own program."""
        normal = self._normalise(self.absolute(path))
        try:
            self.status(normal)
        except OSError:
            self._memory.add(normal, contents)

    # Inner parts

    @property
    def _mounted_procfs(self) -> ProcFsTree:
        assert self._procfs is not None
        return self._procfs

    def _procfs_at(self, normal: str) -> ProcFsTree | None:
        return self._procfs if self._procfs is not None and self._procfs.covers(normal) else None

    def _changed_directory(self, path: str) -> None:
        """Set the times of the directory of ``path`` after a name in it has changed."""
        self.inodes.modified(self.key(posixpath.dirname(path.rstrip("/")) or "/"))

    def _map(self, path: str, source: Path | str | bytes, writable: Collection[str]) -> None:
        if isinstance(source, bytes):
            self._memory.add(path, source)
            return
        host = Path(source)
        if host.is_dir():
            below = [posixpath.normpath(w) for w in writable]
            inner = ["/" + w[len(path) :].strip("/") for w in below if (w + "/").startswith(path + "/")]
            if any((path + "/").startswith(w.rstrip("/") + "/") for w in below):
                inner = ["/"]
            self._trees[path] = HostFs(host, path, inner, self._is_outside)
            return
        try:
            self._memory.add(path, host.read_bytes())
        except OSError as error:
            raise EmulatorError(
                f"{host}: cannot be mapped to the guest path {path}: {error.strerror}; "
                "give an existing file or directory"
            ) from error

    def _normalise(self, path: str) -> str:
        normal = posixpath.normpath(path)
        normal = normal[1:] if normal.startswith("//") else normal
        if normal == _DESCRIPTORS or normal.startswith(_DESCRIPTORS + "/"):
            return "/proc/self/fd" + normal[len(_DESCRIPTORS) :]
        return normal

    def _tree(self, path: str) -> tuple[HostFs, str]:
        """The host tree that a path lies in, and the path within it (not normalised: links matter)."""
        normal = self._normalise(path)
        for mount in sorted(self._trees, key=len, reverse=True):
            if mount == "/":
                return self._trees[mount], path
            if normal == mount or normal.startswith(mount + "/"):
                inner = path[len(mount) :] if path.startswith(mount) else normal[len(mount) :]
                return self._trees[mount], inner or "/"
        raise OSError(errno.ENOENT, "not in a directory that the guest sees")

    def _is_outside(self, tree: HostFs, normal: str) -> bool:
        """Whether the guest path ``normal`` is not in the host directory ``tree``."""
        normal = self._normalise(normal)
        if normal.startswith("/proc/"):
            return True  # the files in /proc depend on the process
        if self._is_system_file(normal) or self._is_in_memory(normal) or self._memory.may_create(normal):
            return True
        try:
            return self._tree(normal)[0] is not tree
        except FileNotFoundError:
            return True

    def _is_in_memory(self, normal: str) -> bool:
        """Whether the path is a file in memory, or a directory in memory or a mount point."""
        return self._memory.has_file(normal) or self._is_memory_directory(normal)

    def _is_memory_directory(self, normal: str) -> bool:
        return self._memory.has_directory(normal) or normal in self._trees

    def _is_system_file(self, normal: str) -> bool:
        """Whether the path is in /proc or /sys, or a device."""
        return (
            self._procfs_at(normal) is not None or normal in _DEVICES or normal in STREAMS or normal == _TERMINAL
        )

    def _terminal(self) -> OpenFile:
        for number in STREAMS.values():
            try:
                file = self.descriptors.file(number)
            except OSError:
                continue
            if file.is_terminal:
                return file
        raise OSError(errno.ENXIO, "no terminal")

    def _open_directory(self, normal: str, flags: int) -> Directory:
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_CREAT:
            raise OSError(errno.EISDIR, "a directory")
        return Directory(normal, flags, partial(self.status, normal), partial(self._list, normal))

    def _list(self, normal: str) -> list[tuple[str, FileStatus]]:
        devices = {*_DEVICES, *STREAMS}
        names = self._memory.names_in(normal)
        names |= {posixpath.basename(path) for path in devices if posixpath.dirname(path) == normal}
        names |= {posixpath.basename(path) for path in self._trees if posixpath.dirname(path) == normal} - {""}
        descriptor = None
        try:
            tree, inner = self._tree(normal)
            descriptor = tree.open(inner, os.O_RDONLY | os.O_DIRECTORY, 0).descriptor
        except OSError:
            pass  # a directory of mapped paths only
        try:
            if descriptor is not None:
                names.update(os.listdir(descriptor))
            entries = [(".", self.status(normal)), ("..", self.status(posixpath.dirname(normal)))]
            return entries + [(name, self._entry_status(normal, name, descriptor)) for name in sorted(names)]
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _entry_status(self, directory: str, name: str, descriptor: int | None) -> FileStatus:
        """The status of an entry of ``directory``; ``descriptor``: the host directory, if any, which saves the walk."""
        normal = posixpath.join(directory, name)
        if descriptor is None or (
            self._is_system_file(normal) or self._is_in_memory(normal) or self._memory.may_create(normal)
        ):
            return self.status(normal, follow=False)
        return self._host_status(os.stat(name, dir_fd=descriptor, follow_symlinks=False))

    def _device_status(self, normal: str) -> FileStatus:
        return FileStatus(stat.S_IFCHR | 0o666, 0, self.inodes.number(normal))

    def _opened_status(self, descriptor: int) -> FileStatus:
        return self._host_status(os.fstat(descriptor))

    def _host_status(self, host: os.stat_result) -> FileStatus:
        key = (host.st_dev, host.st_ino)
        size_bytes = 4096 if stat.S_ISDIR(host.st_mode) else host.st_size
        return FileStatus(
            host.st_mode, size_bytes, self.inodes.number(key), host.st_nlink, self.inodes.times(key)
        )
