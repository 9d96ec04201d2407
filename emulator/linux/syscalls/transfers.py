"""Helpers of all system calls that transfer bytes between files and the guest's memory.

They raise OSError (`WouldBlock` if the call has to be tried again) and `MemoryFault`.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from dataclasses import dataclass

from emulator.linux.abi.numbers import Signal, signed
from emulator.linux.kernel.job_control import check_terminal
from emulator.linux.kernel.signals import sent_by_user
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.waits import Wait
from emulator.linux.vfs.events import ACCESS, MODIFY
from emulator.linux.vfs.open_files import OpenFile, WouldBlock
from emulator.linux.vfs.pipes import PipeEnd
from emulator.memory import PAGE_BYTES, WRITE, page_ceiling

_MAX_TRANSFER_BYTES = 0x7FFF_F000
_MAX_VECTORS = 1024


def readable(task: Task, fd: int) -> OpenFile:
    file = task.file(fd)
    if not file.readable:
        raise OSError(errno.EBADF, "not open for reading")
    if file.is_terminal:
        check_terminal(task.scheduler, task.process, Signal.SIGTTIN)
    return file


def writable(task: Task, fd: int) -> OpenFile:
    file = task.file(fd)
    if not file.writable:
        raise OSError(errno.EBADF, "not open for writing")
    return file


def write_all(task: Task, file: OpenFile, data: bytes) -> int | Wait:
    """Write all of ``data``, waiting for room in pipes and streams. Sends SIGPIPE if there is no reader."""
    waits = file.waits_for_full_write and not file.non_blocking
    done = write_out(task, file.write, data, waits, signals_later=isinstance(file, PipeEnd))
    return done if isinstance(done, Wait) else modified(task, file, done)


def modified(task: Task, file: OpenFile, n_bytes: int) -> int:
    """Queue the inotify event of a write of ``n_bytes``; return ``n_bytes``."""
    if n_bytes:
        task.files.notify(file, MODIFY)
    return n_bytes


def accessed(task: Task, file: OpenFile, n_bytes: int) -> int:
    """Queue the inotify event of a read of ``n_bytes``; return ``n_bytes``."""
    if n_bytes:
        task.files.notify(file, ACCESS)
    return n_bytes


def write_out(
    task: Task,
    write: Callable[[bytes], int],
    data: bytes,
    waits: bool,
    signals: bool = True,
    signals_later: bool = False,
) -> int | Wait:
    """Call ``write``, a bound method, with ``data`` once, or with ``waits`` until all is written; a signal or an error
    then ends the wait.

    ``signals``: whether a missing reader sends SIGPIPE; ``signals_later``: also after a partial write (a pipe).
    """
    done = write_some(task, write, data, signals)
    if done == len(data) or not waits:
        return done
    return Wait(
        _write_rest,
        task,
        _Writing(write, data, done, signals_later),
        if_interrupted=_bytes_written,
        deadlock="the guest waits for ever: it writes into a full pipe or socket that no other task reads from",
    )


@dataclass
class _Writing:
    """A write that waits for room: ``n_done`` bytes of ``data`` are written. ``signals``: as in `write_some`."""

    write: Callable[[bytes], int]
    data: bytes
    n_done: int
    signals: bool


def _write_rest(task: Task, writing: _Writing) -> int | None:
    try:
        writing.n_done += write_some(task, writing.write, writing.data[writing.n_done :], writing.signals)
    except WouldBlock:
        return None
    except OSError:
        return writing.n_done  # the next call raises the error again
    return writing.n_done if writing.n_done == len(writing.data) else None


def _bytes_written(task: Task, writing: _Writing) -> int:
    return writing.n_done


def write_some(task: Task, write: Callable[[bytes], int], data: bytes, signals: bool) -> int:
    """The result of ``write``; with ``signals``, SIGPIPE is sent if there is no reader."""
    try:
        return write(data)
    except BrokenPipeError:
        if signals:
            task.signals.send(sent_by_user(Signal.SIGPIPE))
        raise


def accessible_bytes(task: Task, address: int, count: int, prot: int) -> int:
    """The number of the ``count`` bytes at ``address`` that are accessible. Raises OSError(EFAULT) if there is
    none."""
    count = min(count, _MAX_TRANSFER_BYTES)
    if task.memory.valid_range(address, count, prot):
        return count
    usable = page_ceiling(address + 1) - address
    if not task.memory.valid_range(address, usable, prot):
        raise OSError(errno.EFAULT, "buffer")
    while task.memory.valid_range(address + usable, PAGE_BYTES, prot):
        usable += PAGE_BYTES
    return usable


def io_vectors(task: Task, address: int, count: int) -> list[tuple[int, int]]:
    if signed(count, 32) < 0 or count > _MAX_VECTORS:
        raise OSError(errno.EINVAL, "vectors")
    pairs = list(struct.iter_unpack("<QQ", task.memory.read(address, 16 * count)))
    if sum(length for _, length in pairs) > _MAX_TRANSFER_BYTES:
        raise OSError(errno.EINVAL, "vectors")
    return pairs


def gather(task: Task, vectors: int, count: int) -> bytes:
    return b"".join(task.memory.read(where, length) for where, length in io_vectors(task, vectors, count))


def scatter(task: Task, vectors: int, count: int, source: Callable[[int, int], bytes]) -> int:
    done = 0
    for where, length in io_vectors(task, vectors, count):
        if not length:
            continue
        try:
            data = source(accessible_bytes(task, where, length, WRITE), done)
        except OSError:
            if not done:
                raise
            break  # return the bytes read so far; the next call raises the error again
        task.memory.write(where, data)
        done += len(data)
        if len(data) < length:
            break
    return done


def checked_offset(value: int) -> int:
    if value >> 63:
        raise OSError(errno.EINVAL, "negative offset")
    return value


def install_both(task: Task, address: int, ends: tuple[OpenFile, OpenFile], close_on_exec: bool) -> int:
    """Install descriptors for both ends, and write them to ``address``."""
    first = task.descriptors.install(ends[0], close_on_exec=close_on_exec)
    try:
        second = task.descriptors.install(ends[1], close_on_exec=close_on_exec)
    except OSError:
        task.descriptors.close(first)
        raise
    task.memory.write(address, struct.pack("<ii", first, second))
    return 0
