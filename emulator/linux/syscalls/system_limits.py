"""System calls on system information, prctl, random bytes and resource limits.

Every public function handles the system call of that name. The limits are in `kernel.limits`.
"""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import signed
from emulator.linux.kernel.clock import NANOSECONDS
from emulator.linux.kernel.task import Task

_PR_SET_NAME, _PR_GET_NAME = 15, 16
_PR_GET_DUMPABLE, _PR_CAPBSET_READ, _PR_GET_SECUREBITS, _PR_GET_TIMERSLACK = 3, 23, 27, 30
_PR_GET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_GET_THP_DISABLE = 39, 47, 42
# results of the options above for a process without privileges
_PR_RESULTS = {
    _PR_GET_DUMPABLE: 1, _PR_CAPBSET_READ: 0, _PR_GET_SECUREBITS: 0, _PR_GET_TIMERSLACK: 50_000,
    _PR_GET_NO_NEW_PRIVS: 0, _PR_CAP_AMBIENT: 0, _PR_GET_THP_DISABLE: 0,
}  # fmt: skip
# signal at the parent's death, dumpable, timer slack, child subreaper, no new privileges, huge pages, ptracer, names
# of mappings
_PR_WITHOUT_EFFECT = {1, 4, 29, 36, 38, 41, 0x59616D61, 0x53564D41}
_NAME_BYTES = 15

# riscv_hwprobe keys and values (Documentation/arch/riscv/hwprobe.rst)
_HWPROBE = {
    0: 0,  # mvendorid
    1: 0,  # marchid
    2: 0,  # mimpid
    3: 1,  # base behaviour: IMA
    4: 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5,  # F and D, C, Zba, Zbb, Zbs
    5: 3,  # misaligned accesses are fast
}

_GRND_ALL = 7
_MEMBARRIER_COMMANDS = 0b111_1111

_UNAME = ("Linux", "guest", "6.6.0", "#1", "riscv64", "(none)")


def prctl(task: Task, option: int, argument: int) -> int:
    if option == _PR_SET_NAME:
        name = task.memory.read_cstring(argument, _NAME_BYTES)
        thread = task.thread
        thread.name = task.memory.read(argument, _NAME_BYTES) if name is None else name
    elif option == _PR_GET_NAME:
        task.memory.write(argument, task.thread.name.ljust(16, b"\0"))
    elif option in _PR_RESULTS:
        return _PR_RESULTS[option]
    elif option not in _PR_WITHOUT_EFFECT:
        task.report(f"prctl option {option}")
        raise OSError(errno.EINVAL, "prctl")
    return 0


# The system


def uname(task: Task, address: int) -> int:
    task.memory.write(address, b"".join(text.encode().ljust(65, b"\0") for text in _UNAME))
    return 0


def sysinfo(task: Task, address: int) -> int:
    total = task.memory.limit_bytes
    free = max(0, total - task.memory.mapped_bytes)
    uptime = task.clock.elapsed() // NANOSECONDS
    task.memory.write(
        address, struct.pack("<q3Q6QHHIQQI4x", uptime, 0, 0, 0, total, free, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)
    )
    return 0


def riscv_hwprobe(task: Task, pairs: int, count: int, cpu_bytes: int, cpus: int, flags: int) -> int:
    if flags or count > 256:
        raise OSError(errno.EINVAL, "riscv_hwprobe")
    for address in range(pairs, pairs + 16 * count, 16):
        key = signed(task.memory.read_int(address, 8), 64)
        known = key in _HWPROBE
        answer = struct.pack("<qQ", key if known else -1, _HWPROBE.get(key, 0))
        task.memory.write(address, answer)
    return 0


def riscv_flush_icache(task: Task, start: int, end: int) -> int:
    if end > start:
        task.memory.report_code_change(start, end - start)
    return 0


def getrandom(task: Task, address: int, count: int, flags: int) -> int:
    if flags & ~_GRND_ALL:
        raise OSError(errno.EINVAL, "getrandom")
    count = min(count, 1 << 25)
    task.memory.write(address, task.system.generator.randbytes(count))
    return count


def rseq(task: Task) -> int:
    raise OSError(errno.ENOSYS, "rseq")


def membarrier(task: Task, command: int) -> int:
    # With one hart, every barrier is a no-op. The query returns all commands but those of rseq.
    return _MEMBARRIER_COMMANDS if command == 0 else 0


def personality(task: Task, requested: int) -> int:
    if requested & 0xFFFF_FFFF not in (0, 0xFFFF_FFFF):
        task.report(f"personality {requested:#x}")
        raise OSError(errno.EINVAL, "personality")
    return 0


# Limits


def prlimit64(task: Task, pid: int, resource: int, new: int, old: int) -> int:
    number = signed(pid, 32)
    process = task.scheduler.processes.get(number) if number else task.process
    limits = task.process.limits if process is None else process.limits
    before = limits.get(resource)
    if before is None:
        raise OSError(errno.EINVAL, "resource")
    if process is None:
        raise OSError(errno.ESRCH, "process")
    replacement = struct.unpack("<QQ", task.memory.read(new, 16)) if new else None
    if replacement:
        soft, hard = replacement
        if soft > hard:
            raise OSError(errno.EINVAL, "limit")
        if hard > before[1]:
            raise OSError(errno.EPERM, "limit")
        limits.set(resource, soft, hard)
    if old:
        task.memory.write(old, struct.pack("<QQ", *before))
    return 0


def getrlimit(task: Task, resource: int, address: int) -> int:
    return prlimit64(task, 0, resource, 0, address)


def setrlimit(task: Task, resource: int, address: int) -> int:
    return prlimit64(task, 0, resource, address, 0)
