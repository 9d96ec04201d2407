"""System calls on scheduling: yielding, priorities, policies and affinity. Every public method is the call of that
name.

There is one processor, which `scheduler` shares round robin: priorities and policies have no effect.
"""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import UID, signed
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.tasks import Process

_NORMAL = (0, 3, 5)  # SCHED_OTHER, SCHED_BATCH, SCHED_IDLE
_REAL_TIME = (1, 2)  # SCHED_FIFO, SCHED_RR
_SCHED_DEADLINE = 6
_INIT = 1  # the first process's parent, which can be queried only
_PRIO_PROCESS, _PRIO_PGRP, _PRIO_USER = 0, 1, 2
_RESET_ON_FORK = 0x4000_0000
_ATTRIBUTE_BYTES = 48
_DEFAULT_NICE = 20  # getpriority returns 20 minus the nice value


def sched_yield(task: Task) -> None:
    task.hart.registers[10] = 0
    task.scheduler.yield_hart(task.hart)  # the result is set before: the hart may be another thread's afterwards


def sched_getparam(task: Task, pid: int, address: int) -> int:
    if pid != _INIT:
        _process(task, pid)
    task.memory.write_int(address, 4, 0)
    return 0


def sched_getscheduler(task: Task, pid: int) -> int:
    return 0 if pid == _INIT else _process(task, pid).policy


def sched_get_priority_max(task: Task, policy: int) -> int:
    return _priority_limit(policy, 99)


def sched_get_priority_min(task: Task, policy: int) -> int:
    return _priority_limit(policy, 1)


def _priority_limit(policy: int, of_real_time: int) -> int:
    if policy not in (*_NORMAL, *_REAL_TIME, _SCHED_DEADLINE):
        raise OSError(errno.EINVAL, "scheduling policy")
    return of_real_time if policy in _REAL_TIME else 0


def sched_getaffinity(task: Task, pid: int, size: int, address: int) -> int:
    if size < 8 or size % 8:
        raise OSError(errno.EINVAL, "sched_getaffinity")
    _process(task, pid, negative=errno.ESRCH)
    task.memory.write_int(address, 8, 1)
    return 8


def sched_setaffinity(task: Task, pid: int, size: int, address: int) -> int:
    mask = task.memory.read_int(address, min(size, 8)) if size else 0
    _process(task, pid, negative=errno.ESRCH)
    if not mask & 1:
        raise OSError(errno.EINVAL, "the machine has one processor")
    return 0


def getcpu(task: Task, cpu: int, node: int) -> int:
    for address in (cpu, node):
        if address:
            task.memory.write_int(address, 4, 0)
    return 0


def getpriority(task: Task, which: int, who: int) -> int:
    return _DEFAULT_NICE - min(process.nice for process in _processes(task, which, who))


def setpriority(task: Task, which: int, who: int, value: int) -> int:
    nice = min(max(signed(value, 32), -20), 19)
    for process in _processes(task, which, who):
        if nice < process.nice:
            raise OSError(errno.EACCES, "a higher priority")
        process.nice = nice
    return 0


def _processes(task: Task, which: int, who: int) -> list[Process]:
    """The processes that a priority call selects. Raises OSError."""
    if which not in (_PRIO_PROCESS, _PRIO_PGRP, _PRIO_USER):
        raise OSError(errno.EINVAL, "whose priority")
    number, every = signed(who, 32), task.scheduler.processes.values()
    if which == _PRIO_PROCESS:
        return [_process(task, who, negative=errno.ESRCH)]
    group = number or task.process.group
    found = [one for one in every if one.group == group or (which == _PRIO_USER and number in (0, UID))]
    if not found:
        raise OSError(errno.ESRCH, "no such process")
    return found


def _process(task: Task, pid: int, negative: int = errno.EINVAL) -> Process:
    """The process of a tid, 0: the calling one. Raises OSError, with error ``negative`` for a negative number."""
    number = signed(pid, 32)
    if number < 0:
        raise OSError(negative, "process")
    thread = task.scheduler.thread(number) if number else None
    found = task.process if not number else task.scheduler.processes.get(number)
    if thread is None and found is None:
        raise OSError(errno.ESRCH, "no such process")
    return found if thread is None and found is not None else thread.process  # type: ignore[union-attr]


def ioprio_get(task: Task) -> int:
    return 0


def ioprio_set(task: Task) -> int:
    return 0


def sched_setparam(task: Task, pid: int, address: int) -> int:
    process = _process(task, pid)
    return _set_policy(task, process, process.policy, task.memory.read_int(address, 4))


def sched_setscheduler(task: Task, pid: int, policy: int, address: int) -> int:
    policy = policy & 0xFFFF_FFFF & ~_RESET_ON_FORK
    return _set_policy(task, _process(task, pid), policy, task.memory.read_int(address, 4))


def sched_getattr(task: Task, pid: int, address: int, size: int, flags: int) -> int:
    if size < _ATTRIBUTE_BYTES or flags:
        raise OSError(errno.EINVAL, "sched_getattr")
    process = _process(task, pid)
    packed = struct.pack("<IIQi", _ATTRIBUTE_BYTES, process.policy, 0, process.nice)
    task.memory.write(address, packed.ljust(_ATTRIBUTE_BYTES, b"\0"))
    return 0


def sched_setattr(task: Task, pid: int, address: int, flags: int) -> int:
    _, policy, _, _, priority = struct.unpack("<IIQiI", task.memory.read(address, 24))
    return _set_policy(task, _process(task, pid), policy, priority)


def sched_rr_get_interval(task: Task, pid: int, address: int) -> int:
    task.memory.write(address, bytes(16))
    return 0


def _set_policy(task: Task, process: Process, policy: int, priority: int) -> int:
    """Record a policy that is not real-time; it has no effect. Raises OSError for the others."""
    if policy not in (*_NORMAL, *_REAL_TIME, _SCHED_DEADLINE):
        raise OSError(errno.EINVAL, "scheduling policy")
    if policy not in _NORMAL:
        task.report(f"scheduling policy {policy}")
        raise OSError(errno.EPERM, "scheduling policy")
    if priority:
        raise OSError(errno.EINVAL, "priority")
    process.policy = policy
    return 0
