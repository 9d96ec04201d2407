"""System calls on the process, the system and its limits. Every public method is the call of that name.

The guest is one process with one thread: what would start another one is not supported, and a wait for
another thread is a `Deadlock`.
"""

from __future__ import annotations

import errno
import random
import struct

from emulator.linux.abi import GID, MASK_64, PARENT_PID, PID, TID, UID, signed
from emulator.linux.clock import NANOSECONDS, Deadlock, Timers, VirtualClock, sleep
from emulator.linux.descriptors import MAX_DESCRIPTORS
from emulator.linux.hart import GuestExit, Interrupted
from emulator.linux.process import ProcessImage
from emulator.linux.signals import SignalState
from emulator.memory import GuestMemory

_RLIMIT_STACK, _RLIMIT_NOFILE, _N_LIMITS = 3, 7, 16
_UNLIMITED = MASK_64

_FUTEX_WAIT, _FUTEX_WAKE, _FUTEX_WAIT_BITSET, _FUTEX_WAKE_BITSET = 0, 1, 9, 10
_FUTEX_CLOCK_REALTIME, _FUTEX_OPERATION = 256, 127

_PR_SET_NAME, _PR_GET_NAME = 15, 16
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

_UNAME = ("Linux", "guest", "6.6.0", "#1", "riscv64", "(none)")


