"""Events of the file system and the protocol of those that listen to them. The numbers are those of inotify."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

ACCESS, MODIFY, ATTRIB, CLOSE_WRITE, CLOSE_NOWRITE, OPEN = 1, 2, 4, 8, 0x10, 0x20
MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
ALL_EVENTS = 0xFFF


class VfsListener(Protocol):
    """A listener to the changes that the guest's processes make. Files are told apart by `VirtualFiles.key`."""

    @property
    def active(self) -> bool:
        """Whether the listener wants events now; while none does, the file system makes none."""
        ...

    def notify(
        self, key: Hashable, event: int, is_directory: bool, name: str = "", cookie: int = 0, unlinked: bool = False
    ) -> None:  # fmt: skip
        """``event`` has happened to the file or directory ``key``.

        ``name``: the entry that the event is about, if ``key`` is its directory; ``is_directory``: whether the subject
        of the event is a directory; ``cookie``: the same number in both events of a rename, else 0; ``unlinked``:
        whether the subject's name was removed.
        """
        ...

    def last_name_removed(self, key: Hashable, is_directory: bool, is_open: bool) -> None:
        """The last name of a file was removed; the file is gone unless it ``is_open``."""
        ...

    def file_closed(self, key: Hashable, is_directory: bool, is_open: bool) -> None:
        """An open file was closed; ``is_open``: whether the file is still open elsewhere."""
        ...
