"""System calls on paths, directories and file status. Every public method is the system call of that name."""

from __future__ import annotations

import errno
import os
import stat
import struct

from emulator.linux.abi.numbers import GID, UID, signed
from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.kernel.tasks import Wait
from emulator.linux.syscalls.base import AT_FDCWD, KernelCalls
from emulator.linux.vfs.events import ACCESS, MODIFY
from emulator.linux.vfs.open_files import Directory, FileStatus, OpenFile
from emulator.linux.vfs.pipes import NamedPipe, PipeEnd
from emulator.memory import PAGE_BYTES

_AT_SYMLINK_NOFOLLOW, _AT_REMOVEDIR, _AT_SYMLINK_FOLLOW, _AT_EMPTY_PATH = 0x100, 0x200, 0x400, 0x1000
_RENAME_NOREPLACE = 1
_FILE_SYSTEM_MAGIC = 0x0102_1994  # tmpfs


class PathCalls(KernelCalls):
    def openat(self, directory: int, path: int, flags: int, mode: int) -> int:
        file = self._files.open(self._path(directory, path), flags & 0xFFFF_FFFF, mode)
        close_on_exec = bool(flags & os.O_CLOEXEC)
        if isinstance(file, PipeEnd) and file.waits_for_other_end():
            self._wait_for_other_end(file, close_on_exec)
        return self._installed(file, close_on_exec)

    def _installed(self, file: OpenFile, close_on_exec: bool) -> int:
        descriptor = self._table.install(file, close_on_exec=close_on_exec)
        self._files.notify_open(file)
        return descriptor

    def _wait_for_other_end(self, file: PipeEnd, close_on_exec: bool) -> None:
        self._scheduler.recheck_waits = True
        raise Wait(
            lambda: None if file.waits_for_other_end() else self._installed(file, close_on_exec),
            restartable=True,
            interrupted=file.close,
            deadlock=f"the guest opens the named pipe {file.path}, and no other task opens its other end",
        )

    def openat2(self, directory: int, path: int, how: int, size: int) -> int:
        if size < 24:
            raise OSError(errno.EINVAL, "openat2")
        flags, mode, resolve = struct.unpack("<QQQ", self._memory.read(how, 24))
        if resolve:
            self._scheduler.report(f"openat2 with resolve flags {resolve:#x}")
            raise OSError(errno.EINVAL, "resolve flags")
        return self.openat(directory, path, flags, mode)

    def truncate(self, path: int, length: int) -> int:
        if length >> 63:
            raise OSError(errno.EINVAL, "negative length")
        where = self._path(AT_FDCWD, path)
        file = self._files.open(where, os.O_WRONLY, 0)
        try:
            file.truncate(length)
        finally:
            if file.references == 0:
                file.close()
        self._files.notify_path(where, MODIFY)
        return 0

    def fstat(self, fd: int, address: int) -> int:
        self._memory.write(address, _pack_stat(self._file(fd).status()))
        return 0

    def newfstatat(self, directory: int, path: int, address: int, flags: int) -> int:
        self._memory.write(address, _pack_stat(self._status_at(directory, path, flags)))
        return 0

    def statx(self, directory: int, path: int, flags: int, mask: int, address: int) -> int:
        self._memory.write(address, _pack_statx(self._status_at(directory, path, flags)))
        return 0

    def statfs(self, path: int, address: int) -> int:
        self._files.status(self._path(AT_FDCWD, path))
        return self._write_statfs(address)

    def fstatfs(self, fd: int, address: int) -> int:
        self._file(fd)
        return self._write_statfs(address)

    def faccessat(self, directory: int, path: int, mode: int) -> int:
        return self.faccessat2(directory, path, mode, 0)

    def faccessat2(self, directory: int, path: int, mode: int, flags: int) -> int:
        where = self._path(directory, path)
        status = self._files.status(where, follow=not flags & _AT_SYMLINK_NOFOLLOW)
        if mode & os.W_OK and not self._files.is_writable(where):
            raise OSError(errno.EROFS, "not writable for the guest")
        if mode & os.X_OK and not status.mode & 0o111:
            raise OSError(errno.EACCES, "not executable")
        return 0

    def readlinkat(self, directory: int, path: int, address: int, size: int) -> int:
        if signed(size, 32) <= 0:
            raise OSError(errno.EINVAL, "size")
        target = os.fsencode(self._files.read_link(self._path(directory, path)))[:size]
        self._memory.write(address, target)
        return len(target)

    def unlinkat(self, directory: int, path: int, flags: int) -> int:
        self._files.remove(self._path(directory, path), bool(flags & _AT_REMOVEDIR))
        return 0

    def mkdirat(self, directory: int, path: int, mode: int) -> int:
        self._files.make_directory(self._path(directory, path), mode)
        return 0

    def symlinkat(self, target: int, directory: int, path: int) -> int:
        text = self._text(target)
        if not text:
            raise OSError(errno.ENOENT, "empty target")
        self._files.make_symbolic_link(text, self._path(directory, path))
        return 0

    def linkat(self, old_directory: int, old: int, new_directory: int, new: int, flags: int) -> int:
        if flags & ~(_AT_SYMLINK_FOLLOW | _AT_EMPTY_PATH):
            raise OSError(errno.EINVAL, "linkat flags")
        if flags & _AT_EMPTY_PATH and not self._text(old):
            source = self._file(old_directory).path
        else:
            source = self._path(old_directory, old)
        if flags & _AT_SYMLINK_FOLLOW:
            source = self._files.descriptor_path(source)
        self._files.make_hard_link(source, self._path(new_directory, new))
        return 0

    def mknodat(self, directory: int, path: int, mode: int, device: int) -> int:
        mode &= 0xFFFF_FFFF
        where, kind = self._path(directory, path), stat.S_IFMT(mode)
        if kind == stat.S_IFIFO:
            self._files.make_special(where, NamedPipe(mode & 0o777))
        elif kind in (0, stat.S_IFREG):
            file = self._files.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o777)
            file.close()
        else:
            self._scheduler.report(f"a special file of type {kind:#o}")
            raise OSError(errno.EPERM, "special file")
        return 0

    def renameat2(self, old_directory: int, old: int, new_directory: int, new: int, flags: int) -> int:
        source, target = self._path(old_directory, old), self._path(new_directory, new)
        if flags & ~_RENAME_NOREPLACE:
            self._scheduler.report(f"renameat2 with flags {flags:#x}")
            raise OSError(errno.EINVAL, "renameat2 flags")
        if flags:
            try:
                self._files.status(target, follow=False)
            except FileNotFoundError:
                pass
            else:
                raise OSError(errno.EEXIST, "exists")
        self._files.rename(source, target)
        return 0

    def umask(self, mask: int) -> int:
        before, self._files.umask = self._files.umask, mask & 0o777
        return before

    def chroot(self, path: int) -> int:
        raise OSError(errno.EPERM, "chroot")

    def getcwd(self, address: int, size: int) -> int:
        path = os.fsencode(self._files.working_directory) + b"\0"
        if size < len(path):
            raise OSError(errno.ERANGE, "getcwd")
        self._memory.write(address, path)
        return len(path)

    def chdir(self, path: int) -> int:
        file = self._files.open(self._path(AT_FDCWD, path), os.O_DIRECTORY, 0)
        self._files.working_directory = file.path
        return 0

    def fchdir(self, fd: int) -> int:
        file = self._file(fd)
        if not isinstance(file, Directory):
            raise OSError(errno.ENOTDIR, "not a directory")
        self._files.working_directory = file.path
        return 0

    def getdents64(self, fd: int, address: int, size: int) -> int:
        file = self._file(fd)
        if not isinstance(file, Directory):
            raise OSError(errno.ENOTDIR, "not a directory")
        entries = file.names()
        packed = bytearray()
        while file.position < len(entries):
            name, status = entries[file.position]
            encoded = os.fsencode(name)
            length = 19 + len(encoded) + 8 & -8
            if len(packed) + length > size:
                break
            header = struct.pack("<QqHB", status.inode, file.position + 1, length, status.mode >> 12 & 15)
            packed += (header + encoded).ljust(length, b"\0")
            file.position += 1
        self._notify(file, ACCESS)
        if not packed and file.position < len(entries):
            raise OSError(errno.EINVAL, "buffer too small")
        self._memory.write(address, packed)
        return len(packed)

    # Inner parts

    def _status_at(self, directory: int, path: int, flags: int) -> FileStatus:
        if flags & _AT_EMPTY_PATH and (not path or not self._text(path)):
            if signed(directory, 32) == AT_FDCWD:
                return self._files.status(self._files.working_directory)
            return self._file(directory).status()
        return self._files.status(self._path(directory, path), follow=not flags & _AT_SYMLINK_NOFOLLOW)

    def _write_statfs(self, address: int) -> int:
        blocks = 1 << 18
        words = (
            _FILE_SYSTEM_MAGIC,
            PAGE_BYTES,
            blocks,
            blocks,
            blocks,
            1 << 16,
            1 << 16,
            0,
            255,
            PAGE_BYTES,
            0,
        )
        self._memory.write(address, struct.pack("<11Q", *words) + bytes(32))
        return 0


def _blocks(status: FileStatus) -> int:
    return -(-status.size_bytes // 512)


def _pack_stat(status: FileStatus) -> bytes:
    """``struct stat`` of asm-generic, 128 bytes."""
    times = [part for moment in status.times for part in divmod(moment, NANOSECONDS)]
    return struct.pack(
        "<QQIIIIQQqiiq6qII",
        1, status.inode, status.mode, status.links, UID, GID, 0, 0,
        status.size_bytes, PAGE_BYTES, 0, _blocks(status), *times, 0, 0,
    )  # fmt: skip


def _pack_statx(status: FileStatus) -> bytes:
    """``struct statx``, 256 bytes."""
    basic_fields = 0x7FF
    accessed, modified, changed = (struct.pack("<qIi", *divmod(at, NANOSECONDS), 0) for at in status.times)
    born = struct.pack("<qIi", 0, 0, 0)
    head = struct.pack(
        "<IIQIIIHHQQQQ",
        basic_fields, PAGE_BYTES, 0, status.links, UID, GID, status.mode, 0,
        status.inode, status.size_bytes, _blocks(status), 0,
    )  # fmt: skip
    return (head + accessed + born + changed + modified + struct.pack("<IIII", 0, 0, 0, 1)).ljust(256, b"\0")
