"""signalfd: an open file whose reads take pending signals of the reading process and thread, and its system call."""

from __future__ import annotations

import errno
import os
import stat
import struct
from functools import partial

from emulator.linux.abi.numbers import Signal, signed
from emulator.linux.kernel.scheduler import Scheduler
from emulator.linux.kernel.signals import SI_KERNEL, SI_TIMER, SI_USER, SignalInfo
from emulator.linux.kernel.task import Task
from emulator.linux.vfs.open_files import POLLIN, FileStatus, OpenFile

RECORD_BYTES = 128
"""``struct signalfd_siginfo``."""

_NEVER = 1 << (Signal.SIGKILL - 1) | 1 << (Signal.SIGSTOP - 1)
_FAULTS = {Signal.SIGILL, Signal.SIGTRAP, Signal.SIGBUS, Signal.SIGFPE, Signal.SIGSEGV}
_SI_SIGIO = -5


class SignalFile(OpenFile):
    """``mask``: the signals to take, with bit ``signal - 1``. Reads and polls concern the calling process and thread:
    after a fork, parent and child read different signals from the same file."""

    def __init__(self, flags: int, mask: int, scheduler: Scheduler) -> None:
        super().__init__("anon_inode:[signalfd]", flags | os.O_RDWR, partial(FileStatus, stat.S_IFREG | 0o600, 0, 1))
        self._scheduler = scheduler
        self.set_mask(mask)

    def set_mask(self, mask: int) -> None:
        """Set the signals to take; SIGKILL and SIGSTOP are removed, as they cannot be blocked."""
        self._mask = mask & ~_NEVER

    def read(self, n_bytes: int) -> bytes:
        signals = self._scheduler.acting.process.signals
        if n_bytes < RECORD_BYTES:
            raise OSError(errno.EINVAL, "signalfd")
        found: list[bytes] = []
        while len(found) < n_bytes // RECORD_BYTES:
            signal = signals.next_pending(~self._mask)
            if signal is None:
                break
            found.append(_record(signals.take(signal)))
        if not found:
            self.would_block("reads a signalfd, and no timer or other process sends one of its signals")
        return b"".join(found)

    def poll(self) -> int:
        signals = self._scheduler.acting.process.signals
        self.changes = signals.arrivals
        return POLLIN if signals.next_pending(~self._mask) is not None else 0


def signalfd4(task: Task, fd: int, mask: int, size: int, flags: int) -> int:
    if size != 8:
        raise OSError(errno.EINVAL, "sigset size")
    signals = task.memory.read_int(mask, 8)
    if flags & 0xFFFF_FFFF & ~(os.O_CLOEXEC | os.O_NONBLOCK):
        raise OSError(errno.EINVAL, "signalfd4")
    if signed(fd, 32) == -1:
        made = SignalFile(flags & os.O_NONBLOCK, signals, task.scheduler)
        return task.descriptors.install(made, close_on_exec=bool(flags & os.O_CLOEXEC))
    file = task.file(fd)
    if not isinstance(file, SignalFile):
        raise OSError(errno.EINVAL, "signalfd")
    file.set_mask(signals)
    return signed(fd, 32)


def _record(info: SignalInfo) -> bytes:
    """``struct signalfd_siginfo``: the siginfo fields of this kind of signal, zeros elsewhere (siginfo_layout of
    kernel/signal.c)."""
    pid = user = descriptor = timer = band = overrun = status = pointer = user_time = system_time = address = 0
    fields = info.fields.ljust(32, b"\0")
    if SI_USER < info.code < SI_KERNEL and info.signal in _FAULTS:
        (address,) = struct.unpack_from("<Q", fields)
    elif SI_USER < info.code < SI_KERNEL and info.signal == Signal.SIGCHLD:
        pid, user, status, user_time, system_time = struct.unpack_from("<IIi4xQQ", fields)
    elif info.code == _SI_SIGIO or (SI_USER < info.code < SI_KERNEL and info.signal == Signal.SIGIO):
        band, descriptor = struct.unpack_from("<I4xi", fields)
    elif info.code == SI_TIMER:
        timer, overrun, pointer = struct.unpack_from("<IIQ", fields)
    elif info.code < 0:
        pid, user, pointer = struct.unpack_from("<IIQ", fields)
    else:
        pid, user = struct.unpack_from("<II", fields)
    return struct.pack(
        "<IiiIIiIIIIiIQQQQ", info.signal, 0, info.code, pid, user, descriptor, timer, band, overrun, 0, status,
        pointer & 0xFFFF_FFFF, pointer, user_time, system_time, address,
    ).ljust(RECORD_BYTES, b"\0")  # fmt: skip
