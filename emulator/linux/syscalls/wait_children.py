"""wait4 and waitid: waiting for children to end, stop or continue. Every public method is the system call of that
name."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from emulator.linux.abi.numbers import Signal, signed
from emulator.linux.kernel.job_control import CLD_CONTINUED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, child_info
from emulator.linux.kernel.pid_file import PidFile
from emulator.linux.kernel.signals import SignalInfo
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.tasks import Process
from emulator.linux.kernel.waits import Wait
from emulator.linux.syscalls.clocks_and_timers import packed_usage

_WNOHANG, _WSTOPPED, _WEXITED, _WCONTINUED, _WNOWAIT = 1, 2, 4, 8, 0x100_0000
_WHICH_CHILDREN = 0xE000_0000  # __WNOTHREAD, __WALL, __WCLONE
_P_ALL, _P_PID, _P_PGID, _P_PIDFD = 0, 1, 2, 3
_INFO_BYTES = 128


class _StateChange(NamedTuple):
    """A child has ended, stopped or continued: ``code`` and ``value`` for siginfo, ``status`` for wait4."""

    child: Process
    code: int
    value: int
    status: int

    def info(self) -> SignalInfo:
        return child_info(self.child, self.code, self.value)


def end_info(child: Process) -> SignalInfo:
    """The SIGCHLD of a child that has ended."""
    return _end(child).info()


def _end(child: Process) -> _StateChange:
    assert child.status is not None
    signal = child.status & 0x7F
    code, value = (CLD_KILLED, signal) if signal else (CLD_EXITED, child.status >> 8)
    return _StateChange(child, code, value, child.status)


def _state_change(child: Process, options: int) -> _StateChange | None:
    """The state change of a child that was not yet reported and that ``options`` ask for, or None."""
    if child.status is not None:
        return _end(child) if options & _WEXITED else None
    if options & _WSTOPPED and child.stopped and child.stop_unreported:
        return _StateChange(child, CLD_STOPPED, child.stopped, child.stopped << 8 | 0x7F)
    if options & _WCONTINUED and child.continue_unreported:
        return _StateChange(child, CLD_CONTINUED, Signal.SIGCONT, 0xFFFF)
    return None


def wait4(task: Task, pid: int, status: int, options: int, usage: int) -> int | Wait:
    number, options = signed(pid, 32), options & 0xFFFF_FFFF
    if options & ~(_WNOHANG | _WSTOPPED | _WCONTINUED | _WHICH_CHILDREN):
        raise OSError(errno.EINVAL, "wait4")
    if number == -(1 << 31):
        raise OSError(errno.ESRCH, "no such group")
    group = task.process.group if number == 0 else -number

    request = _Request(
        task,
        _P_ALL if number == -1 else _P_PID if number > 0 else _P_PGID,
        number if number > 0 else group,
        options | _WEXITED,
        status,
        usage,
    )
    return _wait(_report_status, request, bool(options & _WNOHANG), 0)


@dataclass(frozen=True)
class _Request:
    """The children that a call waits for and where to write the result. ``which``: ``P_ALL``, ``P_PID`` or ``P_PGID``,
    with ``number``; ``address``: of the status (wait4) or siginfo (waitid), 0 for none; ``usage``: of the rusage."""

    task: Task
    which: int
    number: int
    options: int
    address: int
    usage: int

    def matches(self, child: Process) -> bool:
        return self.which == _P_ALL or (child.pid if self.which == _P_PID else child.group) == self.number


def _report_status(request: _Request) -> int | None:
    """wait4: write the first state change and return the child's pid; None without one."""
    change, memory = _first_change(request), request.task.memory
    if change is None:
        return None
    if request.address:
        memory.write_int(request.address, 4, change.status)
    if request.usage:
        memory.write(request.usage, packed_usage(change.child.ended_nanoseconds, 0))
    _mark_reported(request.task, change)
    return change.child.pid


def waitid(task: Task, kind: int, pid: int, address: int, options: int, usage: int) -> int | Wait:
    number, options = signed(pid, 32), options & 0xFFFF_FFFF
    known = _WNOHANG | _WNOWAIT | _WEXITED | _WSTOPPED | _WCONTINUED | _WHICH_CHILDREN
    if options & ~known or not options & (_WEXITED | _WSTOPPED | _WCONTINUED):
        raise OSError(errno.EINVAL, "waitid")
    no_hang, otherwise = bool(options & _WNOHANG), 0
    if kind == _P_PIDFD:
        if number < 0:
            raise OSError(errno.EINVAL, "pidfd")
        file = task.file(pid)
        if not isinstance(file, PidFile):
            raise OSError(errno.EBADF, "pidfd")
        if file.non_blocking:
            no_hang, otherwise = True, 0 if no_hang else -errno.EAGAIN
        kind, number = _P_PID, file.process.pid
    if kind not in (_P_ALL, _P_PID, _P_PGID) or (kind != _P_ALL and number < (kind == _P_PID)):
        raise OSError(errno.EINVAL, "waitid")
    if kind == _P_PGID:
        number = number or task.process.group

    if no_hang and address:
        task.memory.write(address, bytes(_INFO_BYTES))
    return _wait(_report_info, _Request(task, kind, number, options, address, usage), no_hang, otherwise)


def _report_info(request: _Request) -> int | None:
    """waitid: write the siginfo of the first state change and return 0; None without one."""
    change, memory = _first_change(request), request.task.memory
    if change is None:
        return None
    if request.address:
        memory.write(request.address, change.info().packed())
    if request.usage:
        memory.write(request.usage, packed_usage(change.child.ended_nanoseconds, 0))
    if not request.options & _WNOWAIT:
        _mark_reported(request.task, change)
    return 0


def _wait(report: Callable[[_Request], int | None], request: _Request, no_hang: bool, otherwise: int) -> int | Wait:
    """The result of ``report``; without one, ``otherwise`` if the call does not wait, else a `Wait`."""
    result = report(request)
    if result is not None:
        return result
    if no_hang:
        return otherwise
    return Wait(report, request, restartable=True, deadlock="the guest waits for ever for a child that does not end")


def _first_change(request: _Request) -> _StateChange | None:
    """The state change of the first matching child with an unreported one, or None. Raises OSError(ECHILD)."""
    children = [child for child in request.task.process.children if request.matches(child)]
    if not children:
        raise OSError(errno.ECHILD, "no such child")
    changes = (_state_change(child, request.options) for child in children)
    return next((change for change in changes if change is not None), None)


def _mark_reported(task: Task, change: _StateChange) -> None:
    """Mark a state change as reported; an ended child is reaped."""
    child = change.child
    if change.code == CLD_STOPPED:
        child.stop_unreported = False
    elif change.code == CLD_CONTINUED:
        child.continue_unreported = False
    else:
        task.process.children.remove(child)
        task.process.children_nanoseconds += child.ended_nanoseconds + child.children_nanoseconds
        child.is_reaped = True
        del task.scheduler.processes[child.pid]
