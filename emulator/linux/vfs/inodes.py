"""Inode numbers and times of the guest's files, assigned by the emulator so that runs repeat."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from emulator.linux.vfs.open_files import UNTOUCHED, FileTimes


def _start_of_time() -> int:
    return UNTOUCHED.modified


class Inodes:
    """``now``: nanoseconds of the guest's wall clock; until a kernel sets it, time stands still."""

    def __init__(self) -> None:
        self.now: Callable[[], int] = _start_of_time
        self._numbers: dict[Hashable, int] = {}
        self._times: dict[Hashable, FileTimes] = {}
        self._last = 1

    def copy(self) -> Inodes:
        """A copy, for lookups that must not change the numbers and times that the guest sees."""
        other = Inodes()
        other.now, other._last = self.now, self._last
        other._numbers, other._times = dict(self._numbers), dict(self._times)
        return other

    def number(self, key: Hashable) -> int:
        """The inode number of the file with ``key``: from 2 on, in the order of the first lookups."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = self.fresh()
        return found

    def fresh(self) -> int:
        """A new number that belongs to no key."""
        self._last += 1
        return self._last

    def times(self, key: Hashable) -> FileTimes:
        return self._times.get(key, UNTOUCHED)

    def modified(self, key: Hashable) -> None:
        """Set the times after a change of the contents."""
        now = self.now()
        self._times[key] = FileTimes(self.times(key).accessed, now, now)

    def created(self, key: Hashable) -> None:
        self._times[key] = FileTimes(*[self.now()] * 3)

    def changed(self, key: Hashable) -> None:
        """Set the time after a change of the name or the permissions."""
        self._times[key] = self.times(key)._replace(changed=self.now())

    def set_times(self, key: Hashable, accessed: int | None, modified: int | None) -> None:
        """Set access and modification time in nanoseconds; None leaves one as it is."""
        before = self.times(key)
        self._times[key] = FileTimes(
            before.accessed if accessed is None else accessed,
            before.modified if modified is None else modified,
            self.now(),
        )

    def forget(self, key: Hashable) -> None:
        """The file was removed; another file may get the same key."""
        self._numbers.pop(key, None)
        self._times.pop(key, None)
