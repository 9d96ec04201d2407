"""System calls on process groups and sessions. Every public method is the system call of that name."""

from __future__ import annotations

import errno

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel import job_control as jobs
from emulator.linux.kernel.tasks import Process
from emulator.linux.syscalls.base import KernelCalls


class ProcessGroupCalls(KernelCalls):
    def getpgid(self, pid: int) -> int:
        return self._process(pid).group

    def getsid(self, pid: int) -> int:
        return self._process(pid).session

    def setpgid(self, pid: int, group: int) -> int:
        number = signed(pid, 32) or self._owner.pid
        target = signed(group, 32) or number
        if target < 0:
            raise OSError(errno.EINVAL, "group")
        process = self._scheduler.processes.get(number)
        if process is None:
            is_thread = self._scheduler.thread(number) is not None
            raise OSError(errno.EINVAL if is_thread else errno.ESRCH, "process")
        if process.parent is self._owner:
            if process.session != self._owner.session:
                raise OSError(errno.EPERM, "a child in another session")
            if process.has_executed:
                raise OSError(errno.EACCES, "a child that has executed another program")
        elif process is not self._owner:
            raise OSError(errno.ESRCH, "neither the process itself nor a child")
        if process.session == process.pid:
            raise OSError(errno.EPERM, "leads a session")
        if target != process.pid and not any(
            one.session == self._owner.session for one in jobs.members(self._scheduler, target)
        ):
            raise OSError(errno.EPERM, "no such group in the session")
        process.group = target
        return 0

    def setsid(self) -> int:
        if jobs.members(self._scheduler, self._owner.pid):
            raise OSError(errno.EPERM, "already leads a group")
        self._owner.group = self._owner.session = self._owner.pid
        return self._owner.pid

    def _process(self, pid: int) -> Process:
        number = signed(pid, 32)
        if not number:
            return self._owner
        thread = self._scheduler.thread(number)
        found = self._scheduler.processes.get(number) if thread is None else thread.process
        if found is None:
            raise OSError(errno.ESRCH, "process")
        return found
