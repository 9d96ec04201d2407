"""Watching files (inotify): who is told what, and the files that tell it.

Only what guests of this machine do is seen, not what somebody else does to the host's files meanwhile; nor executing a
program, nor stores to mappings. Which path is which file is in `file_paths`.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from emulator.linux.open_files import POLLIN, FileStatus, OpenFile

ACCESS, MODIFY, ATTRIB, CLOSE_WRITE, CLOSE_NOWRITE, OPEN = 1, 2, 4, 8, 0x10, 0x20
MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
ALL_EVENTS = 0xFFF
IGNORED, EXCL_UNLINK, ONESHOT = 0x8000, 0x0400_0000, 0x8000_0000
_QUEUE_OVERFLOW, _IS_DIRECTORY = 0x4000, 0x4000_0000

MAX_INSTANCES, MAX_WATCHES, MAX_QUEUED = 128, 8192, 16384
"""fs.inotify: of all processes together; events of one file."""

MAX_QUEUED_IN_ALL = 1 << 17
"""Events of all files together: Linux charges them to the memory of whoever watches."""

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
    """One file that ``owner`` watches, known there by ``number``; ``key``: what the file is known by."""

    owner: WatchFile
    number: int
    key: Hashable
    mask: int


class FileWatches:
    """Everybody who watches files of a guest, and which files of theirs processes have open."""

    def __init__(self) -> None:
        self._watches: dict[Hashable, list[Watch]] = {}
        self._instances: list[WatchFile] = []
        self._doomed: set[Hashable] = set()  # watched files without a name that are open
        self.opened: dict[OpenFile, Hashable] = {}
        """Files opened by a path, and what they are known by."""
        self._last_cookie = 0

    @property
    def active(self) -> bool:
        """Whether anybody watches anything."""
        return bool(self._watches)

    def new_instance(self, flags: int) -> WatchFile:
        """Raises OSError(EMFILE)."""
        if len(self._instances) >= MAX_INSTANCES:
            raise OSError(errno.EMFILE, "inotify instances")
        file = WatchFile(flags, self)
        self._instances.append(file)
        return file

    def forget_instance(self, file: WatchFile) -> None:
        self._instances.remove(file)

    def new_cookie(self) -> int:
        self._last_cookie = self._last_cookie + 1 & 0xFFFF_FFFF
        return self._last_cookie

    def find(self, owner: WatchFile, key: Hashable) -> Watch | None:
        return next((watch for watch in self._watches.get(key, ()) if watch.owner is owner), None)

    def add(self, watch: Watch) -> None:
        """Raises OSError(ENOSPC)."""
        if sum(map(len, self._watches.values())) >= MAX_WATCHES:
            raise OSError(errno.ENOSPC, "watches")
        self._watches.setdefault(watch.key, []).append(watch)

    def discard(self, watch: Watch) -> None:
        others = [other for other in self._watches.pop(watch.key, []) if other is not watch]
        if others:
            self._watches[watch.key] = others

    def has_room(self) -> bool:
        """Whether one more event may wait to be read."""
        return sum(file.n_queued for file in self._instances) < MAX_QUEUED_IN_ALL

    def tell(
        self, key: Hashable, event: int, is_directory: bool, name: str = "", cookie: int = 0, unlinked: bool = False
    ) -> None:  # fmt: skip
        """Something happened to a file, or to what has ``name`` in a directory.

        ``is_directory``: whether that is one; ``unlinked``: the name is gone.
        """
        for watch in list(self._watches.get(key, ())):
            if not watch.mask & event or (unlinked and watch.mask & EXCL_UNLINK):
                continue
            tells_kind = is_directory and not event & (DELETE_SELF | MOVE_SELF)
            watch.owner.queue(
                watch.number, event | (_IS_DIRECTORY if tells_kind else 0), cookie, os.fsencode(name)
            )
            if watch.mask & ONESHOT:
                watch.owner.end(watch)

    def gone(self, key: Hashable, is_directory: bool, is_open: bool) -> None:
        """The last name of a file was removed; it goes when nobody has it open any more."""
        if is_open:
            if key in self._watches:
                self._doomed.add(key)
            return
        self._doomed.discard(key)
        self.tell(key, DELETE_SELF, is_directory)
        for watch in self._watches.get(key, [])[:]:
            watch.owner.end(watch)

    def is_open(self, key: Hashable) -> bool:
        return key in self.opened.values()

    def is_doomed(self, key: Hashable) -> bool:
        return key in self._doomed


class WatchFile(OpenFile):
    """inotify: a read gives what has happened to the files that it watches."""

    def __init__(self, flags: int, all_watches: FileWatches) -> None:
        status = FileStatus(stat.S_IFREG | 0o600, 0, 1)
        super().__init__("anon_inode:inotify", flags | os.O_RDONLY, lambda: status)
        self._all = all_watches
        self._watches: dict[int, Watch] = {}
        self._events: list[_Event] = []
        self._last_number = 0

    @property
    def n_queued(self) -> int:
        return len(self._events)

    def watch(self, key: Hashable, mask: int) -> int:
        """Watch one more file; the number of the watch. Raises OSError(ENOSPC)."""
        watch = Watch(self, self._last_number + 1, key, mask)
        self._all.add(watch)
        self._last_number += 1
        self._watches[watch.number] = watch
        return watch.number

    def end(self, watch: Watch) -> None:
        """It watches that file no more, and says so."""
        del self._watches[watch.number]
        self._all.discard(watch)
        self.queue(watch.number, IGNORED, 0, b"")

    def end_number(self, number: int) -> None:
        """Raises OSError(EINVAL)."""
        if number not in self._watches:
            raise OSError(errno.EINVAL, "no such watch")
        self.end(self._watches[number])

    def queue(self, number: int, mask: int, cookie: int, name: bytes) -> None:
        """One more event to read, unless it is the last one again; too many are lost, which is an event, too."""
        event = _Event(number, mask, cookie, name)
        if self._events and mask != IGNORED and self._events[-1] == event:
            return
        if len(self._events) >= MAX_QUEUED or not self._all.has_room():
            event = _Event(-1, _QUEUE_OVERFLOW, 0, b"")
            if event in self._events[-1:]:
                return
        self._events.append(event)
        self.changes += 1

    def read(self, n_bytes: int) -> bytes:
        if not self._events:
            self.would_block("reads changes of files that nobody makes")
        data, n_read = b"", 0
        for event in self._events:
            packed = event.packed()
            if len(data) + len(packed) > n_bytes:
                break
            data += packed
            n_read += 1
        if not n_read:
            raise OSError(errno.EINVAL, "no room for an event")
        del self._events[:n_read]
        return data

    def poll(self) -> int:
        return POLLIN if self._events else 0

    def waiting_bytes(self) -> int:
        return sum(len(event.packed()) for event in self._events)

    def close(self) -> None:
        for watch in self._watches.values():
            self._all.discard(watch)
        self._all.forget_instance(self)
