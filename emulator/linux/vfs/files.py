"""VFS of a guest: its file system and its descriptor table.

By default a guest sees its three standard streams, a few harmless devices, and a file system in memory, with an empty
/tmp, which it may write to and which is gone when it has ended. A campaign may add single files and directories
(``mapped``), a whole root, and paths whose contents stay in memory (``capture``) to be read when the guest has ended.
The guest can neither see nor change any other file of the host. Every host gives the same view: owner, times and inode
numbers are the guest's own, and directories are listed in order.

`mounts` finds the file system that a path leads into; `notifications` tells listeners what happens to files; system
calls are in `emulator.linux.syscalls`. Paths are absolute, as `VirtualFiles.absolute` returns them; all errors but
those of the constructor are `OSError`.
"""

from __future__ import annotations

import copy
import errno
import os
import posixpath
import random
import stat
from collections.abc import Collection, Hashable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from emulator.errors import EmulatorError
from emulator.linux.mm.page_cache import PageCache
from emulator.linux.vfs.descriptor_table import DescriptorTable
from emulator.linux.vfs.devfs import STREAMS, DevFs
from emulator.linux.vfs.events import ATTRIB, CREATE, MODIFY, VfsListener
from emulator.linux.vfs.file_locks import FileLocks
from emulator.linux.vfs.filesystem import Special, normalise
from emulator.linux.vfs.inodes import Inodes
from emulator.linux.vfs.mounts import Mounts, follow_across_mounts
from emulator.linux.vfs.notifications import Notifications
from emulator.linux.vfs.open_files import Directory, FileStatus, MemoryBudget, OpenFile, Stream
from emulator.linux.vfs.pipes import make_pipe
from emulator.linux.vfs.procfs_tree import ProcFsProvider, ProcFsTree
from emulator.linux.vfs.regular_files import RegularFile
from emulator.linux.vfs.socket_names import SocketNames
from emulator.linux.vfs.tmpfs import TEMPORARY, Tmpfs

_OF_UNKNOWN_SIZE = 1 << 20  # enough for files in /proc, whose ``st_size`` is 0

_MOST_NOT_FOUND = 100  # paths

_Listener = TypeVar("_Listener", bound=VfsListener)


