"""The guest's files: which path leads to what, and which descriptors are open.

By default a guest sees its three standard streams and a few harmless devices. A campaign may add single files
and directories (``mapped``), a whole root, and paths whose contents stay in memory (``capture``) to be read
when the guest has ended. Nothing else of the host can be seen or changed. What is found looks the same on
every host: owner, times and inode numbers are the guest's own, and directories are listed in order.

Mapped and captured paths are compared after ``.`` and ``..`` are taken out; links are followed by `host_tree`
only. System calls are left to `file_calls`.
"""

from __future__ import annotations

import copy
import errno
import os
import posixpath
import random
import stat
from collections.abc import Collection, Hashable, Mapping
from pathlib import Path

from emulator.errors import EmulatorError
from emulator.linux.descriptors import DescriptorTable
from emulator.linux.host_tree import HostTree
from emulator.linux.open_files import (
    Device,
    Directory,
    FileStatus,
    HostFile,
    MemoryBudget,
    MemoryFile,
    OpenFile,
    Stream,
    SystemFiles,
)
from emulator.linux.pipes import make_pipe, make_socket_pair

_DEVICES = {
    "/dev/null": "null",
    "/dev/zero": "zero",
    "/dev/full": "full",
    "/dev/random": "random",
    "/dev/urandom": "random",
}
_OF_UNKNOWN_SIZE = 1 << 20  # enough for files of the system, whose size is told as 0
_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


