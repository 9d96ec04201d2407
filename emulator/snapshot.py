"""A machine's state kept to go back to: memory, registers, the kernel's objects, and what is counted.

Objects of the kernel are kept by identity: each one reachable that can change is noted with a shallow copy of what it
holds, and gets that back in place, so that whatever refers to it still does. Translations stay: they depend on code
alone. A guest that has touched the host (files of a directory tree, standard streams passed through) or has
System V shared memory cannot go back.
"""

from __future__ import annotations

import random
import types
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.engine.lines import LineTable
from emulator.engine.state import COUNTS_OFFSET, HOST_FIELDS, Hart
from emulator.errors import EmulatorError
from emulator.linux.ipc_memory import Segment
from emulator.linux.open_files import Stream
from emulator.linux.regular_files import HostFile
from emulator.linux.shared_pages import FilePages
from emulator.memory import MAPPED, PAGE_SHIFT, READ, WRITE, GuestMemory


@dataclass(frozen=True)
class MemoryState:
    """``perm``: the page table; ``runs``: start address and contents of each stretch of readable pages."""

    perm: NDArray[np.uint8]
    runs: list[tuple[int, bytes]]


def save_memory(memory: GuestMemory) -> MemoryState:
    """Copy everything that the guest has mapped and can be read."""
    readable = memory.perm & (MAPPED | READ) == MAPPED | READ
    return MemoryState(memory.perm.copy(), [(a, memory.read(a, n)) for a, n in _runs(readable)])


def restore_memory(memory: GuestMemory, saved: MemoryState) -> None:
    """Make pages and contents what they were."""
    changed = memory.perm != saved.perm
    for address, n_bytes in _runs(changed & (memory.perm != 0)):
        memory.unmap(address, n_bytes)
    # What the guest could not write to is what it was, unless its pages were changed.
    stale = changed | (saved.perm & WRITE != 0)
    for value in np.unique(saved.perm[changed]):
        if value:
            for address, n_bytes in _runs(changed & (saved.perm == value)):
                memory.map(address, n_bytes, READ | WRITE)
    for start, contents in saved.runs:
        first = start >> PAGE_SHIFT
        for address, n_bytes in _runs(stale[first : first + (len(contents) >> PAGE_SHIFT)]):
            view = memory.view(start + address, n_bytes, READ)
            view[:] = contents[address : address + n_bytes]
    for value in np.unique(saved.perm[changed]):
        if value:
            for address, n_bytes in _runs(changed & (saved.perm == value)):
                memory.protect(address, n_bytes, int(value))
                memory.mark(address, n_bytes, int(value), without=~int(value))


def _runs(wanted: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Address and bytes of each stretch of pages that are wanted."""
    edges = np.flatnonzero(np.diff(wanted.astype(np.int8), prepend=0, append=0)).reshape(-1, 2) << PAGE_SHIFT
    return [(int(start), int(end - start)) for start, end in edges]


class ObjectsState:
    """Everything reachable from ``roots`` that can change, but for what is in ``without``."""

    def __init__(self, roots: list[Any], without: list[Any]) -> None:
        self._kept: list[tuple[Any, Any]] = []
        self._seen = {id(one): one for one in without}
        work: list[Any] = list(roots)
        while work:
            one = work.pop()
            if id(one) in self._seen:
                continue
            self._seen[id(one)] = one
            work += self._note(one)

    def _note(self, one: Any) -> list[Any]:
        """Keep what ``one`` holds; what it refers to."""
        if isinstance(one, HostFile | FilePages) or (isinstance(one, Stream) and one.is_host):
            raise EmulatorError(
                "the guest has the host's files or streams open: it cannot go back to an earlier state"
            )
        if isinstance(one, Segment):
            raise EmulatorError("the guest has System V shared memory: it cannot go back to an earlier state")
        if isinstance(one, (list, bytearray)):
            self._kept.append((one, one[:]))
            return list(one) if isinstance(one, list) else []
        if isinstance(one, (dict, set)):
            self._kept.append((one, one.copy()))
            return [*one.keys(), *one.values()] if isinstance(one, dict) else list(one)
        if isinstance(one, random.Random):
            self._kept.append((one, one.getstate()))
            return []
        if isinstance(one, (tuple, frozenset)):
            return list(one)
        if isinstance(one, types.MethodType):
            return [one.__self__]
        if isinstance(one, types.FunctionType):
            return [cell.cell_contents for cell in one.__closure__ or ()]
        if type(one).__module__.startswith("emulator.linux.") and hasattr(one, "__dict__"):
            self._kept.append((one, one.__dict__.copy()))
            return list(one.__dict__.values())
        return []

    def restore(self) -> None:
        """Give every object back what it held."""
        for one, held in self._kept:
            if isinstance(one, (list, bytearray)):
                one[:] = held
            elif isinstance(one, (dict, set)):
                one.clear()
                one.update(held)
            elif isinstance(one, random.Random):
                one.setstate(held)
            else:
                one.__dict__.clear()
                one.__dict__.update(held)


@dataclass(frozen=True)
class Snapshot:
    """What `Machine.snapshot` gives; good for as many returns as one likes.

    ``state``: of the hart, before the counts; ``counts``: of the blocks known then; ``pages``, ``touches``: the pages
    mapped then and when their lines were touched and written last, a row a page each, if that is kept.
    """

    memory: MemoryState
    objects: ObjectsState
    state: NDArray[np.uint8]
    counts: NDArray[np.int64]
    pages: NDArray[np.int64]
    touches: NDArray[np.uint32] | None
    instructions: int


def take_snapshot(
    memory: GuestMemory, hart: Hart, n_blocks: int, lines: LineTable | None, kernel_roots: list[Any],
    without: list[Any], instructions: int,
) -> Snapshot:  # fmt: skip
    """Copy all of it. ``without``: objects that are no part of the guest. Raises `EmulatorError`."""
    pages = np.flatnonzero(memory.perm & MAPPED)
    touches = None if lines is None else _rows(lines)[:, pages].copy()
    return Snapshot(
        save_memory(memory), ObjectsState(kernel_roots, without), hart.everything[:COUNTS_OFFSET].copy(),
        hart.counts[:n_blocks].copy(), pages, touches, instructions,
    )  # fmt: skip


def return_to(
    saved: Snapshot, memory: GuestMemory, hart: Hart, n_blocks: int, lines: LineTable | None
) -> None:
    """Put everything back; blocks met since, up to ``n_blocks``, have run no times."""
    if lines is not None:
        _rows(lines)[:, np.flatnonzero(memory.perm & MAPPED)] = 0
        if saved.touches is not None:
            _rows(lines)[:, saved.pages] = saved.touches
    restore_memory(memory, saved.memory)
    saved.objects.restore()
    ours = {name: hart.get(name) for name in HOST_FIELDS}
    hart.everything[:COUNTS_OFFSET] = saved.state
    for name, value in ours.items():
        hart.set(name, value)
    hart.counts[:n_blocks] = 0
    hart.counts[: len(saved.counts)] = saved.counts


def _rows(lines: LineTable) -> NDArray[np.uint32]:
    """The tables of touches and of writes with a row for each page."""
    return lines.times.reshape(2, -1, 1 << (PAGE_SHIFT - lines.line_bits))
