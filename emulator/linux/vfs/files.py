"""VFS of a guest: its file system and its descriptor table.

By default a guest sees its three standard streams, a few harmless devices, and /dev/shm of its own. A campaign may
add single files and directories (``mapped``), a whole root, and paths whose contents stay in memory (``capture``) to be
read when the guest has ended. The guest can neither see nor change any other file of the host. Every host gives
the same view: owner, times and inode numbers are the guest's own, and directories are listed in order.

Path lookup is in `path_lookup`; system calls are in `emulator.linux.syscalls`.
"""

from __future__ import annotations

import copy
import errno
import os
import posixpath
import stat
from collections.abc import Collection, Hashable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from emulator.linux.vfs.events import ATTRIB, CREATE, MODIFY, VfsListener
from emulator.linux.vfs.file_locks import FileLocks
from emulator.linux.vfs.hostfs import HostFs
from emulator.linux.vfs.notifications import Notifications
from emulator.linux.vfs.open_files import FileStatus, MemoryBudget, OpenFile, Stream
from emulator.linux.vfs.path_lookup import STREAMS, FilePaths, follow_across_trees
from emulator.linux.vfs.pipes import make_pipe
from emulator.linux.vfs.regular_files import RegularFile
from emulator.linux.vfs.socket_names import SocketNames
from emulator.linux.vfs.tmpfs import Special

_Listener = TypeVar("_Listener", bound=VfsListener)


