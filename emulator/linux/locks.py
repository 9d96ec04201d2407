"""Locks that processes of the guest hold on files and parts of them: fcntl's and flock's. Advisory, as in Linux."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from emulator.linux.open_files import OpenFile
from emulator.linux.regular_files import RegularFile

READ_LOCK, WRITE_LOCK, UNLOCK = 0, 1, 2
END = 1 << 63
"""Of a range without an end."""


def lock_key(file: OpenFile) -> Hashable:
    """What identifies a file to those who lock it."""
    return file.key if isinstance(file, RegularFile) else file.path


class Lock(NamedTuple):
    """``owner``: a process's number, or the open file that the lock belongs to; ``process``: for F_GETLK, or -1."""

    owner: Hashable
    kind: int
    start: int
    end: int
    process: int

    def excludes(self, other: Lock) -> bool:
        """Whether both cannot be held at a time."""
        return (
            self.owner != other.owner
            and WRITE_LOCK in (self.kind, other.kind)
            and self.start < other.end
            and other.start < self.end
        )


class FileLocks:
    """Locks by what identifies their file; flock's are apart from fcntl's, so ``key`` says which they are."""

    def __init__(self) -> None:
        self._held: dict[Hashable, list[Lock]] = {}

    def obstacle(self, key: Hashable, wanted: Lock) -> Lock | None:
        """A lock that does not allow the wanted one."""
        return next((lock for lock in self._held.get(key, ()) if lock.excludes(wanted)), None)

    def set(self, key: Hashable, wanted: Lock) -> None:
        """Replace what the owner has in the range; UNLOCK leaves nothing there."""
        kept = []
        for lock in self._held.pop(key, []):
            if lock.owner != wanted.owner:
                kept.append(lock)
                continue
            for start, end in (
                (lock.start, min(lock.end, wanted.start)),
                (max(lock.start, wanted.end), lock.end),
            ):
                if start < end:
                    kept.append(Lock(lock.owner, lock.kind, start, end, lock.process))
        if wanted.kind != UNLOCK:
            kept.append(wanted)
        if kept:
            self._held[key] = kept

    def release_closed(self) -> bool:
        """Everything that belongs to open files that are open no more; whether that was something."""
        owners = {lock.owner for held in self._held.values() for lock in held}
        gone = [one for one in owners if isinstance(one, OpenFile) and one.references == 0]
        for one in gone:
            self.release(one)
        return bool(gone)

    def release(self, owner: Hashable, key: Hashable | None = None) -> bool:
        """Everything that an owner has, of one file or of all; whether that was something."""
        found = False
        for one in [key] if key is not None else list(self._held):
            before = self._held.get(one, [])
            kept = [lock for lock in before if lock.owner != owner]
            found = found or len(kept) < len(before)
            if kept:
                self._held[one] = kept
            else:
                self._held.pop(one, None)
        return found
