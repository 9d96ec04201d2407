"""wait4 and waitid: waiting for children to end, stop or continue. Every public method is the system call of that
name."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

from emulator.linux.abi.numbers import Signal, signed
from emulator.linux.kernel.job_control import CLD_CONTINUED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, child_info
from emulator.linux.kernel.signals import SignalInfo
from emulator.linux.kernel.tasks import Process, Wait
from emulator.linux.syscalls.base import KernelCalls
from emulator.linux.syscalls.clocks_and_timers import packed_usage
from emulator.linux.syscalls.optional.pidfd import PidFile

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


class WaitCalls(KernelCalls):
    def wait4(self, pid: int, status: int, options: int, usage: int) -> int:
        number, options = signed(pid, 32), options & 0xFFFF_FFFF
        if options & ~(_WNOHANG | _WSTOPPED | _WCONTINUED | _WHICH_CHILDREN):
            raise OSError(errno.EINVAL, "wait4")
        if number == -(1 << 31):
            raise OSError(errno.ESRCH, "no such group")
        group = self._owner.group if number == 0 else -number

        def matches(child: Process) -> bool:
            return number == -1 or child.pid == number or (number <= 0 and child.group == group)

        def ready() -> int | None:
            change = self._first_change(matches, options | _WEXITED)
            if change is None:
                return None
            if status:
                self._memory.write_int(status, 4, change.status)
            if usage:
                self._memory.write(usage, packed_usage(change.child.ended_nanoseconds, 0))
            self._mark_reported(change)
            return change.child.pid

        return self._wait(ready, bool(options & _WNOHANG))

    def waitid(self, kind: int, pid: int, address: int, options: int, usage: int) -> int:
        number, options = signed(pid, 32), options & 0xFFFF_FFFF
        known = _WNOHANG | _WNOWAIT | _WEXITED | _WSTOPPED | _WCONTINUED | _WHICH_CHILDREN
        if options & ~known or not options & (_WEXITED | _WSTOPPED | _WCONTINUED):
            raise OSError(errno.EINVAL, "waitid")
        no_hang, otherwise = bool(options & _WNOHANG), 0
        if kind == _P_PIDFD:
            if number < 0:
                raise OSError(errno.EINVAL, "pidfd")
            file = self._file(pid)
            if not isinstance(file, PidFile):
                raise OSError(errno.EBADF, "pidfd")
            if file.non_blocking:
                no_hang, otherwise = True, 0 if no_hang else -errno.EAGAIN
            kind, number = _P_PID, file.process.pid
        if kind not in (_P_ALL, _P_PID, _P_PGID) or (kind != _P_ALL and number < (kind == _P_PID)):
            raise OSError(errno.EINVAL, "waitid")
        if kind == _P_PGID:
            number = number or self._owner.group

        def matches(child: Process) -> bool:
            return kind == _P_ALL or (child.pid if kind == _P_PID else child.group) == number

        def ready() -> int | None:
            change = self._first_change(matches, options)
            if change is None:
                return None
            if address:
                self._memory.write(address, change.info().packed())
            if usage:
                self._memory.write(usage, packed_usage(change.child.ended_nanoseconds, 0))
            if not options & _WNOWAIT:
                self._mark_reported(change)
            return 0

        if no_hang and address:
            self._memory.write(address, bytes(_INFO_BYTES))
        return self._wait(ready, no_hang, otherwise)

    def _wait(self, ready: Callable[[], int | None], no_hang: bool, otherwise: int = 0) -> int:
        result = ready()
        if result is not None:
            return result
        if no_hang:
            return otherwise
        raise Wait(ready, restartable=True, deadlock="the guest waits for ever for a child that does not end")

    def _first_change(self, matches: Callable[[Process], bool], options: int) -> _StateChange | None:
        """The state change of the first matching child with an unreported one, or None. Raises OSError(ECHILD)."""
        children = [child for child in self._owner.children if matches(child)]
        if not children:
            raise OSError(errno.ECHILD, "no such child")
        return next((change for child in children if (change := _state_change(child, options)) is not None), None)

    def _mark_reported(self, change: _StateChange) -> None:
        """Mark a state change as reported; an ended child is reaped."""
        child = change.child
        if change.code == CLD_STOPPED:
            child.stop_unreported = False
        elif change.code == CLD_CONTINUED:
            child.continue_unreported = False
        else:
            self._owner.children.remove(child)
            self._owner.children_nanoseconds += child.ended_nanoseconds + child.children_nanoseconds
            child.is_reaped = True
            del self._scheduler.processes[child.pid]
