"""System calls on paths and on what files are. Every public method is the system call of that name."""

from __future__ import annotations

import errno
import os
import struct

from emulator.linux.abi import GID, UID, signed
from emulator.linux.clock import DEFAULT_EPOCH_SECONDS
from emulator.linux.files import VirtualFiles
from emulator.linux.open_files import Directory, FileStatus, OpenFile
from emulator.memory import PAGE_BYTES, GuestMemory

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW, _AT_REMOVEDIR, _AT_EMPTY_PATH = 0x100, 0x200, 0x1000
_PATH_BYTES = 4096
_FILE_SYSTEM_MAGIC = 0x0102_1994  # tmpfs


class PathCalls:
    def __init__(self, memory: GuestMemory, files: VirtualFiles) -> None:
        self._memory = memory
        self._files = files

    def openat(self, directory: int, path: int, flags: int, mode: int) -> int:
        file = self._files.open(self._path(directory, path), flags & 0xFFFF_FFFF, mode)
        return self._files.descriptors.install(file, close_on_exec=bool(flags & os.O_CLOEXEC))

    def truncate(self, path: int, length: int) -> int:
        if length >> 63:
            raise OSError(errno.EINVAL, "negative length")
        file = self._files.open(self._path(_AT_FDCWD, path), os.O_WRONLY, 0)
        try:
            file.truncate(length)
        finally:
            if file.references == 0:
                file.close()
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
        self._files.status(self._path(_AT_FDCWD, path))
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

    def renameat2(self, old_directory: int, old: int, new_directory: int, new: int, flags: int) -> int:
        if flags:
            raise OSError(errno.EINVAL, "renameat2 flags")
        self._files.rename(self._path(old_directory, old), self._path(new_directory, new))
        return 0

    def utimensat(self, directory: int, path: int) -> int:
        if path:
            self._files.status(self._path(directory, path))
        return 0  # files have no times of their own

    def fchmod(self, fd: int) -> int:
        self._file(fd)
        return 0

    def fchmodat(self, directory: int, path: int) -> int:
        return self.utimensat(directory, path)

    def umask(self, mask: int) -> int:
        return 0o022

    def getcwd(self, address: int, size: int) -> int:
        path = os.fsencode(self._files.working_directory) + b"\0"
        if size < len(path):
            raise OSError(errno.ERANGE, "getcwd")
        self._memory.write(address, path)
        return len(path)

    def chdir(self, path: int) -> int:
        file = self._files.open(self._path(_AT_FDCWD, path), os.O_DIRECTORY, 0)
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
        if not packed and file.position < len(entries):
            raise OSError(errno.EINVAL, "buffer too small")
        self._memory.write(address, packed)
        return len(packed)

    # Inner parts

    def _file(self, fd: int) -> OpenFile:
        return self._files.descriptors.file(signed(fd, 32))

    def _path(self, directory: int, address: int) -> str:
        raw = self._memory.read_cstring(address, _PATH_BYTES)
        if raw is None:
            raise OSError(errno.ENAMETOOLONG, "path")
        if not raw:
            raise OSError(errno.ENOENT, "empty path")
        number = signed(directory, 32)
        return self._files.absolute(os.fsdecode(raw), None if number == _AT_FDCWD else number)

    def _status_at(self, directory: int, path: int, flags: int) -> FileStatus:
        if flags & _AT_EMPTY_PATH and (not path or self._memory.read_cstring(path, _PATH_BYTES) == b""):
            if signed(directory, 32) == _AT_FDCWD:
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
    times = [DEFAULT_EPOCH_SECONDS, 0] * 3
    return struct.pack(
        "<QQIIIIQQqiiq6qII",
        1, status.inode, status.mode, status.links, UID, GID, 0, 0,
        status.size_bytes, PAGE_BYTES, 0, _blocks(status), *times, 0, 0,
    )  # fmt: skip


def _pack_statx(status: FileStatus) -> bytes:
    """``struct statx``, 256 bytes."""
    basic_fields = 0x7FF
    time = struct.pack("<qIi", DEFAULT_EPOCH_SECONDS, 0, 0)
    head = struct.pack(
        "<IIQIIIHHQQQQ",
        basic_fields, PAGE_BYTES, 0, status.links, UID, GID, status.mode, 0,
        status.inode, status.size_bytes, _blocks(status), 0,
    )  # fmt: skip
    return (head + time * 4 + struct.pack("<IIII", 0, 0, 0, 1)).ljust(256, b"\0")
