"""The file descriptor table of a process."""

from __future__ import annotations

import errno

from emulator.linux.vfs.open_files import OpenFile

MAX_DESCRIPTORS = 1024
"""RLIMIT_NOFILE."""


class DescriptorTable:
    """Descriptor numbers and their open file descriptions; a file is closed with its last descriptor."""

    def __init__(self) -> None:
        self._files: dict[int, OpenFile] = {}
        self._close_on_exec: set[int] = set()
        self._users = 1

    def share(self) -> DescriptorTable:
        """Share the table with one more process; returns the table itself."""
        self._users += 1
        return self

    def copy(self) -> DescriptorTable:
        """A new table with the same open files."""
        other = DescriptorTable()
        other._files = dict(self._files)
        other._close_on_exec = set(self._close_on_exec)
        for file in self._files.values():
            file.references += 1
        return other

    def release(self) -> None:
        """A process stops using the table; the last one closes all descriptors."""
        self._users -= 1
        if not self._users:
            self.close_all()

    def close_for_exec(self) -> None:
        """Close the descriptors with FD_CLOEXEC."""
        for descriptor in sorted(self._close_on_exec):
            self.close(descriptor)

    def items(self) -> list[tuple[int, OpenFile]]:
        """Open descriptors in ascending order."""
        return sorted(self._files.items())

    def file(self, descriptor: int) -> OpenFile:
        """The open file of a descriptor. Raises OSError(EBADF)."""
        try:
            return self._files[descriptor]
        except KeyError:
            raise OSError(errno.EBADF, "descriptor") from None

    def install(self, file: OpenFile, lowest: int = 0, close_on_exec: bool = False, at: int | None = None) -> int:
        """Give ``file`` the lowest free descriptor from ``lowest`` on, or exactly ``at``.

        Raises OSError(EMFILE) when the table is full; a file without any descriptor is then closed.
        """
        if at is None:
            at = lowest
            while at in self._files:
                at += 1
        if not 0 <= at < MAX_DESCRIPTORS:
            if file.references == 0:
                file.close()
            raise OSError(errno.EMFILE, "descriptors")
        file.references += 1
        if at in self._files:
            self.close(at)
        self._files[at] = file
        self.set_close_on_exec(at, close_on_exec)
        return at

    def close(self, descriptor: int) -> None:
        """Close a descriptor, and the file if it is its last one. Raises OSError(EBADF)."""
        file = self.file(descriptor)
        del self._files[descriptor]
        self._close_on_exec.discard(descriptor)
        file.references -= 1
        if file.references == 0:
            if file.on_close is not None:
                file.on_close(file)
            file.close()

    def close_all(self) -> None:
        for descriptor in list(self._files):
            self.close(descriptor)

    def close_on_exec(self, descriptor: int) -> bool:
        return descriptor in self._close_on_exec

    def set_close_on_exec(self, descriptor: int, value: bool) -> None:
        (self._close_on_exec.add if value else self._close_on_exec.discard)(descriptor)
