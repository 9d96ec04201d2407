"""Waiting for children: for their end, and for their being stopped and continued. Every public method is the system
call of that name."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

from emulator.linux.abi import Signal, signed
from emulator.linux.calls import KernelCalls
from emulator.linux.jobs import CLD_CONTINUED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, child_info
from emulator.linux.process_files import ProcessFile
from emulator.linux.signals import SignalInfo
from emulator.linux.tasks import Process, Wait
from emulator.linux.time_calls import packed_usage

_WNOHANG, _WSTOPPED, _WEXITED, _WCONTINUED, _WNOWAIT = 1, 2, 4, 8, 0x100_0000
_WHICH_CHILDREN = 0xE000_0000  # __WNOTHREAD, __WALL, __WCLONE
_P_ALL, _P_PID, _P_PGID, _P_PIDFD = 0, 1, 2, 3
_INFO_BYTES = 128


class _News(NamedTuple):
    """What has become of a child: ``code`` and ``value`` as siginfo tells it, ``status`` as wait4 does."""

    child: Process
    code: int
    value: int
    status: int

    def info(self) -> SignalInfo:
        return child_info(self.child, self.code, self.value)


def end_of(child: Process) -> SignalInfo:
    """What SIGCHLD tells of a child that has ended."""
    return _end(child).info()


def _end(child: Process) -> _News:
    assert child.status is not None
    signal = child.status & 0x7F
    code, value = (CLD_KILLED, signal) if signal else (CLD_EXITED, child.status >> 8)
    return _News(child, code, value, child.status)


def _news(child: Process, options: int) -> _News | None:
    """What is to be told of a child and has not been; of the kinds that are asked for."""
    if child.status is not None:
        return _end(child) if options & _WEXITED else None
    if options & _WSTOPPED and child.stopped and child.stop_is_news:
        return _News(child, CLD_STOPPED, child.stopped, child.stopped << 8 | 0x7F)
    if options & _WCONTINUED and child.is_continued:
        return _News(child, CLD_CONTINUED, Signal.SIGCONT, 0xFFFF)
    return None


class WaitCalls(KernelCalls):
    def wait4(self, pid: int, status: int, options: int, usage: int) -> int:
        number, options = signed(pid, 32), options & 0xFFFF_FFFF
        if options & ~(_WNOHANG | _WSTOPPED | _WCONTINUED | _WHICH_CHILDREN):
            raise OSError(errno.EINVAL, "wait4")
        if number == -(1 << 31):
            raise OSError(errno.ESRCH, "no such group")
        group = self._owner.group if number == 0 else -number

        def wanted(child: Process) -> bool:
            return number == -1 or child.pid == number or (number <= 0 and child.group == group)

        def ready() -> int | None:
            news = self._first(wanted, options | _WEXITED)
            if news is None:
                return None
            if status:
                self._memory.write_int(status, 4, news.status)
            if usage:
                self._memory.write(usage, packed_usage(news.child.ended_nanoseconds, 0))
            self._take(news)
            return news.child.pid

        return self._wait(ready, bool(options & _WNOHANG))

    def waitid(self, kind: int, pid: int, address: int, options: int, usage: int) -> int:
        number, options = signed(pid, 32), options & 0xFFFF_FFFF
        known = _WNOHANG | _WNOWAIT | _WEXITED | _WSTOPPED | _WCONTINUED | _WHICH_CHILDREN
        if options & ~known or not options & (_WEXITED | _WSTOPPED | _WCONTINUED):
            raise OSError(errno.EINVAL, "waitid")
        at_once, otherwise = bool(options & _WNOHANG), 0
        if kind == _P_PIDFD:
            if number < 0:
                raise OSError(errno.EINVAL, "pidfd")
            file = self._file(pid)
            if not isinstance(file, ProcessFile):
                raise OSError(errno.EBADF, "pidfd")
            if file.non_blocking:
                at_once, otherwise = True, 0 if at_once else -errno.EAGAIN
            kind, number = _P_PID, file.process.pid
        if kind not in (_P_ALL, _P_PID, _P_PGID) or (kind != _P_ALL and number < (kind == _P_PID)):
            raise OSError(errno.EINVAL, "waitid")
        if kind == _P_PGID:
            number = number or self._owner.group

        def wanted(child: Process) -> bool:
            return kind == _P_ALL or (child.pid if kind == _P_PID else child.group) == number

        def ready() -> int | None:
            news = self._first(wanted, options)
            if news is None:
                return None
            if address:
                self._memory.write(address, news.info().packed())
            if usage:
                self._memory.write(usage, packed_usage(news.child.ended_nanoseconds, 0))
            if not options & _WNOWAIT:
                self._take(news)
            return 0

        if at_once and address:
            self._memory.write(address, bytes(_INFO_BYTES))
        return self._wait(ready, at_once, otherwise)

    def _wait(self, ready: Callable[[], int | None], at_once: bool, otherwise: int = 0) -> int:
        result = ready()
        if result is not None:
            return result
        if at_once:
            return otherwise
        raise Wait(ready, restartable=True, deadlock="the guest waits for ever for a child that does not end")

    def _first(self, wanted: Callable[[Process], bool], options: int) -> _News | None:
        """What has become of the first child of whom there is something new. Raises OSError(ECHILD)."""
        children = [child for child in self._owner.children if wanted(child)]
        if not children:
            raise OSError(errno.ECHILD, "no such child")
        return next((news for child in children if (news := _news(child, options)) is not None), None)

    def _take(self, news: _News) -> None:
        """It has been told."""
        child = news.child
        if news.code == CLD_STOPPED:
            child.stop_is_news = False
        elif news.code == CLD_CONTINUED:
            child.is_continued = False
        else:
            self._owner.children.remove(child)
            self._owner.children_nanoseconds += child.ended_nanoseconds + child.children_nanoseconds
            child.is_forgotten = True
            del self._scheduler.processes[child.pid]
