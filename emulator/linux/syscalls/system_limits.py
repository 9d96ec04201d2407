"""System calls on system information, prctl, random bytes and resource limits.

Every public method but `release` and `max_tasks` is the system call of that name.
"""

from __future__ import annotations

import errno
import random
import struct

from emulator.linux.abi.numbers import MASK_64, Signal, signed
from emulator.linux.kernel.clock import NANOSECONDS, TimeBase, Timer, VirtualClock
from emulator.linux.kernel.scheduler import Scheduler
from emulator.linux.kernel.signals import SI_KERNEL, SignalInfo
from emulator.linux.kernel.tasks import MAX_TASKS, Process
from emulator.linux.loader.process_image import ProcessImage
from emulator.linux.vfs.descriptor_table import MAX_DESCRIPTORS
from emulator.memory import GuestMemory

_RLIMIT_CPU, _RLIMIT_STACK, _RLIMIT_NPROC, _RLIMIT_NOFILE, _N_LIMITS = 0, 3, 6, 7, 16
_UNLIMITED = MASK_64

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


def command_name(process: ProcessImage) -> bytes:
    """The initial name of a program's thread: the program's name without its directory, at most 15 bytes."""
    name = process.arguments[0] if process.arguments else process.image.name
    return name.rsplit("/", 1)[-1].encode(errors="replace")[:_NAME_BYTES]


class ProcessCalls:
    """``before``: the object of the parent, or of the program that ran before, whose limits are inherited."""

    def __init__(
        self,
        memory: GuestMemory,
        process: ProcessImage,
        owner: Process,
        clock: VirtualClock,
        generator: random.Random,
        scheduler: Scheduler,
        before: ProcessCalls | None = None,
    ) -> None:
        self._memory = memory
        self._owner = owner
        self._clock = clock
        self._generator = generator
        self._scheduler = scheduler
        self._limits = dict.fromkeys(range(_N_LIMITS), (_UNLIMITED, _UNLIMITED))
        self._limits[_RLIMIT_STACK] = (process.layout.stack_bytes, _UNLIMITED)
        self._limits[_RLIMIT_NPROC] = (MAX_TASKS, MAX_TASKS)
        self._limits[_RLIMIT_NOFILE] = (MAX_DESCRIPTORS, MAX_DESCRIPTORS)
        if before is not None:
            self._limits = dict(before._limits)
        self._processor_limit: Timer | None = None
        self._arm_processor_limit()

    def prctl(self, option: int, argument: int) -> int:
        if option == _PR_SET_NAME:
            name = self._memory.read_cstring(argument, _NAME_BYTES)
            thread = self._scheduler.current
            thread.name = self._memory.read(argument, _NAME_BYTES) if name is None else name
        elif option == _PR_GET_NAME:
            self._memory.write(argument, self._scheduler.current.name.ljust(16, b"\0"))
        elif option in _PR_RESULTS:
            return _PR_RESULTS[option]
        elif option not in _PR_WITHOUT_EFFECT:
            self._scheduler.report(f"prctl option {option}")
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
        if end > start:
            self._memory.report_code_change(start, end - start)
        return 0

    def getrandom(self, address: int, count: int, flags: int) -> int:
        if flags & ~_GRND_ALL:
            raise OSError(errno.EINVAL, "getrandom")
        count = min(count, 1 << 25)
        self._memory.write(address, self._generator.randbytes(count))
        return count

    def rseq(self) -> int:
        raise OSError(errno.ENOSYS, "rseq")

    def membarrier(self, command: int) -> int:
        # With one hart, every barrier is a no-op. The query returns all commands but those of rseq.
        return _MEMBARRIER_COMMANDS if command == 0 else 0

    def personality(self, requested: int) -> int:
        if requested & 0xFFFF_FFFF not in (0, 0xFFFF_FFFF):
            self._scheduler.report(f"personality {requested:#x}")
            raise OSError(errno.EINVAL, "personality")
        return 0

    # Limits

    def prlimit64(self, pid: int, resource: int, new: int, old: int) -> int:
        number = signed(pid, 32)
        process = self._scheduler.processes.get(number) if number else self._owner
        if resource not in self._limits:
            raise OSError(errno.EINVAL, "resource")
        if process is None:
            raise OSError(errno.ESRCH, "process")
        replacement = struct.unpack("<QQ", self._memory.read(new, 16)) if new else None
        before = process.kernel.limits._limits[resource]
        if replacement:
            soft, hard = replacement
            if soft > hard:
                raise OSError(errno.EINVAL, "limit")
            if hard > before[1]:
                raise OSError(errno.EPERM, "limit")
            process.kernel.limits._set(resource, soft, hard)
        if old:
            self._memory.write(old, struct.pack("<QQ", *before))
        return 0

    def _set(self, resource: int, soft: int, hard: int) -> None:
        self._limits[resource] = (soft, hard)
        if resource == _RLIMIT_CPU:
            self._arm_processor_limit()

    def getrlimit(self, resource: int, address: int) -> int:
        return self.prlimit64(0, resource, 0, address)

    def setrlimit(self, resource: int, address: int) -> int:
        return self.prlimit64(0, resource, address, 0)

    @property
    def max_tasks(self) -> int:
        """RLIMIT_NPROC: the number of processes and threads at which this process cannot start another one."""
        return self._limits[_RLIMIT_NPROC][0]

    def release(self) -> None:
        """Remove the timer of RLIMIT_CPU: the process has ended or executes another program."""
        if self._processor_limit is not None:
            self._scheduler.timers.remove(self._processor_limit)
            self._processor_limit = None

    def _arm_processor_limit(self) -> None:
        """Set a timer to the earliest time at which the process may reach RLIMIT_CPU. It may be too early: timers count
        the processor time of all processes."""
        timers, (soft, hard) = self._scheduler.timers, self._limits[_RLIMIT_CPU]
        if soft == _UNLIMITED:
            if self._processor_limit is not None:
                timers.arm(self._processor_limit, 0, 0)
            return
        if self._processor_limit is None:
            self._processor_limit = timers.add(
                Timer(TimeBase.PROCESSOR, lambda _: self._check_processor_limit())
            )
        left = min(max(soft, 1), hard) * NANOSECONDS - self._scheduler.used_nanoseconds(self._owner)
        timers.arm(self._processor_limit, max(1, left), 0)

    def _check_processor_limit(self) -> None:
        """Send SIGKILL at the hard limit, SIGXCPU at the soft one and every second after it (setrlimit(2))."""
        soft, hard = self._limits[_RLIMIT_CPU]
        used_seconds = self._scheduler.used_nanoseconds(self._owner) / NANOSECONDS
        if used_seconds >= hard:
            self._owner.kernel.signals.send(SignalInfo(Signal.SIGKILL, SI_KERNEL))
            return
        if used_seconds >= soft:
            self._owner.kernel.signals.send(SignalInfo(Signal.SIGXCPU, SI_KERNEL))
            self._limits[_RLIMIT_CPU] = (min(soft + 1, hard), hard)
        self._arm_processor_limit()
