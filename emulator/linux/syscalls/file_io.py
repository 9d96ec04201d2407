"""System calls on descriptors: reading, writing, opening, duplicating. Every public method is the call of that name."""

from __future__ import annotations

import errno
import os

from emulator.linux.abi.numbers import signed
from emulator.linux.syscalls.transfers import Transfers
from emulator.linux.vfs.descriptor_table import MAX_DESCRIPTORS
from emulator.linux.vfs.events import MODIFY
from emulator.linux.vfs.file_locks import lock_key
from emulator.memory import READ, WRITE

_CLOSE_RANGE_CLOEXEC = 4
_MFD_CLOEXEC, _MFD_ALLOW_SEALING, _MFD_NOEXEC_SEAL, _MFD_EXEC = 1, 2, 8, 16
_MEMORY_NAME_BYTES = 250
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE, _FALLOC_ZERO_RANGE = 1, 2, 16
_AT_CURRENT_POSITION = (1 << 64) - 1
_ZEROED_BYTES = 1 << 20


class FileCalls(Transfers):
    # Reading and writing

    def read(self, fd: int, address: int, count: int) -> int:
        file = self._readable(fd)
        count = self._accessible(address, count, WRITE)
        data = file.read(count)
        self._memory.write(address, data)
        return self._accessed(file, len(data))

    def write(self, fd: int, address: int, count: int) -> int:
        file = self._writable(fd)
        return self._write(file, self._memory.read(address, self._accessible(address, count, READ)))

    def readv(self, fd: int, vectors: int, count: int) -> int:
        file = self._readable(fd)
        return self._accessed(file, self._scatter(vectors, count, lambda n_bytes, _: file.read(n_bytes)))

    def writev(self, fd: int, vectors: int, count: int) -> int:
        file = self._writable(fd)
        return self._write(file, self._gather(vectors, count))

    def pread64(self, fd: int, address: int, count: int, offset: int) -> int:
        file = self._readable(fd)
        data = file.read_at(self._accessible(address, count, WRITE), self._offset(offset))
        self._memory.write(address, data)
        return self._accessed(file, len(data))

    def pwrite64(self, fd: int, address: int, count: int, offset: int) -> int:
        file = self._writable(fd)
        data = self._memory.read(address, self._accessible(address, count, READ))
        return self._changed(file, file.write_at(data, self._offset(offset)))

    def preadv(self, fd: int, vectors: int, count: int, offset: int) -> int:
        file, start = self._readable(fd), self._offset(offset)
        done = self._scatter(vectors, count, lambda n_bytes, done: file.read_at(n_bytes, start + done))
        return self._accessed(file, done)

    def pwritev(self, fd: int, vectors: int, count: int, offset: int) -> int:
        file = self._writable(fd)
        return self._changed(file, file.write_at(self._gather(vectors, count), self._offset(offset)))

    def preadv2(self, fd: int, vectors: int, count: int, offset: int, high: int, flags: int) -> int:
        self._no_flags(flags, "preadv2")
        if offset == _AT_CURRENT_POSITION:
            return self.readv(fd, vectors, count)
        return self.preadv(fd, vectors, count, offset)

    def pwritev2(self, fd: int, vectors: int, count: int, offset: int, high: int, flags: int) -> int:
        self._no_flags(flags, "pwritev2")
        if offset == _AT_CURRENT_POSITION:
            return self.writev(fd, vectors, count)
        return self.pwritev(fd, vectors, count, offset)

    def _no_flags(self, flags: int, name: str) -> None:
        if flags & 0xFFFF_FFFF:
            self._scheduler.report(f"{name} with flags {flags & 0xFFFF_FFFF:#x}")
            raise OSError(errno.EOPNOTSUPP, "flags")

    def lseek(self, fd: int, offset: int, whence: int) -> int:
        return self._file(fd).seek(signed(offset, 64), signed(whence, 32))

    def ftruncate(self, fd: int, length: int) -> int:
        file = self._file(fd)
        if not file.writable:
            raise OSError(errno.EINVAL, "not open for writing")
        file.truncate(self._offset(length))
        self._notify(file, MODIFY)
        return 0

    def fallocate(self, fd: int, mode: int, offset: int, length: int) -> int:
        file = self._writable(fd)
        start, length = self._offset(offset), self._offset(length)
        if not length:
            raise OSError(errno.EINVAL, "fallocate")
        if start + length >> 63:
            raise OSError(errno.EFBIG, "fallocate")
        keeps_size = bool(mode & _FALLOC_KEEP_SIZE)
        if mode & ~_FALLOC_KEEP_SIZE not in (0, _FALLOC_PUNCH_HOLE, _FALLOC_ZERO_RANGE):
            raise OSError(errno.EOPNOTSUPP, "fallocate mode")
        if mode & _FALLOC_PUNCH_HOLE and not keeps_size:
            raise OSError(errno.EOPNOTSUPP, "fallocate mode")
        size = file.status().size_bytes
        if not keeps_size and start + length > size:
            file.truncate(start + length)
        if mode & ~_FALLOC_KEEP_SIZE:
            end = min(start + length, size)
            for here in range(start, end, _ZEROED_BYTES):
                file.write_at(bytes(min(_ZEROED_BYTES, end - here)), here)
        self._notify(file, MODIFY)
        return 0

    def fsync(self, fd: int) -> int:
        self._file(fd)
        return 0

    def fdatasync(self, fd: int) -> int:
        return self.fsync(fd)

    def sync_file_range(self, fd: int) -> int:
        return self.fsync(fd)

    def syncfs(self, fd: int) -> int:
        return self.fsync(fd)

    def readahead(self, fd: int) -> int:
        return self.fsync(fd)

    def fadvise64(self, fd: int) -> int:
        return self.fsync(fd)

    def sync(self) -> int:
        return 0

    # Opening, closing, duplicating

    def close(self, fd: int) -> int:
        self._close(signed(fd, 32))
        return 0

    def _close(self, descriptor: int) -> None:
        """Close a descriptor; releases the process's locks on the file, and with the last descriptor flock's locks."""
        file, locks = self._table.file(descriptor), self._files.locks
        self._table.close(descriptor)
        if locks.release(self._owner.pid, lock_key(file)) or locks.release_closed():
            self._scheduler.recheck_waits = True

    def close_range(self, first: int, last: int, flags: int) -> int:
        if flags & ~_CLOSE_RANGE_CLOEXEC or first > last:
            raise OSError(errno.EINVAL, "close_range")
        for descriptor, _ in self._table.items():
            if first <= descriptor <= last & 0xFFFF_FFFF:
                if flags:
                    self._table.set_close_on_exec(descriptor, True)
                else:
                    self._close(descriptor)
        return 0

    def dup(self, fd: int) -> int:
        return self._table.install(self._file(fd))

    def dup3(self, old: int, new: int, flags: int) -> int:
        file, target = self._file(old), signed(new, 32)
        if signed(old, 32) == target or flags & ~os.O_CLOEXEC:
            raise OSError(errno.EINVAL, "dup3")
        if not 0 <= target < MAX_DESCRIPTORS:
            raise OSError(errno.EBADF, "dup3")
        if any(number == target for number, _ in self._table.items()):
            file.references += 1  # keeps the file open if closing the target drops its last descriptor
            self._close(target)
            file.references -= 1
        return self._table.install(file, close_on_exec=bool(flags), at=target)

    def pipe2(self, address: int, flags: int) -> int:
        if flags & ~(os.O_CLOEXEC | os.O_NONBLOCK):
            raise OSError(errno.EINVAL, "pipe2")
        if not self._memory.valid_range(address, 8, WRITE):
            raise OSError(errno.EFAULT, "pipe2")
        close_on_exec = bool(flags & os.O_CLOEXEC)
        return self._install_both(address, self._files.make_pipe(flags), close_on_exec)

    def memfd_create(self, name: int, flags: int) -> int:
        if flags & ~(_MFD_CLOEXEC | _MFD_ALLOW_SEALING | _MFD_NOEXEC_SEAL | _MFD_EXEC):
            raise OSError(errno.EINVAL, "memfd_create")
        raw = self._memory.read_cstring(name, _MEMORY_NAME_BYTES)
        if raw is None:
            raise OSError(errno.EINVAL, "name")
        file = self._files.unnamed(f"/memfd:{os.fsdecode(raw)} (deleted)", os.O_RDWR)
        return self._table.install(file, close_on_exec=bool(flags & _MFD_CLOEXEC))
