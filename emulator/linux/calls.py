"""What the classes of system calls have in common."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from emulator.linux.abi import signed
from emulator.linux.open_files import OpenFile

if TYPE_CHECKING:
    from emulator.linux.syscalls import LinuxKernel

AT_FDCWD = -100
_PATH_BYTES = 4096


class KernelCalls:
    """System calls of one process, whose parts are those of ``kernel``."""

    def __init__(self, kernel: LinuxKernel) -> None:
        self._kernel = kernel
        self._memory = kernel.memory
        self._files = kernel.files
        self._table = kernel.files.descriptors
        self._signals = kernel.signals
        self._clock = kernel.clock
        self._scheduler = kernel.scheduler
        self._owner = kernel.owner

    def _file(self, fd: int) -> OpenFile:
        """Raises OSError(EBADF)."""
        return self._table.file(signed(fd, 32))

    def _tell(self, file: OpenFile, event: int) -> None:
        """Tell those who watch the file what was done to it (an event of `watch_files`)."""
        if self._files.watches.active:
            self._files.tell(file, event)

    def _text(self, address: int, limit_bytes: int = _PATH_BYTES) -> str:
        """A path or name. Raises OSError(ENAMETOOLONG) and `MemoryFault`."""
        raw = self._memory.read_cstring(address, limit_bytes)
        if raw is None:
            raise OSError(errno.ENAMETOOLONG, "path")
        return os.fsdecode(raw)

    def _path(self, directory: int, address: int) -> str:
        """The absolute path that a call means. Raises OSError and `MemoryFault`."""
        text = self._text(address)
        if not text:
            raise OSError(errno.ENOENT, "empty path")
        number = signed(directory, 32)
        return self._files.absolute(text, None if number == AT_FDCWD else number)
