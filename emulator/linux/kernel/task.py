"""A task: a thread as the handlers of its system calls see it."""

from __future__ import annotations

import errno
import os

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.hart_protocol import Hart
from emulator.linux.kernel.system import System
from emulator.linux.kernel.tasks import Thread
from emulator.linux.vfs.open_files import OpenFile

AT_FDCWD = -100
_PATH_BYTES = 4096


class Task:
    """The thread that makes a system call, and the parts of its process and of the kernel that handlers use.

    ``hart``: the hart that the thread had when it made the call; a thread that waits does not have it any more.
    ``signals``: of the process; while a handler runs, `SignalState.thread` is the state of this thread.
    """

    __slots__ = (
        "clock", "descriptors", "files", "hart", "memory", "process", "scheduler", "signals", "system", "thread",
    )  # fmt: skip

    def __init__(self, system: System, thread: Thread, hart: Hart) -> None:
        process = thread.process
        self.hart = hart
        self.thread = thread
        self.process = process
        self.memory = process.memory
        self.files = process.files
        self.descriptors = process.files.descriptors
        self.signals = process.signals
        self.system = system
        self.clock = system.clock
        self.scheduler = system.scheduler

    def file(self, fd: int) -> OpenFile:
        """The open file of a descriptor. Raises OSError(EBADF)."""
        return self.descriptors.file(signed(fd, 32))

    def text(self, address: int, limit_bytes: int = _PATH_BYTES) -> str:
        """The string at ``address``: a path or name. Raises OSError(ENAMETOOLONG) and `MemoryFault`."""
        raw = self.memory.read_cstring(address, limit_bytes)
        if raw is None:
            raise OSError(errno.ENAMETOOLONG, "path")
        return os.fsdecode(raw)

    def path(self, directory: int, address: int) -> str:
        """The absolute path of a call's directory descriptor and path. Raises OSError and `MemoryFault`."""
        text = self.text(address)
        if not text:
            raise OSError(errno.ENOENT, "empty path")
        number = signed(directory, 32)
        return self.files.absolute(text, None if number == AT_FDCWD else number)

    def report(self, what: str) -> None:
        """Record a feature that the guest requested and that is not supported."""
        self.system.report(what)
