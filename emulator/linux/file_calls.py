"""System calls on descriptors and the files they refer to. Every public method is the call of that name."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable

from emulator.linux.abi import Signal, signed
from emulator.linux.descriptors import MAX_DESCRIPTORS
from emulator.linux.files import VirtualFiles
from emulator.linux.open_files import OpenFile, WouldBlock
from emulator.linux.pipes import PipeEnd
from emulator.linux.scheduler import Scheduler
from emulator.linux.signals import SignalState, sent_by_user
from emulator.linux.tasks import Wait
from emulator.memory import PAGE_BYTES, READ, WRITE, GuestMemory, page_ceiling

_MAX_TRANSFER_BYTES = 0x7FFF_F000
_MAX_VECTORS = 1024

_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_SETFL, _F_GETLK, _F_SETLK, _F_SETLKW = range(8)
_F_DUPFD_CLOEXEC = 1030
_FD_CLOEXEC = 1
_CLOSE_RANGE_CLOEXEC = 4
_F_UNLCK = 2
_AF_UNIX, _SOCK_STREAM, _SOCK_SEQPACKET = 1, 1, 5
_SETTABLE_FLAGS = os.O_APPEND | os.O_NONBLOCK

_TCGETS, _TCSETS, _TCSETSF, _TIOCGWINSZ, _FIONBIO = 0x5401, 0x5402, 0x5404, 0x5413, 0x5421
# struct termios of a terminal in its usual state: modes, line discipline, control characters
_TERMIOS = struct.pack("<IIIIB", 0x500, 0x5, 0xBF, 0x8A3B, 0) + bytes.fromhex(
    "03 1c 7f 15 04 00 01 00 11 13 1a 00 12 0f 17 16 00 00 00"
)
_WINDOW_SIZE = struct.pack("<HHHH", 24, 80, 0, 0)


class FileCalls:
    def __init__(
        self, memory: GuestMemory, files: VirtualFiles, signals: SignalState, scheduler: Scheduler
    ) -> None:
        self._memory = memory
        self._files = files
        self._table = files.descriptors
        self._signals = signals
        self._scheduler = scheduler

    # Reading and writing

    def read(self, fd: int, address: int, count: int) -> int:
        file = self._readable(fd)
        count = self._usable(address, count, WRITE)
        data = file.read(count)
        self._memory.write(address, data)
        return len(data)

    def write(self, fd: int, address: int, count: int) -> int:
        file = self._writable(fd)
        return self._write(file, self._memory.read(address, self._usable(address, count, READ)))

    def readv(self, fd: int, vectors: int, count: int) -> int:
        file = self._readable(fd)
        return self._scatter(vectors, count, lambda n_bytes, _: file.read(n_bytes))

    def writev(self, fd: int, vectors: int, count: int) -> int:
        file = self._writable(fd)
        return self._write(file, self._gather(vectors, count))

    def pread64(self, fd: int, address: int, count: int, offset: int) -> int:
        file = self._readable(fd)
        data = file.read_at(self._usable(address, count, WRITE), self._offset(offset))
        self._memory.write(address, data)
        return len(data)

    def pwrite64(self, fd: int, address: int, count: int, offset: int) -> int:
        file = self._writable(fd)
        data = self._memory.read(address, self._usable(address, count, READ))
        return file.write_at(data, self._offset(offset))

    def preadv(self, fd: int, vectors: int, count: int, offset: int) -> int:
        file, start = self._readable(fd), self._offset(offset)
        return self._scatter(vectors, count, lambda n_bytes, done: file.read_at(n_bytes, start + done))

    def pwritev(self, fd: int, vectors: int, count: int, offset: int) -> int:
        return self._writable(fd).write_at(self._gather(vectors, count), self._offset(offset))

    def sendfile(self, out_fd: int, in_fd: int, offset: int, count: int) -> int:
        source, target = self._readable(in_fd), self._writable(out_fd)
        count = min(count, 1 << 20)
        if not offset:
            return self._write(target, source.read(count))
        start = self._offset(self._memory.read_int(offset, 8))
        sent = self._write(target, source.read_at(count, start))
        self._memory.write_int(offset, 8, start + sent)
        return sent

    def lseek(self, fd: int, offset: int, whence: int) -> int:
        return self._file(fd).seek(signed(offset, 64), signed(whence, 32))

    def ftruncate(self, fd: int, length: int) -> int:
        file = self._file(fd)
        if not file.writable:
            raise OSError(errno.EINVAL, "not open for writing")
        file.truncate(self._offset(length))
        return 0

    def fallocate(self, fd: int, mode: int, offset: int, length: int) -> int:
        file = self._writable(fd)
        if mode:
            raise OSError(errno.EOPNOTSUPP, "fallocate mode")
        end = self._offset(offset) + self._offset(length)
        if end >> 63:
            raise OSError(errno.EFBIG, "fallocate")
        if end > file.status().size_bytes:
            file.truncate(end)
        return 0

    def fsync(self, fd: int) -> int:
        self._file(fd)
        return 0

    def fdatasync(self, fd: int) -> int:
        return self.fsync(fd)

    def sync(self) -> int:
        return 0

    def fadvise64(self, fd: int) -> int:
        return self.fsync(fd)

    # Opening, closing, duplicating

    def close(self, fd: int) -> int:
        self._table.close(signed(fd, 32))
        return 0

    def close_range(self, first: int, last: int, flags: int) -> int:
        if flags & ~_CLOSE_RANGE_CLOEXEC or first > last:
            raise OSError(errno.EINVAL, "close_range")
        for descriptor, _ in self._table.items():
            if first <= descriptor <= last & 0xFFFF_FFFF:
                if flags:
                    self._table.set_close_on_exec(descriptor, True)
                else:
                    self._table.close(descriptor)
        return 0

    def dup(self, fd: int) -> int:
        return self._table.install(self._file(fd))

    def dup3(self, old: int, new: int, flags: int) -> int:
        file, target = self._file(old), signed(new, 32)
        if signed(old, 32) == target or flags & ~os.O_CLOEXEC:
            raise OSError(errno.EINVAL, "dup3")
        if not 0 <= target < MAX_DESCRIPTORS:
            raise OSError(errno.EBADF, "dup3")
        return self._table.install(file, close_on_exec=bool(flags), at=target)

    def pipe2(self, address: int, flags: int) -> int:
        if flags & ~(os.O_CLOEXEC | os.O_NONBLOCK):
            raise OSError(errno.EINVAL, "pipe2")
        if not self._memory.valid_range(address, 8, WRITE):
            raise OSError(errno.EFAULT, "pipe2")
        close_on_exec = bool(flags & os.O_CLOEXEC)
        return self._install_both(address, *self._files.make_pipe(flags), close_on_exec)

    def socketpair(self, family: int, kind: int, protocol: int, address: int) -> int:
        if family != _AF_UNIX or kind & 15 not in (_SOCK_STREAM, _SOCK_SEQPACKET):
            self._scheduler.report(f"socketpair of family {family} and type {kind & 15}")
            raise OSError(errno.EAFNOSUPPORT, "socketpair")
        if not self._memory.valid_range(address, 8, WRITE):
            raise OSError(errno.EFAULT, "socketpair")
        pair = self._files.make_pipe(kind, sockets=True)
        return self._install_both(address, *pair, bool(kind & os.O_CLOEXEC))

    def socket(self, family: int, kind: int) -> int:
        self._scheduler.report(f"a socket of family {family} and type {kind & 15}")
        raise OSError(errno.EAFNOSUPPORT, "there is no network")

    def _install_both(self, address: int, reader: OpenFile, writer: OpenFile, close_on_exec: bool) -> int:
        reading = self._table.install(reader, close_on_exec=close_on_exec)
        try:
            writing = self._table.install(writer, close_on_exec=close_on_exec)
        except OSError:
            self._table.close(reading)
            raise
        self._memory.write(address, struct.pack("<ii", reading, writing))
        return 0

    def fcntl(self, fd: int, command: int, argument: int) -> int:
        file, fd = self._file(fd), signed(fd, 32)
        if command in (_F_DUPFD, _F_DUPFD_CLOEXEC):
            if argument >= MAX_DESCRIPTORS:
                raise OSError(errno.EINVAL, "descriptor")
            return self._table.install(file, argument, close_on_exec=command == _F_DUPFD_CLOEXEC)
        if command == _F_GETFD:
            return _FD_CLOEXEC if self._table.close_on_exec(fd) else 0
        if command == _F_SETFD:
            self._table.set_close_on_exec(fd, bool(argument & _FD_CLOEXEC))
            return 0
        if command == _F_GETFL:
            return file.flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_CLOEXEC | os.O_NOCTTY)
        if command == _F_SETFL:
            file.flags = file.flags & ~_SETTABLE_FLAGS | argument & _SETTABLE_FLAGS
            return 0
        if command in (_F_SETLK, _F_SETLKW):
            return 0  # nobody else could hold a lock
        if command == _F_GETLK:
            self._memory.write_int(argument, 2, _F_UNLCK)
            return 0
        self._scheduler.report(f"fcntl command {command}")
        raise OSError(errno.EINVAL, "fcntl")

    def flock(self, fd: int) -> int:
        return self.fsync(fd)

    def ioctl(self, fd: int, request: int, argument: int) -> int:
        file, request = self._file(fd), request & 0xFFFF_FFFF
        if request == _FIONBIO:
            on = self._memory.read_int(argument, 4) != 0
            file.flags = file.flags & ~os.O_NONBLOCK | (os.O_NONBLOCK if on else 0)
            return 0
        if not file.is_terminal:
            raise OSError(errno.ENOTTY, "not a terminal")
        if request == _TCGETS:
            self._memory.write(argument, _TERMIOS)
        elif request == _TIOCGWINSZ:
            self._memory.write(argument, _WINDOW_SIZE)
        elif not _TCSETS <= request <= _TCSETSF:
            raise OSError(errno.ENOTTY, "ioctl")
        return 0

    # Inner parts

    def _file(self, fd: int) -> OpenFile:
        return self._table.file(signed(fd, 32))

    def _readable(self, fd: int) -> OpenFile:
        file = self._file(fd)
        if not file.readable:
            raise OSError(errno.EBADF, "not open for reading")
        return file

    def _writable(self, fd: int) -> OpenFile:
        file = self._file(fd)
        if not file.writable:
            raise OSError(errno.EBADF, "not open for writing")
        return file

    def _write(self, file: OpenFile, data: bytes) -> int:
        """Write all of it; a pipe that takes a part is waited for. No reader is a SIGPIPE, too."""
        done = self._write_some(file, data)
        if done == len(data) or file.non_blocking or not isinstance(file, PipeEnd):
            return done
        progress = [done]

        def ready() -> int | None:
            try:
                progress[0] += self._write_some(file, data[progress[0] :])
            except WouldBlock:
                return None
            return progress[0] if progress[0] == len(data) else None

        raise Wait(ready, deadlock="the guest waits for ever: it writes into a full pipe that nobody reads")

    def _write_some(self, file: OpenFile, data: bytes) -> int:
        try:
            return file.write(data)
        except BrokenPipeError:
            self._signals.send(sent_by_user(Signal.SIGPIPE))
            raise

    def _usable(self, address: int, count: int, prot: int) -> int:
        """How many of ``count`` bytes can be transferred; none at all is a fault of the first access."""
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
            data = source(self._usable(where, length, WRITE), done)
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
