"""Helpers of all system calls that transfer bytes between files and the guest's memory."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable

from emulator.linux.abi.numbers import Signal, signed
from emulator.linux.kernel.job_control import check_terminal
from emulator.linux.kernel.signals import sent_by_user
from emulator.linux.kernel.tasks import Wait
from emulator.linux.syscalls.base import KernelCalls
from emulator.linux.vfs.events import ACCESS, MODIFY
from emulator.linux.vfs.open_files import OpenFile, WouldBlock
from emulator.linux.vfs.pipes import PipeEnd
from emulator.memory import PAGE_BYTES, WRITE, page_ceiling

_MAX_TRANSFER_BYTES = 0x7FFF_F000
_MAX_VECTORS = 1024


class Transfers(KernelCalls):
    """Base class of the calls that read and write. The methods raise OSError, `Wait` and `MemoryFault`."""

    def _readable(self, fd: int) -> OpenFile:
        file = self._file(fd)
        if not file.readable:
            raise OSError(errno.EBADF, "not open for reading")
        if file.is_terminal:
            check_terminal(self._scheduler, self._owner, Signal.SIGTTIN)
        return file

    def _writable(self, fd: int) -> OpenFile:
        file = self._file(fd)
        if not file.writable:
            raise OSError(errno.EBADF, "not open for writing")
        return file

    def _write(self, file: OpenFile, data: bytes) -> int:
        """Write all of ``data``, waiting for room in pipes and streams. Sends SIGPIPE if there is no reader."""
        waits = file.waits_for_full_write and not file.non_blocking
        done = self._write_out(file.write, data, waits, signals_later=isinstance(file, PipeEnd))
        return self._changed(file, done)

    def _changed(self, file: OpenFile, n_bytes: int) -> int:
        """Queue the inotify event of a write of ``n_bytes``; return ``n_bytes``."""
        if n_bytes:
            self._notify(file, MODIFY)
        return n_bytes

    def _accessed(self, file: OpenFile, n_bytes: int) -> int:
        """Queue the inotify event of a read of ``n_bytes``; return ``n_bytes``."""
        if n_bytes:
            self._notify(file, ACCESS)
        return n_bytes

    def _write_out(
        self,
        write: Callable[[bytes], int],
        data: bytes,
        waits: bool,
        signals: bool = True,
        signals_later: bool = False,
    ) -> int:
        """Call ``write`` with ``data`` once, or with ``waits`` until all is written; a signal or an error then ends it.

        ``signals``: whether a missing reader sends SIGPIPE; ``signals_later``: also after a partial write (a pipe).
        """
        done = self._write_some(write, data, signals)
        if done == len(data) or not waits:
            return done
        progress = [done]

        def ready() -> int | None:
            try:
                progress[0] += self._write_some(write, data[progress[0] :], signals_later)
            except WouldBlock:
                return None
            except OSError:
                return progress[0]  # the next call raises the error again
            return progress[0] if progress[0] == len(data) else None

        raise Wait(
            ready,
            interrupted=lambda: progress[0],
            deadlock="the guest waits for ever: it writes into a full pipe or socket that no other task reads from",
        )

    def _write_some(self, write: Callable[[bytes], int], data: bytes, signals: bool) -> int:
        try:
            return write(data)
        except BrokenPipeError:
            if signals:
                self._signals.send(sent_by_user(Signal.SIGPIPE))
            raise

    def _accessible(self, address: int, count: int, prot: int) -> int:
        """The number of the ``count`` bytes at ``address`` that are accessible. Raises OSError(EFAULT) if there is
        none."""
        count = min(count, _MAX_TRANSFER_BYTES)
        if self._memory.valid_range(address, count, prot):
            return count
        usable = page_ceiling(address + 1) - address
        if not self._memory.valid_range(address, usable, prot):
            raise OSError(errno.EFAULT, "buffer")
        while self._memory.valid_range(address + usable, PAGE_BYTES, prot):
            usable += PAGE_BYTES
        return usable

    def _vectors(self, address: int, count: int) -> list[tuple[int, int]]:
        if signed(count, 32) < 0 or count > _MAX_VECTORS:
            raise OSError(errno.EINVAL, "vectors")
        pairs = list(struct.iter_unpack("<QQ", self._memory.read(address, 16 * count)))
        if sum(length for _, length in pairs) > _MAX_TRANSFER_BYTES:
            raise OSError(errno.EINVAL, "vectors")
        return pairs

    def _gather(self, vectors: int, count: int) -> bytes:
        return b"".join(self._memory.read(where, length) for where, length in self._vectors(vectors, count))

    def _scatter(self, vectors: int, count: int, source: Callable[[int, int], bytes]) -> int:
        done = 0
        for where, length in self._vectors(vectors, count):
            if not length:
                continue
            try:
                data = source(self._accessible(where, length, WRITE), done)
            except OSError:
                if not done:
                    raise
                break  # return the bytes read so far; the next call raises the error again
            self._memory.write(where, data)
            done += len(data)
            if len(data) < length:
                break
        return done

    @staticmethod
    def _offset(value: int) -> int:
        if value >> 63:
            raise OSError(errno.EINVAL, "negative offset")
        return value

    def _install_both(self, address: int, ends: tuple[OpenFile, OpenFile], close_on_exec: bool) -> int:
        """Install descriptors for both ends, and write them to ``address``."""
        first = self._table.install(ends[0], close_on_exec=close_on_exec)
        try:
            second = self._table.install(ends[1], close_on_exec=close_on_exec)
        except OSError:
            self._table.close(first)
            raise
        self._memory.write(address, struct.pack("<ii", first, second))
        return 0