class ProcessCalls:
    def __init__(
        self,
        memory: GuestMemory,
        process: ProcessImage,
        signals: SignalState,
        clock: VirtualClock,
        timers: Timers,
        seed: int,
    ) -> None:
        self._memory = memory
        self._signals = signals
        self._clock = clock
        self._timers = timers
        self._generator = random.Random(f"getrandom {seed}")
        self._limits = dict.fromkeys(range(_N_LIMITS), (_UNLIMITED, _UNLIMITED))
        self._limits[_RLIMIT_STACK] = (process.layout.stack_bytes, _UNLIMITED)
        self._limits[_RLIMIT_NOFILE] = (MAX_DESCRIPTORS, MAX_DESCRIPTORS)
        name = process.arguments[0] if process.arguments else process.image.name
        self._name = name.rsplit("/", 1)[-1].encode(errors="replace")[:_NAME_BYTES]

    # Ending

    def exit(self, status: int) -> int:
        raise GuestExit(status & 0xFF)

    def exit_group(self, status: int) -> int:
        raise GuestExit(status & 0xFF)

    # Identity

    def getpid(self) -> int:
        return PID

    def getppid(self) -> int:
        return PARENT_PID

    def gettid(self) -> int:
        return TID

    def getpgid(self) -> int:
        return PID

    def getsid(self) -> int:
        return PID

    def getuid(self) -> int:
        return UID

    def geteuid(self) -> int:
        return UID

    def getgid(self) -> int:
        return GID

    def getegid(self) -> int:
        return GID

    def set_tid_address(self, address: int) -> int:
        return TID

    def set_robust_list(self, head: int, length: int) -> int:
        return 0

    def wait4(self) -> int:
        raise OSError(errno.ECHILD, "no children")

    def prctl(self, option: int, argument: int) -> int:
        if option == _PR_SET_NAME:
            name = self._memory.read_cstring(argument, _NAME_BYTES)
            self._name = self._memory.read(argument, _NAME_BYTES) if name is None else name
        elif option == _PR_GET_NAME:
            self._memory.write(argument, self._name.ljust(16, b"\0"))
        else:
            raise OSError(errno.EINVAL, "prctl")
        return 0

    # The system

    def uname(self, address: int) -> int:
        self._memory.write(address, b"".join(text.encode().ljust(65, b"\0") for text in _UNAME))
        return 0

    def sysinfo(self, address: int) -> int:
        total = self._memory.limit_bytes
        free = max(0, total - self._memory.mapped_bytes)
        uptime = self._clock.elapsed() // NANOSECONDS
        self._memory.write(
            address, struct.pack("<q3Q6QHHIQQI4x", uptime, 0, 0, 0, total, free, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)
        )
        return 0

    def riscv_hwprobe(self, pairs: int, count: int, cpu_bytes: int, cpus: int, flags: int) -> int:
        if flags or count > 256:
            raise OSError(errno.EINVAL, "riscv_hwprobe")
        for address in range(pairs, pairs + 16 * count, 16):
            key = signed(self._memory.read_int(address, 8), 64)
            known = key in _HWPROBE
            answer = struct.pack("<qQ", key if known else -1, _HWPROBE.get(key, 0))
            self._memory.write(address, answer)
        return 0

    def riscv_flush_icache(self, start: int, end: int) -> int:
        if self._memory.on_code_change is not None and end > start:
            self._memory.on_code_change(start, end - start)
        return 0

    def getrandom(self, address: int, count: int, flags: int) -> int:
        count = min(count, 1 << 25)
        self._memory.write(address, self._generator.randbytes(count))
        return count

    def rseq(self) -> int:
        raise OSError(errno.ENOSYS, "rseq")

    def membarrier(self, command: int) -> int:
        return 0

    # Scheduling

    def sched_yield(self) -> int:
        return 0

    def sched_getaffinity(self, pid: int, size: int, address: int) -> int:
        if size < 8 or size % 8:
            raise OSError(errno.EINVAL, "sched_getaffinity")
        self._memory.write_int(address, 8, 1)
        return 8

    def sched_setaffinity(self, pid: int, size: int, address: int) -> int:
        if not size or not self._memory.read_int(address, min(size, 8)) & 1:
            raise OSError(errno.EINVAL, "the machine has one processor")
        return 0

    def getcpu(self, cpu: int, node: int) -> int:
        for address in (cpu, node):
            if address:
                self._memory.write_int(address, 4, 0)
        return 0

    def getpriority(self) -> int:
        return 20

    def futex(self, address: int, operation: int, value: int, timeout: int) -> int:
        kind = operation & _FUTEX_OPERATION
        if address % 4:
            raise OSError(errno.EINVAL, "futex")
        if kind in (_FUTEX_WAKE, _FUTEX_WAKE_BITSET):
            return 0  # nobody else waits
        if kind not in (_FUTEX_WAIT, _FUTEX_WAIT_BITSET):
            raise OSError(errno.ENOSYS, "futex operation")
        if self._memory.read_int(address, 4) != value & 0xFFFF_FFFF:
            raise OSError(errno.EAGAIN, "futex")
        until = None
        if timeout:
            seconds, nanoseconds = struct.unpack("<qq", self._memory.read(timeout, 16))
            if seconds < 0 or not 0 <= nanoseconds < NANOSECONDS:
                raise OSError(errno.EINVAL, "timeout")
            until = seconds * NANOSECONDS + nanoseconds
            if kind == _FUTEX_WAIT:
                until += self._clock.elapsed()
            elif operation & _FUTEX_CLOCK_REALTIME:
                until -= self._clock.epoch_nanoseconds
        try:
            timed_out = sleep(self._clock, self._timers, self._signals.has_pending, until)
        except Deadlock as error:
            raise Deadlock(f"the guest waits for a lock at {address:#x} that nobody can release") from error
        if timed_out:
            raise OSError(errno.ETIMEDOUT, "futex")
        raise Interrupted(restartable=until is None)

    # Limits

    def prlimit64(self, pid: int, resource: int, new: int, old: int) -> int:
        if pid not in (0, PID):
            raise OSError(errno.ESRCH, "process")
        if resource not in self._limits:
            raise OSError(errno.EINVAL, "resource")
        replacement = struct.unpack("<QQ", self._memory.read(new, 16)) if new else None
        before = self._limits[resource]
        if old:
            self._memory.write(old, struct.pack("<QQ", *before))
        if replacement:
            soft, hard = replacement
            if soft > hard:
                raise OSError(errno.EINVAL, "limit")
            if hard > before[1]:
                raise OSError(errno.EPERM, "limit")
            self._limits[resource] = (soft, hard)
        return 0

    def getrlimit(self, resource: int, address: int) -> int:
        return self.prlimit64(0, resource, 0, address)

    def setrlimit(self, resource: int, address: int) -> int:
        return self.prlimit64(0, resource, address, 0)
