"""System calls on paths, directories and file status. Every public function handles the system call of that name."""

from __future__ import annotations

import errno
import os
import stat
import struct

from emulator.linux.abi.numbers import GID, UID, signed
from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.kernel.task import AT_FDCWD, Task
from emulator.linux.kernel.waits import Wait
from emulator.linux.vfs.events import ACCESS, MODIFY
from emulator.linux.vfs.open_files import Directory, FileStatus, OpenFile
from emulator.linux.vfs.pipes import NamedPipe, PipeEnd
from emulator.memory import PAGE_BYTES

_AT_SYMLINK_NOFOLLOW, _AT_REMOVEDIR, _AT_SYMLINK_FOLLOW, _AT_EMPTY_PATH = 0x100, 0x200, 0x400, 0x1000
_RENAME_NOREPLACE = 1
_FILE_SYSTEM_MAGIC = 0x0102_1994  # tmpfs


def openat(task: Task, directory: int, path: int, flags: int, mode: int) -> int | Wait:
    file = task.files.open(task.path(directory, path), flags & 0xFFFF_FFFF, mode)
    close_on_exec = bool(flags & os.O_CLOEXEC)
    if isinstance(file, PipeEnd) and file.waits_for_other_end():
        task.scheduler.recheck_waits = True
        return Wait(
            _install_when_open,
            task,
            file,
            close_on_exec,
            restartable=True,
            if_interrupted=_close_unopened,
            deadlock=f"the guest opens the named pipe {file.path}, and no other task opens its other end",
        )
    return _installed(task, file, close_on_exec)


def _installed(task: Task, file: OpenFile, close_on_exec: bool) -> int:
    descriptor = task.descriptors.install(file, close_on_exec=close_on_exec)
    task.files.notify_open(file)
    return descriptor


def _install_when_open(task: Task, file: PipeEnd, close_on_exec: bool) -> int | None:
    return None if file.waits_for_other_end() else _installed(task, file, close_on_exec)


def _close_unopened(task: Task, file: PipeEnd, close_on_exec: bool) -> None:
    file.close()


def openat2(task: Task, directory: int, path: int, how: int, size: int) -> int | Wait:
    if size < 24:
        raise OSError(errno.EINVAL, "openat2")
    flags, mode, resolve = struct.unpack("<QQQ", task.memory.read(how, 24))
    if resolve:
        task.report(f"openat2 with resolve flags {resolve:#x}")
        raise OSError(errno.EINVAL, "resolve flags")
    return openat(task, directory, path, flags, mode)


def truncate(task: Task, path: int, length: int) -> int:
    if length >> 63:
        raise OSError(errno.EINVAL, "negative length")
    where = task.path(AT_FDCWD, path)
    file = task.files.open(where, os.O_WRONLY, 0)
    try:
        file.truncate(length)
    finally:
        if file.references == 0:
            file.close()
    task.files.notify_path(where, MODIFY)
    return 0


def fstat(task: Task, fd: int, address: int) -> int:
    task.memory.write(address, _pack_stat(task.file(fd).status()))
    return 0


def newfstatat(task: Task, directory: int, path: int, address: int, flags: int) -> int:
    task.memory.write(address, _pack_stat(_status_at(task, directory, path, flags)))
    return 0


def statx(task: Task, directory: int, path: int, flags: int, mask: int, address: int) -> int:
    task.memory.write(address, _pack_statx(_status_at(task, directory, path, flags)))
    return 0


def statfs(task: Task, path: int, address: int) -> int:
    task.files.status(task.path(AT_FDCWD, path))
    return _write_statfs(task, address)


def fstatfs(task: Task, fd: int, address: int) -> int:
    task.file(fd)
    return _write_statfs(task, address)


def faccessat(task: Task, directory: int, path: int, mode: int) -> int:
    return faccessat2(task, directory, path, mode, 0)


def faccessat2(task: Task, directory: int, path: int, mode: int, flags: int) -> int:
    where = task.path(directory, path)
    status = _status_of(task, where, flags)
    if mode & os.W_OK and not task.files.is_writable(where):
        raise OSError(errno.EROFS, "not writable for the guest")
    if mode & os.X_OK and not status.mode & 0o111:
        raise OSError(errno.EACCES, "not executable")
    return 0


def readlinkat(task: Task, directory: int, path: int, address: int, size: int) -> int:
    if signed(size, 32) <= 0:
        raise OSError(errno.EINVAL, "size")
    target = os.fsencode(task.files.read_link(task.path(directory, path)))[:size]
    task.memory.write(address, target)
    return len(target)


