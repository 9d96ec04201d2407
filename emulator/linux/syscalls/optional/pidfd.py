"""System calls of pidfd. Every public function handles the system call of that name."""

from __future__ import annotations

import errno
import os
import re

from emulator.linux.abi.numbers import N_SIGNALS, signed
from emulator.linux.kernel.pid_file import PidFile
from emulator.linux.kernel.signals import sent_by_user
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.tasks import Process
from emulator.linux.vfs.open_files import Directory, OpenFile

_DIRECTORY = re.compile(r"/proc/(self|\d+)")


def pidfd_open(task: Task, pid: int, flags: int) -> int:
    if flags & ~os.O_NONBLOCK or signed(pid, 32) <= 0:
        raise OSError(errno.EINVAL, "pidfd_open")
    process = task.scheduler.processes.get(pid)
    if process is None:
        raise OSError(errno.ESRCH if task.scheduler.thread(pid) is None else errno.EINVAL, "process")
    return task.descriptors.install(PidFile(process, flags), close_on_exec=True)


def pidfd_send_signal(task: Task, fd: int, signal: int, info: int, flags: int) -> int:
    process = _process_of(task, task.file(fd))
    if flags or info or signal > N_SIGNALS:
        raise OSError(errno.EINVAL, "pidfd_send_signal")
    if process is None or process.is_reaped:
        raise OSError(errno.ESRCH, "process")
    if signal and process.status is None:
        process.signals.send(sent_by_user(signal, pid=task.process.pid))
    return 0


def _process_of(task: Task, file: OpenFile) -> Process | None:
    """The process of a pidfd or of a directory /proc/PID; None if it does not exist any more. Raises
    OSError(EBADF)."""
    if isinstance(file, PidFile):
        return file.process
    directory = _DIRECTORY.fullmatch(file.path) if isinstance(file, Directory) else None
    if directory is None:
        raise OSError(errno.EBADF, "pidfd")
    return task.process if directory[1] == "self" else task.scheduler.processes.get(int(directory[1]))
