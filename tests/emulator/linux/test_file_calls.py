"""System calls on files, through the registers and structures of the ABI."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from typing import Any

import pytest

from emulator.linux.vfs.files import VirtualFiles
from tests.emulator.linux.conftest import Guest

CWD = -100
UNMAPPED = 0x1000_0000


@pytest.fixture
def guest(make_guest: Callable[..., Guest]) -> Guest:
    files = VirtualFiles(
        mapped={"/data/a": b"0123456789", "/data/b": b"x" * 3000}, capture=["/out/"], stdin=b"some input"
    )
    return make_guest(files=files)


def opened(guest: Guest, path: str, flags: int = os.O_RDONLY) -> int:
    fd = guest.call("openat", CWD, path, flags, 0o644)
    assert fd >= 3
    return fd


def vectors(guest: Guest, *pairs: tuple[int, int]) -> int:
    return guest.put(b"".join(struct.pack("<QQ", address, length) for address, length in pairs))


def test_read_and_write(guest: Guest) -> None:
    buffer = guest.space(100)
    assert guest.call("read", 0, buffer, 4) == 4
    assert guest.call("read", 0, buffer + 4, 96) == 6
    assert guest.memory.read(buffer, 10) == b"some input"
    assert guest.call("read", 0, buffer, 5) == 0
    assert guest.call("write", 1, buffer, 4) == 4
    assert guest.files.output(1) == b"some"


def test_transfers_stop_where_memory_ends(guest: Guest) -> None:
    end = 0x4010_0000
    fd = opened(guest, "/data/b")
    assert guest.call("read", fd, end - 100, 3000) == 100
    assert guest.memory.read(end - 100, 100) == b"x" * 100
    assert guest.call("write", 1, end - 3, 100) == 3
    assert guest.call("write", 1, UNMAPPED, 1) == -errno.EFAULT
    assert guest.call("read", fd, UNMAPPED, 1) == -errno.EFAULT
    assert guest.call("write", 1, UNMAPPED, 0) == 0
    assert guest.call("write", 1, 2**64 - 1, 1) == -errno.EFAULT
    assert guest.call("write", 1, 2**31 - 1, 2**63) == -errno.EFAULT


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("read", (77, 0, 0), errno.EBADF),
        ("read", (-1, 0, 0), errno.EBADF),
        ("read", (1, 0, 0), errno.EBADF),
        ("write", (0, 0, 0), errno.EBADF),
        ("lseek", (0, 0, 0), errno.ESPIPE),
        ("close", (50,), errno.EBADF),
        ("openat", (CWD, "/none", 0, 0), errno.ENOENT),
        ("openat", (CWD, "", 0, 0), errno.ENOENT),
        ("openat", (CWD, "/" + "x" * 5000, 0, 0), errno.ENAMETOOLONG),
        ("openat", (CWD, UNMAPPED, 0, 0), errno.EFAULT),
        ("openat", (77, "relative", 0, 0), errno.EBADF),
        ("openat", (0, "relative", 0, 0), errno.ENOTDIR),
        ("readv", (0, 0, 5000), errno.EINVAL),
        ("writev", (1, 0, -1), errno.EINVAL),
        ("dup3", (1, 1, 0), errno.EINVAL),
        ("dup3", (1, 5000, 0), errno.EBADF),
        ("pipe2", (UNMAPPED, 0), errno.EFAULT),
        ("pipe2", (0, 1), errno.EINVAL),
        ("ioctl", (1, 0x5401, 0), errno.ENOTTY),
        ("fcntl", (1, 99, 0), errno.EINVAL),
        ("fcntl", (1, 0, 5000), errno.EINVAL),
        ("fstat", (1, UNMAPPED), errno.EFAULT),
        ("unlinkat", (CWD, "/data/a", 0), errno.EROFS),
        ("mkdirat", (CWD, "/data", 0), errno.EEXIST),
        ("readlinkat", (CWD, "/data/a", 0, 10), errno.EINVAL),
        ("getcwd", (0, 1), errno.ERANGE),
        ("ftruncate", (0, 5), errno.EINVAL),
        ("getdents64", (0, 0, 100), errno.ENOTDIR),
        ("faccessat", (CWD, "/data/a", os.W_OK), errno.EROFS),
        ("faccessat", (CWD, "/data/a", os.X_OK), errno.EACCES),
    ],
)
def test_errors(guest: Guest, name: str, arguments: Any, error: int) -> None:
    assert guest.call(name, *arguments) == -error


def test_vectors_gather_and_scatter(guest: Guest) -> None:
    first, second = guest.put(b"hello "), guest.put(b"world")
    assert guest.call("writev", 1, vectors(guest, (first, 6), (0, 0), (second, 5)), 3) == 11
    assert guest.files.output(1) == b"hello world"
    fd, buffer = opened(guest, "/data/a"), guest.space(32)
    assert guest.call("readv", fd, vectors(guest, (buffer, 3), (buffer + 16, 16)), 2) == 10
    assert (guest.memory.read(buffer, 4), guest.memory.read(buffer + 16, 8)) == (b"012\0", b"3456789\0")
    assert guest.call("preadv", fd, vectors(guest, (buffer, 2), (buffer + 2, 2)), 2, 4) == 4
    assert guest.memory.read(buffer, 4) == b"4567"


def test_positions(guest: Guest) -> None:
    fd, buffer = opened(guest, "/data/a"), guest.space(16)
    assert guest.call("lseek", fd, 4, os.SEEK_SET) == 4
    assert guest.call("read", fd, buffer, 2) == 2
    assert guest.call("lseek", fd, -1, os.SEEK_CUR) == 5
    assert guest.call("lseek", fd, -3, os.SEEK_END) == 7
    assert guest.call("lseek", fd, -1, os.SEEK_SET) == -errno.EINVAL
    assert guest.call("lseek", fd, 0, 9) == -errno.EINVAL
    assert guest.call("pread64", fd, buffer, 3, 8) == 2
    assert guest.memory.read(buffer, 2) == b"89"
    assert guest.call("lseek", fd, 0, os.SEEK_CUR) == 7
    assert guest.call("pread64", fd, buffer, 3, -1) == -errno.EINVAL


def test_writing_a_captured_file(guest: Guest) -> None:
    fd = opened(guest, "/out/f", os.O_RDWR | os.O_CREAT)
    assert guest.call("write", fd, b"0123456789", 10) == 10
    assert guest.call("pwrite64", fd, b"AB", 2, 4) == 2
    assert guest.call("ftruncate", fd, 8) == 0
    assert guest.call("fallocate", fd, 0, 0, 9) == 0
    assert guest.call("fallocate", fd, 0, (1 << 63) - 5, 9) == -errno.EFBIG
    assert guest.files.captured() == {"/out/f": b"0123AB67\0"}
    assert guest.call("truncate", "/out/f", 2) == 0
    assert guest.call("renameat2", CWD, "/out/f", CWD, "/out/g", 0) == 0
    assert guest.files.captured() == {"/out/g": b"01"}
    assert guest.call("unlinkat", CWD, "/out/g", 0) == 0
    assert guest.call("fsync", fd) == 0


def test_sendfile(guest: Guest) -> None:
    fd, position = opened(guest, "/data/a"), guest.put(struct.pack("<Q", 3))
    assert guest.call("sendfile", 1, fd, position, 4) == 4
    assert guest.call("sendfile", 1, fd, 0, 2) == 2
    assert guest.files.output(1) == b"345601"
    assert guest.words(position, 1) == (7,)


def test_stat_structures(guest: Guest) -> None:
    address = guest.space(256)
    assert guest.call("newfstatat", CWD, "/data/b", address, 0) == 0
    device, inode, mode, links, uid, gid, rdev, _, size, block_bytes, _, blocks = struct.unpack(
        "<QQIIIIQQqiiq", guest.memory.read(address, 72)
    )
    assert (mode, links, uid, gid, rdev, size, block_bytes, blocks) == (
        0o100444,
        1,
        1000,
        1000,
        0,
        3000,
        4096,
        6,
    )
    assert device > 0
    assert guest.call("fstat", opened(guest, "/data/b"), address) == 0
    assert guest.memory.read_int(address + 8, 8) == inode
    assert guest.call("newfstatat", opened(guest, "/data/b"), "", address, 0x1000) == 0
    assert guest.memory.read_int(address + 8, 8) == inode
    assert guest.call("statx", CWD, "/data/b", 0, 0x7FF, address) == 0
    assert guest.memory.read_int(address + 28, 2) == 0o100444
    assert guest.memory.read_int(address + 32, 8) == inode
    assert guest.memory.read_int(address + 40, 8) == 3000
    assert guest.call("fstat", 1, address) == 0
    assert guest.memory.read_int(address + 16, 4) == 0o010600
    assert guest.call("statfs", "/data", address) == 0
    assert guest.memory.read_int(address + 8, 8) == 4096


def test_directory_entries_come_in_pieces(guest: Guest) -> None:
    fd, buffer = opened(guest, "/data", os.O_DIRECTORY), guest.space(256)
    names = []
    while (n_bytes := guest.call("getdents64", fd, buffer, 48)) > 0:
        position = 0
        while position < n_bytes:
            _, _, length, kind = struct.unpack("<QqHB", guest.memory.read(buffer + position, 19))
            names.append((guest.memory.read_cstring(buffer + position + 19), kind))
            position += length
    assert n_bytes == 0
    assert names == [(b".", 4), (b"..", 4), (b"a", 8), (b"b", 8)]
    assert guest.call("getdents64", opened(guest, "/data"), buffer, 10) == -errno.EINVAL
    assert guest.call("lseek", fd, 0, 0) == 0
    assert guest.call("getdents64", fd, buffer, 256) == 96


def test_paths_are_relative_to_directories(guest: Guest) -> None:
    fd, buffer = opened(guest, "/data"), guest.space(64)
    assert guest.call("openat", fd, "a", 0, 0) > fd
    assert guest.call("chdir", "/data/../data") == 0
    assert guest.call("getcwd", buffer, 64) == 6
    assert guest.memory.read_cstring(buffer) == b"/data"
    assert guest.call("faccessat", CWD, "./b", os.R_OK) == 0
    assert guest.call("fchdir", opened(guest, "/")) == 0
    assert guest.call("faccessat", CWD, "b", os.R_OK) == -errno.ENOENT
    assert guest.call("chdir", "/data/a") == -errno.ENOTDIR


def test_descriptors(guest: Guest) -> None:
    assert guest.call("dup", 1) == 3
    assert guest.call("dup3", 1, 9, os.O_CLOEXEC) == 9
    assert guest.call("fcntl", 9, 1, 0) == 1
    assert guest.call("fcntl", 9, 2, 0) == 0
    assert guest.call("fcntl", 9, 1, 0) == 0
    assert guest.call("fcntl", 1, 1030, 20) == 20
    assert guest.call("write", 20, b"x", 1) == 1
    assert guest.call("fcntl", 20, 3, 0) == os.O_WRONLY
    assert guest.call("fcntl", 20, 4, os.O_NONBLOCK | os.O_RDWR) == 0
    assert guest.call("fcntl", 1, 3, 0) == os.O_WRONLY | os.O_NONBLOCK
    assert guest.call("close", 1) == 0
    assert guest.call("write", 3, b"y", 1) == 1
    assert guest.files.output(1) == b"xy"
    lock = guest.space(32)
    assert guest.call("fcntl", 3, 5, lock) == 0
    assert guest.memory.read_int(lock, 2) == 2


def test_descriptors_run_out(guest: Guest) -> None:
    results = [guest.call("dup", 0) for _ in range(1030)]
    assert results[1020] == 1023
    assert results[1021:] == [-errno.EMFILE] * 9


def test_pipes(guest: Guest) -> None:
    ends, buffer = guest.space(8), guest.space(16)
    assert guest.call("pipe2", ends, os.O_NONBLOCK) == 0
    reading, writing = struct.unpack("<ii", guest.memory.read(ends, 8))
    assert guest.call("read", reading, buffer, 5) == -errno.EAGAIN
    assert guest.call("write", writing, b"piped", 5) == 5
    assert guest.call("write", reading, b"piped", 5) == -errno.EBADF
    assert guest.call("read", reading, buffer, 16) == 5
    assert guest.call("close", writing) == 0
    assert guest.call("read", reading, buffer, 5) == 0
    assert guest.call("pipe2", ends, 0) == 0
    reading, writing = struct.unpack("<ii", guest.memory.read(ends, 8))
    assert guest.call("close", reading) == 0
    assert guest.call("write", writing, b"x", 1) == -errno.EPIPE
    assert guest.kernel.pending_signal() == 13


def test_a_terminal_says_so(make_guest: Callable[..., Guest]) -> None:
    guest = make_guest(files=VirtualFiles(terminal=True))
    buffer = guest.space(64)
    assert guest.call("ioctl", 1, 0x5401, buffer) == 0
    assert guest.call("ioctl", 1, 0x5413, buffer) == 0
    assert struct.unpack("<HH", guest.memory.read(buffer, 4)) == (24, 80)
    assert guest.call("ioctl", 1, 0x5402, buffer) == 0
    guest.memory.write_int(buffer, 4, 1234)
    assert guest.call("ioctl", 1, 0x5410, buffer) == -errno.ESRCH  # there is no such group
    for request in (0x540F, 0x5429):  # the group in the foreground, the session
        assert guest.call("ioctl", 1, request, buffer) == 0
        assert guest.memory.read_int(buffer, 4) == 1000
    assert guest.call("ioctl", 1, 0x5410, buffer) == 0
    assert guest.call("ioctl", 1, 0x54FF, buffer) == -errno.ENOTTY


def test_paths_without_a_file_are_remembered(guest: Guest) -> None:
    buffer = guest.space(256)
    assert guest.call("openat", CWD, "fonts/../plain", os.O_RDONLY, 0) == -errno.ENOENT
    assert guest.call("newfstatat", CWD, "/out/later", buffer, 0) == -errno.ENOENT
    assert guest.call("faccessat", CWD, "/usr/share/plain", os.R_OK) == -errno.ENOENT
    assert guest.call("statx", CWD, "/plain.gz", 0, 0, buffer) == -errno.ENOENT
    assert guest.call("openat", CWD, "/plain", os.O_RDONLY, 0) == -errno.ENOENT
    guest.memory.write(buffer, b"/bin/worker\0")
    assert guest.call("execve", buffer, 0, 0) == -errno.ENOENT
    opened(guest, "/data/a")
    assert guest.files.fork().not_found() == ["/out/later", "/usr/share/plain", "/plain.gz", "/plain", "/bin/worker"]
    opened(guest, "/out/later", os.O_CREAT | os.O_WRONLY)
    assert guest.files.not_found() == ["/usr/share/plain", "/plain.gz", "/plain", "/bin/worker"]
    observer = guest.files.for_observer()
    with pytest.raises(FileNotFoundError):
        observer.open("/other", os.O_RDONLY, 0)
    for number in range(200):
        guest.files.note_not_found(f"/{number}")
    assert guest.files.not_found() == [f"/{number}" for number in range(100, 200)]
