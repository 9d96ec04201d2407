"""What the calls on permissions, owners, times, rights and scheduling say, through the registers of the ABI."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.linux.vfs.files import VirtualFiles
from tests.emulator.linux.conftest import Guest

CWD = -100
UID = 1000
SECOND = 1_000_000_000
EPOCH = 1_700_000_000


@pytest.fixture
def guest(make_guest: Callable[..., Guest]) -> Guest:
    return make_guest(files=VirtualFiles(mapped={"/data/a": b"0123456789"}, capture=["/out/"], terminal=True))


def opened(guest: Guest, path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    fd = guest.call("openat", CWD, path, flags, mode)
    assert fd >= 3
    return fd


def stat_of(guest: Guest, path: str) -> tuple[int, ...]:
    """Mode, links, and the times of reading, writing and changing in seconds."""
    buffer = guest.space(128)
    assert guest.call("newfstatat", CWD, path, buffer, 0) == 0
    fields = struct.unpack("<QQIIIIQQqiiq6qII", guest.memory.read(buffer, 128))
    return fields[2], fields[3], fields[12], fields[14], fields[16]


def test_files_have_the_times_that_the_guest_gave_them(guest: Guest) -> None:
    assert stat_of(guest, "/data/a")[2:] == (EPOCH, EPOCH, EPOCH)
    guest.now = 5 * SECOND
    fd = opened(guest, "/out/new", os.O_RDWR | os.O_CREAT)
    assert stat_of(guest, "/out/new")[2:] == (EPOCH + 5,) * 3
    guest.now = 7 * SECOND
    guest.call("write", fd, b"text", 4)
    assert stat_of(guest, "/out/new")[2:] == (EPOCH + 5, EPOCH + 7, EPOCH + 7)
    times = struct.pack("<4q", 11, 0, 0, 0x3FFF_FFFE)
    assert guest.call("utimensat", CWD, "/out/new", times, 0) == 0
    assert stat_of(guest, "/out/new")[2:4] == (11, EPOCH + 7)
    guest.now = 9 * SECOND
    assert guest.call("utimensat", fd, 0, 0, 0) == 0
    assert stat_of(guest, "/out/new")[2:] == (EPOCH + 9,) * 3
    assert guest.call("utimensat", CWD, "/data/a", 0, 0) == -errno.EROFS
    assert guest.call("utimensat", CWD, "/none", 0, 0) == -errno.ENOENT
    assert guest.call("utimensat", CWD, "/out/new", struct.pack("<4q", 0, SECOND, 0, 0), 0) == -errno.EINVAL


def test_permissions(guest: Guest) -> None:
    fd = opened(guest, "/out/new", os.O_RDWR | os.O_CREAT)
    assert stat_of(guest, "/out/new")[0] & 0o7777 == 0o644
    assert guest.call("umask", 0o077) == 0o022
    assert guest.call("umask", 0o077) == 0o077
    opened(guest, "/out/secret", os.O_RDWR | os.O_CREAT)
    assert stat_of(guest, "/out/secret")[0] & 0o7777 == 0o600
    assert guest.call("fchmod", fd, 0o700) == 0
    assert stat_of(guest, "/out/new")[0] & 0o7777 == 0o700
    assert guest.call("fchmodat2", CWD, "/out/new", 0o711, 0x100) == 0
    assert guest.call("faccessat", CWD, "/out/new", os.X_OK) == 0
    assert guest.call("fchmodat", CWD, "/data/a", 0o777) == -errno.EROFS
    assert guest.call("fchmodat", CWD, "/dev/null", 0o777) == -errno.EPERM
    assert guest.call("fchown", fd, UID, 2**32 - 1) == 0
    assert guest.call("fchownat", CWD, "/out/new", 0, 0, 0) == -errno.EPERM
    assert guest.call("fchownat", CWD, "/none", UID, UID, 0) == -errno.ENOENT


def test_names_in_memory(guest: Guest) -> None:
    opened(guest, "/out/one", os.O_RDWR | os.O_CREAT)
    assert guest.call("linkat", CWD, "/out/one", CWD, "/out/two", 0) == 0
    assert stat_of(guest, "/out/two")[1] == 2
    assert guest.call("linkat", CWD, "/out/one", CWD, "/out/two", 0) == -errno.EEXIST
    assert guest.call("linkat", CWD, "/data/a", CWD, "/out/three", 0) == -errno.EXDEV
    assert guest.call("symlinkat", "/out/one", CWD, "/out/link") == -errno.EPERM
    assert guest.call("renameat2", CWD, "/out/one", CWD, "/out/two", 1) == -errno.EEXIST
    assert guest.call("renameat2", CWD, "/out/one", CWD, "/out/two", 0) == 0  # two names of one file
    assert guest.call("unlinkat", CWD, "/out/one", 0) == 0
    assert stat_of(guest, "/out/two")[1] == 1
    assert guest.call("mknodat", CWD, "/out/device", 0o060644, 1) == -errno.EPERM
    assert guest.kernel.unsupported == ["a special file of type 0o60000"]


def test_what_has_no_name_takes_room_until_it_is_closed(make_guest: Callable[..., Guest]) -> None:
    guest = make_guest(files=VirtualFiles(capture=["/out/"], capture_limit_bytes=10))
    fd = opened(guest, "/out/a", os.O_RDWR | os.O_CREAT)
    guest.call("write", fd, b"12345678", 8)
    assert guest.call("unlinkat", CWD, "/out/a", 0) == 0
    memory = guest.call("memfd_create", "m", 0)
    assert guest.call("write", memory, b"12345678", 8) == -errno.ENOSPC
    guest.call("close", fd)
    assert guest.call("write", memory, b"12345678", 8) == 8
    assert guest.files.captured() == {}


def test_opening_by_other_ways(guest: Guest) -> None:
    how = struct.pack("<QQQ", os.O_RDONLY, 0, 0)
    fd = guest.call("openat2", CWD, "/data/a", how, 24)
    assert guest.call("openat", CWD, f"/dev/fd/{fd}", 0, 0) >= 0
    assert guest.call("openat2", CWD, "/data/a", struct.pack("<QQQ", 0, 0, 8), 24) == -errno.EINVAL
    assert guest.kernel.unsupported == ["openat2 with resolve flags 0x8"]
    assert guest.call("openat", CWD, "/dev/tty", os.O_RDWR, 0) >= 0


def test_without_a_terminal_there_is_none(make_guest: Callable[..., Guest]) -> None:
    assert make_guest(files=VirtualFiles()).call("openat", CWD, "/dev/tty", os.O_RDWR, 0) == -errno.ENXIO


def test_extended_attributes_are_none(guest: Guest) -> None:
    buffer = guest.space(16)
    assert guest.call("getxattr", "/data/a", "user.x", buffer, 16) == -errno.ENODATA
    assert guest.call("getxattr", "/none", "user.x", buffer, 16) == -errno.ENOENT
    assert guest.call("flistxattr", 0, buffer, 16) == 0
    assert guest.call("setxattr", "/data/a", "user.x", buffer, 1, 0) == -errno.EOPNOTSUPP
    assert guest.call("removexattr", "/data/a", "user.x") == -errno.ENODATA


def test_rights(guest: Guest) -> None:
    header, data = guest.put(struct.pack("<Ii", 0x2008_0522, 0)), guest.put(b"\xff" * 24)
    assert guest.call("capget", header, data) == 0
    assert guest.memory.read(data, 24) == bytes(24)
    assert guest.call("capset", header, data) == 0
    guest.memory.write_int(data, 4, 1)
    assert guest.call("capset", header, data) == -errno.EPERM
    unknown = guest.put(struct.pack("<Ii", 7, 0))
    assert guest.call("capget", unknown, 0) == -errno.EINVAL
    assert guest.memory.read_int(unknown, 4) == 0x2008_0522
    assert guest.call("setreuid", UID, 2**64 - 1) == 0
    assert guest.call("setreuid", 0, UID) == -errno.EPERM
    assert guest.call("chroot", "/") == -errno.EPERM


def test_scheduling(guest: Guest) -> None:
    zero = guest.put(struct.pack("<I", 0))
    assert guest.call("sched_setscheduler", 0, 3, zero) == 0
    assert guest.call("sched_setscheduler", 0, 1, zero) == -errno.EPERM
    assert guest.kernel.unsupported == ["scheduling policy 1"]
    attributes = guest.space(48)
    assert guest.call("sched_getattr", 0, attributes, 48, 0) == 0
    assert guest.memory.read_int(attributes, 4) == 48
    assert guest.call("sched_setattr", 0, attributes, 0) == 0
    assert guest.call("getpriority", 0, 0) == 20
    assert guest.call("membarrier", 0, 0, 0) > 0


def test_processor_time_is_of_a_process_and_a_thread(guest: Guest) -> None:
    guest.now = 3 * SECOND
    times = guest.space(144)
    for clock in (2, 3, (~1000 << 3) | 2, (~1000 << 3) | 6):
        assert guest.call("clock_gettime", clock, times) == 0
        assert guest.words(times, 2) == (3, 0)
    assert guest.call("clock_gettime", (~77 << 3) | 2, times) == -errno.EINVAL
    assert guest.call("getrusage", 1, times) == 0
    assert guest.words(times, 1) == (3,)
    assert guest.call("getrusage", -1, times) == 0
    assert guest.words(times, 1) == (0,)


def test_locks_conflict_between_open_files_and_processes(guest: Guest) -> None:
    fd, other = (opened(guest, "/out/a", os.O_RDWR | os.O_CREAT) for _ in range(2))
    lock = guest.put(struct.pack("<hh4xqqi", 1, 0, 10, 10, 0).ljust(32, b"\0"))
    assert guest.call("fcntl", fd, 37, lock) == 0
    assert guest.call("fcntl", other, 37, lock) == -errno.EAGAIN
    assert guest.call("fcntl", other, 6, lock) == -errno.EAGAIN
    ask = guest.put(struct.pack("<hh4xqqi", 0, 0, 0, 0, 0).ljust(32, b"\0"))
    assert guest.call("fcntl", other, 36, ask) == 0
    assert struct.unpack("<hh4xqqi", guest.memory.read(ask, 28)) == (1, 0, 10, 10, -1)
    guest.call("close", fd)
    assert guest.call("fcntl", other, 6, lock) == 0
    assert guest.call("fcntl", other, 6, struct.pack("<hh4xqqi", 9, 0, 0, 0, 0)) == -errno.EINVAL
    assert guest.call("fcntl", other, 6, struct.pack("<hh4xqqi", 1, 0, -1, 0, 0)) == -errno.EINVAL
    assert guest.call("fcntl", other, 6, struct.pack("<hh4xqqi", 1, 0, 2**62, 2**62, 0)) == 0
    assert guest.call("flock", other, 5) == 0
    assert guest.call("flock", other, 3) == -errno.EINVAL


def test_mapping_edges(guest: Guest) -> None:
    fd = opened(guest, "/out/a", os.O_RDWR | os.O_CREAT)
    zeros = opened(guest, "/dev/zero")
    assert guest.call("mmap", 0, 4096, 3, 1, fd, 2**62) == -errno.EOVERFLOW
    where = guest.call("mmap", 0, 4096, 3, 2, zeros, 0)
    assert guest.memory.read(where, 8) == bytes(8)
    vector = guest.space(4)
    assert guest.call("mincore", where, 4096, vector) == 0
    assert guest.memory.read(vector, 1) == b"\1"
    assert guest.call("mincore", 0x2000_0000, 4096, vector) == -errno.ENOMEM
    shared = guest.call("mmap", 0, 4096, 3, 1, fd, 0)
    assert guest.call("mremap", shared, 4096, 8192, 1, 0) == -errno.ENOMEM
    assert guest.kernel.unsupported == ["mremap of a shared mapping to a greater length"]


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("bind", (0, b"", 0), errno.ENOTSOCK),
        ("socket", (1, 9, 0), errno.EAFNOSUPPORT),
        ("socketpair", (2, 1, 0, 0), errno.EOPNOTSUPP),
        ("socketpair", (1, 1, 0, 0x1000_0000), errno.EFAULT),
        ("pidfd_open", (77, 0), errno.ESRCH),
        ("pidfd_send_signal", (0, 9, 0, 0), errno.EBADF),
        ("getrandom", (0, 0, 8), errno.EINVAL),
        ("memfd_create", ("m", 4), errno.EINVAL),
        ("preadv2", (0, 0, 0, 0, 0, 8), errno.EOPNOTSUPP),
        ("copy_file_range", (0, 0, 1, 0, 1, 0), errno.EINVAL),
        ("splice", (0, 0, 1, 0, 1, 0), errno.EINVAL),
        ("tee", (0, 1, 1, 0), errno.EINVAL),
        ("vmsplice", (1, 0, 0, 0), errno.EBADF),
    ],
)
def test_errors(guest: Guest, name: str, arguments: Any, error: int) -> None:
    assert guest.call(name, *arguments) == -error


def test_shared_pages_have_a_limit(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emulator.linux.mm.page_cache.LIMIT_BYTES", 3 * 4096)
    fd = opened(guest, "/out/a", os.O_RDWR | os.O_CREAT)
    whole = guest.call("mmap", 0, 3 * 4096, 3, 1, fd, 0)
    other = opened(guest, "/out/b", os.O_RDWR | os.O_CREAT)
    assert guest.call("munmap", whole, 2 * 4096) == 0
    assert guest.call("mmap", 0, 4096, 3, 1, other, 0) == -errno.ENOMEM  # the last page keeps all of them
    assert guest.call("munmap", whole + 2 * 4096, 4096) == 0
    assert guest.call("mmap", 0, 4096, 3, 1, other, 0) > 0


def test_a_directory_with_a_named_pipe_is_not_empty(make_guest: Callable[..., Guest], tmp_path: Path) -> None:
    guest = make_guest(files=VirtualFiles(mapped={"/work": tmp_path}, writable=["/work"]))
    assert guest.call("mkdirat", CWD, "/work/d", 0o755) == 0
    assert guest.call("mknodat", CWD, "/work/d/p", 0o010600, 0) == 0
    assert guest.call("unlinkat", CWD, "/work/d", 0x200) == -errno.ENOTEMPTY
    assert guest.call("unlinkat", CWD, "/work/d/p", 0) == 0
    assert guest.call("unlinkat", CWD, "/work/d", 0x200) == 0
