"""Resource limits of a process (getrlimit(2)). RLIMIT_CPU, RLIMIT_NPROC and RLIMIT_NOFILE have an effect."""

from __future__ import annotations

from collections.abc import Callable

from emulator.linux.abi.numbers import MASK_64, Signal
from emulator.linux.kernel.clock import NANOSECONDS, TimeBase, Timer, Timers
from emulator.linux.kernel.signals import SI_KERNEL, SignalInfo
from emulator.linux.vfs.descriptor_table import MAX_DESCRIPTORS

MAX_TASKS = 4096
"""Limit of the threads of all processes plus the zombie processes; clone fails with EAGAIN at it (RLIMIT_NPROC)."""

_RLIMIT_CPU, _RLIMIT_STACK, _RLIMIT_NPROC, _RLIMIT_NOFILE, _N_LIMITS = 0, 3, 6, 7, 16
_UNLIMITED = MASK_64


class ResourceLimits:
    """Soft and hard limit of each resource.

    ``used_nanoseconds``: returns the processor time of the process; ``send``: sends it a signal; ``before``: the limits
    of the parent, which are inherited.
    """

    def __init__(
        self, timers: Timers, stack_bytes: int, used_nanoseconds: Callable[[], int],
        send: Callable[[SignalInfo], None], before: ResourceLimits | None = None,
    ) -> None:  # fmt: skip
        self._timers = timers
        self._used_nanoseconds = used_nanoseconds
        self._send = send
        self._limits = dict.fromkeys(range(_N_LIMITS), (_UNLIMITED, _UNLIMITED))
        self._limits[_RLIMIT_STACK] = (stack_bytes, _UNLIMITED)
        self._limits[_RLIMIT_NPROC] = (MAX_TASKS, MAX_TASKS)
        self._limits[_RLIMIT_NOFILE] = (MAX_DESCRIPTORS, MAX_DESCRIPTORS)
        if before is not None:
            self._limits = dict(before._limits)
        self._processor_timer: Timer | None = None
        self._arm_processor_timer()

    def get(self, resource: int) -> tuple[int, int] | None:
        """The soft and the hard limit; None for a resource that does not exist."""
        return self._limits.get(resource)

    def set(self, resource: int, soft: int, hard: int) -> None:
        self._limits[resource] = (soft, hard)
        if resource == _RLIMIT_CPU:
            self._arm_processor_timer()

    @property
    def max_tasks(self) -> int:
        """RLIMIT_NPROC: the number of processes and threads at which this process cannot start another one."""
        return self._limits[_RLIMIT_NPROC][0]

    def release(self) -> None:
        """Remove the timer of RLIMIT_CPU: the process has ended."""
        if self._processor_timer is not None:
            self._timers.remove(self._processor_timer)
            self._processor_timer = None

    def _arm_processor_timer(self) -> None:
        """Set a timer to the earliest time at which the process may reach RLIMIT_CPU. It may be too early: timers count
        the processor time of all processes."""
        soft, hard = self._limits[_RLIMIT_CPU]
        if soft == _UNLIMITED:
            if self._processor_timer is not None:
                self._timers.arm(self._processor_timer, 0, 0)
            return
        if self._processor_timer is None:
            self._processor_timer = self._timers.add(Timer(TimeBase.PROCESSOR, self._check_processor_time))
        left = min(max(soft, 1), hard) * NANOSECONDS - self._used_nanoseconds()
        self._timers.arm(self._processor_timer, max(1, left), 0)

    def _check_processor_time(self, overrun: int) -> None:
        """Send SIGKILL at the hard limit, SIGXCPU at the soft one and every second after it (setrlimit(2))."""
        soft, hard = self._limits[_RLIMIT_CPU]
        used_seconds = self._used_nanoseconds() / NANOSECONDS
        if used_seconds >= hard:
            self._send(SignalInfo(Signal.SIGKILL, SI_KERNEL))
            return
        if used_seconds >= soft:
            self._send(SignalInfo(Signal.SIGXCPU, SI_KERNEL))
            self._limits[_RLIMIT_CPU] = (min(soft + 1, hard), hard)
        self._arm_processor_timer()
