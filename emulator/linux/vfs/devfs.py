"""devfs: null devices, random devices, the standard streams and the terminal, as one process sees them."""

from __future__ import annotations

import errno
import posixpath
import random
import stat
from functools import partial

from emulator.linux.vfs.descriptor_table import DescriptorTable
from emulator.linux.vfs.filesystem import BaseFilesystem
from emulator.linux.vfs.inodes import Inodes
from emulator.linux.vfs.open_files import Device, DirectoryView, FileStatus, OpenFile

_DEVICES = {
    "/dev/null": "null",
    "/dev/zero": "zero",
    "/dev/full": "full",
    "/dev/random": "random",
    "/dev/urandom": "random",
}
STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_TERMINAL = "/dev/tty"
_PATHS = frozenset([*_DEVICES, *STREAMS, _TERMINAL])


class DevFs(BaseFilesystem):
    """``descriptors``: those of the process, which /dev/stdin and the like open; ``generator``: of random bytes."""

    def __init__(self, descriptors: DescriptorTable, inodes: Inodes, generator: random.Random) -> None:
        self._descriptors = descriptors
        self._inodes = inodes
        self._generator = generator

    def covers(self, guest_path: str) -> bool:
        return guest_path in _PATHS

    def open(self, path: str, flags: int, mode: int, view: DirectoryView) -> OpenFile:
        if path in STREAMS:
            return self._descriptors.file(STREAMS[path])
        if path == _TERMINAL:
            return self._terminal()
        return Device(path, flags, partial(self._device_status, path), _DEVICES[path], self._generator)

    def status(self, path: str, follow: bool) -> FileStatus:
        return self._descriptors.file(STREAMS[path]).status() if path in STREAMS else self._device_status(path)

    def is_writable(self, path: str) -> bool:
        return True

    def names(self, path: str) -> set[str]:
        """The names in a directory; none for other files."""
        return {posixpath.basename(one) for one in (*_DEVICES, *STREAMS) if posixpath.dirname(one) == path}

    def _device_status(self, path: str) -> FileStatus:
        return FileStatus(stat.S_IFCHR | 0o666, 0, self._inodes.number(path))

    def _terminal(self) -> OpenFile:
        for number in STREAMS.values():
            try:
                file = self._descriptors.file(number)
            except OSError:
                continue
            if file.is_terminal:
                return file
        raise OSError(errno.ENXIO, "no terminal")
