"""Tells the listeners of the file system what happens to files; `files` changes the files and calls the methods here.

The methods take the file system as the calling process sees it, for lookups. Without a listener they only keep track
of open files.
"""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Hashable
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

from emulator.linux.vfs.events import (
    ATTRIB,
    CLOSE_NOWRITE,
    CLOSE_WRITE,
    DELETE,
    MOVE_SELF,
    MOVED_FROM,
    MOVED_TO,
    OPEN,
    VfsListener,
)
from emulator.linux.vfs.open_files import Directory, FileStatus, OpenFile, Stream
from emulator.linux.vfs.opened_files import OpenedFiles
from emulator.linux.vfs.regular_files import RegularFile

_Listener = TypeVar("_Listener", bound=VfsListener)


class Lookups(Protocol):
    """The lookups of `files.VirtualFiles`."""

    def status(self, path: str, follow: bool = True) -> FileStatus: ...

    def resolve(self, path: str, follow: bool) -> str: ...

    def key(self, path: str, follow: bool = True) -> Hashable: ...


class DirectoryEntry(NamedTuple):
    """A directory entry at the time of the lookup: ``resolved_path``: its path without symbolic links; ``key`` and
    ``parent``: the keys of the file and of its directory (`VirtualFiles.key`)."""

    resolved_path: str
    key: Hashable
    parent: Hashable
    is_directory: bool
    links: int

    @property
    def name(self) -> str:
        return posixpath.basename(self.resolved_path)


class Notifications:
    """The listeners and the open files of all processes that share a file system."""

    def __init__(self) -> None:
        self.listeners: list[VfsListener] = []
        self._opened = OpenedFiles()
        self._last_cookie = 0

    def listener(self, kind: type[_Listener]) -> _Listener:
        """The listener of the class ``kind``, which is added if there is none yet."""
        for listener in self.listeners:
            if type(listener) is kind:
                return listener
        added = kind()
        self.listeners.append(added)
        return added

    @property
    def active(self) -> bool:
        """Whether a listener wants events now."""
        return bool(self.listeners) and any(listener.active for listener in self.listeners)

    def entry(self, files: Lookups, path: str, follow: bool = False) -> DirectoryEntry | None:
        """The entry at ``path``; None if there is none, or without a listener and an open file."""
        if not self._opened and not self.active:
            return None
        try:
            status, resolved = files.status(path, follow), files.resolve(path, follow)
            key, parent = files.key(path, follow), files.key(posixpath.dirname(resolved))
        except OSError:
            return None
        return DirectoryEntry(resolved, key, parent, stat.S_ISDIR(status.mode), status.links)

    def file_event(self, files: Lookups, file: OpenFile, event: int) -> None:
        """``event`` has happened to an open file."""
        if not self.active or file.resolved_path is None:
            return
        is_directory, key = isinstance(file, Directory), self._opened.key(file)
        with suppress(OSError):  # its directory may have been removed
            directory, name = posixpath.split(file.resolved_path)
            self._notify(files.key(directory), event, is_directory, name, unlinked=file.is_unlinked)
        self._notify(key, event, is_directory)

    def path_event(self, files: Lookups, path: str, event: int, follow: bool = True) -> None:
        """``event`` has happened to the file at ``path``."""
        entry = self.entry(files, path, follow) if self.active else None
        if entry is not None:
            self.entry_event(entry, event)

    def entry_event(self, entry: DirectoryEntry, event: int) -> None:
        """``event`` has happened to the file of ``entry``."""
        self._notify(entry.parent, event, entry.is_directory, entry.name)
        self._notify(entry.key, event, entry.is_directory)

    def opened(self, files: Lookups, file: OpenFile) -> bool:
        """The guest has opened ``file``; return whether `closed` is to be called for it: not for files without a path,
        nor for standard streams."""
        if not file.path.startswith("/") or isinstance(file, Stream):
            return False
        file.resolved_path = file.resolved_path or file.path
        self._opened.add(file, file.key if isinstance(file, RegularFile) else files.key(file.resolved_path))
        self.file_event(files, file, OPEN)
        return True

    def closed(self, files: Lookups, file: OpenFile) -> None:
        """The last descriptor of ``file`` was closed."""
        self.file_event(files, file, CLOSE_WRITE if file.writable else CLOSE_NOWRITE)
        key = self._opened.discard(file)
        for listener in self.listeners:
            listener.file_closed(key, isinstance(file, Directory), self._opened.is_open(key))

    def name_event(self, files: Lookups, path: str, event: int) -> None:
        """``event`` (CREATE) has happened to the directory of ``path``, after ``path`` was made there."""
        entry = self.entry(files, path) if self.active else None
        if entry is not None:
            self._notify(entry.parent, event, entry.is_directory, entry.name)

    def linked(self, files: Lookups, path: str) -> None:
        """A file that existed got the further name ``path``."""
        entry = self.entry(files, path) if self.active else None
        if entry is not None:
            self._notify(entry.key, ATTRIB, entry.is_directory)

    def removed(self, entry: DirectoryEntry | None) -> None:
        """A name was removed; ``entry``: the entry before the removal."""
        if entry is None:
            return
        self._opened.name_removed(entry.resolved_path)
        if not entry.is_directory:
            self._notify(entry.key, ATTRIB, is_directory=False)
        self._name_removed(entry)
        self._notify(entry.parent, DELETE, entry.is_directory, entry.name)

    def moved(self, files: Lookups, entry: DirectoryEntry | None, replaced: DirectoryEntry | None, new: str) -> None:
        """A file was renamed to ``new``; ``entry``, ``replaced``: the entries of the old and the new name before."""
        target = self.entry(files, new)
        if entry is None or target is None or (replaced is not None and replaced.key == entry.key):
            return
        replaced_path = None if replaced is None else replaced.resolved_path
        self._opened.name_moved(entry.resolved_path, target.resolved_path, replaced_path)
        self._last_cookie = self._last_cookie + 1 & 0xFFFF_FFFF
        self._notify(entry.parent, MOVED_FROM, entry.is_directory, entry.name, self._last_cookie)
        self._notify(target.parent, MOVED_TO, entry.is_directory, target.name, self._last_cookie)
        if replaced is not None:
            self._notify(replaced.key, ATTRIB, replaced.is_directory)
        self._notify(entry.key, MOVE_SELF, entry.is_directory)
        if replaced is not None:
            self._name_removed(replaced)

    def _name_removed(self, entry: DirectoryEntry) -> None:
        if entry.is_directory or entry.links == 1:
            for listener in self.listeners:
                listener.last_name_removed(entry.key, entry.is_directory, self._opened.is_open(entry.key))

    def _notify(
        self, key: Hashable, event: int, is_directory: bool, name: str = "", cookie: int = 0, unlinked: bool = False
    ) -> None:  # fmt: skip
        for listener in self.listeners:
            listener.notify(key, event, is_directory, name, cookie, unlinked)
