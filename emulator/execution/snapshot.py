"""Snapshots of a machine, to go back to: memory, registers, the kernel's objects and counts.

Kernel objects are restored in place: a snapshot holds each reachable mutable object with a shallow copy of its
contents, so references between objects stay valid. Translations stay: they depend on code alone. A guest that uses the
host (files of a directory tree, standard streams passed through) or System V shared memory cannot go back.
"""

from __future__ import annotations

import random
import types
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.engine.hart_state import COUNTS_OFFSET, HOST_FIELDS, Hart
from emulator.errors import RestoreError
from emulator.execution.intervals import Place
from emulator.memory import MAPPED, PAGE_SHIFT, READ, WRITE, GuestMemory

_KERNEL = "emulator.linux."


@dataclass(frozen=True)
class MemoryState:
    """Saved guest memory. ``perm``: the page table; ``runs``: start address and contents of each range of readable
    pages."""

    perm: NDArray[np.uint8]
    runs: list[tuple[int, bytes]]


def save_memory(memory: GuestMemory) -> MemoryState:
    """Copy all readable pages that the guest has mapped."""
    readable = memory.perm & (MAPPED | READ) == MAPPED | READ
    return MemoryState(memory.perm.copy(), [(a, memory.read(a, n)) for a, n in _runs(readable)])


def restore_memory(memory: GuestMemory, saved: MemoryState) -> None:
    """Restore pages, permissions and contents."""
    changed = memory.perm != saved.perm
    for address, n_bytes in _runs(changed & (memory.perm != 0)):
        memory.unmap(address, n_bytes)
    # Pages that the guest cannot write to have their contents still, unless their permissions changed.
    changed_or_writable = changed | (saved.perm & WRITE != 0)
    for value in np.unique(saved.perm[changed]):
        if value:
            for address, n_bytes in _runs(changed & (saved.perm == value)):
                memory.map(address, n_bytes, READ | WRITE)
    for start, contents in saved.runs:
        first = start >> PAGE_SHIFT
        for address, n_bytes in _runs(changed_or_writable[first : first + (len(contents) >> PAGE_SHIFT)]):
            view = memory.view(start + address, n_bytes, READ)
            view[:] = contents[address : address + n_bytes]
    for value in np.unique(saved.perm[changed]):
        if value:
            for address, n_bytes in _runs(changed & (saved.perm == value)):
                memory.protect(address, n_bytes, int(value))
                memory.mark(address, n_bytes, int(value), without=~int(value))


def _runs(wanted: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Address and bytes of each contiguous range of ``wanted`` pages."""
    edges = np.flatnonzero(np.diff(wanted.astype(np.int8), prepend=0, append=0)).reshape(-1, 2) << PAGE_SHIFT
    return [(int(start), int(end - start)) for start, end in edges]


class ObjectsState:
    """Saved contents of all mutable objects reachable from ``roots``, except objects in ``without``.

    Objects of the kernel are plain data: callbacks among them are bound methods or `functools.partial`, not closures.
    Raises `RestoreError` for objects that cannot be restored, which their attribute ``prevents_snapshot`` describes.
    """

    def __init__(self, roots: list[Any], without: list[Any]) -> None:
        self._saved: list[tuple[Any, Any]] = []
        self._seen = {id(one): one for one in without}
        work: list[Any] = list(roots)
        while work:
            one = work.pop()
            if id(one) in self._seen:
                continue
            self._seen[id(one)] = one
            work += self._save(one)

    def _save(self, one: Any) -> list[Any]:
        """Save the contents of ``one``; the objects that it refers to."""
        if isinstance(one, (list, bytearray)):
            self._saved.append((one, one[:]))
            return list(one) if isinstance(one, list) else []
        if isinstance(one, (dict, set)):
            self._saved.append((one, one.copy()))
            return [*one.keys(), *one.values()] if isinstance(one, dict) else list(one)
        if isinstance(one, random.Random):
            self._saved.append((one, one.getstate()))
            return []
        if isinstance(one, (tuple, frozenset)):
            return list(one)
        if isinstance(one, types.MethodType):
            return [one.__self__]
        if isinstance(one, partial):
            return [one.func, *one.args, *one.keywords.values()]
        if isinstance(one, types.FunctionType):
            if one.__closure__ and one.__module__.startswith(_KERNEL):
                raise TypeError(f"{one.__qualname__} is a closure: expected data, which a snapshot can copy")
            return []
        if type(one).__module__.startswith(_KERNEL) and hasattr(one, "__dict__"):
            why = getattr(one, "prevents_snapshot", "")
            if why:
                raise RestoreError(f"the guest has {why}: it cannot go back to an earlier state")
            self._saved.append((one, one.__dict__.copy()))
            return list(one.__dict__.values())
        return []

    def restore(self) -> None:
        """Restore the contents of every object."""
        for one, held in self._saved:
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
    """The result of `Machine.snapshot`; it may be restored any number of times.

    ``state``: the hart's state without counts; ``counts``: executions of the blocks; ``interval_place``: where
    intervals had come to.
    """

    memory: MemoryState
    objects: ObjectsState
    state: NDArray[np.uint8]
    counts: NDArray[np.int64]
    instructions: int
    interval_place: Place | None


def take_snapshot(
    memory: GuestMemory, hart: Hart, n_blocks: int, kernel_roots: list[Any],
    without: list[Any], instructions: int, interval_place: Place | None,
) -> Snapshot:  # fmt: skip
    """Save the guest's state. ``without``: objects that are not part of it. Raises `RestoreError` for a guest that
    cannot go back."""
    hart.add_up_counters()
    return Snapshot(
        save_memory(memory), ObjectsState(kernel_roots, without), hart.everything[:COUNTS_OFFSET].copy(),
        hart.counts[:n_blocks].copy(), instructions, interval_place,
    )  # fmt: skip


def restore_snapshot(saved: Snapshot, memory: GuestMemory, hart: Hart, n_blocks: int) -> None:
    """Restore the guest's state; blocks discovered since, up to ``n_blocks``, get a count of 0."""
    restore_memory(memory, saved.memory)
    saved.objects.restore()
    ours = {name: hart.get(name) for name in HOST_FIELDS}
    hart.everything[:COUNTS_OFFSET] = saved.state
    for name, value in ours.items():
        hart.set(name, value)
    hart.add_up_counters()  # which empties them
    hart.counts[:n_blocks] = 0
    hart.counts[: len(saved.counts)] = saved.counts
