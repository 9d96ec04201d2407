"""The guest's files, telling those who watch them what is done: `files` and `open_files` do it, this says so.

What is told by whom and when is in `watch_files`.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Hashable
from contextlib import suppress
from typing import NamedTuple

from emulator.linux.file_paths import FilePaths
from emulator.linux.open_files import Directory, OpenFile, Stream
from emulator.linux.regular_files import RegularFile
from emulator.linux.watch_files import (
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


class Named(NamedTuple):
    """What had a name when it was looked at: ``place``, the way there without links; ``key`` and ``parent``: what it
    and its directory are known by."""

    place: str
    key: Hashable
    parent: Hashable
    is_directory: bool
    links: int

    @property
    def name(self) -> str:
        return posixpath.basename(self.place)


class WatchedFiles(FilePaths):
    """Inner parts of `files.VirtualFiles`: nothing here changes a file."""

    def open(self, path: str, flags: int, mode: int) -> OpenFile:
        """As `FilePaths.open`; making and emptying a file is told, opening it by `note_open`."""
        changes = self.watches.active and flags & (os.O_CREAT | os.O_TRUNC)
        before = self.look(path, follow=True) if changes else None
        file = super().open(path, flags, mode)
        if changes and isinstance(file, RegularFile):
            if before is None:
                self.told_name(file.place or path, CREATE)
            elif flags & os.O_TRUNC:
                self._tell_both(before, MODIFY)
        return file

    def look(self, path: str, follow: bool = False) -> Named | None:
        """What is at ``path``; None without anything there, or if nobody has files open or watched."""
        if not self.watches.active and not self.watches.opened:
            return None
        try:
            status, place = self.status(path, follow), self.place(path, follow)
            key, parent = self.key(path, follow), self.key(posixpath.dirname(place))
        except OSError:
            return None
        return Named(place, key, parent, stat.S_ISDIR(status.mode), status.links)

    def tell(self, file: OpenFile, event: int) -> None:
        """Something is done to an open file."""
        if not self.watches.active or file.place is None:
            return
        is_directory, key = isinstance(file, Directory), self.watches.opened.get(file)
        with suppress(OSError):  # its directory may be gone
            self.watches.tell(
                self.key(posixpath.dirname(file.place)), event, is_directory, posixpath.basename(file.place),
                unlinked=file.is_unlinked,
            )  # fmt: skip
        self.watches.tell(key, event, is_directory)

    def tell_about(self, path: str, event: int, follow: bool = True) -> None:
        """Something is done to what is at ``path``."""
        about = self.look(path, follow) if self.watches.active else None
        if about is not None:
            self._tell_both(about, event)

    def note_open(self, file: OpenFile) -> None:
        """The guest has opened it."""
        if file.path.startswith("/") and not isinstance(file, Stream):
            file.place = file.place or file.path
            file.on_close = self._note_close
            self.watches.opened[file] = file.key if isinstance(file, RegularFile) else self.key(file.place)
            self.tell(file, OPEN)

    def _note_close(self, file: OpenFile) -> None:
        self.tell(file, CLOSE_WRITE if file.writable else CLOSE_NOWRITE)
        key = self.watches.opened.pop(file, None)
        if self.watches.is_doomed(key) and not self.watches.is_open(key):
            self.watches.gone(key, isinstance(file, Directory), is_open=False)

    def told_name(self, path: str, event: int) -> None:
        """What is at ``path`` now has got its name there."""
        about = self.look(path) if self.watches.active else None
        if about is not None:
            self.watches.tell(about.parent, event, about.is_directory, about.name)

    def told_removed(self, about: Named | None) -> None:
        """The name is gone."""
        if about is None:
            return
        for file in self.watches.opened:
            if file.place == about.place:
                file.is_unlinked = True
        if not about.is_directory:
            self.watches.tell(about.key, ATTRIB, is_directory=False)
        self._lost_name(about)
        self.watches.tell(about.parent, DELETE, about.is_directory, about.name)

    def told_moved(self, about: Named | None, replaced: Named | None, new: str) -> None:
        """What had a name has another one now, which ``replaced`` had before."""
        target = self.look(new)
        if about is None or target is None or (replaced is not None and replaced.key == about.key):
            return
        for file in self.watches.opened:
            if file.place is None or file.is_unlinked:
                continue
            if replaced is not None and file.place == replaced.place:
                file.is_unlinked = True
            elif file.place == about.place or file.place.startswith(about.place + "/"):
                file.place = target.place + file.place[len(about.place) :]
        cookie = self.watches.new_cookie()
        self.watches.tell(about.parent, MOVED_FROM, about.is_directory, about.name, cookie)
        self.watches.tell(target.parent, MOVED_TO, about.is_directory, target.name, cookie)
        if replaced is not None:
            self.watches.tell(replaced.key, ATTRIB, replaced.is_directory)
        self.watches.tell(about.key, MOVE_SELF, about.is_directory)
        if replaced is not None:
            self._lost_name(replaced)

    def _lost_name(self, about: Named) -> None:
        if about.is_directory or about.links == 1:
            self.watches.gone(about.key, about.is_directory, self.watches.is_open(about.key))

    def _tell_both(self, about: Named, event: int) -> None:
        self.watches.tell(about.parent, event, about.is_directory, about.name)
        self.watches.tell(about.key, event, about.is_directory)
