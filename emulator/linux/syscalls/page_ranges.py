"""System calls on ranges of mapped pages: mprotect, madvise, mlock and others. Every public function
handles the system call of that name.

As in Linux, a range with holes is processed up to the first hole (mprotect, mlock, munlock) or in all mapped parts
(madvise, msync), and the call fails with ENOMEM.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from emulator.linux.abi.numbers import MASK_64
from emulator.linux.kernel.task import Task
from emulator.memory import (
    ADDRESS_SPACE_BYTES,
    EXEC,
    LOCKED,
    NOT_FORKED,
    PAGE_BYTES,
    READ,
    WIPED_ON_FORK,
    WRITE,
    page_ceiling,
    page_floor,
)

_PROT_ALL = READ | WRITE | EXEC  # equal to PROT_READ | PROT_WRITE | PROT_EXEC

_DONTNEED, _FREE, _REMOVE, _DONTFORK, _DOFORK = 4, 8, 9, 10, 11
_WIPEONFORK, _KEEPONFORK, _COLD, _PAGEOUT, _POPULATE_READ, _POPULATE_WRITE, _DONTNEED_LOCKED = range(18, 25)
_WITHOUT_EFFECT = {
    0,
    1,
    2,
    3,
    12,
    13,
    14,
    15,
    16,
    17,
}  # normal, random, sequential, willneed, KSM, huge pages, dumps
_ADVICE = {
    *_WITHOUT_EFFECT,
    _DONTNEED,
    _FREE,
    _REMOVE,
    _DONTFORK,
    _DOFORK,
    *range(_WIPEONFORK, _DONTNEED_LOCKED + 1),
}
_NOT_WHEN_LOCKED = {_DONTNEED, _FREE, _REMOVE, _COLD, _PAGEOUT}
_MS_ASYNC, _MS_INVALIDATE, _MS_SYNC = 1, 2, 4
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
_MLOCK_ONFAULT = 1


def mprotect(task: Task, address: int, length: int, prot: int) -> int:
    if address % PAGE_BYTES:
        raise OSError(errno.EINVAL, "mprotect")
    if length == 0:
        return 0
    length = page_ceiling(length) & MASK_64
    if address + length > MASK_64 or length == 0:
        raise OSError(errno.ENOMEM, "mprotect")
    if prot & ~_PROT_ALL:
        raise OSError(errno.EINVAL, "mprotect")
    start, end = _before_hole(task, address, length)
    task.memory.protect(start, end - start, prot)
    _check_whole(end, address + length)
    return 0


def madvise(task: Task, address: int, length: int, advice: int) -> int:
    if advice not in _ADVICE or address % PAGE_BYTES:
        raise OSError(errno.EINVAL, "madvise")
    rounded = page_ceiling(length) & MASK_64
    if (length and not rounded) or address + rounded > MASK_64:
        raise OSError(errno.EINVAL, "madvise")
    done = address
    for start, end in _mapped(task, address, rounded):
        if advice in (_POPULATE_READ, _POPULATE_WRITE) and start != done:
            break
        for part in task.memory.parts_of(start, end):
            _advise(task, advice, *part)
        done = done + end - start
    if done != address + rounded:
        raise OSError(errno.ENOMEM, "a hole")
    return 0


def _advise(task: Task, advice: int, start: int, end: int, entry: int, is_shared: bool) -> None:
    """Apply ``advice`` to a part of the memory with one page entry. Raises OSError."""
    memory, length = task.memory, end - start
    is_private_memory = not is_shared and not task.process.mappings.maps_file_at(start)
    if advice in _NOT_WHEN_LOCKED and entry & LOCKED:
        raise OSError(errno.EINVAL, "locked")
    if advice in (_FREE, _WIPEONFORK) and not is_private_memory:
        raise OSError(errno.EINVAL, "only for private memory")
    if advice in (_DONTNEED, _DONTNEED_LOCKED) and not is_shared:
        memory.discard(start, length)
    elif advice == _REMOVE:
        if not is_shared:
            raise OSError(errno.EINVAL, "only for shared memory")
        memory.discard(start, length, also_shared=True)
    elif advice in (_DONTFORK, _DOFORK):
        marks = (NOT_FORKED, 0) if advice == _DONTFORK else (0, NOT_FORKED)
        memory.mark(start, length, *marks)
    elif advice in (_WIPEONFORK, _KEEPONFORK):
        marks = (WIPED_ON_FORK, 0) if advice == _WIPEONFORK else (0, WIPED_ON_FORK)
        memory.mark(start, length, *marks)
    elif (advice == _POPULATE_READ and not entry & READ) or (advice == _POPULATE_WRITE and not entry & WRITE):
        raise OSError(errno.EINVAL, "no permission")


def msync(task: Task, address: int, length: int, flags: int) -> int:
    if flags & ~(_MS_ASYNC | _MS_INVALIDATE | _MS_SYNC) or (flags & _MS_ASYNC and flags & _MS_SYNC):
        raise OSError(errno.EINVAL, "msync")
    if address % PAGE_BYTES:
        raise OSError(errno.EINVAL, "msync")
    length = page_ceiling(length) & MASK_64
    if address + length > MASK_64:
        raise OSError(errno.ENOMEM, "msync")
    n_mapped = 0
    for start, end in _mapped(task, address, length):
        for low, high, entry, _ in task.memory.parts_of(start, end):
            if flags & _MS_INVALIDATE and entry & LOCKED:
                raise OSError(errno.EBUSY, "locked")
            task.process.mappings.write_back(low, high - low)
        n_mapped += end - start
    if n_mapped != length:
        raise OSError(errno.ENOMEM, "a hole")
    return 0


def mlock(task: Task, address: int, length: int) -> int:
    return _lock(task, address, length, needs_access=True)


def mlock2(task: Task, address: int, length: int, flags: int) -> int:
    if flags & ~_MLOCK_ONFAULT:
        raise OSError(errno.EINVAL, "mlock2")
    return _lock(task, address, length, needs_access=not flags)


def _lock(task: Task, address: int, length: int, needs_access: bool) -> int:
    start, length = _rounded(address, length)
    if not length:
        return 0
    _, end = _before_hole(task, start, length)
    task.memory.mark(start, end - start, LOCKED)
    _check_whole(end, start + length)
    if needs_access and any(not part[2] & _PROT_ALL for part in task.memory.parts_of(start, end)):
        raise OSError(errno.ENOMEM, "pages that cannot be accessed")
    return 0


def munlock(task: Task, address: int, length: int) -> int:
    start, length = _rounded(address, length)
    if length:
        _, end = _before_hole(task, start, length)
        task.memory.mark(start, end - start, 0, without=LOCKED)
        _check_whole(end, start + length)
    return 0


def mlockall(task: Task, flags: int) -> int:
    if not flags & (_MCL_CURRENT | _MCL_FUTURE) or flags & ~(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT):
        raise OSError(errno.EINVAL, "mlockall")
    task.memory.new_marks = LOCKED if flags & _MCL_FUTURE else 0
    if flags & _MCL_CURRENT:
        task.memory.mark(0, ADDRESS_SPACE_BYTES, LOCKED)
    return 0


def munlockall(task: Task) -> int:
    task.memory.new_marks = 0
    task.memory.mark(0, ADDRESS_SPACE_BYTES, 0, without=LOCKED)
    return 0


def mincore(task: Task, address: int, length: int, vector: int) -> int:
    length = page_ceiling(length)
    if address % PAGE_BYTES:
        raise OSError(errno.EINVAL, "mincore")
    if address + length > ADDRESS_SPACE_BYTES or (length and not task.memory.is_mapped(address, length)):
        raise OSError(errno.ENOMEM, "mincore")
    task.memory.write(vector, b"\1" * (length // PAGE_BYTES))
    return 0


def get_mempolicy(task: Task, mode: int, nodes: int, max_node: int) -> int:
    if mode:
        task.memory.write_int(mode, 4, 0)
    if nodes and max_node >> 16:
        raise OSError(errno.EINVAL, "nodes")
    if nodes:
        task.memory.write(nodes, bytes((max_node + 63) // 64 * 8))
    return 0


def set_mempolicy(task: Task) -> int:
    return 0


def mbind(task: Task) -> int:
    return 0


# Inner parts


def _mapped(task: Task, address: int, length: int) -> Iterator[tuple[int, int]]:
    """Start and end of the mapped parts of a range, which may extend beyond the address space."""
    end = min(address + length, ADDRESS_SPACE_BYTES)
    return iter(task.memory.mapped_in(address, end - address) if address < end else [])


def _before_hole(task: Task, address: int, length: int) -> tuple[int, int]:
    """The part of a range before its first hole. Raises OSError(ENOMEM) if it is empty."""
    start, end = next(_mapped(task, address, length), (0, 0))
    if start != address or not end:
        raise OSError(errno.ENOMEM, "nothing is mapped")
    return start, end


def _check_whole(done: int, end: int) -> None:
    if done != end:
        raise OSError(errno.ENOMEM, "a hole")


def _rounded(address: int, length: int) -> tuple[int, int]:
    """Start and length of the whole pages that contain the range. Raises OSError(EINVAL) if it wraps around."""
    start = page_floor(address)
    length = page_ceiling(length + address - start) & MASK_64
    if start + length > MASK_64:
        raise OSError(errno.EINVAL, "range")
    return start, length