class VirtualFiles:
    """The file system and the descriptor table of one guest.

    ``root``: host directory shown as ``/``; read-only but for the guest paths in ``writable``. ``mapped``:
    guest path to bytes, to a host file (a copy is read now) or to a host directory (read-only like the root).
    ``capture``: guest paths that can be written and stay in memory; one that ends in ``/`` stands for
    everything below it.
    ``stdin``: bytes, or a host descriptor to pass through. ``stdout``, ``stderr``: a host descriptor, or None
    to keep the output (`output`). ``terminal``: the streams claim to be a terminal, so that interactive
    programs flush each line. ``seed``: for the random devices.
    ``capture_limit_bytes``: beyond it, kept output and captured files are a full disk to the guest (ENOSPC).

    Raises `EmulatorError` for host paths that do not exist and guest paths that are not absolute.
    """

    def __init__(
        self,
        root: Path | None = None,
        mapped: Mapping[str, Path | str | bytes] | None = None,
        capture: Collection[str] = (),
        writable: Collection[str] = (),
        stdin: bytes | int = b"",
        stdout: int | None = None,
        stderr: int | None = None,
        terminal: bool = False,
        seed: int = 0,
        capture_limit_bytes: int = 1 << 30,
    ) -> None:
        for path in [*(mapped or {}), *capture, *writable]:
            if not path.startswith("/"):
                raise EmulatorError(
                    f"guest path {path!r} is relative: expected an absolute one, such as /{path}"
                )
        self._inodes: dict[Hashable, int] = {}
        self._generator = random.Random(f"devices {seed}")
        self._budget = MemoryBudget(capture_limit_bytes)
        self._contents: dict[str, bytearray] = {}
        self._read_only: set[str] = set()
        self._directories: set[str] = {"/", "/dev"}
        self._trees: dict[str, HostTree] = {}
        self._captured = {posixpath.normpath(path) for path in capture if not path.endswith("/")}
        self._captured_below = tuple(posixpath.normpath(path) for path in capture if path.endswith("/"))
        self.descriptors = DescriptorTable()
        self.system: SystemFiles | None = None
        self.working_directory = "/"
        if root is not None:
            self._trees["/"] = HostTree(root, "/", writable)
        for path, source in (mapped or {}).items():
            self._map(posixpath.normpath(path), source, writable)
        for path in [*self._contents, *self._trees, *self._captured]:
            self._add_parents(path)
        for path in self._captured_below:
            self._directories.add(path)
            self._add_parents(path)
        self._outputs: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        self._open_streams(stdin, stdout, stderr, terminal)

    def close(self) -> None:
        """Close what the guest left open."""
        self.descriptors.close_all()
        for tree in self._trees.values():
            tree.close()
        self._trees.clear()

    def fork(self, share_descriptors: bool = False) -> VirtualFiles:
        """The files of a new process: the same ones, with a working directory and descriptors of its own."""
        other = copy.copy(self)
        other.descriptors = self.descriptors.share() if share_descriptors else self.descriptors.copy()
        return other

    def for_onlooker(self) -> VirtualFiles:
        """The same files for somebody else than the guest, who cannot tell that they were looked at: numbers of inodes
        follow from what was met first, and random bytes from how many were taken."""
        other = copy.copy(self)
        other._inodes, other._generator = dict(self._inodes), copy.copy(self._generator)
        return other

    # What the guest leaves behind

    def output(self, descriptor: int) -> bytes:
        """Everything written to stdout (1) or stderr (2) that was not passed through."""
        return bytes(self._outputs[descriptor])

    def captured(self) -> dict[str, bytes]:
        """Contents of the captured files that exist, by guest path."""
        return {path: bytes(data) for path, data in self._contents.items() if path not in self._read_only}

    def make_pipe(self, flags: int, sockets: bool = False) -> tuple[OpenFile, OpenFile]:
        """The reading and the writing end of a new pipe; or two connected sockets."""
        make = make_socket_pair if sockets else make_pipe
        return make(flags & os.O_NONBLOCK, self._inode(("pipe", len(self._inodes))))

    # Paths. All are absolute guest paths, as `absolute` makes them; all methods raise OSError.

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

    def open(self, path: str, flags: int, mode: int) -> OpenFile:
        plain = self._plain(path)
        if self.system is not None and self.system.covers(plain):
            return self._open_of_system(plain, flags, mode, self.system)
        if plain in _STREAMS:
            return self.descriptors.file(_STREAMS[plain])
        if plain in _DEVICES:
            return Device(plain, flags, lambda: self._device_status(plain), _DEVICES[plain], self._generator)
        if plain in self._contents or self._is_captured(plain):
            return self._open_in_memory(plain, flags)
        if self._is_directory_here(plain):
            return self._open_directory(plain, flags)
        tree, inner = self._tree(path)
        descriptor, where = tree.open(inner, flags, mode)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return self._open_directory(where, flags)
        return HostFile(plain, flags, lambda: self._host_status(os.fstat(descriptor)), descriptor)

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

    def status(self, path: str, follow: bool = True) -> FileStatus:
        plain = self._plain(path)
        if self.system is not None and self.system.covers(plain):
            return self._status_of_system(plain, follow, self.system)
        if plain in _STREAMS:
            return self.descriptors.file(_STREAMS[plain]).status()
        if plain in _DEVICES:
            return self._device_status(plain)
        if plain in self._contents:
            return self._memory_status(plain)
        if self._is_directory_here(plain):
            return FileStatus(stat.S_IFDIR | 0o755, 4096, self._inode(plain), 2)
        if self._is_captured(plain):
            raise OSError(errno.ENOENT, "not written yet")
        tree, inner = self._tree(path)
        return self._host_status(tree.status(inner, follow))

    def is_writable(self, path: str) -> bool:
        plain = self._plain(path)
        if self.system is not None and self.system.covers(plain):
            return False
        if plain in _DEVICES or plain in _STREAMS or self._is_captured(plain):
            return True
        if plain in self._contents or self._is_directory_here(plain):
            return any(plain == below or plain.startswith(below + "/") for below in self._captured_below)
        tree, inner = self._tree(path)
        return tree.is_writable(inner)

    def read_link(self, path: str) -> str:
        plain = self._plain(path)
        if self.system is not None and self.system.covers(plain):
            return self.system.link(plain)
        if plain in self._contents or plain in _DEVICES or self._is_directory_here(plain):
            raise OSError(errno.EINVAL, "not a link")
        tree, inner = self._tree(path)
        return tree.read_link(inner)

    def remove(self, path: str, directory: bool) -> None:
        plain = self._plain(path)
        if plain in self._contents:
            if directory:
                raise OSError(errno.ENOTDIR, "a file")
            self._must_be_captured(plain)
            self._budget.take(-len(self._contents.pop(plain)))
        elif self._is_directory_here(plain):
            if not directory:
                raise OSError(errno.EISDIR, "a directory")
            self._must_be_captured(plain)
            if self._children(plain):
                raise OSError(errno.ENOTEMPTY, "directory")
            self._directories.remove(plain)
        else:
            tree, inner = self._tree(path)
            tree.remove(inner, directory)

    def make_directory(self, path: str, mode: int) -> None:
        plain = self._plain(path)
        if self._is_directory_here(plain) or plain in self._contents:
            raise OSError(errno.EEXIST, "exists")
        if self._is_captured(plain):
            self._must_have_parent(plain)
            self._directories.add(plain)
        else:
            tree, inner = self._tree(path)
            tree.make_directory(inner, mode)

    def rename(self, old: str, new: str) -> None:
        source, target = self._plain(old), self._plain(new)
        if source in self._contents:
            self._must_be_captured(source)
            if not self._is_captured(target):
                raise OSError(errno.EXDEV, "only within captured paths")
            if self._is_directory_here(target):
                raise OSError(errno.EISDIR, "a directory")
            self._must_have_parent(target)
            replaced = self._contents.pop(target, b"") if target != source else b""
            self._budget.take(-len(replaced))
            self._contents[target] = self._contents.pop(source)
            return
        if self._is_directory_here(source) or self._is_captured(target):
            raise OSError(errno.EXDEV, "directories in memory stay where they are")
        (source_tree, source_inner), (target_tree, target_inner) = self._tree(old), self._tree(new)
        if source_tree is not target_tree:
            raise OSError(errno.EXDEV, "another file system")
        source_tree.rename(source_inner, target_inner)

    def program_path(self, path: str) -> str:
        """Where a program to be executed is, when the path is a link of the system such as /proc/self/exe."""
        path = self.absolute(path)
        plain = self._plain(path)
        if self.system is not None and self.system.covers(plain):
            return self.system.target(plain) or path
        return path

    def inode_of(self, path: str) -> int:
        """The guest's number of a file; 0 when there is none any more."""
        try:
            return self.status(path).inode
        except OSError:
            return 0

    def show(self, path: str, contents: bytes) -> None:
        """Let the guest read ``contents`` at ``path`` if it finds nothing there: its own program."""
        plain = self._plain(self.absolute(path))
        try:
            self.status(plain)
        except OSError:
            self._contents[plain] = bytearray(contents)
            self._read_only.add(plain)
            self._add_parents(plain)

    # Inner parts

    def _open_of_system(self, plain: str, flags: int, mode: int, system: SystemFiles) -> OpenFile:
        opened = system.descriptor(plain)
        if opened is not None:
            return opened
        target = system.target(plain)
        if target is not None:
            return self.open(target, flags, mode)
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            raise OSError(errno.EACCES, "files of the system are read-only")
        names = system.names(plain)
        if names is not None:
            return Directory(plain, flags, lambda: self.status(plain), lambda: self._listed(plain, names))
        if flags & os.O_DIRECTORY:
            raise OSError(errno.ENOTDIR, "a file")
        contents = bytearray(system.contents(plain))
        status = FileStatus(stat.S_IFREG | 0o444, 0, self._inode(plain))
        return MemoryFile(plain, flags, lambda: status, contents, self._budget)

    def _status_of_system(self, plain: str, follow: bool, system: SystemFiles) -> FileStatus:
        opened, target = system.descriptor(plain), system.target(plain)
        if follow and opened is not None:
            return opened.status()
        if follow and target is not None:
            return self.status(target)
        if opened is not None or target is not None:
            return FileStatus(stat.S_IFLNK | 0o777, 0, self._inode(plain))
        if system.names(plain) is not None:
            return FileStatus(stat.S_IFDIR | 0o555, 0, self._inode(plain), 2)
        system.contents(plain)
        return FileStatus(stat.S_IFREG | 0o444, 0, self._inode(plain))

    def _listed(self, plain: str, names: list[str]) -> list[tuple[str, FileStatus]]:
        found = [(".", self.status(plain)), ("..", self.status(posixpath.dirname(plain)))]
        return found + [(name, self.status(posixpath.join(plain, name), follow=False)) for name in names]

    def _map(self, path: str, source: Path | str | bytes, writable: Collection[str]) -> None:
        if isinstance(source, bytes):
            self._contents[path] = bytearray(source)
            self._read_only.add(path)
            return
        host = Path(source)
        if host.is_dir():
            below = [posixpath.normpath(w) for w in writable]
            inner = ["/" + w[len(path) :].strip("/") for w in below if (w + "/").startswith(path + "/")]
            if any((path + "/").startswith(w.rstrip("/") + "/") for w in below):
                inner = ["/"]
            self._trees[path] = HostTree(host, path, inner)
            return
        try:
            self._contents[path] = bytearray(host.read_bytes())
        except OSError as error:
            raise EmulatorError(
                f"{host}: cannot be shown to the guest as {path}: {error.strerror}; "
                "give an existing file or directory"
            ) from error
        self._read_only.add(path)

    def _add_parents(self, path: str) -> None:
        while path != "/":
            path = posixpath.dirname(path)
            self._directories.add(path)

    def _open_streams(
        self, stdin: bytes | int, stdout: int | None, stderr: int | None, terminal: bool
    ) -> None:
        sources = (
            stdin if isinstance(stdin, int) else bytearray(stdin),
            self._outputs[1] if stdout is None else stdout,
            self._outputs[2] if stderr is None else stderr,
        )
        kind = stat.S_IFCHR | 0o620 if terminal else stat.S_IFIFO | 0o600
        for descriptor, (name, source) in enumerate(zip(_STREAMS, sources, strict=True)):
            status = FileStatus(kind, 0, self._inode(name))
            flags = os.O_WRONLY if descriptor else os.O_RDONLY
            stream = Stream(name, flags, lambda status=status: status, source, terminal, self._budget)  # type: ignore[misc]
            self.descriptors.install(stream, at=descriptor)

    def _plain(self, path: str) -> str:
        plain = posixpath.normpath(path)
        return plain[1:] if plain.startswith("//") else plain

    def _inode(self, key: Hashable) -> int:
        return self._inodes.setdefault(key, len(self._inodes) + 2)

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

    def _is_captured(self, plain: str) -> bool:
        return plain in self._captured or any(plain.startswith(path + "/") for path in self._captured_below)

    def _is_directory_here(self, plain: str) -> bool:
        return plain in self._directories or plain in self._trees

    def _must_be_captured(self, plain: str) -> None:
        if not self._is_captured(plain):
            raise OSError(errno.EROFS, "not writable for the guest")

    def _must_have_parent(self, plain: str) -> None:
        if not self._is_directory_here(posixpath.dirname(plain)):
            raise OSError(errno.ENOENT, "no such directory")

    def _open_in_memory(self, plain: str, flags: int) -> OpenFile:
        exists = plain in self._contents
        if self._is_directory_here(plain):
            return self._open_directory(plain, flags)
        if not exists and not flags & os.O_CREAT:
            raise OSError(errno.ENOENT, "not written yet")
        if exists and flags & os.O_CREAT and flags & os.O_EXCL:
            raise OSError(errno.EEXIST, "exists")
        if flags & os.O_DIRECTORY:
            raise OSError(errno.ENOTDIR, "a file")
        changes = flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC
        if changes and plain in self._read_only:
            raise OSError(errno.EROFS, "not writable for the guest")
        if not exists:
            self._must_have_parent(plain)
            self._contents[plain] = bytearray()
        contents = self._contents[plain]
        file = MemoryFile(
            plain, flags, lambda: self._contents_status(plain, contents), contents, self._budget
        )
        if flags & os.O_TRUNC:
            file.truncate(0)
        return file

    def _open_directory(self, plain: str, flags: int) -> Directory:
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_CREAT:
            raise OSError(errno.EISDIR, "a directory")
        return Directory(plain, flags, lambda: self.status(plain), lambda: self._list(plain))

    def _list(self, plain: str) -> list[tuple[str, FileStatus]]:
        names = set(self._children(plain))
        try:
            tree, inner = self._tree(plain)
            descriptor, _ = tree.open(inner, os.O_RDONLY | os.O_DIRECTORY, 0)
        except OSError:
            pass  # a directory of mapped paths only
        else:
            try:
                names.update(os.listdir(descriptor))
            finally:
                os.close(descriptor)
        entries = [(".", self.status(plain)), ("..", self.status(posixpath.dirname(plain)))]
        return entries + [
            (name, self.status(posixpath.join(plain, name), follow=False)) for name in sorted(names)
        ]

    def _children(self, plain: str) -> list[str]:
        known = {*self._contents, *self._directories, *self._trees, *_DEVICES, *_STREAMS} - {"/"}
        return [posixpath.basename(path) for path in known if posixpath.dirname(path) == plain]

    def _device_status(self, plain: str) -> FileStatus:
        return FileStatus(stat.S_IFCHR | 0o666, 0, self._inode(plain))

    def _memory_status(self, plain: str) -> FileStatus:
        return self._contents_status(plain, self._contents[plain])

    def _contents_status(self, plain: str, contents: bytearray) -> FileStatus:
        permission = 0o444 if plain in self._read_only else 0o644
        if contents[:4] == b"\x7fELF" or contents[:2] == b"#!":
            permission |= 0o111
        return FileStatus(stat.S_IFREG | permission, len(contents), self._inode(plain))

    def _host_status(self, host: os.stat_result) -> FileStatus:
        inode = self._inode((host.st_dev, host.st_ino))
        size_bytes = 4096 if stat.S_ISDIR(host.st_mode) else host.st_size
        return FileStatus(host.st_mode, size_bytes, inode, host.st_nlink)
