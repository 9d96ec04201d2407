"""Guest memory: one reserved host region, page permissions, and checked access from Python.

Guest address ``a`` lies at host address ``base + a``, so translated code adds ``base`` and nothing else. The
region covers the whole 2 GiB guest address space plus an inaccessible guard before and after it; the host's
own page protection mirrors the guest's read and write permission, so a bad guest access is a host fault that
the engine turns into a guest fault. Execute permission lives in the page table alone: the host never executes
guest pages. Accesses from Python check the page table first and raise `MemoryFault`; Python never touches a page
that the guest may not. The layout of the address space (image, heap, stack) is left to `emulator.linux`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from emulator.errors import EmulatorError
from emulator.listeners import CodeListener

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
_ALL_MARKS = LOCKED | WIPED_ON_FORK | NOT_FORKED
_PERMISSIONS = READ | WRITE | EXEC

DEFAULT_LIMIT_BYTES = 3 << 29

_PAGE_MASK = PAGE_BYTES - 1
_PAGE_IS_PRESENT = 62  # bits of /proc/self/pagemap from here on: in swap, in memory

_ACCESS_NAMES = {READ: "read", WRITE: "write", EXEC: "execute"}

_PROT_NONE, _PROT_READ, _PROT_WRITE = 0, 1, 2
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS, _MAP_NORESERVE = 0x01, 0x02, 0x10, 0x20, 0x4000
_MADV_DONTNEED, _MADV_REMOVE, _MADV_HUGEPAGE = 4, 9, 14
_MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


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


def _implied(prot: int) -> int:
    """Permissions as the page table holds them: pages that can be written or executed can be read."""
    prot &= _PERMISSIONS
    return prot | (READ if prot & (WRITE | EXEC) else 0)


def _host_protection(prot: int) -> int:
    return (_PROT_READ if prot & READ else _PROT_NONE) | (_PROT_WRITE if prot & WRITE else 0)


class PageCount:
    """The number of pages with some permission in all address spaces of a guest."""

    pages = 0


class SharedArea:
    """Memory shared by several address spaces; it lasts as long as one of them refers to it."""

    def __init__(self, length: int) -> None:
        self.descriptor = os.memfd_create("guest", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, length)
        weakref.finalize(self, os.close, self.descriptor)


class GuestMemory:
    """The address space of a guest process.

    ``base``: host address of guest address 0. ``perm``: uint8 ``(N_PAGES,)``, READ | WRITE | EXEC | MAPPED
    and marks for each 4 KiB page; read it freely, change it through `map`, `protect`, `mark` and `unmap` only.
    ``new_marks``: marks that mapped pages begin with.
    The listener that is attached gets a report before executable pages are unmapped, replaced, lose a permission, or
    are written to from Python, except by `write_int`; guest stores are not reported.
    Raises `MemoryLimit` when the host does not give the address space.
    """

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES, *, others: PageCount | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._count = others or PageCount()
        self._listener: CodeListener | None = None
        # Takes host memory only where the guest has pages.
        self._table = mmap.mmap(-1, N_PAGES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.perm: NDArray[np.uint8] = np.frombuffer(self._table, np.uint8)
        self._accessible_pages = 0
        self.new_marks = 0
        # Shared mappings: start, end, the area mapped there, and the offset in it.
        self._shared: list[tuple[int, int, SharedArea, int]] = []
        region_bytes = ADDRESS_SPACE_BYTES + 2 * GUARD_BYTES
        flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE
        region = _libc.mmap(None, region_bytes, _PROT_NONE, flags, -1, 0)
        if region is None or region == _MAP_FAILED:
            raise MemoryLimit(
                f"the host refused {region_bytes} bytes of address space for the guest; "
                "raise the limit of virtual memory (ulimit -v) or close other programs"
            )
        self.base = int(region) + GUARD_BYTES
        self._release = weakref.finalize(self, _libc.munmap, region, region_bytes)
        whole = (ctypes.c_uint8 * ADDRESS_SPACE_BYTES).from_address(self.base)
        self._view = memoryview(whole).cast("B")
        self._bytes: NDArray[np.uint8] = np.frombuffer(self._view, np.uint8)

    def attach(self, listener: CodeListener) -> None:
        """Report changes of code to ``listener`` from now on."""
        self._listener = listener

    def report_code_change(self, address: int, length_bytes: int) -> None:
        """Report that the guest has changed code in this range, as it says itself."""
        if self._listener is not None:
            self._listener.code_changed(address, length_bytes)

    def close(self) -> None:
        """Give the region back to the host; every later access is a `MemoryFault`."""
        self._table.madvise(mmap.MADV_DONTNEED)  # empties the page table
        self._shared.clear()
        self._grow(-self._accessible_pages)
        self._release()

    def another(self) -> GuestMemory:
        """An empty address space of the same guest, under the same limit for all of them together."""
        return GuestMemory(self.limit_bytes, others=self._count)

    def copy(self) -> GuestMemory:
        """An address space with the same pages, permissions and contents. Raises `MemoryLimit`."""
        other = self.another()
        try:
            other._take(self)
        except MemoryLimit:
            other.close()
            raise
        return other

    def _take(self, source: GuestMemory) -> None:
        """Copy all pages, shared mappings, permissions and marks of ``source``. Raises `MemoryLimit`."""
        areas = source.areas()
        for address, length, perm in areas:
            self.map(address, length, READ | WRITE if perm & _PERMISSIONS else 0)
            for start, end in [] if perm & WIPED_ON_FORK else source._touched(address, length):
                self._copy_pages(source, start, end, is_readable=bool(perm & READ))
        for start, end, area, offset in source._shared:
            self._map_area(start, end - start, area, offset, READ)
        for address, length, perm in areas:
            self.protect(address, length, perm)
            self.mark(address, length, perm & WIPED_ON_FORK)
            if perm & NOT_FORKED:
                self.unmap(address, length)

    def _copy_pages(self, source: GuestMemory, start: int, end: int, is_readable: bool) -> None:
        """Copy the contents of pages, also of pages without permissions, which the guest may make readable later."""
        if is_readable:
            self._bytes[start:end] = source._bytes[start:end]
            return
        for memory, protection in ((source, _PROT_READ), (self, _PROT_READ | _PROT_WRITE)):
            _libc.mprotect(memory.base + start, end - start, protection)
        self._bytes[start:end] = source._bytes[start:end]
        for memory in (source, self):
            _libc.mprotect(memory.base + start, end - start, _PROT_NONE)

    def areas(self) -> list[tuple[int, int, int]]:
        """Address, bytes and page table entry of each contiguous range of pages with equal entries, ascending."""
        eights = np.flatnonzero(self.perm.view(np.uint64))  # most of the table is empty
        pages = (eights[:, None] * 8 + np.arange(8)).ravel()
        entries = self.perm[pages]
        begins = (np.diff(pages, prepend=-2) != 1) | (np.diff(entries, prepend=np.uint8(0)) != 0)
        starts = np.flatnonzero(begins)
        lengths = np.diff(starts, append=len(pages))
        return [
            (page << PAGE_SHIFT, length << PAGE_SHIFT, entry)
            for page, length, entry in zip(
                pages[starts].tolist(), lengths.tolist(), entries[starts].tolist(), strict=True
            )
            if entry
        ]

    def _touched(self, address: int, length: int) -> list[tuple[int, int]]:
        """Start and end of the ranges for which the host holds pages, ascending; the whole range if it is unknown."""
        try:
            with open("/proc/self/pagemap", "rb", buffering=0) as table:
                raw = os.pread(
                    table.fileno(), length >> PAGE_SHIFT << 3, (self.base + address) >> PAGE_SHIFT << 3
                )
        except OSError:
            raw = b""
        entries = np.frombuffer(raw, np.uint64)
        if len(entries) != length >> PAGE_SHIFT:
            return [(address, address + length)]
        is_present = (entries >> _PAGE_IS_PRESENT) != 0
        borders = np.flatnonzero(np.diff(is_present, prepend=False, append=False)).reshape(-1, 2)
        return [
            (address + (start << PAGE_SHIFT), address + (end << PAGE_SHIFT))
            for start, end in borders.tolist()
        ]

    def _grow(self, n_pages: int) -> None:
        self._accessible_pages += n_pages
        self._count.pages += n_pages

    @property
    def mapped_bytes(self) -> int:
        """Bytes of mapped pages that have some permission; ``limit_bytes`` limits their sum over address spaces."""
        return self._accessible_pages << PAGE_SHIFT

    # Mapping. Addresses and lengths are in bytes, page aligned, and inside the address space.

    def map(self, address: int, length: int, prot: int) -> None:
        """Map fresh zeroed pages, replacing earlier ones. Raises `MemoryLimit`."""
        first, last = self._pages(address, length)
        prot = _implied(prot)
        before = int(np.count_nonzero(self.perm[first:last] & (READ | WRITE | EXEC)))
        after = last - first if prot else 0
        if (self._count.pages - before + after) << PAGE_SHIFT > self.limit_bytes:
            raise MemoryLimit(
                f"the guest asked for {length} bytes more than the {self.mapped_bytes} it has; "
                f"its limit is {self.limit_bytes} bytes"
            )
        self._code_changes(first, last)
        self._host_map(address, length, _host_protection(prot))
        self.perm[first:last] = prot | MAPPED | self.new_marks
        self._grow(after - before)

    def map_shared(self, address: int, length: int, prot: int) -> None:
        """Map fresh zeroed pages that a `copy` of this address space shares. Raises `MemoryLimit`."""
        self.map_area(address, length, prot, SharedArea(length))

    def map_area(self, address: int, length: int, prot: int, area: SharedArea, offset: int = 0) -> None:
        """Map ``area``, which other address spaces may map, too, from byte ``offset`` on. Raises `MemoryLimit`.

        The area must be long enough: an access past its end would fault on the host.
        """
        self.map(address, length, prot)
        self._map_area(address, length, area, offset, _implied(prot))

    def place_of(self, address: int) -> tuple[object, int]:
        """The identity of a word of memory, equal in all address spaces that share it: object and offset; for futexes.
        """
        found = self.shared_at(address) if self._shared else None
        if found is None:
            return self, address
        start, _, area, offset = found
        return area, offset + address - start

    def shared_at(self, address: int) -> tuple[int, int, SharedArea, int] | None:
        """The shared mapping at ``address``: start, end, the area, and the offset of the start in it; None for none."""
        return next((one for one in self._shared if one[0] <= address < one[1]), None)

    @property
    def has_shared(self) -> bool:
        """Whether other address spaces may write to some pages of this one."""
        return bool(self._shared)

    def _map_area(self, address: int, length: int, area: SharedArea, offset: int, prot: int) -> None:
        """Map ``area`` on the host, and list the mapping."""
        flags = _MAP_SHARED | _MAP_FIXED
        where = self.base + address
        if _libc.mmap(where, length, _host_protection(prot), flags, area.descriptor, offset) != where:
            raise MemoryLimit(f"the host cannot map {length} bytes of shared memory")
        self._shared.append((address, address + length, area, offset))

    def _forget_shared(self, start: int, end: int) -> None:
        """Remove the range from the list of shared mappings."""
        kept = []
        for low, high, area, offset in self._shared:
            if low < min(start, high):
                kept.append((low, min(start, high), area, offset))
            if max(end, low) < high:
                kept.append((max(end, low), high, area, offset + max(end, low) - low))
        self._shared = kept

    def unmap(self, address: int, length: int) -> None:
        """Remove pages; holes in the range are fine."""
        first, last = self._pages(address, length)
        self._code_changes(first, last)
        self._host_map(address, length, _PROT_NONE)
        self._grow(-int(np.count_nonzero(self.perm[first:last] & (READ | WRITE | EXEC))))
        self.perm[first:last] = 0

    def protect(self, address: int, length: int, prot: int) -> None:
        """Change permissions. Raises `MemoryFault` when a page of the range is not mapped, `MemoryLimit`."""
        first, last = self._pages(address, length)
        pages = self.perm[first:last]
        missing = np.flatnonzero(pages & MAPPED == 0)
        if len(missing):
            raise MemoryFault((first + int(missing[0])) << PAGE_SHIFT, READ, mapped=False)
        prot = _implied(prot)
        before = int(np.count_nonzero(pages & (READ | WRITE | EXEC)))
        after = last - first if prot else 0
        if after > before and (self._count.pages - before + after) << PAGE_SHIFT > self.limit_bytes:
            raise MemoryLimit(f"the guest may not use more than {self.limit_bytes} bytes of memory")
        if prot & (EXEC | WRITE) != EXEC | WRITE:  # later only writable pages are compared for changed code
            self._code_changes(first, last)
        if _libc.mprotect(self.base + address, length, _host_protection(prot)):
            raise MemoryLimit(f"the host cannot protect {length} bytes at {address:#x}: too many areas")
        pages[:] = pages & _ALL_MARKS | prot | MAPPED
        self._grow(after - before)

    def mark(self, address: int, length: int, marks: int, without: int = 0) -> None:
        """Give mapped pages of the range ``marks``, and take ``without`` from them."""
        first, last = self._pages(address, length)
        pages = self.perm[first:last]
        pages[pages != 0] |= marks & _ALL_MARKS
        pages &= ~(without & _ALL_MARKS) & 0xFF

    def mapped_in(self, address: int, length: int) -> list[tuple[int, int]]:
        """Start and end of each contiguous part of the range in which every page is mapped, ascending."""
        first, last = self._pages(address, length)
        is_mapped = self.perm[first:last] != 0
        borders = np.flatnonzero(np.diff(is_mapped, prepend=False, append=False)).reshape(-1, 2)
        return [
            (address + (start << PAGE_SHIFT), address + (end << PAGE_SHIFT))
            for start, end in borders.tolist()
        ]

    def parts_of(self, start: int, end: int) -> list[tuple[int, int, int, bool]]:
        """Split a mapped range where page table entry or sharing changes: start, end, entry, and whether it is shared,
        of each part, ascending."""
        pages = self.perm[start >> PAGE_SHIFT : end >> PAGE_SHIFT]
        cuts = {start + (int(page) + 1 << PAGE_SHIFT) for page in np.flatnonzero(np.diff(pages))}
        cuts |= {at for low, high, _, _ in self._shared for at in (low, high) if start < at < end}
        borders = [start, *sorted(cuts), end]
        return [
            (low, high, int(self.perm[low >> PAGE_SHIFT]), self.shared_at(low) is not None)
            for low, high in pairwise(borders)
        ]

    def discard(self, address: int, length: int, also_shared: bool = False) -> None:
        """Zero the mapped pages of the range and keep their permissions. ``also_shared``: zero shared pages, too, in
        all address spaces."""
        first, last = self._pages(address, length)
        self._code_changes(first, last)
        _libc.madvise(self.base + address, length, _MADV_REMOVE if also_shared else _MADV_DONTNEED)

    def move(self, source: int, target: int, length: int) -> None:
        """Move pages with contents, permissions and marks to ``target`` (not overlapping); shared ones stay shared.

        Raises `MemoryLimit`.
        """
        first, last = self._pages(source, length)
        permissions = self.perm[first:last].copy()
        self.map(target, length, READ | WRITE)
        shared = [
            (max(low, source), min(high, source + length), area, offset + max(0, source - low))
            for low, high, area, offset in self._shared
        ]
        _libc.mprotect(self.base + source, length, _PROT_READ)  # pages without permission move too
        ctypes.memmove(self.base + target, self.base + source, length)
        for low, high, area, offset in shared:
            if low < high:
                self._map_area(target + low - source, high - low, area, offset, READ | WRITE)
        starts = np.flatnonzero(np.diff(permissions, prepend=np.uint8(255)))
        for start, end in zip(starts, [*starts[1:], last - first], strict=True):
            where = target + (int(start) << PAGE_SHIFT)
            n_bytes, entry = (int(end) - int(start)) << PAGE_SHIFT, int(permissions[start])
            self.protect(where, n_bytes, entry)
            self.mark(where, n_bytes, entry, without=~entry)
        self.unmap(source, length)

    def find_free(self, length: int, low: int, high: int) -> int | None:
        """Highest address of a free range of ``length`` bytes in ``[low, high)``; None when there is none."""
        n_pages = page_ceiling(length) >> PAGE_SHIFT
        first, end = page_ceiling(low) >> PAGE_SHIFT, high >> PAGE_SHIFT
        while end - first >= n_pages:
            end = self._table.rfind(b"\0", first, end) + 1  # after the highest free page
            start = end - n_pages
            if start < first:
                return None
            occupied = len(self._table[start:end].rstrip(b"\0"))
            if not occupied:
                return start << PAGE_SHIFT
            end = start + occupied
        return None

    def is_free(self, address: int, length: int) -> bool:
        """Whether nothing is mapped in the range."""
        first, last = self._pages(address, length)
        return not self.perm[first:last].any()

    def is_mapped(self, address: int, length: int) -> bool:
        """Whether every page of the range is mapped, with whatever permission."""
        first, last = self._pages(address, length)
        return bool((self.perm[first:last] & MAPPED).all())

    # Checked access

    def valid_range(self, address: int, n_bytes: int, prot: int) -> bool:
        """Whether all of ``[address, address + n_bytes)`` has all permissions of ``prot``."""
        if n_bytes == 0:
            return True
        if address < 0 or n_bytes < 0 or address + n_bytes > ADDRESS_SPACE_BYTES:
            return False
        first, last = address >> PAGE_SHIFT, (address + n_bytes - 1) >> PAGE_SHIFT
        if first == last:
            return self._table[first] & prot == prot
        return bool((self.perm[first : last + 1] & prot == prot).all())

    def view(self, address: int, n_bytes: int, prot: int) -> memoryview:
        """The bytes themselves, writable, without a copy; use it before the guest runs again.

        Raises `MemoryFault` unless the whole range has the permissions ``prot``.
        """
        self._check(address, n_bytes, prot)
        if prot & WRITE:
            self._code_written(address, n_bytes)
        return self._view[address : address + n_bytes]

    def read(self, address: int, n_bytes: int) -> bytes:
        """Raises `MemoryFault`."""
        self._check(address, n_bytes, READ)
        return bytes(self._view[address : address + n_bytes])

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Raises `MemoryFault` before anything is written."""
        self._check(address, len(data), WRITE)
        self._code_written(address, len(data))
        self._view[address : address + len(data)] = data

    def peek(self, address: int, n_bytes: int) -> bytes | None:
        """Bytes to execute; None when they cross a page boundary or are not executable."""
        if (
            0 <= address < ADDRESS_SPACE_BYTES
            and (address & _PAGE_MASK) + n_bytes <= PAGE_BYTES
            and self._table[address >> PAGE_SHIFT] & EXEC
        ):
            return self._view[address : address + n_bytes].tobytes()
        return None

    def fetch(self, address: int, n_bytes: int) -> bytes:
        """Bytes to execute. Raises `MemoryFault` with ``access`` EXEC."""
        self._check(address, n_bytes, EXEC)
        return self._view[address : address + n_bytes].tobytes()

    def read_int(self, address: int, n_bytes: int) -> int:
        """A little-endian unsigned integer. Raises `MemoryFault`."""
        if (
            not 0 <= address < ADDRESS_SPACE_BYTES
            or (address & _PAGE_MASK) + n_bytes > PAGE_BYTES
            or not self._table[address >> PAGE_SHIFT] & READ
        ):
            self._check(address, n_bytes, READ)
        return int.from_bytes(self._view[address : address + n_bytes], "little")

    def write_int(self, address: int, n_bytes: int, value: int) -> None:
        """Store the low ``n_bytes`` of ``value``, little-endian. Raises `MemoryFault`.

        It acts as a store of the guest: changed code is noticed only when the guest announces it.
        """
        self._check(address, n_bytes, WRITE)
        self._view[address : address + n_bytes] = (value & ((1 << 8 * n_bytes) - 1)).to_bytes(
            n_bytes, "little"
        )

    def read_cstring(self, address: int, limit_bytes: int = 4096) -> bytes | None:
        """Bytes before the terminating zero; None when the limit comes first. Raises `MemoryFault`."""
        found = bytearray()
        while len(found) < limit_bytes:
            here = address + len(found)
            size = min(PAGE_BYTES - (here & (PAGE_BYTES - 1)), limit_bytes - len(found))
            chunk = self.read(here, size)
            end = chunk.find(0)
            if end >= 0:
                return bytes(found + chunk[:end])
            found += chunk
        return None

    # Inner parts

    def _pages(self, address: int, length: int) -> tuple[int, int]:
        """First page and end of a range. Raises `ValueError` unless it is whole pages of the address space."""
        if (address | length) & (PAGE_BYTES - 1) or length <= 0:
            raise ValueError(f"range {address:#x} + {length:#x}: expected whole pages of {PAGE_BYTES} bytes")
        if address < 0 or address + length > ADDRESS_SPACE_BYTES:
            raise ValueError(f"range {address:#x} + {length:#x}: expected it below {ADDRESS_SPACE_BYTES:#x}")
        return address >> PAGE_SHIFT, (address + length) >> PAGE_SHIFT

    def _host_map(self, address: int, length: int, protection: int) -> None:
        """Map fresh pages on the host. Raises `MemoryLimit`."""
        if not self._release.alive:
            raise MemoryLimit("the guest memory is closed")
        if self._shared:
            self._forget_shared(address, address + length)
        flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED
        if _libc.mmap(self.base + address, length, protection, flags, -1, 0) != self.base + address:
            raise MemoryLimit(f"the host cannot map {length} bytes for the guest: out of memory or areas")
        if protection & _PROT_WRITE:  # touching half a GB takes a quarter of a second less
            _libc.madvise(self.base + address, length, _MADV_HUGEPAGE)

    def _check(self, address: int, n_bytes: int, prot: int) -> None:
        """Raise `MemoryFault` unless the range has all permissions of ``prot``."""
        if self.valid_range(address, n_bytes, prot):
            return
        if not 0 <= address < ADDRESS_SPACE_BYTES:
            raise MemoryFault(address, prot & -prot, mapped=False)
        end = min(address + n_bytes, ADDRESS_SPACE_BYTES)
        pages = self.perm[address >> PAGE_SHIFT : ((end - 1) >> PAGE_SHIFT) + 1]
        bad = np.flatnonzero(pages & prot != prot)
        if not len(bad):
            raise MemoryFault(ADDRESS_SPACE_BYTES, prot & -prot, mapped=False)
        lacking = prot & ~int(pages[bad[0]])
        where = max(address, page_floor(address) + (int(bad[0]) << PAGE_SHIFT))
        raise MemoryFault(where, lacking & -lacking, mapped=bool(pages[bad[0]] & MAPPED))

    def _code_changes(self, first: int, last: int) -> None:
        """Report a change of executable pages."""
        if self._listener is not None and (self.perm[first:last] & EXEC).any():
            self._listener.code_changed(first << PAGE_SHIFT, (last - first) << PAGE_SHIFT)

    def _code_written(self, address: int, n_bytes: int) -> None:
        """Report a write to executable pages."""
        if self._listener is None or n_bytes == 0:
            return
        first, last = address >> PAGE_SHIFT, (address + n_bytes - 1) >> PAGE_SHIFT
        if (self.perm[first : last + 1] & EXEC).any():
            self._listener.code_changed(address, n_bytes)
