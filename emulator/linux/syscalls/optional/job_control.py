"""System calls on process groups and sessions. Every public function handles the system call of that name.

What signals do to stopped processes is in `kernel.job_control`.
"""

from __future__ import annotations

import errno

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel import job_control as jobs
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.tasks import Process


def getpgid(task: Task, pid: int) -> int:
    return _process(task, pid).group


def getsid(task: Task, pid: int) -> int:
    return _process(task, pid).session


def setpgid(task: Task, pid: int, group: int) -> int:
    number = signed(pid, 32) or task.process.pid
    target = signed(group, 32) or number
    if target < 0:
        raise OSError(errno.EINVAL, "group")
    process = task.scheduler.processes.get(number)
    if process is None:
        is_thread = task.scheduler.thread(number) is not None
        raise OSError(errno.EINVAL if is_thread else errno.ESRCH, "process")
    if process.parent is task.process:
        if process.session != task.process.session:
            raise OSError(errno.EPERM, "a child in another session")
        if process.has_executed:
            raise OSError(errno.EACCES, "a child that has executed another program")
    elif process is not task.process:
        raise OSError(errno.ESRCH, "neither the process itself nor a child")
    if process.session == process.pid:
        raise OSError(errno.EPERM, "leads a session")
    if target != process.pid and not any(
        one.session == task.process.session for one in jobs.members(task.scheduler, target)
    ):
        raise OSError(errno.EPERM, "no such group in the session")
    process.group = target
    return 0


def setsid(task: Task) -> int:
    if jobs.members(task.scheduler, task.process.pid):
        raise OSError(errno.EPERM, "already leads a group")
    task.process.group = task.process.session = task.process.pid
    return task.process.pid


def _process(task: Task, pid: int) -> Process:
    number = signed(pid, 32)
    if not number:
        return task.process
    thread = task.scheduler.thread(number)
    found = task.scheduler.processes.get(number) if thread is None else thread.process
    if found is None:
        raise OSError(errno.ESRCH, "process")
    return found
