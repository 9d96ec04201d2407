"""Guest memory: one reserved host region, page permissions, and checked access from Python.

Guest address ``a`` lies at host address ``base + a``, so translated code adds ``base`` and nothing else. The
region covers the whole 2 GiB guest address space plus an inaccessible guard before and after it; the host's
own page protection mirrors the guest's read and write permission, so a bad guest access is a host fault that
the engine turns into a guest fault. Execute permission lives in the page table alone: the host never executes
guest pages. Accesses from Python check the page table first and raise `MemoryFault`; Python never touches a page
that the guest may not. The layout of the address space (image, heap, stack) is left to `emulator.linux`.

`GuestMemory` is the whole interface; its pages are in `emulator.memory_mapping`, the host's side in
`emulator.memory_host`.
"""

from __future__ import annotations

import numpy as np

from emulator.memory_host import (
    ADDRESS_SPACE_BYTES,
    DEFAULT_LIMIT_BYTES,
    EXEC,
    GUARD_BYTES,
    LOCKED,
    MAPPED,
    N_PAGES,
    NOT_FORKED,
    PAGE_BYTES,
    PAGE_MASK,
    PAGE_SHIFT,
    READ,
    WIPED_ON_FORK,
    WRITE,
    MemoryFault,
    MemoryLimit,
    PageCount,
    SharedArea,
    page_ceiling,
    page_floor,
)
from emulator.memory_mapping import MappedMemory

__all__ = [
    "ADDRESS_SPACE_BYTES",
    "DEFAULT_LIMIT_BYTES",
    "EXEC",
    "GUARD_BYTES",
    "LOCKED",
    "MAPPED",
    "NOT_FORKED",
    "N_PAGES",
    "PAGE_BYTES",
    "PAGE_SHIFT",
    "READ",
    "WIPED_ON_FORK",
    "WRITE",
    "GuestMemory",
    "MemoryFault",
    "MemoryLimit",
    "PageCount",
    "SharedArea",
    "page_ceiling",
    "page_floor",
]


class GuestMemory(MappedMemory):
    """The address space of a guest process.

    ``base``: host address of guest address 0. ``perm``: uint8 ``(N_PAGES,)``, READ | WRITE | EXEC | MAPPED
    and marks for each 4 KiB page; read it freely, change it through `map`, `protect`, `mark` and `unmap` only.
    ``new_marks``: marks that mapped pages begin with.
    The listener that is attached gets a report before executable pages are unmapped, replaced, lose a permission, or
    are written to from Python, except by `write_int`; guest stores are not reported.
    Raises `MemoryLimit` when the host does not give the address space.
    """

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
        end = address + len(data)
        # Within one page without code, which nearly all results of system calls are: programs ask for the time often.
        if not (
            0 <= address < ADDRESS_SPACE_BYTES
            and (end - 1) >> PAGE_SHIFT == address >> PAGE_SHIFT
            and self._table[address >> PAGE_SHIFT] & (WRITE | EXEC) == WRITE
        ):
            self._check(address, len(data), WRITE)
            self._code_written(address, len(data))
        self._view[address:end] = data

    def peek(self, address: int, n_bytes: int) -> bytes | None:
        """Bytes to execute; None when they cross a page boundary or are not executable."""
        if (
            0 <= address < ADDRESS_SPACE_BYTES
            and (address & PAGE_MASK) + n_bytes <= PAGE_BYTES
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
            or (address & PAGE_MASK) + n_bytes > PAGE_BYTES
            or not self._table[address >> PAGE_SHIFT] & READ
        ):
            self._check(address, n_bytes, READ)
        return int.from_bytes(self._view[address : address + n_bytes], "little")

    def write_int(self, address: int, n_bytes: int, value: int) -> None:
        """Store the low ``n_bytes`` of ``value``, little-endian. Raises `MemoryFault`.

        It acts as a store of the guest: changed code is noticed only when the guest announces it.
        """
        self._check(address, n_bytes, WRITE)
        self._view[address : address + n_bytes] = (value & ((1 << 8 * n_bytes) - 1)).to_bytes(n_bytes, "little")

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

    def _code_written(self, address: int, n_bytes: int) -> None:
        """Report a write to executable pages."""
        if self._listener is None or n_bytes == 0:
            return
        first, last = address >> PAGE_SHIFT, (address + n_bytes - 1) >> PAGE_SHIFT
        if (self.perm[first : last + 1] & EXEC).any():
            self._listener.code_changed(address, n_bytes)
