"""System calls on who runs when, and where. Every public method is the call of that name.

There is one processor, and threads take turns in the order of `scheduler`: priorities change nothing.
"""

from __future__ import annotations

import errno
import struct

from emulator.linux.calls import KernelCalls
from emulator.linux.hart import Hart
from emulator.linux.tasks import Replaced

_SCHED_NORMAL, _SCHED_BATCH, _SCHED_IDLE = 0, 3, 5
_RESET_ON_FORK = 0x4000_0000
_ATTRIBUTE_BYTES = 48
_DEFAULT_NICE = 20  # getpriority tells 20 less the nice value


class SchedulingCalls(KernelCalls):
    def sched_yield(self, hart: Hart) -> int:
        hart.x[10] = 0
        self._scheduler.yield_turn(hart)
        raise Replaced

    def sched_getparam(self, pid: int, address: int) -> int:
        self._memory.write_int(address, 4, 0)
        return 0

    def sched_getscheduler(self) -> int:
        return 0

    def sched_get_priority_max(self) -> int:
        return 0

    def sched_get_priority_min(self) -> int:
        return 0

    def sched_getaffinity(self, pid: int, size: int, address: int) -> int:
        if size < 8 or size % 8:
            raise OSError(errno.EINVAL, "sched_getaffinity")
        self._memory.write_int(address, 8, 1)
        return 8

    def sched_setaffinity(self, pid: int, size: int, address: int) -> int:
        if not size or not self._memory.read_int(address, min(size, 8)) & 1:
            raise OSError(errno.EINVAL, "the machine has one processor")
        return 0

    def getcpu(self, cpu: int, node: int) -> int:
        for address in (cpu, node):
            if address:
                self._memory.write_int(address, 4, 0)
        return 0

    def getpriority(self) -> int:
        return _DEFAULT_NICE

    def setpriority(self) -> int:
        return 0

    def ioprio_get(self) -> int:
        return 0

    def ioprio_set(self) -> int:
        return 0

    def sched_setparam(self, pid: int, address: int) -> int:
        return self._plain(_SCHED_NORMAL, self._memory.read_int(address, 4))

    def sched_setscheduler(self, pid: int, policy: int, address: int) -> int:
        return self._plain(policy & 0xFFFF_FFFF & ~_RESET_ON_FORK, self._memory.read_int(address, 4))

    def sched_getattr(self, pid: int, address: int, size: int, flags: int) -> int:
        if size < _ATTRIBUTE_BYTES or flags:
            raise OSError(errno.EINVAL, "sched_getattr")
        self._memory.write(address, struct.pack("<I", _ATTRIBUTE_BYTES).ljust(_ATTRIBUTE_BYTES, b"\0"))
        return 0

    def sched_setattr(self, pid: int, address: int, flags: int) -> int:
        _, policy, _, _, priority = struct.unpack("<IIQiI", self._memory.read(address, 24))
        return self._plain(policy, priority)

    def sched_rr_get_interval(self, pid: int, address: int) -> int:
        self._memory.write(address, bytes(16))
        return 0

    def _plain(self, policy: int, priority: int) -> int:
        """What is not real time is accepted and changes nothing."""
        if policy not in (_SCHED_NORMAL, _SCHED_BATCH, _SCHED_IDLE):
            self._scheduler.report(f"scheduling policy {policy}")
            raise OSError(errno.EPERM, "scheduling policy")
        if priority:
            raise OSError(errno.EINVAL, "priority")
        return 0
