"""mmap, brk and mremap. Every public function handles the system call of that name.

The mappings themselves are in `mm.mappings`.
"""

from __future__ import annotations

from emulator.linux.kernel.task import Task


def brk(task: Task, address: int) -> int:
    return task.process.mappings.brk(address)


def mmap(task: Task, address: int, length: int, prot: int, flags: int, fd: int, offset: int) -> int:
    return task.process.mappings.mmap(address, length, prot, flags, fd, offset)


def munmap(task: Task, address: int, length: int) -> int:
    return task.process.mappings.munmap(address, length)


def mremap(task: Task, old_address: int, old_length: int, new_length: int, flags: int, new_address: int) -> int:
    return task.process.mappings.mremap(old_address, old_length, new_length, flags, new_address)
