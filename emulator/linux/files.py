"""The guest's files: which path leads to what, and which descriptors are open.

By default a guest sees its three standard streams, a few harmless devices, and shared memory of its own. A campaign may
add single files and directories (``mapped``), a whole root, and paths whose contents stay in memory (``capture``) to be
read when the guest has ended. Nothing else of the host can be seen or changed. What is found looks the same on
every host: owner, times and inode numbers are the guest's own, and directories are listed in order.

Which path leads where is in `file_paths`; system calls are left to `file_calls` and others.
"""

from __future__ import annotations

import copy
import errno
import os
import posixpath
import stat
from collections.abc import Collection, Hashable, Mapping
from pathlib import Path

from emulator.linux.file_paths import STREAMS, goes_on
from emulator.linux.host_tree import HostTree
from emulator.linux.locks import FileLocks
from emulator.linux.memory_tree import Special
from emulator.linux.open_files import FileStatus, MemoryBudget, OpenFile, Stream
from emulator.linux.pipes import make_pipe
from emulator.linux.regular_files import RegularFile
from emulator.linux.socket_names import Names
from emulator.linux.watch_files import ATTRIB, CREATE
from emulator.linux.watched_files import WatchedFiles


class VirtualFiles(WatchedFiles):
    """The file system and the descriptor table of one guest.

    ``root``: host directory shown as ``/``; read-only but for the guest paths in ``writable``. ``mapped``:
    guest path to bytes, to a host file (a copy is read now) or to a host directory (read-only like the root).
    ``capture``: guest paths that can be written and stay in memory; one that ends in ``/`` stands for
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
        self.names = Names()
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
        """Give files that are mapped shared what the guest has stored there."""
        self.shared.write_back()

    def fork(self, share_descriptors: bool = False) -> VirtualFiles:
        """The files of a new process: the same ones, with a working directory and descriptors of its own."""
        other = copy.copy(self)
        other.descriptors = self.descriptors.share() if share_descriptors else self.descriptors.copy()
        return other

    def for_onlooker(self) -> VirtualFiles:
        """The same files for somebody else than the guest, who cannot tell that they were looked at: numbers of inodes
        follow from what was met first, and random bytes from how many were taken."""
        other = copy.copy(self)
        other.inodes, other._generator = self.inodes.copy(), copy.copy(self._generator)
        return other

    # What the guest leaves behind

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
        """A number for a pipe or a socket."""
        return self.inodes.fresh()

    def unnamed(self, name: str, flags: int) -> RegularFile:
        """A new file in memory that has no path."""
        return self._memory.unnamed(name, flags)

    # Changing what is there. All paths are absolute guest paths; all methods raise OSError.

    @goes_on
    def remove(self, path: str, directory: bool) -> None:
        about = self.look(path)
        self._remove(path, directory)
        self.told_removed(about)

    def _remove(self, path: str, directory: bool) -> None:
        plain = self._plain(path)
        if self._is_here(plain):
            if plain in self._trees:
                raise OSError(errno.EBUSY, "a directory of the host")
            self._memory.remove(plain, directory)
            return
        if directory and self._memory.names_in(plain):
            raise OSError(errno.ENOTEMPTY, "named pipes and sockets are in it")
        tree, inner = self._tree(path)
        self._forget_last_name(tree, inner)
        tree.remove(inner, directory)
        self._changed_directory(path)

    @goes_on
    def make_directory(self, path: str, mode: int) -> None:
        plain = self._plain(path)
        if self._is_here(plain):
            raise OSError(errno.EEXIST, "exists")
        if self._memory.may_have(plain):
            self._memory.make_directory(plain)
        else:
            tree, inner = self._tree(path)
            tree.make_directory(inner, mode & ~self.umask)
            self.inodes.created(self.key(path))
            self._changed_directory(path)
        self.told_name(path, CREATE)

    def make_link(self, target: str, path: str) -> None:
        """A symbolic link: only in directories of the host."""
        path = self.settled(path)
        plain = self._plain(path)
        if self._is_here(plain):
            raise OSError(errno.EEXIST, "exists")
        if self._memory.may_have(plain):
            raise OSError(errno.EPERM, "no links in memory")
        tree, inner = self._tree(path)
        tree.make_link(target, inner)
        self.inodes.created(self.key(path, follow=False))
        self._changed_directory(path)
        self.told_name(path, CREATE)

    def add_name(self, old: str, new: str) -> None:
        """A further name for a file."""
        old, new = self.settled(old), self.settled(new)
        self._add_name(old, new)
        about = self.look(new) if self.watches.active else None
        if about is not None:
            self.watches.tell(about.key, ATTRIB, about.is_directory)
        self.told_name(new, CREATE)

    def _add_name(self, old: str, new: str) -> None:
        source, target = self._plain(old), self._plain(new)
        if self._memory.has_file(source):
            self._memory.link(source, target)
            return
        if self._is_directory_here(source):
            raise OSError(errno.EPERM, "a directory")
        if self._memory.has_file(target) or self._memory.may_have(target):
            raise OSError(errno.EXDEV, "another file system")
        source_tree, source_inner, target_tree, target_inner = *self._tree(old), *self._tree(new)
        if source_tree is not target_tree:
            raise OSError(errno.EXDEV, "another file system")
        source_tree.add_name(source_inner, target_inner)
        self.inodes.changed(self.key(new, follow=False))
        self._changed_directory(new)

    @goes_on
    def make_special(self, path: str, special: Special) -> None:
        """A named pipe, or the name of a socket: kept in memory whatever the directory is."""
        plain = self._plain(path)
        try:
            self.status(path, follow=False)
        except FileNotFoundError:
            pass
        else:
            raise OSError(errno.EEXIST, "exists")
        if not stat.S_ISDIR(self.status(posixpath.dirname(plain)).mode):
            raise OSError(errno.ENOTDIR, "not a directory")
        if not self.is_writable(path):
            raise OSError(errno.EROFS, "not writable for the guest")
        special.mode &= ~self.umask
        self._memory.add_special(plain, special)
        self.told_name(path, CREATE)

    def rename(self, old: str, new: str) -> None:
        old, new = self.settled(old), self.settled(new)
        about, replaced = self.look(old), self.look(new)
        self._rename(old, new)
        self.told_moved(about, replaced, new)

    def _rename(self, old: str, new: str) -> None:
        source, target = self._plain(old), self._plain(new)
        if self._memory.has_file(source):
            self._memory.rename(source, target)
            return
        if self._is_directory_here(source) or self._memory.may_have(target):
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

    @goes_on
    def change_mode(self, path: str, mode: int) -> None:
        """Permissions of what is at ``path``; links are followed."""
        self._change_mode(path, mode)
        self.tell_about(path, ATTRIB)

    def _change_mode(self, path: str, mode: int) -> None:
        plain = self._plain(path)
        if self._is_here(plain):
            self._memory.change_mode(plain, mode)
            return
        if self._is_fixed(plain):
            raise OSError(errno.EPERM, "a file of the system")
        tree, inner = self._tree(path)
        tree.change_mode(inner, mode)
        self.inodes.changed(self.key(path))

    @goes_on
    def set_times(self, path: str, follow: bool, accessed: int | None, modified: int | None) -> None:
        """When a file was read and written, in nanoseconds of the wall clock; None: as it is."""
        self.status(path, follow)
        if not self.is_writable(path):
            raise OSError(errno.EROFS, "not writable for the guest")
        self.inodes.set_times(self.key(path, follow), accessed, modified)

    # Inner parts

    def _forget_last_name(self, tree: HostTree, inner: str) -> None:
        """The name of a file is going: if it is the last one, the host may give its number to another file."""
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
            status = FileStatus(kind, 0, self.inodes.number(name))
            flags = os.O_WRONLY if descriptor else os.O_RDONLY
            stream = Stream(name, flags, lambda status=status: status, source, terminal, self._budget)  # type: ignore[misc]
            self.descriptors.install(stream, at=descriptor)