def unlinkat(task: Task, directory: int, path: int, flags: int) -> int:
    task.files.remove(task.path(directory, path), bool(flags & _AT_REMOVEDIR))
    return 0


def mkdirat(task: Task, directory: int, path: int, mode: int) -> int:
    task.files.make_directory(task.path(directory, path), mode)
    return 0


def symlinkat(task: Task, target: int, directory: int, path: int) -> int:
    text = task.text(target)
    if not text:
        raise OSError(errno.ENOENT, "empty target")
    task.files.make_symbolic_link(text, task.path(directory, path))
    return 0


def linkat(task: Task, old_directory: int, old: int, new_directory: int, new: int, flags: int) -> int:
    if flags & ~(_AT_SYMLINK_FOLLOW | _AT_EMPTY_PATH):
        raise OSError(errno.EINVAL, "linkat flags")
    if flags & _AT_EMPTY_PATH and not task.text(old):
        source = task.file(old_directory).path
    else:
        source = task.path(old_directory, old)
    if flags & _AT_SYMLINK_FOLLOW:
        source = task.files.descriptor_path(source)
    task.files.make_hard_link(source, task.path(new_directory, new))
    return 0


def mknodat(task: Task, directory: int, path: int, mode: int, device: int) -> int:
    mode &= 0xFFFF_FFFF
    where, kind = task.path(directory, path), stat.S_IFMT(mode)
    if kind == stat.S_IFIFO:
        task.files.make_special(where, NamedPipe(mode & 0o777))
    elif kind in (0, stat.S_IFREG):
        file = task.files.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o777)
        file.close()
    else:
        task.report(f"a special file of type {kind:#o}")
        raise OSError(errno.EPERM, "special file")
    return 0


def renameat2(task: Task, old_directory: int, old: int, new_directory: int, new: int, flags: int) -> int:
    source, target = task.path(old_directory, old), task.path(new_directory, new)
    if flags & ~_RENAME_NOREPLACE:
        task.report(f"renameat2 with flags {flags:#x}")
        raise OSError(errno.EINVAL, "renameat2 flags")
    if flags:
        try:
            task.files.status(target, follow=False)
        except FileNotFoundError:
            pass
        else:
            raise OSError(errno.EEXIST, "exists")
    task.files.rename(source, target)
    return 0


def umask(task: Task, mask: int) -> int:
    before, task.files.umask = task.files.umask, mask & 0o777
    return before


def chroot(task: Task, path: int) -> int:
    raise OSError(errno.EPERM, "chroot")


def getcwd(task: Task, address: int, size: int) -> int:
    path = os.fsencode(task.files.working_directory) + b"\0"
    if size < len(path):
        raise OSError(errno.ERANGE, "getcwd")
    task.memory.write(address, path)
    return len(path)


def chdir(task: Task, path: int) -> int:
    file = task.files.open(task.path(AT_FDCWD, path), os.O_DIRECTORY, 0)
    task.files.working_directory = file.path
    return 0


def fchdir(task: Task, fd: int) -> int:
    file = task.file(fd)
    if not isinstance(file, Directory):
        raise OSError(errno.ENOTDIR, "not a directory")
    task.files.working_directory = file.path
    return 0


def getdents64(task: Task, fd: int, address: int, size: int) -> int:
    file = task.file(fd)
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
    task.files.notify(file, ACCESS)
    if not packed and file.position < len(entries):
        raise OSError(errno.EINVAL, "buffer too small")
    task.memory.write(address, packed)
    return len(packed)


# Inner parts


def _status_at(task: Task, directory: int, path: int, flags: int) -> FileStatus:
    if flags & _AT_EMPTY_PATH and (not path or not task.text(path)):
        if signed(directory, 32) == AT_FDCWD:
            return task.files.status(task.files.working_directory)
        return task.file(directory).status()
    return _status_of(task, task.path(directory, path), flags)


def _status_of(task: Task, where: str, flags: int) -> FileStatus:
    try:
        return task.files.status(where, follow=not flags & _AT_SYMLINK_NOFOLLOW)
    except FileNotFoundError:
        task.files.note_not_found(where)
        raise


def _write_statfs(task: Task, address: int) -> int:
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
    task.memory.write(address, struct.pack("<11Q", *words) + bytes(32))
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
