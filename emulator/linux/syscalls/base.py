"""The base class of most classes of system calls: access to the process's parts, descriptors, paths and strings."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from emulator.linux.abi.numbers import signed
from emulator.linux.vfs.open_files import OpenFile

if TYPE_CHECKING:
    from emulator.linux.kernel.linux_kernel import LinuxKernel

AT_FDCWD = -100
_PATH_BYTES = 4096


class KernelCalls:
    """What classes of system calls share: the parts of ``kernel``, and readers of descriptor, string and path
    arguments. It has no system call itself."""

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
        """The open file of a descriptor. Raises OSError(EBADF)."""
        return self._table.file(signed(fd, 32))

    def _notify(self, file: OpenFile, event: int) -> None:
        """Tell the listeners of the file system of an event of an open file."""
        self._files.notify(file, event)

    def _text(self, address: int, limit_bytes: int = _PATH_BYTES) -> str:
        """The string at ``address``: a path or name. Raises OSError(ENAMETOOLONG) and `MemoryFault`."""
        raw = self._memory.read_cstring(address, limit_bytes)
        if raw is None:
            raise OSError(errno.ENAMETOOLONG, "path")
        return os.fsdecode(raw)

    def _path(self, directory: int, address: int) -> str:
        """The absolute path of a call's directory descriptor and path. Raises OSError and `MemoryFault`."""
        text = self._text(address)
        if not text:
            raise OSError(errno.ENOENT, "empty path")
        number = signed(directory, 32)
        return self._files.absolute(text, None if number == AT_FDCWD else number)
