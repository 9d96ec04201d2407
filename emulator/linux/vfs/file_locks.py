"""Advisory file locks of fcntl (byte ranges) and flock (whole files)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from emulator.linux.vfs.open_files import OpenFile
from emulator.linux.vfs.regular_files import RegularFile

READ_LOCK, WRITE_LOCK, UNLOCK = 0, 1, 2
END = 1 << 63
"""The end of a lock range without an end."""


def lock_key(file: OpenFile) -> Hashable:
    """The key of a file in `FileLocks`."""
    return file.key if isinstance(file, RegularFile) else file.path


class Lock(NamedTuple):
    """``owner``: a pid, or the open file description that holds the lock; ``process``: the pid that F_GETLK reports,
    or -1."""

    owner: Hashable
    kind: int
    start: int
    end: int
    process: int

    def conflicts_with(self, other: Lock) -> bool:
        """Whether the two locks conflict."""
        return (
            self.owner != other.owner
            and WRITE_LOCK in (self.kind, other.kind)
            and self.start < other.end
            and other.start < self.end
        )


class FileLocks:
    """Locks by the key of their file; flock and fcntl locks do not conflict, so their keys differ."""

    def __init__(self) -> None:
        self._held: dict[Hashable, list[Lock]] = {}

    def conflict(self, key: Hashable, requested: Lock) -> Lock | None:
        """A held lock that conflicts with ``requested``, or None."""
        return next((lock for lock in self._held.get(key, ()) if lock.conflicts_with(requested)), None)

    def set(self, key: Hashable, requested: Lock) -> None:
        """Replace the owner's locks in the range of ``requested``; UNLOCK only removes them."""
        kept = []
        for lock in self._held.pop(key, []):
            if lock.owner != requested.owner:
                kept.append(lock)
                continue
            for start, end in (
                (lock.start, min(lock.end, requested.start)),
                (max(lock.start, requested.end), lock.end),
            ):
                if start < end:
                    kept.append(Lock(lock.owner, lock.kind, start, end, lock.process))
        if requested.kind != UNLOCK:
            kept.append(requested)
        if kept:
            self._held[key] = kept

    def release_closed(self) -> bool:
        """Release the locks of all open file descriptions that were closed; return whether there were any."""
        owners = {lock.owner for held in self._held.values() for lock in held}
        gone = [one for one in owners if isinstance(one, OpenFile) and one.references == 0]
        for one in gone:
            self.release(one)
        return bool(gone)

    def release(self, owner: Hashable, key: Hashable | None = None) -> bool:
        """Release the locks of an owner, on one file or on all; return whether there were any."""
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
