"""Which guest path leads to what: files of the system, devices, files in memory, and directories of the host.

Mapped and captured paths are compared after ``.`` and ``..`` are taken out; links are read by `host_tree`, and one that
leads out of a tree is followed here, from the guest's root. Files in memory are in `memory_tree`, what the
kernel makes in `system_tree`. Changing what is there is left to `files`. All paths are absolute, as
`FilePaths.absolute` makes them; all errors but those of the constructor are `OSError`.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
import stat
from collections.abc import Callable, Collection, Hashable, Mapping
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from emulator.errors import EmulatorError
from emulator.linux.descriptors import DescriptorTable
from emulator.linux.host_tree import MAX_LINKS, HostTree, LeavesTree
from emulator.linux.inodes import Inodes
from emulator.linux.memory_tree import MemoryTree, Special
from emulator.linux.open_files import Device, Directory, FileStatus, MemoryBudget, OpenFile
from emulator.linux.regular_files import HostFile
from emulator.linux.shared_pages import SharedFiles
from emulator.linux.system_tree import SystemFiles, SystemTree
from emulator.linux.watch_files import FileWatches

_DEVICES = {
    "/dev/null": "null",
    "/dev/zero": "zero",
    "/dev/full": "full",
    "/dev/random": "random",
    "/dev/urandom": "random",
}
STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTORS, _TERMINAL = "/dev/fd", "/dev/tty"
_OF_UNKNOWN_SIZE = 1 << 20  # enough for files of the system, whose size is told as 0


_Self = TypeVar("_Self", bound="FilePaths")
_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")


def goes_on(
    method: Callable[Concatenate[_Self, str, _Rest], _Result],
) -> Callable[Concatenate[_Self, str, _Rest], _Result]:
    """A method on a path whose links may lead from one tree to another: done again where they lead."""

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
        self.shared = SharedFiles()
        self.watches = FileWatches()
        self.descriptors = DescriptorTable()
        self.working_directory = "/"
        self.umask = 0o022
        self._generator = random.Random(f"devices {seed}")
        self._memory = MemoryTree(capture, self.inodes, self.shared, budget)
        self._trees: dict[str, HostTree] = {}
        self._system: SystemTree | None = None
        if root is not None:
            self._trees["/"] = HostTree(root, "/", writable, self._is_elsewhere)
        for path, source in mapped.items():
            self._map(posixpath.normpath(path), source, writable)
        for path in self._trees:
            self._memory.add_parents(path)

    def set_system(self, system: SystemFiles) -> None:
        """The files that the kernel makes, as the process that these files belong to sees them."""
        self._system = SystemTree(system, self)

    def absolute(self, path: str, directory: int | None = None) -> str:
        """``path`` from the directory of a descriptor, or from the working directory."""
        if path.startswith("/"):
            return path
        base = self.working_directory
        if directory is not None:
            file = self.descriptors.file(directory)
            if not isinstance(file, Directory):
                raise OSError(errno.ENOTDIR, "not a directory")
            base = file.path
        return posixpath.join(base, path)

    @goes_on
    def open(self, path: str, flags: int, mode: int) -> OpenFile:
        plain, mode = self._plain(path), mode & ~self.umask
        if self._of_system(plain) is not None:
            return self._system_tree.open(plain, flags, mode)
        if plain in STREAMS:
            return self.descriptors.file(STREAMS[plain])
        if plain == _TERMINAL:
            return self._terminal()
        if plain in _DEVICES:
            return Device(plain, flags, lambda: self._device_status(plain), _DEVICES[plain], self._generator)
        if self._is_directory_here(plain):
            return self._open_directory(plain, flags)
        if self._memory.has_file(plain) or self._memory.may_have(plain):
            return self._memory.open(plain, flags, mode)
        return self._open_of_host(path, plain, flags, mode)

    def _open_of_host(self, path: str, plain: str, flags: int, mode: int) -> OpenFile:
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
            pages = self.shared.pages(key)
            if pages is not None:
                pages.cut(0)
        file = HostFile(
            plain, flags, lambda: self._host_status(os.fstat(descriptor)), descriptor, key, self.shared,
            lambda: self.inodes.modified(key),
        )  # fmt: skip
        file.place = opened.path
        return file

    def contents(self, path: str) -> bytes:
        """All of a regular file."""
        file = self.open(self.absolute(path), os.O_RDONLY, 0)
        try:
            return file.read_at(file.status().size_bytes or _OF_UNKNOWN_SIZE, 0)
        finally:
            if file.references == 0:
                file.close()

    def guest_path(self, host: Path) -> str | None:
        """Where the guest sees a file of the host, if it lies in its root."""
        tree = self._trees.get("/")
        try:
            return None if tree is None else "/" + str(host.resolve().relative_to(tree.directory))
        except ValueError:
            return None

    @goes_on
    def status(self, path: str, follow: bool = True) -> FileStatus:
        plain = self._plain(path)
        if self._of_system(plain) is not None:
            return self._system_tree.status(plain, follow)
        if plain in STREAMS:
            return self.descriptors.file(STREAMS[plain]).status()
        if plain in _DEVICES or plain == _TERMINAL:
            return self._device_status(plain)
        if self._is_here(plain):
            return self._memory.status(plain)
        if self._memory.may_have(plain):
            raise OSError(errno.ENOENT, "not written yet")
        tree, inner = self._tree(path)
        return self._host_status(tree.status(inner, follow))

    def special(self, path: str) -> Special | None:
        """The named pipe or bound socket there."""
        return self._memory.special(self._plain(path))

    @goes_on
    def is_writable(self, path: str) -> bool:
        plain = self._plain(path)
        if self._of_system(plain) is not None:
            return False
        if self._is_fixed(plain) or self._memory.may_have(plain):
            return True
        if self._memory.special(plain) is not None:
            return True
        if self._is_here(plain):
            return self._memory.may_have(plain + "/x")
        tree, inner = self._tree(path)
        return tree.is_writable(inner)

    @goes_on
    def read_link(self, path: str) -> str:
        plain = self._plain(path)
        if self._of_system(plain) is not None:
            return self._system_tree.system.link(plain)
        if self._is_here(plain) or self._is_fixed(plain):
            raise OSError(errno.EINVAL, "not a link")
        tree, inner = self._tree(path)
        return tree.read_link(inner)

    def running_program(self, path: str) -> tuple[str, bytes] | None:
        """Path and contents of the program that a path such as /proc/self/exe stands for."""
        plain = self._plain(path)
        return self._system_tree.system.program(plain) if self._of_system(plain) is not None else None

    def opened_at(self, path: str) -> OpenFile | None:
        """The open file that a path such as /proc/self/fd/3 stands for."""
        plain = self._plain(path)
        return self._system_tree.system.descriptor(plain) if self._of_system(plain) is not None else None

    def descriptor_path(self, path: str) -> str:
        """The path of the open file that a path such as /proc/self/fd/3 stands for; other paths as they are."""
        opened = self.opened_at(path)
        return path if opened is None else opened.path

    def inode_of(self, path: str) -> int:
        """The guest's number of a file; 0 when there is none any more."""
        try:
            return self.status(path).inode
        except OSError:
            return 0

    @goes_on
    def key(self, path: str, follow: bool = True) -> Hashable:
        """What a file's number and times are known by."""
        plain = self._plain(path)
        if self._is_here(plain) or self._is_fixed(plain):
            return self._memory.key(plain)
        tree, inner = self._tree(path)
        host = tree.status(inner, follow)
        return host.st_dev, host.st_ino

    @goes_on
    def place(self, path: str, follow: bool) -> str:
        """The way to a file without links; ``follow``: also not at its end. Raises OSError."""
        plain = self._plain(path)
        if self._is_here(plain) or self._is_fixed(plain) or self._memory.may_have(plain):
            return plain
        tree, inner = self._tree(path)
        return tree.place(inner, follow)

    def settled(self, path: str) -> str:
        """The same path with the links followed that its directory leads through: for calls with two paths."""
        directory, name = posixpath.split(path.rstrip("/"))
        if name in ("", ".", ".."):
            return path
        return posixpath.join(self.place(directory or "/", follow=True), name) + (
            "/" if path.endswith("/") else ""
        )

    def show(self, path: str, contents: bytes) -> None:
        """Let the guest read ``contents`` at ``path`` if it finds nothing there: its own program."""
        plain = self._plain(self.absolute(path))
        try:
            self.status(plain)
        except OSError:
            self._memory.add(plain, contents)

    # Inner parts

    @property
    def _system_tree(self) -> SystemTree:
        assert self._system is not None
        return self._system

    def _of_system(self, plain: str) -> SystemTree | None:
        return self._system if self._system is not None and self._system.covers(plain) else None

    def _changed_directory(self, path: str) -> None:
        """Something was made, renamed or removed at ``path``."""
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
            self._trees[path] = HostTree(host, path, inner, self._is_elsewhere)
            return
        try:
            self._memory.add(path, host.read_bytes())
        except OSError as error:
            raise EmulatorError(
                f"{host}: cannot be shown to the guest as {path}: {error.strerror}; "
                "give an existing file or directory"
            ) from error

    def _plain(self, path: str) -> str:
        plain = posixpath.normpath(path)
        plain = plain[1:] if plain.startswith("//") else plain
        if plain == _DESCRIPTORS or plain.startswith(_DESCRIPTORS + "/"):
            return "/proc/self/fd" + plain[len(_DESCRIPTORS) :]
        return plain

    def _tree(self, path: str) -> tuple[HostTree, str]:
        """The host tree that a path lies in, and the path within it (not normalised: links matter)."""
        plain = self._plain(path)
        for mount in sorted(self._trees, key=len, reverse=True):
            if mount == "/":
                return self._trees[mount], path
            if plain == mount or plain.startswith(mount + "/"):
                inner = path[len(mount) :] if path.startswith(mount) else plain[len(mount) :]
                return self._trees[mount], inner or "/"
        raise OSError(errno.ENOENT, "not shown to the guest")

    def _is_elsewhere(self, tree: HostTree, plain: str) -> bool:
        """Whether what the guest finds at a path is not in the tree of the host."""
        plain = self._plain(plain)
        if plain.startswith("/proc/"):
            return True  # which of these there are depends on the process
        if self._is_fixed(plain) or self._is_here(plain) or self._memory.may_have(plain):
            return True
        try:
            return self._tree(plain)[0] is not tree
        except FileNotFoundError:
            return True

    def _is_here(self, plain: str) -> bool:
        """Whether it is in memory, not in a directory of the host."""
        return self._memory.has_file(plain) or self._is_directory_here(plain)

    def _is_directory_here(self, plain: str) -> bool:
        return self._memory.has_directory(plain) or plain in self._trees

    def _is_fixed(self, plain: str) -> bool:
        """Whether it is of the system, or a device."""
        return (
            self._of_system(plain) is not None or plain in _DEVICES or plain in STREAMS or plain == _TERMINAL
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

    def _open_directory(self, plain: str, flags: int) -> Directory:
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_CREAT:
            raise OSError(errno.EISDIR, "a directory")
        return Directory(plain, flags, lambda: self.status(plain), lambda: self._list(plain))

    def _list(self, plain: str) -> list[tuple[str, FileStatus]]:
        devices = {*_DEVICES, *STREAMS}
        names = self._memory.names_in(plain)
        names |= {posixpath.basename(path) for path in devices if posixpath.dirname(path) == plain}
        names |= {posixpath.basename(path) for path in self._trees if posixpath.dirname(path) == plain} - {""}
        descriptor = None
        try:
            tree, inner = self._tree(plain)
            descriptor = tree.open(inner, os.O_RDONLY | os.O_DIRECTORY, 0).descriptor
        except OSError:
            pass  # a directory of mapped paths only
        try:
            if descriptor is not None:
                names.update(os.listdir(descriptor))
            entries = [(".", self.status(plain)), ("..", self.status(posixpath.dirname(plain)))]
            return entries + [(name, self._status_in(plain, name, descriptor)) for name in sorted(names)]
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _status_in(self, directory: str, name: str, descriptor: int | None) -> FileStatus:
        """Of an entry of a directory, which is ``descriptor`` as far as the host has it: without the way to it."""
        plain = posixpath.join(directory, name)
        is_ours = self._is_fixed(plain) or self._is_here(plain) or self._memory.may_have(plain)
        if descriptor is None or is_ours:
            return self.status(plain, follow=False)
        return self._host_status(os.stat(name, dir_fd=descriptor, follow_symlinks=False))

    def _device_status(self, plain: str) -> FileStatus:
        return FileStatus(stat.S_IFCHR | 0o666, 0, self.inodes.number(plain))

    def _host_status(self, host: os.stat_result) -> FileStatus:
        key = (host.st_dev, host.st_ino)
        size_bytes = 4096 if stat.S_ISDIR(host.st_mode) else host.st_size
        return FileStatus(
            host.st_mode, size_bytes, self.inodes.number(key), host.st_nlink, self.inodes.times(key)
        )
