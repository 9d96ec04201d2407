"""pidfd: a file that becomes readable when its process has ended, and the system calls on it.

Every public method of `PidfdCalls` is the system call of that name.
"""

from __future__ import annotations

import errno
import os
import re
import stat

from emulator.linux.abi.numbers import N_SIGNALS, signed
from emulator.linux.kernel.signals import sent_by_user
from emulator.linux.kernel.tasks import Process
from emulator.linux.syscalls.base import KernelCalls
from emulator.linux.vfs.open_files import POLLHUP, POLLIN, Directory, FileStatus, OpenFile

_DIRECTORY = re.compile(r"/proc/(self|\d+)")


class PidFile(OpenFile):
    """A pidfd of ``process``."""

    def __init__(self, process: Process, flags: int) -> None:
        status = FileStatus(stat.S_IFREG | 0o600, 0, 1)
        super().__init__("anon_inode:[pidfd]", flags | os.O_RDWR, lambda: status)
        self.process = process

    def poll(self) -> int:
        ended = self.process.status is not None
        return POLLIN | (POLLHUP if self.process.is_reaped else 0) if ended else 0


class PidfdCalls(KernelCalls):
    def pidfd_open(self, pid: int, flags: int) -> int:
        if flags & ~os.O_NONBLOCK or signed(pid, 32) <= 0:
            raise OSError(errno.EINVAL, "pidfd_open")
        process = self._scheduler.processes.get(pid)
        if process is None:
            raise OSError(errno.ESRCH if self._scheduler.thread(pid) is None else errno.EINVAL, "process")
        return self._table.install(PidFile(process, flags), close_on_exec=True)

    def pidfd_send_signal(self, fd: int, signal: int, info: int, flags: int) -> int:
        process = self._process_of(self._file(fd))
        if flags or info or signal > N_SIGNALS:
            raise OSError(errno.EINVAL, "pidfd_send_signal")
        if process is None or process.is_reaped:
            raise OSError(errno.ESRCH, "process")
        if signal and process.status is None:
            process.kernel.signals.send(sent_by_user(signal, pid=self._owner.pid))
        return 0

    def _process_of(self, file: OpenFile) -> Process | None:
        """The process of a pidfd or of a directory /proc/PID; None if it does not exist any more. Raises
        OSError(EBADF)."""
        if isinstance(file, PidFile):
            return file.process
        directory = _DIRECTORY.fullmatch(file.path) if isinstance(file, Directory) else None
        if directory is None:
            raise OSError(errno.EBADF, "pidfd")
        return self._owner if directory[1] == "self" else self._scheduler.processes.get(int(directory[1]))
