"""inotify events of the guest's file system: reports opens, closes and name changes to the inotify registry.

`files` and `open_files` change the files and call the methods here; `inotify` keeps the watches and queues the events.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Hashable
from contextlib import suppress
from typing import NamedTuple

from emulator.linux.syscalls.optional.inotify import (
    ATTRIB,
    CLOSE_NOWRITE,
    CLOSE_WRITE,
    CREATE,
    DELETE,
    MODIFY,
    MOVE_SELF,
    MOVED_FROM,
    MOVED_TO,
    OPEN,
)
from emulator.linux.vfs.open_files import Directory, OpenFile, Stream
from emulator.linux.vfs.path_lookup import FilePaths
from emulator.linux.vfs.regular_files import RegularFile


class DirectoryEntry(NamedTuple):
    """A directory entry at the time of the lookup: ``resolved_path``: its path without symbolic links; ``key`` and
    ``parent``: the keys of the file and of its directory (`FilePaths.key`)."""

    resolved_path: str
    key: Hashable
    parent: Hashable
    is_directory: bool
    links: int

    @property
    def name(self) -> str:
        return posixpath.basename(self.resolved_path)


class NotifyingFiles(FilePaths):
    """The part of `files.VirtualFiles` that queues inotify events; nothing here changes a file."""

    def open(self, path: str, flags: int, mode: int) -> OpenFile:
        """As `FilePaths.open`; queues events for creating and truncating a file; `notify_open` queues the one for
        opening it."""
        changes = self.inotify.active and flags & (os.O_CREAT | os.O_TRUNC)
        before = self.find_entry(path, follow=True) if changes else None
        file = super().open(path, flags, mode)
        if changes and isinstance(file, RegularFile):
            if before is None:
                self.notify_name(file.resolved_path or path, CREATE)
            elif flags & os.O_TRUNC:
                self._notify_entry(before, MODIFY)
        return file

    def find_entry(self, path: str, follow: bool = False) -> DirectoryEntry | None:
        """The entry at ``path``; None if there is none, or while no file is watched or open."""
        if not self.inotify.active and not self.inotify.opened:
            return None
        try:
            status, resolved = self.status(path, follow), self.resolve(path, follow)
            key, parent = self.key(path, follow), self.key(posixpath.dirname(resolved))
        except OSError:
            return None
        return DirectoryEntry(resolved, key, parent, stat.S_ISDIR(status.mode), status.links)

    def notify(self, file: OpenFile, event: int) -> None:
        """Queue ``event`` for the watches of an open file and of its directory."""
        if not self.inotify.active or file.resolved_path is None:
            return
        is_directory, key = isinstance(file, Directory), self.inotify.opened.get(file)
        with suppress(OSError):  # its directory may have been removed
            directory, name = posixpath.split(file.resolved_path)
            self.inotify.notify(self.key(directory), event, is_directory, name, unlinked=file.is_unlinked)
        self.inotify.notify(key, event, is_directory)

    def notify_path(self, path: str, event: int, follow: bool = True) -> None:
        """Queue ``event`` for the watches of the file at ``path`` and of its directory."""
        entry = self.find_entry(path, follow) if self.inotify.active else None
        if entry is not None:
            self._notify_entry(entry, event)

    def notify_open(self, file: OpenFile) -> None:
        """Record that the guest has opened ``file``, and queue OPEN."""
        if file.path.startswith("/") and not isinstance(file, Stream):
            file.resolved_path = file.resolved_path or file.path
            file.on_close = self._notify_close
            self.inotify.opened[file] = file.key if isinstance(file, RegularFile) else self.key(file.resolved_path)
            self.notify(file, OPEN)

    def _notify_close(self, file: OpenFile) -> None:
        self.notify(file, CLOSE_WRITE if file.writable else CLOSE_NOWRITE)
        key = self.inotify.opened.pop(file, None)
        if self.inotify.is_unlinked_but_open(key) and not self.inotify.is_open(key):
            self.inotify.last_name_removed(key, isinstance(file, Directory), is_open=False)

    def notify_name(self, path: str, event: int) -> None:
        """Queue ``event`` (CREATE) for the directory of ``path``, after ``path`` was made there."""
        entry = self.find_entry(path) if self.inotify.active else None
        if entry is not None:
            self.inotify.notify(entry.parent, event, entry.is_directory, entry.name)

    def notify_removed(self, entry: DirectoryEntry | None) -> None:
        """Queue the events of a removed name; ``entry``: the entry before the removal."""
        if entry is None:
            return
        for file in self.inotify.opened:
            if file.resolved_path == entry.resolved_path:
                file.is_unlinked = True
        if not entry.is_directory:
            self.inotify.notify(entry.key, ATTRIB, is_directory=False)
        self._name_removed(entry)
        self.inotify.notify(entry.parent, DELETE, entry.is_directory, entry.name)

    def notify_moved(self, entry: DirectoryEntry | None, replaced: DirectoryEntry | None, new: str) -> None:
        """Queue the events of a rename to ``new``; ``entry``, ``replaced``: the entries of the old and the new name
        before it."""
        target = self.find_entry(new)
        if entry is None or target is None or (replaced is not None and replaced.key == entry.key):
            return
        for file in self.inotify.opened:
            if file.resolved_path is None or file.is_unlinked:
                continue
            if replaced is not None and file.resolved_path == replaced.resolved_path:
                file.is_unlinked = True
            elif file.resolved_path == entry.resolved_path or file.resolved_path.startswith(entry.resolved_path + "/"):
                file.resolved_path = target.resolved_path + file.resolved_path[len(entry.resolved_path) :]
        cookie = self.inotify.new_cookie()
        self.inotify.notify(entry.parent, MOVED_FROM, entry.is_directory, entry.name, cookie)
        self.inotify.notify(target.parent, MOVED_TO, entry.is_directory, target.name, cookie)
        if replaced is not None:
            self.inotify.notify(replaced.key, ATTRIB, replaced.is_directory)
        self.inotify.notify(entry.key, MOVE_SELF, entry.is_directory)
        if replaced is not None:
            self._name_removed(replaced)

    def _name_removed(self, entry: DirectoryEntry) -> None:
        if entry.is_directory or entry.links == 1:
            self.inotify.last_name_removed(entry.key, entry.is_directory, self.inotify.is_open(entry.key))

    def _notify_entry(self, entry: DirectoryEntry, event: int) -> None:
        self.inotify.notify(entry.parent, event, entry.is_directory, entry.name)
        self.inotify.notify(entry.key, event, entry.is_directory)
