"""The mappings of a process: its program, heap, stack, anonymous memory and mapped files.

Private mappings of files, and shared mappings of read-only files, are copied at once, so later changes of the file are
not visible; other shared mappings use `page_cache`. Pages past the end of a file read as zeros instead of raising
SIGBUS. Shared anonymous memory is shared with processes forked later.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable

from emulator.linux.abi.numbers import signed
from emulator.linux.loader.process_image import ProcessImage
from emulator.linux.mm.page_cache import Shared
from emulator.linux.vfs.files import VirtualFiles
from emulator.linux.vfs.open_files import Device, OpenFile
from emulator.linux.vfs.regular_files import RegularFile
from emulator.memory import (
    ADDRESS_SPACE_BYTES,
    EXEC,
    LOCKED,
    PAGE_BYTES,
    READ,
    WRITE,
    GuestMemory,
    MemoryLimit,
    SharedArea,
    page_ceiling,
    page_floor,
)

_LOWEST_ADDRESS = 0x1_0000  # vm.mmap_min_addr: address 0 and its neighbours always fault

_PROT_ALL = 7
_MAP_SHARED, _MAP_PRIVATE, _MAP_SHARED_VALIDATE, _MAP_TYPE = 1, 2, 3, 15
_MAP_FIXED, _MAP_ANONYMOUS, _MAP_FIXED_NOREPLACE = 0x10, 0x20, 0x10_0000
_MREMAP_MAYMOVE, _MREMAP_FIXED, _MREMAP_DONTUNMAP = 1, 2, 4


def _permission(prot: int) -> int:
    # PROT_READ, PROT_WRITE and PROT_EXEC are READ, WRITE and EXEC
    return prot & (READ | WRITE | EXEC)


class Mappings:
    """The mappings in ``memory`` of a process that executes ``program``; ``brk``, ``mmap``, ``munmap`` and ``mremap``
    are the system calls. ``files``: the files of the process; ``report``: records a feature that is not supported."""

    def __init__(
        self, memory: GuestMemory, program: ProcessImage, files: VirtualFiles, report: Callable[[str], None]
    ) -> None:
        self._memory = memory
        self._files = files
        self._report = report
        self._brk_start = self._brk = program.brk_start
        self._mmap_high = program.mmap_high
        self._mappings = [
            (page_floor(segment.address), page_ceiling(segment.end), page_floor(segment.offset), path)
            for image, path in (
                (program.image, files.absolute(program.image.name)),
                (program.interpreter, ""),
            )
            if image is not None
            for segment in image.segments
            for path in (path or image.name,)
        ]
        self._mappings.append((program.stack_low, program.stack_high, 0, "[stack]"))
        self._shared_mappings: list[tuple[int, int, Shared]] = []  # start, end and pages of each shared mapping

    def continue_from(self, other: Mappings) -> None:
        """Copy the heap and the mappings of ``other``, after a fork."""
        self._brk_start, self._brk = other._brk_start, other._brk
        self._mappings = list(other._mappings)
        self._shared_mappings = list(other._shared_mappings)
        for _, _, pages in self._shared_mappings:
            pages.join()

    def release(self) -> None:
        """Leave all shared mappings: the process has ended or executes another program."""
        for _, _, pages in self._shared_mappings:
            pages.leave()
        self._shared_mappings = []

    def mappings_in(self, start: int, end: int) -> list[tuple[int, int, int, str]]:
        """The mappings in ``[start, end)``, which has no holes: start, end, offset in the file, and its path or
        kind."""
        found: list[tuple[int, int, int, str]] = []
        here = start
        heap = (self._brk_start, page_ceiling(self._brk), 0, "[heap]")
        for low, high, offset, name in sorted([*self._mappings, heap]):
            first, last = max(low, here), min(high, end)
            if first < last:
                if here < first:
                    found.append((here, first, 0, ""))
                found.append((first, last, offset + first - low if name.startswith("/") else 0, name))
                here = last
        return [*found, (here, end, 0, "")] if here < end else found

    def mapping_at(self, address: int) -> tuple[str, int, int] | None:
        """The path of the file that is mapped at an address, where its mapping starts, and the offset there in the
        file; None without one."""
        for low, high, offset, name in self._mappings:
            if low <= address < high and name.startswith("/"):
                return name, low, offset
        return None

    def file_at(self, address: int) -> str | None:
        """The file mapped at an address and the offset in it, such as ``/lib/libc.so.6+0x1234``; None without one."""
        found = self.mapping_at(address)
        return f"{posixpath.normpath(found[0])}+{found[2] + address - found[1]:#x}" if found is not None else None

    def _record(self, start: int, length: int, offset: int = 0, name: str = "") -> None:
        """Record that the range maps that file, or none (``name`` empty), and end its shared mappings."""
        self._end_sharing(start, start + length)
        end, kept = start + length, []
        for low, high, at, other in self._mappings:
            if low < min(start, high):
                kept.append((low, min(start, high), at, other))
            if max(end, low) < high:
                first = max(end, low)
                kept.append((first, high, at + first - low, other))
        self._mappings = [*kept, (start, end, offset, name)] if name else kept

    def _end_sharing(self, start: int, end: int) -> None:
        """Remove the range from the shared mappings."""
        kept: list[tuple[int, int, Shared]] = []
        for low, high, pages in self._shared_mappings:
            parts = [(a, b) for a, b in ((low, min(start, high)), (max(end, low), high)) if a < b]
            kept += [(a, b, pages) for a, b in parts]
            if len(parts) == 2:
                pages.join()
            elif not parts:
                pages.leave()
        self._shared_mappings = kept

    def brk(self, address: int) -> int:
        memory = self._memory
        if not self._brk_start <= address < self._mmap_high:
            return self._brk
        old_end, new_end = page_ceiling(self._brk), page_ceiling(address)
        if new_end > old_end:
            if not memory.is_free(old_end, new_end - old_end):
                return self._brk
            try:
                memory.map(old_end, new_end - old_end, READ | WRITE)
            except MemoryLimit:
                return self._brk
        elif new_end < old_end:
            memory.unmap(new_end, old_end - new_end)
        self._brk = address
        return address

    def mmap(self, address: int, length: int, prot: int, flags: int, fd: int, offset: int) -> int:
        if length == 0 or offset % PAGE_BYTES or prot & ~_PROT_ALL & 0xFF:
            raise OSError(errno.EINVAL, "mmap")
        kind = flags & _MAP_TYPE
        if kind not in (_MAP_SHARED, _MAP_PRIVATE, _MAP_SHARED_VALIDATE):
            raise OSError(errno.EINVAL, "mmap type")
        length = page_ceiling(length)
        if flags & _MAP_ANONYMOUS:
            return self._map_memory(address, length, prot, flags)
        file = self._files.descriptors.file(signed(fd, 32))
        if isinstance(file, Device) and file.is_zeros:
            return self._map_memory(address, length, prot, flags)
        if not file.readable:
            raise OSError(errno.EACCES, "mapping needs read access")
        if not isinstance(file, RegularFile):
            raise OSError(errno.ENODEV, "not a file")
        if length > ADDRESS_SPACE_BYTES:
            raise OSError(errno.ENOMEM, "mmap")
        if offset + length >> 62:
            raise OSError(errno.EOVERFLOW, "offset")
        if kind != _MAP_PRIVATE and prot & WRITE and not file.writable:
            raise OSError(errno.EACCES, "shared mapping needs write access")
        if kind != _MAP_PRIVATE and (file.writable or self._can_be_written(file)):
            return self._map_shared_file(address, length, prot, flags, file, offset)
        return self._map_copy(address, length, prot, flags, file, offset)

    def _map_memory(self, address: int, length: int, prot: int, flags: int) -> int:
        where = self._choose_address(address, length, flags)
        shared = flags & _MAP_TYPE != _MAP_PRIVATE
        (self._memory.map_shared if shared else self._memory.map)(where, length, _permission(prot))
        self._record(where, length)
        return where

    def _map_copy(self, address: int, length: int, prot: int, flags: int, file: RegularFile, offset: int) -> int:
        contents = file.read_at(length, offset)
        where = self._choose_address(address, length, flags)
        self._memory.map(where, length, READ | WRITE if contents else _permission(prot))
        if contents:
            self._memory.write(where, contents)
            self._memory.protect(where, length, _permission(prot))
        self._record(where, length, offset, file.path)
        return where

    def _map_shared_file(self, address: int, length: int, prot: int, flags: int, file: RegularFile, offset: int) -> int:
        where = self._choose_address(address, length, flags)
        pages = self._files.page_cache.use(file.key, file.open_store, file.writable)
        try:
            self._files.page_cache.load(pages, offset, length)
            self._memory.map_area(where, length, _permission(prot), pages.area, offset)
        except (OSError, MemoryLimit):
            pages.leave()
            raise
        self._record(where, length, offset, file.path)
        self._shared_mappings.append((where, where + length, pages))
        return where

    def attach(
        self, address: int, length: int, flags: int, permission: int, area: SharedArea, name: str, shared: Shared
    ) -> int:  # fmt: skip
        """Map ``area``, which ``shared`` counts, under ``name``; return its address. Raises OSError and
        `MemoryLimit`."""
        where = self._choose_address(address, length, flags)
        self._memory.map_area(where, length, permission, area)
        self._record(where, length, 0, name)
        self._shared_mappings.append((where, where + length, shared))
        return where

    def detach(self, address: int, kind: type[Shared]) -> bool:
        """Unmap the remaining parts of the area of class ``kind`` that was attached at ``address``; return whether
        there are any."""
        parts = [
            (low, high - low)
            for low, high, shared in self._shared_mappings
            if isinstance(shared, kind) and low - self._memory.place_of(low)[1] == address
        ]
        for start, length in parts:
            self.munmap(start, length)
        return bool(parts)

    def _can_be_written(self, file: OpenFile) -> bool:
        try:
            return self._files.is_writable(file.path)
        except OSError:
            return True  # its name was removed: another process may have it open for writing

    def munmap(self, address: int, length: int) -> int:
        if address % PAGE_BYTES or length == 0 or address + length > ADDRESS_SPACE_BYTES:
            raise OSError(errno.EINVAL, "munmap")
        self._memory.unmap(address, page_ceiling(length))
        self._record(address, page_ceiling(length))
        return 0

    def mremap(self, old_address: int, old_length: int, new_length: int, flags: int, new_address: int) -> int:
        if flags & ~(_MREMAP_MAYMOVE | _MREMAP_FIXED | _MREMAP_DONTUNMAP):
            raise OSError(errno.EINVAL, "mremap flags")
        if flags & (_MREMAP_FIXED | _MREMAP_DONTUNMAP) and not flags & _MREMAP_MAYMOVE:
            raise OSError(errno.EINVAL, "mremap flags")
        if flags & _MREMAP_DONTUNMAP and old_length != new_length:
            raise OSError(errno.EINVAL, "mremap flags")
        if old_address % PAGE_BYTES or new_length == 0:
            raise OSError(errno.EINVAL, "mremap")
        memory = self._memory
        old_length, new_length = page_ceiling(old_length), page_ceiling(new_length)
        if old_address >= ADDRESS_SPACE_BYTES or not memory.is_mapped(old_address, PAGE_BYTES):
            raise OSError(errno.EFAULT, "mremap")
        if new_length > ADDRESS_SPACE_BYTES:
            raise OSError(errno.ENOMEM, "mremap")
        target = None
        if flags & _MREMAP_FIXED:
            target = self._fixed(new_address, new_length)
            if target < old_address + old_length and old_address < target + new_length:
                raise OSError(errno.EINVAL, "mremap onto an overlapping range")
        elif new_length <= old_length and not flags & _MREMAP_DONTUNMAP:
            if new_length < old_length:
                self._unmap(old_address + new_length, old_address + old_length)
            return old_address
        shared = memory.shared_at(old_address)
        if not old_length and shared is None:
            raise OSError(errno.EINVAL, "only shared memory can be mapped twice")
        self._check_single_mapping(old_address, min(old_length, new_length) if target is not None else old_length)
        if shared is not None and old_address + new_length > shared[1]:
            self._report("mremap of a shared mapping to a greater length")
            raise OSError(errno.ENOMEM, "mremap of shared memory")
        if not old_length and target is not None and target <= old_address < target + new_length:
            self._unmap(target, target + new_length)
            raise OSError(errno.EFAULT, "mremap onto an overlapping range")
        if not old_length or (flags & _MREMAP_DONTUNMAP and shared is not None):
            return self._map_again(old_address, self._find_free(new_length) if target is None else target, new_length)
        if target is None and not flags & _MREMAP_DONTUNMAP:
            tail, extra = old_address + old_length, new_length - old_length
            if tail + extra <= self._mmap_high and memory.is_free(tail, extra):
                memory.map(tail, extra, self._last_permission(old_address, old_length))
                marks = int(memory.perm[old_address // PAGE_BYTES])
                memory.mark(tail, extra, marks, without=~marks)
                return old_address
            if not flags & _MREMAP_MAYMOVE:
                raise OSError(errno.ENOMEM, "mremap in place")
        permission = self._last_permission(old_address, old_length)
        where = self._find_free(new_length) if target is None else target
        moved = self._move(old_address, old_length, where, new_length)
        if flags & _MREMAP_DONTUNMAP:
            memory.map(old_address, old_length, permission)
            memory.mark(old_address, old_length, 0, without=LOCKED)
        return moved

    def _unmap(self, start: int, end: int) -> None:
        end = min(end, ADDRESS_SPACE_BYTES)
        if start < end:
            self._memory.unmap(start, end - start)
            self._record(start, end - start)

    def _check_single_mapping(self, address: int, length: int) -> None:
        """Raises OSError(EFAULT) if a range is not in one mapping: it has holes, or parts that differ.

        Adjacent VMAs that Linux could have merged but did not count as one mapping here.
        """
        if not length:
            return
        end = address + length
        if end > ADDRESS_SPACE_BYTES or not self._memory.is_mapped(address, length):
            raise OSError(errno.EFAULT, "mremap over a hole")
        parts, names = self._memory.parts_of(address, end), self.mappings_in(address, end)
        if len(parts) > 1 or len(names) > 1:
            raise OSError(errno.EFAULT, "mremap over several mappings")

    def _map_again(self, address: int, target: int, length: int) -> int:
        """Map the shared memory at ``address`` also at ``target``."""
        found = self._memory.shared_at(address)
        assert found is not None
        start, _, area, offset = found
        permission, entry = (
            self._last_permission(address, PAGE_BYTES),
            self._memory.perm[address // PAGE_BYTES],
        )
        names = self.mappings_in(address, address + length)
        self._memory.map_area(target, length, permission, area, offset + address - start)
        self._memory.mark(target, length, int(entry))
        self._record(target, length, names[0][2], names[0][3])
        for low, high, pages in list(self._shared_mappings):
            if low <= address < high:
                pages.join()
                self._shared_mappings.append((target, target + length, pages))
        return target

    def write_back(self, address: int, length: int) -> None:
        """Write the shared file mappings in the range back to their files."""
        for low, high, pages in self._shared_mappings:
            if low < address + length and address < high:
                pages.write_back()

    def maps_file_at(self, address: int) -> bool:
        """Whether a file is mapped at the address, shared or not."""
        return self.file_at(address) is not None

    def _choose_address(self, address: int, length: int, flags: int) -> int:
        if flags & (_MAP_FIXED | _MAP_FIXED_NOREPLACE):
            where = self._fixed(address, length)
            if flags & _MAP_FIXED_NOREPLACE and not self._memory.is_free(where, length):
                raise OSError(errno.EEXIST, "mmap")
            return where
        hint = page_floor(address)
        in_range = hint >= _LOWEST_ADDRESS and hint + length <= self._mmap_high
        if in_range and self._memory.is_free(hint, length):
            return hint
        return self._find_free(length)

    def _fixed(self, address: int, length: int) -> int:
        if address % PAGE_BYTES:
            raise OSError(errno.EINVAL, "fixed address")
        if address + length > ADDRESS_SPACE_BYTES:
            raise OSError(errno.ENOMEM, "fixed address")
        if address < _LOWEST_ADDRESS:
            raise OSError(errno.EPERM, "fixed address")
        return address

    def _find_free(self, length: int) -> int:
        where = self._memory.find_free(length, page_ceiling(self._brk), self._mmap_high)
        if where is None:
            raise OSError(errno.ENOMEM, "address space")
        return where

    def _last_permission(self, address: int, length: int) -> int:
        return _permission(int(self._memory.perm[(address + length - 1) // PAGE_BYTES]))

    def _move(self, old_address: int, old_length: int, target: int, new_length: int) -> int:
        memory = self._memory
        if new_length < old_length:
            self._unmap(old_address + new_length, old_address + old_length)
            old_length = new_length
        if new_length > old_length:
            permission = self._last_permission(old_address, old_length)
            memory.map(target + old_length, new_length - old_length, permission)
            marks = int(memory.perm[old_address // PAGE_BYTES])
            memory.mark(target + old_length, new_length - old_length, marks, without=~marks)
        try:
            memory.move(old_address, target, old_length)
        except MemoryLimit:
            if new_length > old_length:
                memory.unmap(target + old_length, new_length - old_length)
            raise
        self._move_records(old_address, old_length, target)
        return target

    def _move_records(self, old: int, length: int, new: int) -> None:
        """Move the records of the mappings at ``old`` to ``new``."""
        end, names = old + length, self.mappings_in(old, old + length)
        shared = [(max(low, old), min(high, end), pages) for low, high, pages in self._shared_mappings]
        moved = [(low, high, pages) for low, high, pages in shared if low < high]
        for _, _, pages in moved:
            pages.join()
        self._record(old, length)
        self._record(new, length)
        for start, stop, offset, name in names:
            if name.startswith("/"):
                self._record(start + new - old, stop - start, offset, name)
        self._shared_mappings += [(low + new - old, high + new - old, pages) for low, high, pages in moved]
