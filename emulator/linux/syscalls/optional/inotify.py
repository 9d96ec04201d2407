"""inotify: the registry of watches of all processes, and the inotify instances as open files.

Only changes by guests of this machine are reported: not changes of the host's files by other programs, nor execve, nor
stores to mappings. The registry listens to the file system (`vfs.events.VfsListener`).
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from emulator.linux.vfs.events import DELETE_SELF, MOVE_SELF
from emulator.linux.vfs.open_files import POLLIN, FileStatus, OpenFile

IGNORED, EXCL_UNLINK, ONESHOT = 0x8000, 0x0400_0000, 0x8000_0000
_QUEUE_OVERFLOW, _IS_DIRECTORY = 0x4000, 0x4000_0000

MAX_INSTANCES, MAX_WATCHES, MAX_QUEUED = 128, 8192, 16384
"""Limits of fs.inotify: instances and watches of all processes together, and queued events of one instance."""

MAX_QUEUED_IN_ALL = 1 << 17
"""Queued events of all instances together; Linux charges them to the memory of the watching process."""

_HEADER = struct.Struct("<iIII")


class _Event(NamedTuple):
    watch: int
    mask: int
    cookie: int
    name: bytes

    def packed(self) -> bytes:
        """``struct inotify_event``: the name ends with a zero and fills multiples of 16 bytes."""
        length = len(self.name) + _HEADER.size & -_HEADER.size if self.name else 0
        return _HEADER.pack(self.watch, self.mask, self.cookie, length) + self.name.ljust(length, b"\0")


@dataclass(eq=False)
class Watch:
    """A watch of the instance ``owner``; ``number``: its watch descriptor; ``key``: the key of the watched file."""

    owner: InotifyFile
    number: int
    key: Hashable
    mask: int


class InotifyRegistry:
    """All inotify instances and watches of the guest's processes: a listener of their file system."""

    def __init__(self) -> None:
        self._watches: dict[Hashable, list[Watch]] = {}
        self._instances: list[InotifyFile] = []
        self._unlinked_but_open: set[Hashable] = set()  # watched files without a name that are open

    @property
    def active(self) -> bool:
        """Whether there is any watch."""
        return bool(self._watches)

    def new_instance(self, flags: int) -> InotifyFile:
        """Create an inotify instance. Raises OSError(EMFILE)."""
        if len(self._instances) >= MAX_INSTANCES:
            raise OSError(errno.EMFILE, "inotify instances")
        file = InotifyFile(flags, self)
        self._instances.append(file)
        return file

    def forget_instance(self, file: InotifyFile) -> None:
        self._instances.remove(file)

    def find(self, owner: InotifyFile, key: Hashable) -> Watch | None:
        return next((watch for watch in self._watches.get(key, ()) if watch.owner is owner), None)

    def add(self, watch: Watch) -> None:
        """Register a watch. Raises OSError(ENOSPC)."""
        if sum(map(len, self._watches.values())) >= MAX_WATCHES:
            raise OSError(errno.ENOSPC, "watches")
        self._watches.setdefault(watch.key, []).append(watch)

    def discard(self, watch: Watch) -> None:
        others = [other for other in self._watches.pop(watch.key, []) if other is not watch]
        if others:
            self._watches[watch.key] = others

    def has_room(self) -> bool:
        """Whether one more event may be queued."""
        return sum(file.n_queued for file in self._instances) < MAX_QUEUED_IN_ALL

    def notify(
        self, key: Hashable, event: int, is_directory: bool, name: str = "", cookie: int = 0, unlinked: bool = False
    ) -> None:  # fmt: skip
        """Queue an event for all watches of the file or directory ``key``; see `VfsListener.notify`."""
        for watch in list(self._watches.get(key, ())):
            if not watch.mask & event or (unlinked and watch.mask & EXCL_UNLINK):
                continue
            tells_kind = is_directory and not event & (DELETE_SELF | MOVE_SELF)
            watch.owner.queue(watch.number, event | (_IS_DIRECTORY if tells_kind else 0), cookie, os.fsencode(name))
            if watch.mask & ONESHOT:
                watch.owner.remove(watch)

    def last_name_removed(self, key: Hashable, is_directory: bool, is_open: bool) -> None:
        """The last name of a file was removed; report its deletion, if it is open only when it is closed."""
        if is_open:
            if key in self._watches:
                self._unlinked_but_open.add(key)
            return
        self._unlinked_but_open.discard(key)
        self.notify(key, DELETE_SELF, is_directory)
        for watch in self._watches.get(key, [])[:]:
            watch.owner.remove(watch)

    def file_closed(self, key: Hashable, is_directory: bool, is_open: bool) -> None:
        """Report the deletion of a file whose last name was removed while it was open."""
        if not is_open and key in self._unlinked_but_open:
            self.last_name_removed(key, is_directory, is_open)


class InotifyFile(OpenFile):
    """An inotify instance: a read returns the queued events of its watches."""

    def __init__(self, flags: int, registry: InotifyRegistry) -> None:
        status = partial(FileStatus, stat.S_IFREG | 0o600, 0, 1)
        super().__init__("anon_inode:inotify", flags | os.O_RDONLY, status)
        self._registry = registry
        self._watches: dict[int, Watch] = {}
        self._events: list[_Event] = []
        self._last_number = 0

    @property
    def n_queued(self) -> int:
        return len(self._events)

    def add_watch(self, key: Hashable, mask: int) -> int:
        """Add a watch; return its watch descriptor. Raises OSError(ENOSPC)."""
        watch = Watch(self, self._last_number + 1, key, mask)
        self._registry.add(watch)
        self._last_number += 1
        self._watches[watch.number] = watch
        return watch.number

    def remove(self, watch: Watch) -> None:
        """Remove a watch and queue IGNORED."""
        del self._watches[watch.number]
        self._registry.discard(watch)
        self.queue(watch.number, IGNORED, 0, b"")

    def remove_number(self, number: int) -> None:
        """Remove the watch with that watch descriptor. Raises OSError(EINVAL)."""
        if number not in self._watches:
            raise OSError(errno.EINVAL, "no such watch")
        self.remove(self._watches[number])

    def queue(self, number: int, mask: int, cookie: int, name: bytes) -> None:
        """Queue an event unless it equals the last one; if the queue is full, one overflow event replaces it."""
        event = _Event(number, mask, cookie, name)
        if self._events and mask != IGNORED and self._events[-1] == event:
            return
        if len(self._events) >= MAX_QUEUED or not self._registry.has_room():
            event = _Event(-1, _QUEUE_OVERFLOW, 0, b"")
            if event in self._events[-1:]:
                return
        self._events.append(event)
        self.changes += 1

    def read(self, n_bytes: int) -> bytes:
        if not self._events:
            self.would_block("reads inotify events of files that no other task changes")
        data, n_read = b"", 0
        for event in self._events:
            packed = event.packed()
            if len(data) + len(packed) > n_bytes:
                break
            data += packed
            n_read += 1
        if not n_read:
            raise OSError(errno.EINVAL, "the buffer is too small for an event")
        del self._events[:n_read]
        return data

    def poll(self) -> int:
        return POLLIN if self._events else 0

    def waiting_bytes(self) -> int:
        return sum(len(event.packed()) for event in self._events)

    def close(self) -> None:
        for watch in self._watches.values():
            self._registry.discard(watch)
        self._registry.forget_instance(self)
