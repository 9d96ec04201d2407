"""What the guest's file system keeps about each file beside its contents: an inode number of its own, and times."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from emulator.linux.open_files import UNTOUCHED, FileTimes


class Inodes:
    """``now``: nanoseconds of the guest's wall clock; until a kernel sets it, time stands still."""

    def __init__(self) -> None:
        self.now: Callable[[], int] = lambda: UNTOUCHED.modified
        self._numbers: dict[Hashable, int] = {}
        self._times: dict[Hashable, FileTimes] = {}
        self._last = 1

    def copy(self) -> Inodes:
        """The same, for somebody whose questions are to leave no trace in these."""
        other = Inodes()
        other.now, other._last = self.now, self._last
        other._numbers, other._times = dict(self._numbers), dict(self._times)
        return other

    def number(self, key: Hashable) -> int:
        """The number of what ``key`` stands for: from 2 on, in the order in which they were first asked for."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = self.fresh()
        return found

    def fresh(self) -> int:
        """A number for what is never asked for again by a key."""
        self._last += 1
        return self._last

    def times(self, key: Hashable) -> FileTimes:
        return self._times.get(key, UNTOUCHED)

    def modified(self, key: Hashable) -> None:
        """Its contents have changed now."""
        now = self.now()
        self._times[key] = FileTimes(self.times(key).accessed, now, now)

    def created(self, key: Hashable) -> None:
        self._times[key] = FileTimes(*[self.now()] * 3)

    def changed(self, key: Hashable) -> None:
        """Something else about it has changed now: its name, its permissions."""
        self._times[key] = self.times(key)._replace(changed=self.now())

    def set_times(self, key: Hashable, accessed: int | None, modified: int | None) -> None:
        """None: as it is."""
        before = self.times(key)
        self._times[key] = FileTimes(
            before.accessed if accessed is None else accessed,
            before.modified if modified is None else modified,
            self.now(),
        )

    def forget(self, key: Hashable) -> None:
        """It is gone; another file may be known by the same key."""
        self._numbers.pop(key, None)
        self._times.pop(key, None)
