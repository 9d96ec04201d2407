"""brk, mmap and their relatives, against what Linux answers."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from emulator.linux.vfs.files import VirtualFiles
from emulator.memory import ADDRESS_SPACE_BYTES, MAPPED, PAGE_BYTES, READ, WRITE
from tests.emulator.linux.conftest import Guest

RW, ANONYMOUS, PRIVATE, SHARED, FIXED, NOREPLACE = 3, 0x20, 2, 1, 0x10, 0x10_0000
MAYMOVE, REMAP_FIXED = 1, 2


def mmap(
    guest: Guest,
    length: int,
    address: int = 0,
    prot: int = RW,
    flags: int = PRIVATE | ANONYMOUS,
    fd: int = -1,
    offset: int = 0,
) -> int:
    return guest.call("mmap", address, length, prot, flags, fd, offset)


def test_brk_grows_shrinks_and_refuses(guest: Guest) -> None:
    start = guest.call("brk", 0)
    assert start == guest.process.brk_start
    assert guest.call("brk", start + 5000) == start + 5000
    guest.memory.write(start + 4990, b"x")
    assert guest.call("brk", start + 100) == start + 100
    assert not guest.memory.valid_range(start + PAGE_BYTES, 1, READ)
    assert guest.call("brk", start + 5000) == start + 5000
    assert guest.memory.read(start + 4990, 1) == b"\0"
    assert guest.call("brk", start - 1) == start + 5000
    assert guest.call("brk", guest.process.mmap_high) == start + 5000


def test_brk_stops_at_a_mapping(guest: Guest) -> None:
    start = guest.call("brk", 0)
    assert mmap(guest, PAGE_BYTES, start + 2 * PAGE_BYTES, flags=PRIVATE | ANONYMOUS | FIXED) > 0
    assert guest.call("brk", start + 3 * PAGE_BYTES) == start
    assert guest.call("brk", start + 2 * PAGE_BYTES) == start + 2 * PAGE_BYTES


def test_mappings_go_down_from_the_top(guest: Guest) -> None:
    first = mmap(guest, 100)
    assert first == guest.process.mmap_high - PAGE_BYTES
    assert mmap(guest, 2 * PAGE_BYTES) == first - 2 * PAGE_BYTES
    assert guest.call("munmap", first, 1) == 0
    assert mmap(guest, PAGE_BYTES) == first


def test_a_free_hint_is_taken(guest: Guest) -> None:
    assert mmap(guest, 100, 0x3000_0123) == 0x3000_0000
    assert mmap(guest, 100, 0x3000_0000) == guest.process.mmap_high - PAGE_BYTES


def test_fixed_replaces_and_noreplace_does_not(guest: Guest) -> None:
    where = mmap(guest, 2 * PAGE_BYTES)
    guest.memory.write(where, b"old")
    assert mmap(guest, PAGE_BYTES, where, flags=PRIVATE | ANONYMOUS | NOREPLACE) == -errno.EEXIST
    assert mmap(guest, PAGE_BYTES, where, flags=PRIVATE | ANONYMOUS | FIXED) == where
    assert guest.memory.read(where, 3) == bytes(3)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"length": 0}, errno.EINVAL),
        ({"length": 1 << 62}, errno.ENOMEM),
        ({"length": 2**64 - 1}, errno.ENOMEM),
        ({"length": 4096, "flags": ANONYMOUS}, errno.EINVAL),
        ({"length": 4096, "offset": 5}, errno.EINVAL),
        ({"length": 4096, "flags": PRIVATE, "fd": 77}, errno.EBADF),
        ({"length": 4096, "flags": PRIVATE, "fd": 0}, errno.ENODEV),
        ({"length": 4096, "flags": PRIVATE, "fd": 1}, errno.EACCES),
        ({"length": 4096, "flags": SHARED, "fd": 0}, errno.ENODEV),
        ({"length": 4096, "address": 1, "flags": PRIVATE | ANONYMOUS | FIXED}, errno.EINVAL),
        ({"length": 4096, "address": 0, "flags": PRIVATE | ANONYMOUS | FIXED}, errno.EPERM),
        (
            {"length": 8192, "address": ADDRESS_SPACE_BYTES - 4096, "flags": PRIVATE | ANONYMOUS | FIXED},
            errno.ENOMEM,
        ),
    ],
)
def test_mmap_refusals(guest: Guest, options: dict[str, Any], error: int) -> None:
    assert mmap(guest, **options) == -error


def test_more_than_the_limit_is_enomem(guest: Guest) -> None:
    guest.memory.limit_bytes = guest.memory.mapped_bytes + (1 << 20)
    assert mmap(guest, 2 << 20) == -errno.ENOMEM
    assert mmap(guest, 1 << 20) > 0
    assert guest.call("brk", guest.process.brk_start + PAGE_BYTES) == guest.process.brk_start


def test_file_contents_are_copied(make_guest: Callable[..., Guest]) -> None:
    contents = bytes(range(256)) * 32
    guest = make_guest(files=VirtualFiles(mapped={"/data": contents}))
    fd = guest.call("openat", -100, "/data", 0, 0)
    where = mmap(guest, 10000, prot=1, flags=PRIVATE, fd=fd, offset=4096)
    assert guest.memory.read(where, 3 * PAGE_BYTES) == contents[4096:].ljust(3 * PAGE_BYTES, b"\0")
    assert guest.memory.perm[where // PAGE_BYTES] == READ | MAPPED
    assert mmap(guest, 10, prot=1, flags=PRIVATE, fd=fd, offset=(1 << 63) - 4096) == -errno.EOVERFLOW
    assert mmap(guest, 10, prot=1, flags=PRIVATE, fd=fd, offset=(1 << 64) - 4096) == -errno.EOVERFLOW
    shared = mmap(guest, 10, prot=1, flags=SHARED, fd=fd)
    assert guest.memory.read(shared, 3) == contents[:3]


def test_munmap_of_what_is_not_pages(guest: Guest) -> None:
    assert guest.call("munmap", 0x3000_0001, 4096) == -errno.EINVAL
    assert guest.call("munmap", 0x3000_0000, 0) == -errno.EINVAL
    assert guest.call("munmap", ADDRESS_SPACE_BYTES - 4096, 8192) == -errno.EINVAL
    assert guest.call("munmap", 0x3000_0000, 4096) == 0


def test_mremap_grows_in_place_moves_and_shrinks(guest: Guest) -> None:
    where = mmap(guest, PAGE_BYTES, 0x3000_0000)
    guest.memory.write(where, b"contents")
    assert guest.call("mremap", where, PAGE_BYTES, 3 * PAGE_BYTES, 0) == where
    assert guest.memory.valid_range(where, 3 * PAGE_BYTES, READ | WRITE)
    assert guest.call("mremap", where, 3 * PAGE_BYTES, PAGE_BYTES, 0) == where
    assert guest.memory.is_free(where + PAGE_BYTES, PAGE_BYTES)

    assert mmap(guest, PAGE_BYTES, where + PAGE_BYTES) == where + PAGE_BYTES
    assert guest.call("mremap", where, PAGE_BYTES, 2 * PAGE_BYTES, 0) == -errno.ENOMEM
    moved = guest.call("mremap", where, PAGE_BYTES, 2 * PAGE_BYTES, MAYMOVE)
    assert moved == guest.process.mmap_high - 2 * PAGE_BYTES
    assert guest.memory.read(moved, 8) == b"contents"
    assert guest.memory.read(moved + PAGE_BYTES, 8) == bytes(8)
    assert guest.memory.is_free(where, PAGE_BYTES)

    fixed = guest.call("mremap", moved, 2 * PAGE_BYTES, PAGE_BYTES, MAYMOVE | REMAP_FIXED, 0x2000_0000)
    assert fixed == 0x2000_0000
    assert guest.memory.read(fixed, 8) == b"contents"
    assert guest.memory.is_free(moved, 2 * PAGE_BYTES)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0x3000_0001, 4096, 8192, 1), errno.EINVAL),
        ((0x3000_0000, 4096, 0, 1), errno.EINVAL),
        ((0x3000_0000, 0, 4096, 1), errno.EINVAL),
        ((0x3000_0000, 4096, 8192, 8), errno.EINVAL),
        ((0x3000_0000, 4096, 8192, REMAP_FIXED, 0x2000_0000), errno.EINVAL),
        ((0x3000_0000, 4096, 8192, MAYMOVE | REMAP_FIXED, 0x3000_0000), errno.EINVAL),
        ((0x2F00_0000, 4096, 8192, 1), errno.EFAULT),
        ((0x3000_0000, 4096, 1 << 40, 1), errno.ENOMEM),
        ((0x3000_0000, 4096, 0x7000_0000, 1), errno.ENOMEM),
    ],
)
def test_mremap_refusals(guest: Guest, arguments: Any, error: int) -> None:
    mmap(guest, PAGE_BYTES, 0x3000_0000)
    guest.memory.write(0x3000_0000, b"kept")
    assert guest.call("mremap", *arguments) == -error
    assert guest.memory.read(0x3000_0000, 4) == b"kept"


def test_a_move_beyond_the_limit_leaves_everything_as_it_was(guest: Guest) -> None:
    where = mmap(guest, 4 * PAGE_BYTES, 0x3000_0000)
    mmap(guest, PAGE_BYTES, where + 4 * PAGE_BYTES)
    before = guest.memory.mapped_bytes
    guest.memory.limit_bytes = before + 6 * PAGE_BYTES
    assert guest.call("mremap", where, 4 * PAGE_BYTES, 8 * PAGE_BYTES, MAYMOVE) == -errno.ENOMEM
    assert guest.memory.mapped_bytes == before
    assert guest.memory.valid_range(where, 4 * PAGE_BYTES, READ | WRITE)


def test_mprotect(guest: Guest) -> None:
    where = mmap(guest, 2 * PAGE_BYTES)
    assert guest.call("mprotect", where, 1, 1) == 0
    assert guest.memory.perm[where // PAGE_BYTES] == READ | MAPPED
    assert guest.memory.valid_range(where + PAGE_BYTES, 8, WRITE)
    assert guest.call("mprotect", where - PAGE_BYTES, 2 * PAGE_BYTES, 1) == -errno.ENOMEM
    assert guest.call("mprotect", where + 1, PAGE_BYTES, 1) == -errno.EINVAL
    assert guest.call("mprotect", where, PAGE_BYTES, 0x100) == -errno.EINVAL


def test_madvise_dontneed_clears(guest: Guest) -> None:
    where = mmap(guest, PAGE_BYTES)
    guest.memory.write(where, b"x")
    assert guest.call("madvise", where, PAGE_BYTES, 8) == 0
    assert guest.memory.read(where, 1) == b"x"
    assert guest.call("madvise", where, PAGE_BYTES, 4) == 0
    assert guest.memory.read(where, 1) == b"\0"
    assert guest.call("madvise", 0x2F00_0000, PAGE_BYTES, 4) == -errno.ENOMEM