class VirtualFiles(FilePaths):
    """The file system and the descriptor table of one guest.

    ``root``: host directory shown as ``/``; read-only but for the guest paths in ``writable``. ``mapped``:
    guest path to bytes, to a host file (a copy is read now) or to a host directory (read-only like the root).
    ``capture``: guest paths that can be written and stay in memory; a path that ends in ``/`` includes
    everything below it.
    ``stdin``: bytes, or a host descriptor to pass through. ``stdout``, ``stderr``: a host descriptor, or None
    to keep the output (`output`). ``terminal``: the streams claim to be a terminal, so that interactive
    programs flush each line. ``seed``: for the random devices.
    ``capture_limit_bytes``: beyond it, kept output and files in memory are a full disk to the guest (ENOSPC).

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
        self._budget = MemoryBudget(capture_limit_bytes)
        super().__init__(root, mapped or {}, capture, writable, seed, self._budget)
        self.locks = FileLocks()
        self._notifications = Notifications()
        self.names: SocketNames[Any] = SocketNames()
        self._outputs: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        self._open_streams(stdin, stdout, stderr, terminal)

    def close(self) -> None:
        """Close what the guest left open."""
        self.write_back()
        self.descriptors.close_all()
        for tree in self._trees.values():
            tree.close()
        self._trees.clear()

    def write_back(self) -> None:
        """Write the stores to shared mappings back to their files."""
        self.page_cache.write_back()

    def fork(self, share_descriptors: bool = False) -> VirtualFiles:
        """The files of a new process: the same ones, with a working directory and descriptors of its own."""
        other = copy.copy(self)
        other.descriptors = self.descriptors.share() if share_descriptors else self.descriptors.copy()
        return other

    def for_observer(self) -> VirtualFiles:
        """The same files for a debugger or an analyzer, whose lookups the guest cannot notice: inode numbers depend on
        the order of lookups, and random bytes on the number of bytes read."""
        other = copy.copy(self)
        other.inodes, other._generator = self.inodes.copy(), copy.copy(self._generator)
        return other

    def open(self, path: str, flags: int, mode: int) -> OpenFile:
        """As `FilePaths.open`; tells the listeners that a file was created or truncated. `notify_open` tells them that
        it was opened."""
        changes = self._notifications.active and flags & (os.O_CREAT | os.O_TRUNC)
        before = self._notifications.entry(self, path, follow=True) if changes else None
        file = super().open(path, flags, mode)
        if changes and isinstance(file, RegularFile):
            if before is None:
                self._notifications.name_event(self, file.resolved_path or path, CREATE)
            elif flags & os.O_TRUNC:
                self._notifications.entry_event(before, MODIFY)
        return file

    # Output and captured files

    def output(self, descriptor: int) -> bytes:
        """Everything written to stdout (1) or stderr (2) that was not passed through."""
        return bytes(self._outputs[descriptor])

    def captured(self) -> dict[str, bytes]:
        """Contents of the captured files that exist, by guest path."""
        self.write_back()
        return self._memory.captured()

    # Files without a path

    def make_pipe(self, flags: int) -> tuple[OpenFile, OpenFile]:
        """The reading and the writing end of a new pipe."""
        return make_pipe(flags & os.O_NONBLOCK, self.new_inode())

    def new_inode(self) -> int:
        """An inode number for a pipe or a socket."""
        return self.inodes.fresh()

    def unnamed(self, name: str, flags: int) -> RegularFile:
        """A new file in memory that has no path."""
        return self._memory.unnamed(name, flags)

    # Events

    def listener(self, kind: type[_Listener]) -> _Listener:
        """The listener of the class ``kind`` to all events of the file system, added if there is none yet; the
        processes that share the file system share it."""
        return self._notifications.listener(kind)

    def notify(self, file: OpenFile, event: int) -> None:
        """Tell the listeners that ``event`` has happened to an open file."""
        self._notifications.file_event(self, file, event)

    def notify_path(self, path: str, event: int, follow: bool = True) -> None:
        """Tell the listeners that ``event`` has happened to the file at ``path``."""
        self._notifications.path_event(self, path, event, follow)

    def notify_open(self, file: OpenFile) -> None:
        """Tell the listeners that the guest has opened ``file``, and later that it was closed."""
        if self._notifications.opened(self, file):
            file.on_close = self._notify_close

    def _notify_close(self, file: OpenFile) -> None:
        self._notifications.closed(self, file)

    # Changes of the file system. All paths are absolute guest paths; all methods raise OSError.

    @follow_across_trees
    def remove(self, path: str, directory: bool) -> None:
        entry = self._notifications.entry(self, path)
        self._remove(path, directory)
        self._notifications.removed(entry)

    def _remove(self, path: str, directory: bool) -> None:
        normal = self._normalise(path)
        if self._is_in_memory(normal):
            if normal in self._trees:
                raise OSError(errno.EBUSY, "a directory of the host")
            self._memory.remove(normal, directory)
            return
        if directory and self._memory.names_in(normal):
            raise OSError(errno.ENOTEMPTY, "the directory contains named pipes or sockets")
        tree, inner = self._tree(path)
        self._forget_last_name(tree, inner)
        tree.remove(inner, directory)
        self._changed_directory(path)

    @follow_across_trees
    def make_directory(self, path: str, mode: int) -> None:
        normal = self._normalise(path)
        if self._is_in_memory(normal):
            raise OSError(errno.EEXIST, "exists")
        if self._memory.may_create(normal):
            self._memory.make_directory(normal)
        else:
            tree, inner = self._tree(path)
            tree.make_directory(inner, mode & ~self.umask)
            self.inodes.created(self.key(path))
            self._changed_directory(path)
        self._notifications.name_event(self, path, CREATE)

    def make_symbolic_link(self, target: str, path: str) -> None:
        """Make a symbolic link; possible only in directories of the host."""
        path = self.resolve_parent(path)
        normal = self._normalise(path)
        if self._is_in_memory(normal):
            raise OSError(errno.EEXIST, "exists")
        if self._memory.may_create(normal):
            raise OSError(errno.EPERM, "no links in memory")
        tree, inner = self._tree(path)
        tree.make_symbolic_link(target, inner)
        self.inodes.created(self.key(path, follow=False))
        self._changed_directory(path)
        self._notifications.name_event(self, path, CREATE)

    def make_hard_link(self, old: str, new: str) -> None:
        """Make a hard link."""
        old, new = self.resolve_parent(old), self.resolve_parent(new)
        self._make_hard_link(old, new)
        self._notifications.linked(self, new)
        self._notifications.name_event(self, new, CREATE)

    def _make_hard_link(self, old: str, new: str) -> None:
        source, target = self._normalise(old), self._normalise(new)
        if self._memory.has_file(source):
            self._memory.link(source, target)
            return
        if self._is_memory_directory(source):
            raise OSError(errno.EPERM, "a directory")
        if self._memory.has_file(target) or self._memory.may_create(target):
            raise OSError(errno.EXDEV, "another file system")
        source_tree, source_inner, target_tree, target_inner = *self._tree(old), *self._tree(new)
        if source_tree is not target_tree:
            raise OSError(errno.EXDEV, "another file system")
        source_tree.make_hard_link(source_inner, target_inner)
        self.inodes.changed(self.key(new, follow=False))
        self._changed_directory(new)

    @follow_across_trees
    def make_special(self, path: str, special: Special) -> None:
        """Add a named pipe or the name of a socket; it is kept in memory, also in a directory of the host."""
        normal = self._normalise(path)
        try:
            self.status(path, follow=False)
        except FileNotFoundError:
            pass
        else:
            raise OSError(errno.EEXIST, "exists")
        if not stat.S_ISDIR(self.status(posixpath.dirname(normal)).mode):
            raise OSError(errno.ENOTDIR, "not a directory")
        if not self.is_writable(path):
            raise OSError(errno.EROFS, "not writable for the guest")
        special.mode &= ~self.umask
        self._memory.add_special(normal, special)
        self._notifications.name_event(self, path, CREATE)

    def rename(self, old: str, new: str) -> None:
        old, new = self.resolve_parent(old), self.resolve_parent(new)
        entry, replaced = self._notifications.entry(self, old), self._notifications.entry(self, new)
        self._rename(old, new)
        self._notifications.moved(self, entry, replaced, new)

    def _rename(self, old: str, new: str) -> None:
        source, target = self._normalise(old), self._normalise(new)
        if self._memory.has_file(source):
            self._memory.rename(source, target)
            return
        if self._is_memory_directory(source) or self._memory.may_create(target):
            raise OSError(errno.EXDEV, "directories in memory stay where they are")
        (source_tree, source_inner), (target_tree, target_inner) = self._tree(old), self._tree(new)
        if source_tree is not target_tree:
            raise OSError(errno.EXDEV, "another file system")
        key = self.key(old, follow=False)
        if not self._is_same(new, key):
            self._forget_last_name(target_tree, target_inner)
        source_tree.rename(source_inner, target_inner)
        self.inodes.changed(key)
        self._changed_directory(old)
        self._changed_directory(new)

    @follow_across_trees
    def change_mode(self, path: str, mode: int) -> None:
        """Set the permissions of the file at ``path``; links are followed."""
        self._change_mode(path, mode)
        self.notify_path(path, ATTRIB)

    def _change_mode(self, path: str, mode: int) -> None:
        normal = self._normalise(path)
        if self._is_in_memory(normal):
            self._memory.change_mode(normal, mode)
            return
        if self._is_system_file(normal):
            raise OSError(errno.EPERM, "a device or a file in /proc or /sys")
        tree, inner = self._tree(path)
        tree.change_mode(inner, mode)
        self.inodes.changed(self.key(path))

    @follow_across_trees
    def set_times(self, path: str, follow: bool, accessed: int | None, modified: int | None) -> None:
        """Set access and modification time in nanoseconds of the wall clock; None leaves one as it is."""
        self.status(path, follow)
        if not self.is_writable(path):
            raise OSError(errno.EROFS, "not writable for the guest")
        self.inodes.set_times(self.key(path, follow), accessed, modified)

    # Inner parts

    def _forget_last_name(self, tree: HostFs, inner: str) -> None:
        """Forget a host file whose last name is about to be removed: the host may reuse its inode number."""
        try:
            host = tree.status(inner, follow=False)
        except FileNotFoundError:
            return
        if host.st_nlink == 1 or stat.S_ISDIR(host.st_mode):
            self.inodes.forget((host.st_dev, host.st_ino))

    def _is_same(self, path: str, key: Hashable) -> bool:
        try:
            return self.key(path, follow=False) == key
        except FileNotFoundError:
            return False

    def _open_streams(
        self, stdin: bytes | int, stdout: int | None, stderr: int | None, terminal: bool
    ) -> None:
        sources = (
            stdin if isinstance(stdin, int) else bytearray(stdin),
            self._outputs[1] if stdout is None else stdout,
            self._outputs[2] if stderr is None else stderr,
        )
        kind = stat.S_IFCHR | 0o620 if terminal else stat.S_IFIFO | 0o600
        for descriptor, (name, source) in enumerate(zip(STREAMS, sources, strict=True)):
            status = partial(FileStatus, kind, 0, self.inodes.number(name))
            flags = os.O_WRONLY if descriptor else os.O_RDONLY
            stream = Stream(name, flags, status, source, terminal, self._budget)
            self.descriptors.install(stream, at=descriptor)
