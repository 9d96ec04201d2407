"""The host's side of guest memory: pages and permissions, calls of the host's memory management, and shared areas."""

from __future__ import annotations

import ctypes
import os
import weakref

from emulator.errors import EmulatorError

ADDRESS_SPACE_BYTES = 1 << 31
GUARD_BYTES = 1 << 16
PAGE_BYTES = 4096
PAGE_SHIFT = 12
N_PAGES = ADDRESS_SPACE_BYTES >> PAGE_SHIFT

READ, WRITE, EXEC = 1, 2, 4
MAPPED = 8
"""Set in the page table for every mapped page, also for one without any permission."""

LOCKED, WIPED_ON_FORK, NOT_FORKED = 16, 32, 64
"""Marks of pages in the page table: mlock, MADV_WIPEONFORK and MADV_DONTFORK (see `GuestMemory.mark`)."""
ALL_MARKS = LOCKED | WIPED_ON_FORK | NOT_FORKED
PERMISSIONS = READ | WRITE | EXEC

DEFAULT_LIMIT_BYTES = 3 << 29

PAGE_MASK = PAGE_BYTES - 1
PAGE_IS_PRESENT = 62  # bits of /proc/self/pagemap from here on: in swap, in memory

_ACCESS_NAMES = {READ: "read", WRITE: "write", EXEC: "execute"}

PROT_NONE, PROT_READ, PROT_WRITE = 0, 1, 2
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE = 0x01, 0x02, 0x10, 0x20, 0x4000
MADV_DONTNEED, MADV_REMOVE, MADV_HUGEPAGE = 4, 9, 14
MAP_FAILED = ctypes.c_void_p(-1).value

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class MemoryFault(EmulatorError):
    """An access that the guest may not make; ``access`` is READ, WRITE or EXEC.

    ``address``: the first byte that is not allowed; ``mapped``: whether its page is mapped and forbids the access.
    """

    def __init__(self, address: int, access: int, mapped: bool) -> None:
        why = "the page does not allow it" if mapped else "nothing is mapped there"
        super().__init__(f"bad guest {_ACCESS_NAMES[access]} at {address:#x}: {why}")
        self.address = address
        self.access = access
        self.mapped = mapped


class MemoryLimit(EmulatorError):
    """The guest asked for more memory than it is allowed to have, or than the host gives."""


def page_floor(address: int) -> int:
    return address & -PAGE_BYTES


def page_ceiling(address: int) -> int:
    return (address + PAGE_BYTES - 1) & -PAGE_BYTES


def implied_permissions(prot: int) -> int:
    """Permissions as the page table holds them: pages that can be written or executed can be read."""
    prot &= PERMISSIONS
    return prot | (READ if prot & (WRITE | EXEC) else 0)


def host_protection(prot: int) -> int:
    return (PROT_READ if prot & READ else PROT_NONE) | (PROT_WRITE if prot & WRITE else 0)


class PageCount:
    """The number of pages with some permission in all address spaces of a guest."""

    pages = 0


class SharedArea:
    """Memory shared by several address spaces; it lasts as long as one of them refers to it."""

    def __init__(self, length: int) -> None:
        self.descriptor = os.memfd_create("guest", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, length)
        weakref.finalize(self, os.close, self.descriptor)
