"""pidfd: an open file that becomes readable when its process has ended."""

from __future__ import annotations

import os
import stat
from functools import partial

from emulator.linux.kernel.tasks import Process
from emulator.linux.vfs.open_files import POLLHUP, POLLIN, FileStatus, OpenFile


class PidFile(OpenFile):
    """A pidfd of ``process``."""

    def __init__(self, process: Process, flags: int) -> None:
        super().__init__("anon_inode:[pidfd]", flags | os.O_RDWR, partial(FileStatus, stat.S_IFREG | 0o600, 0, 1))
        self.process = process

    def poll(self) -> int:
        ended = self.process.status is not None
        return POLLIN | (POLLHUP if self.process.is_reaped else 0) if ended else 0
