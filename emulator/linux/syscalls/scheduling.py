"""System calls on scheduling: yielding, priorities, policies and affinity. Every public method is the call of that
name.

There is one processor, which `scheduler` shares round robin: priorities and policies have no effect.
"""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import UID, signed
from emulator.linux.kernel.hart_protocol import Hart
from emulator.linux.kernel.tasks import Process
from emulator.linux.syscalls.base import KernelCalls

_NORMAL = (0, 3, 5)  # SCHED_OTHER, SCHED_BATCH, SCHED_IDLE
_REAL_TIME = (1, 2)  # SCHED_FIFO, SCHED_RR
_SCHED_DEADLINE = 6
_INIT = 1  # the first process's parent, which can be queried only
_PRIO_PROCESS, _PRIO_PGRP, _PRIO_USER = 0, 1, 2
_RESET_ON_FORK = 0x4000_0000
_ATTRIBUTE_BYTES = 48
_DEFAULT_NICE = 20  # getpriority returns 20 minus the nice value


class SchedulingCalls(KernelCalls):
    def sched_yield(self, hart: Hart) -> None:
        hart.registers[10] = 0
        self._scheduler.yield_hart(hart)  # the result is set before: the hart may be another thread's afterwards

    def sched_getparam(self, pid: int, address: int) -> int:
        if pid != _INIT:
            self._process(pid)
        self._memory.write_int(address, 4, 0)
        return 0

    def sched_getscheduler(self, pid: int) -> int:
        return 0 if pid == _INIT else self._process(pid).policy

    def sched_get_priority_max(self, policy: int) -> int:
        return self._priority_limit(policy, 99)

    def sched_get_priority_min(self, policy: int) -> int:
        return self._priority_limit(policy, 1)

    @staticmethod
    def _priority_limit(policy: int, of_real_time: int) -> int:
        if policy not in (*_NORMAL, *_REAL_TIME, _SCHED_DEADLINE):
            raise OSError(errno.EINVAL, "scheduling policy")
        return of_real_time if policy in _REAL_TIME else 0

    def sched_getaffinity(self, pid: int, size: int, address: int) -> int:
        if size < 8 or size % 8:
            raise OSError(errno.EINVAL, "sched_getaffinity")
        self._process(pid, negative=errno.ESRCH)
        self._memory.write_int(address, 8, 1)
        return 8

    def sched_setaffinity(self, pid: int, size: int, address: int) -> int:
        mask = self._memory.read_int(address, min(size, 8)) if size else 0
        self._process(pid, negative=errno.ESRCH)
        if not mask & 1:
            raise OSError(errno.EINVAL, "the machine has one processor")
        return 0

    def getcpu(self, cpu: int, node: int) -> int:
        for address in (cpu, node):
            if address:
                self._memory.write_int(address, 4, 0)
        return 0

    def getpriority(self, which: int, who: int) -> int:
        return _DEFAULT_NICE - min(process.nice for process in self._processes(which, who))

    def setpriority(self, which: int, who: int, value: int) -> int:
        nice = min(max(signed(value, 32), -20), 19)
        for process in self._processes(which, who):
            if nice < process.nice:
                raise OSError(errno.EACCES, "a higher priority")
            process.nice = nice
        return 0

    def _processes(self, which: int, who: int) -> list[Process]:
        """The processes that a priority call selects. Raises OSError."""
        if which not in (_PRIO_PROCESS, _PRIO_PGRP, _PRIO_USER):
            raise OSError(errno.EINVAL, "whose priority")
        number, every = signed(who, 32), self._scheduler.processes.values()
        if which == _PRIO_PROCESS:
            return [self._process(who, negative=errno.ESRCH)]
        group = number or self._owner.group
        found = [one for one in every if one.group == group or (which == _PRIO_USER and number in (0, UID))]
        if not found:
            raise OSError(errno.ESRCH, "no such process")
        return found

    def _process(self, pid: int, negative: int = errno.EINVAL) -> Process:
        """The process of a tid, 0: the calling one. Raises OSError, with error ``negative`` for a negative number."""
        number = signed(pid, 32)
        if number < 0:
            raise OSError(negative, "process")
        thread = self._scheduler.thread(number) if number else None
        found = self._owner if not number else self._scheduler.processes.get(number)
        if thread is None and found is None:
            raise OSError(errno.ESRCH, "no such process")
        return found if thread is None and found is not None else thread.process  # type: ignore[union-attr]

    def ioprio_get(self) -> int:
        return 0

    def ioprio_set(self) -> int:
        return 0

    def sched_setparam(self, pid: int, address: int) -> int:
        process = self._process(pid)
        return self._set_policy(process, process.policy, self._memory.read_int(address, 4))

    def sched_setscheduler(self, pid: int, policy: int, address: int) -> int:
        policy = policy & 0xFFFF_FFFF & ~_RESET_ON_FORK
        return self._set_policy(self._process(pid), policy, self._memory.read_int(address, 4))

    def sched_getattr(self, pid: int, address: int, size: int, flags: int) -> int:
        if size < _ATTRIBUTE_BYTES or flags:
            raise OSError(errno.EINVAL, "sched_getattr")
        process = self._process(pid)
        packed = struct.pack("<IIQi", _ATTRIBUTE_BYTES, process.policy, 0, process.nice)
        self._memory.write(address, packed.ljust(_ATTRIBUTE_BYTES, b"\0"))
        return 0

    def sched_setattr(self, pid: int, address: int, flags: int) -> int:
        _, policy, _, _, priority = struct.unpack("<IIQiI", self._memory.read(address, 24))
        return self._set_policy(self._process(pid), policy, priority)

    def sched_rr_get_interval(self, pid: int, address: int) -> int:
        self._memory.write(address, bytes(16))
        return 0

    def _set_policy(self, process: Process, policy: int, priority: int) -> int:
        """Record a policy that is not real-time; it has no effect. Raises OSError for the others."""
        if policy not in (*_NORMAL, *_REAL_TIME, _SCHED_DEADLINE):
            raise OSError(errno.EINVAL, "scheduling policy")
        if policy not in _NORMAL:
            self._scheduler.report(f"scheduling policy {policy}")
            raise OSError(errno.EPERM, "scheduling policy")
        if priority:
            raise OSError(errno.EINVAL, "priority")
        process.policy = policy
        return 0