class VirtualFiles:
    """The file system and the descriptor table of one guest.

    ``root``: host directory shown as ``/``; read-only but for the guest paths in ``writable``. Without it the root
    is in memory, empty but for what is mapped, and writable. ``mapped``: guest path to bytes, to a host file (a copy is
    read now) or to a host directory (read-only like the root). /tmp is in memory, too, when the root has none or an
    empty one and no other argument names it.
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
        mapped = mapped or {}
        for path in [*mapped, *capture, *writable]:
            if not path.startswith("/"):
                raise EmulatorError(f"guest path {path!r} is relative: expected an absolute one, such as /{path}")
        self.inodes = Inodes()
        self.page_cache = PageCache()
        self.descriptors = DescriptorTable()
        self.locks = FileLocks()
        self.names: SocketNames[Any] = SocketNames()
        self.working_directory = "/"
        self.umask = 0o022
        self._not_found: dict[str, None] = {}  # paths, shared by all processes; the last at the end
        self._generator = random.Random(f"devices {seed}")
        self._budget = MemoryBudget(capture_limit_bytes)
        if root is not None and _lacks_temporary(root, [*mapped, *capture, *writable]):
            capture = [*capture, f"{TEMPORARY}/"]
        self._notifications = Notifications()
        self._tmpfs = Tmpfs(capture, root is None, self.inodes, self.page_cache, self._budget)
        self._mounts = Mounts(self._devices(), self._tmpfs)
        if root is not None:
            self._mounts.mount_host(root, "/", writable, self.inodes, self.page_cache)
        for path, source in mapped.items():
            self._map(posixpath.normpath(path), source, writable)
        self._outputs: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        self._open_streams(stdin, stdout, stderr, terminal)

    def mount_procfs(self, system: ProcFsProvider) -> None:
        """Mount ``system`` as /proc and /sys; it shows them as the process of these files sees them."""
        self._mounts.mount_procfs(ProcFsTree(system, self))

    def close(self) -> None:
        """Close what the guest left open."""
        self.write_back()
        self.descriptors.close_all()
        self._mounts.close()

    def write_back(self) -> None:
        """Write the stores to shared mappings back to their files."""
        self.page_cache.write_back()

    def fork(self, share_descriptors: bool = False) -> VirtualFiles:
        """The files of a new process: the same ones, with a working directory and descriptors of its own."""
        other = copy.copy(self)
        other.descriptors = self.descriptors.share() if share_descriptors else self.descriptors.copy()
        other._mounts = self._mounts.fork(other._devices())
        return other

    def for_observer(self) -> VirtualFiles:
        """The same files for a debugger or an analyzer, whose lookups the guest cannot notice: inode numbers depend on
        the order of lookups, and random bytes on the number of bytes read."""
        other = copy.copy(self)
        other.inodes, other._generator = self.inodes.copy(), copy.copy(self._generator)
        other._not_found = {}
        other._mounts = self._mounts.with_inodes(other._devices(), other.inodes)
        other._tmpfs = other._mounts.tmpfs
        if self._mounts.procfs is not None:
            other.mount_procfs(self._mounts.procfs.system)
        return other

    # Output and captured files

    def output(self, descriptor: int) -> bytes:
        """Everything written to stdout (1) or stderr (2) that was not passed through."""
        return bytes(self._outputs[descriptor])

    def captured(self) -> dict[str, bytes]:
        """Contents of the captured files that exist, by guest path."""
        self.write_back()
        return self._tmpfs.captured()

    def left_in_memory(self) -> list[str]:
        """Paths of the files that the guest made in memory and has not removed, but for those in /tmp and /dev/shm."""
        return sorted(path for path in self._tmpfs.captured() if not path.startswith("/tmp/"))

    def note_not_found(self, path: str) -> None:
        """Remember that the guest asked for a file at ``path`` and was told that there is none."""
        normal = normalise(path)
        self._not_found.pop(normal, None)
        self._not_found[normal] = None
        if len(self._not_found) > _MOST_NOT_FOUND:
            del self._not_found[next(iter(self._not_found))]

    def not_found(self) -> list[str]:
        """Paths at which the guest last looked for files in vain, and that do not exist now, in this order."""
        return [path for path in self._not_found if not self.inode_of(path)]

    def refused_writes(self) -> list[str]:
        """Paths of files given read-only that the guest tried to change, in this order."""
        return list(self._tmpfs.refused)

    @property
    def stdin_was_read(self) -> bool:
        """Whether the guest tried to read its standard input."""
        return self._stdin.was_read

    # Files without a path

    def make_pipe(self, flags: int) -> tuple[OpenFile, OpenFile]:
        """The reading and the writing end of a new pipe."""
        return make_pipe(flags & os.O_NONBLOCK, self.new_inode())

    def new_inode(self) -> int:
        """An inode number for a pipe or a socket."""
        return self.inodes.fresh()

    def unnamed(self, name: str, flags: int) -> RegularFile:
        """A new file in memory that has no path."""
        return self._tmpfs.unnamed(name, flags)

    # Events

    def listener(self, kind: type[_Listener]) -> _Listener:
        """The listener of the class ``kind`` to all events of the file system, added if there is none yet; the
        processes that share the file system share it."""
        return self._notifications.listener(kind)

    def notify(self, file: OpenFile, event: int) -> None:
        """Tell the listeners that ``event`` has happened to an open file."""
        if self._notifications.listeners:
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

    # Lookup

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

    def open(self, path: str, flags: int, mode: int) -> OpenFile:
        """Open a file; tells the listeners that it was created or truncated. `notify_open` tells them that it was
        opened."""
        changes = self._notifications.active and flags & (os.O_CREAT | os.O_TRUNC)
        before = self._notifications.entry(self, path, follow=True) if changes else None
        try:
            file = self._open(path, flags, mode & ~self.umask)
        except FileNotFoundError:
            self.note_not_found(path)
            raise
        if changes and isinstance(file, RegularFile):
            if before is None:
                self._notifications.name_event(self, file.resolved_path or path, CREATE)
            elif flags & os.O_TRUNC:
                self._notifications.entry_event(before, MODIFY)
        return file

    @follow_across_mounts
    def _open(self, path: str, flags: int, mode: int) -> OpenFile:
        place = self._mounts.find(path)
        return place.filesystem.open(place.path, flags, mode, self._mounts)

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
        return self._mounts.guest_path(host)

    def status(self, path: str, follow: bool = True) -> FileStatus:
        """The status of a file, or with ``follow`` of the file that a link leads to."""
        return self._mounts.status(path, follow)

    def special(self, path: str) -> Special | None:
        """The named pipe or bound socket at ``path``, or None."""
        return self._tmpfs.special(normalise(path))

    @follow_across_mounts
    def is_writable(self, path: str) -> bool:
        """Whether the guest may change the file."""
        place = self._mounts.find(path)
        return place.filesystem.is_writable(place.path)

    @follow_across_mounts
    def read_link(self, path: str) -> str:
        place = self._mounts.find(path)
        return place.filesystem.read_link(place.path)

    def running_program(self, path: str) -> tuple[str, bytes] | None:
        """Path and contents of the program that a path such as /proc/self/exe stands for; None for other paths."""
        procfs, normal = self._mounts.procfs, normalise(path)
        return procfs.system.program(normal) if procfs is not None and procfs.covers(normal) else None

    def open_file_at(self, path: str) -> OpenFile | None:
        """The open file that a path such as /proc/self/fd/3 stands for; None for other paths."""
        procfs, normal = self._mounts.procfs, normalise(path)
        return procfs.system.descriptor(normal) if procfs is not None and procfs.covers(normal) else None

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

    def key(self, path: str, follow: bool = True) -> Hashable:
        """The key of a file in `Inodes`, the page cache, the locks and the events."""
        return self._mounts.key(path, follow)

    @follow_across_mounts
    def resolve(self, path: str, follow: bool) -> str:
        """The path of a file with all links in its directories resolved, and with ``follow`` the last one, too."""
        place = self._mounts.find(path)
        return place.filesystem.resolve(place.path, follow)

    def resolve_parent(self, path: str) -> str:
        """``path`` with the links of its directory resolved, not the last component: for calls with two paths."""
        directory, name = posixpath.split(path.rstrip("/"))
        if name in ("", ".", ".."):
            return path
        return posixpath.join(self.resolve(directory or "/", follow=True), name) + ("/" if path.endswith("/") else "")

    # Changes of the file system

    def add_if_missing(self, path: str, contents: bytes) -> None:
        """Add a file with ``contents`` at ``path`` unless one exists: the guest's own program."""
        normal = normalise(self.absolute(path))
        try:
            self.status(normal)
        except OSError:
            self._tmpfs.add(normal, contents)

    @follow_across_mounts
    def remove(self, path: str, directory: bool) -> None:
        """Remove a file, or with ``directory`` an empty directory."""
        entry, place = self._notifications.entry(self, path), self._mounts.find(path)
        if directory and place.filesystem is not self._tmpfs and self._tmpfs.names(place.guest_path):
            raise OSError(errno.ENOTEMPTY, "the directory contains named pipes or sockets")
        place.filesystem.remove(place.path, directory)
        self._notifications.removed(entry)

    @follow_across_mounts
    def make_directory(self, path: str, mode: int) -> None:
        place = self._mounts.find(path)
        place.filesystem.make_directory(place.path, mode & ~self.umask)
        self._notifications.name_event(self, path, CREATE)

    def make_symbolic_link(self, target: str, path: str) -> None:
        """Make a symbolic link; possible only in directories of the host."""
        path = self.resolve_parent(path)
        place = self._mounts.find(path)
        place.filesystem.make_symbolic_link(place.path, target)
        self._notifications.name_event(self, path, CREATE)

    def make_hard_link(self, old: str, new: str) -> None:
        """Make a hard link."""
        old, new = self.resolve_parent(old), self.resolve_parent(new)
        place = self._mounts.find(old)
        place.filesystem.make_hard_link(place.path, self._mounts.find(new))
        self._notifications.linked(self, new)
        self._notifications.name_event(self, new, CREATE)

    @follow_across_mounts
    def make_special(self, path: str, special: Special) -> None:
        """Add a named pipe or the name of a socket; it is kept in memory, also in a directory of the host."""
        try:
            self.status(path, follow=False)
        except FileNotFoundError:
            pass
        else:
            raise OSError(errno.EEXIST, "exists")
        if not stat.S_ISDIR(self.status(posixpath.dirname(normalise(path))).mode):
            raise OSError(errno.ENOTDIR, "not a directory")
        if not self.is_writable(path):
            raise OSError(errno.EROFS, "not writable for the guest")
        special.mode &= ~self.umask
        place = self._mounts.find(path)
        place.filesystem.make_special(place.path, special)
        self._notifications.name_event(self, path, CREATE)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name; a file that has this name is removed."""
        old, new = self.resolve_parent(old), self.resolve_parent(new)
        entry, replaced = self._notifications.entry(self, old), self._notifications.entry(self, new)
        place = self._mounts.find(old)
        place.filesystem.rename(place.path, self._mounts.find(new))
        self._notifications.moved(self, entry, replaced, new)

    @follow_across_mounts
    def change_mode(self, path: str, mode: int) -> None:
        """Set the permissions of the file at ``path``; links are followed."""
        place = self._mounts.find(path)
        place.filesystem.change_mode(place.path, mode)
        self._notifications.path_event(self, path, ATTRIB)

    @follow_across_mounts
    def set_times(self, path: str, follow: bool, accessed: int | None, modified: int | None) -> None:
        """Set access and modification time in nanoseconds of the wall clock; None leaves one as it is."""
        self.status(path, follow)
        if not self.is_writable(path):
            raise OSError(errno.EROFS, "not writable for the guest")
        self.inodes.set_times(self.key(path, follow), accessed, modified)

    # Inner parts

    def _devices(self) -> DevFs:
        return DevFs(self.descriptors, self.inodes, self._generator)

    def _map(self, path: str, source: Path | str | bytes, writable: Collection[str]) -> None:
        if isinstance(source, bytes):
            self._tmpfs.add(path, source)
            return
        host = Path(source)
        if host.is_dir():
            self._mounts.mount_host(host, path, writable, self.inodes, self.page_cache)
            return
        try:
            self._tmpfs.add(path, host.read_bytes())
        except OSError as error:
            raise EmulatorError(
                f"{host}: cannot be mapped to the guest path {path}: {error.strerror}; "
                "give an existing file or directory"
            ) from error

    def _open_streams(self, stdin: bytes | int, stdout: int | None, stderr: int | None, terminal: bool) -> None:
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
            if descriptor == 0:
                self._stdin = stream
            self.descriptors.install(stream, at=descriptor)


def _lacks_temporary(root: Path, given: Collection[str]) -> bool:
    """Whether a guest with the host's directory ``root`` needs a /tmp in memory: the root has no files in its own, and
    the guest paths ``given`` say nothing of it."""
    if any(path == "/" or path == TEMPORARY or path.startswith(f"{TEMPORARY}/") for path in map(normalise, given)):
        return False
    there = root / TEMPORARY.lstrip("/")
    return not os.path.lexists(there) or (not there.is_symlink() and there.is_dir() and not any(there.iterdir()))
