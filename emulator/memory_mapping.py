"""The pages of guest memory: the host region, mapping and unmapping, permissions, sharing, copies for a fork."""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from emulator.listeners import CodeListener
from emulator.memory_host import (
    ADDRESS_SPACE_BYTES,
    ALL_MARKS,
    DEFAULT_LIMIT_BYTES,
    EXEC,
    GUARD_BYTES,
    MADV_DONTNEED,
    MADV_HUGEPAGE,
    MADV_REMOVE,
    MAP_ANONYMOUS,
    MAP_FAILED,
    MAP_FIXED,
    MAP_NORESERVE,
    MAP_PRIVATE,
    MAP_SHARED,
    MAPPED,
    N_PAGES,
    NOT_FORKED,
    PAGE_BYTES,
    PAGE_IS_PRESENT,
    PAGE_SHIFT,
    PERMISSIONS,
    PROT_NONE,
    PROT_READ,
    PROT_WRITE,
    READ,
    WIPED_ON_FORK,
    WRITE,
    MemoryFault,
    MemoryLimit,
    PageCount,
    SharedArea,
    host_protection,
    implied_permissions,
    libc,
    page_ceiling,
)


class MappedMemory:
    """The pages of a guest process. `emulator.memory.GuestMemory` adds access to their contents and documents it."""

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES, *, others: PageCount | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._count = others or PageCount()
        self._listener: CodeListener | None = None
        # Takes host memory only where the guest has, or had, pages.
        self._table = mmap.mmap(-1, N_PAGES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.perm: NDArray[np.uint8] = np.frombuffer(self._table, np.uint8)
        self._accessible_pages = 0
        self.new_marks = 0
        # Shared mappings: start, end, the area mapped there, and the offset in it.
        self._shared: list[tuple[int, int, SharedArea, int]] = []
        region_bytes = ADDRESS_SPACE_BYTES + 2 * GUARD_BYTES
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        region = libc.mmap(None, region_bytes, PROT_NONE, flags, -1, 0)
        if region is None or region == MAP_FAILED:
            raise MemoryLimit(
                f"the host refused {region_bytes} bytes of address space for the guest; "
                "raise the limit of virtual memory (ulimit -v) or close other programs"
            )
        self.base = int(region) + GUARD_BYTES
        self._release = weakref.finalize(self, libc.munmap, region, region_bytes)
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

    def another(self) -> Self:
        """An empty address space of the same guest, under the same limit for all of them together."""
        return type(self)(self.limit_bytes, others=self._count)

    def copy(self) -> Self:
        """An address space with the same pages, permissions and contents. Raises `MemoryLimit`."""
        other = self.another()
        try:
            other._take(self)
        except MemoryLimit:
            other.close()
            raise
        return other

    def _take(self, source: MappedMemory) -> None:
        """Copy all pages, shared mappings, permissions and marks of ``source``. Raises `MemoryLimit`."""
        areas = source.areas()
        for address, length, perm in areas:
            self.map(address, length, READ | WRITE if perm & PERMISSIONS else 0)
            for start, end in [] if perm & WIPED_ON_FORK else source._touched(address, length):
                self._copy_pages(source, start, end, is_readable=bool(perm & READ))
        for start, end, area, offset in source._shared:
            self._map_area(start, end - start, area, offset, READ)
        for address, length, perm in areas:
            self.protect(address, length, perm)
            self.mark(address, length, perm & WIPED_ON_FORK)
            if perm & NOT_FORKED:
                self.unmap(address, length)

    def _copy_pages(self, source: MappedMemory, start: int, end: int, is_readable: bool) -> None:
        """Copy the contents of pages, also of pages without permissions, which the guest may make readable later."""
        if is_readable:
            self._bytes[start:end] = source._bytes[start:end]
            return
        for memory, protection in ((source, PROT_READ), (self, PROT_READ | PROT_WRITE)):
            libc.mprotect(memory.base + start, end - start, protection)
        self._bytes[start:end] = source._bytes[start:end]
        for memory in (source, self):
            libc.mprotect(memory.base + start, end - start, PROT_NONE)

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
                raw = os.pread(table.fileno(), length >> PAGE_SHIFT << 3, (self.base + address) >> PAGE_SHIFT << 3)
        except OSError:
            raw = b""
        entries = np.frombuffer(raw, np.uint64)
        if len(entries) != length >> PAGE_SHIFT:
            return [(address, address + length)]
        is_present = (entries >> PAGE_IS_PRESENT) != 0
        borders = np.flatnonzero(np.diff(is_present, prepend=False, append=False)).reshape(-1, 2)
        return [(address + (start << PAGE_SHIFT), address + (end << PAGE_SHIFT)) for start, end in borders.tolist()]

    def _grow(self, n_pages: int) -> None:
        self._accessible_pages += n_pages
        self._count.pages += n_pages

    @property
    def mapped_bytes(self) -> int:
        """Bytes of mapped pages that have some permission; ``limit_bytes`` limits their sum over address spaces."""
        return self._accessible_pages << PAGE_SHIFT

    # --- mapping; addresses and lengths are in bytes, page aligned, and inside the address space.

    def map(self, address: int, length: int, prot: int) -> None:
        """Map fresh zeroed pages, replacing earlier ones. Raises `MemoryLimit`."""
        first, last = self._pages(address, length)
        prot = implied_permissions(prot)
        before = int(np.count_nonzero(self.perm[first:last] & (READ | WRITE | EXEC)))
        after = last - first if prot else 0
        if (self._count.pages - before + after) << PAGE_SHIFT > self.limit_bytes:
            raise MemoryLimit(
                f"the guest asked for {length} bytes more than the {self.mapped_bytes} it has; "
                f"its limit is {self.limit_bytes} bytes"
            )
        self._code_changes(first, last)
        self._host_map(address, length, host_protection(prot))
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
        self._map_area(address, length, area, offset, implied_permissions(prot))

    def place_of(self, address: int) -> tuple[object, int]:
        """Identity of a word of memory, equal in all address spaces that share it: object and offset; for futexes."""
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
        flags = MAP_SHARED | MAP_FIXED
        where = self.base + address
        if libc.mmap(where, length, host_protection(prot), flags, area.descriptor, offset) != where:
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
        self._host_map(address, length, PROT_NONE)
        self._grow(-int(np.count_nonzero(self.perm[first:last] & (READ | WRITE | EXEC))))
        self.perm[first:last] = 0

    def protect(self, address: int, length: int, prot: int) -> None:
        """Change permissions. Raises `MemoryFault` when a page of the range is not mapped, `MemoryLimit`."""
        first, last = self._pages(address, length)
        pages = self.perm[first:last]
        missing = np.flatnonzero(pages & MAPPED == 0)
        if len(missing):
            raise MemoryFault((first + int(missing[0])) << PAGE_SHIFT, READ, mapped=False)
        prot = implied_permissions(prot)
        before = int(np.count_nonzero(pages & (READ | WRITE | EXEC)))
        after = last - first if prot else 0
        if after > before and (self._count.pages - before + after) << PAGE_SHIFT > self.limit_bytes:
            raise MemoryLimit(f"the guest may not use more than {self.limit_bytes} bytes of memory")
        if prot & (EXEC | WRITE) != EXEC | WRITE:  # later only writable pages are compared for changed code
            self._code_changes(first, last)
        if libc.mprotect(self.base + address, length, host_protection(prot)):
            raise MemoryLimit(f"the host cannot protect {length} bytes at {address:#x}: too many areas")
        pages[:] = pages & ALL_MARKS | prot | MAPPED
        self._grow(after - before)

    def mark(self, address: int, length: int, marks: int, without: int = 0) -> None:
        """Give mapped pages of the range ``marks``, and take ``without`` from them."""
        first, last = self._pages(address, length)
        pages = self.perm[first:last]
        pages[pages != 0] |= marks & ALL_MARKS
        pages &= ~(without & ALL_MARKS) & 0xFF

    def mapped_in(self, address: int, length: int) -> list[tuple[int, int]]:
        """Start and end of each contiguous part of the range in which every page is mapped, ascending."""
        first, last = self._pages(address, length)
        is_mapped = self.perm[first:last] != 0
        borders = np.flatnonzero(np.diff(is_mapped, prepend=False, append=False)).reshape(-1, 2)
        return [(address + (start << PAGE_SHIFT), address + (end << PAGE_SHIFT)) for start, end in borders.tolist()]

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
        libc.madvise(self.base + address, length, MADV_REMOVE if also_shared else MADV_DONTNEED)

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
        libc.mprotect(self.base + source, length, PROT_READ)  # pages without permission move too
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

    # --- inner parts
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
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED
        if libc.mmap(self.base + address, length, protection, flags, -1, 0) != self.base + address:
            raise MemoryLimit(f"the host cannot map {length} bytes for the guest: out of memory or areas")
        if protection & PROT_WRITE:  # touching half a GB takes a quarter of a second less
            libc.madvise(self.base + address, length, MADV_HUGEPAGE)

    def _code_changes(self, first: int, last: int) -> None:
        """Report a change of executable pages."""
        if self._listener is not None and (self.perm[first:last] & EXEC).any():
            self._listener.code_changed(first << PAGE_SHIFT, (last - first) << PAGE_SHIFT)
