"""Records of processes, threads, saved registers and waits.

`scheduler` decides which thread runs; the system calls that create and end tasks are in `clone_and_exit`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from emulator.linux.abi.numbers import MASK_64
from emulator.linux.kernel.clock import LAST_NANOSECONDS
from emulator.linux.kernel.hart_protocol import Hart
from emulator.linux.kernel.signals import ThreadSignals

if TYPE_CHECKING:
    from emulator.linux.kernel.linux_kernel import LinuxKernel

MAX_TASKS = 4096
"""Limit of the threads of all processes plus the zombie processes; clone fails with EAGAIN at it (RLIMIT_NPROC)."""


class Registers(NamedTuple):
    """A hart's architectural state while another thread has the hart.

    ``values``: x and then f, 64 unsigned words, which are never changed in place.
    """

    values: array[int]
    pc: int
    fcsr: int

    @staticmethod
    def of(hart: Hart) -> Registers:
        return Registers(array("Q", hart.registers.tobytes()), hart.pc, hart.fcsr)

    @staticmethod
    def zeros(pc: int) -> Registers:
        """The registers of a program that starts at ``pc``."""
        return Registers(array("Q", bytes(8 * 64)), pc, 0)

    def put(self, hart: Hart) -> None:
        """Load the registers into the hart."""
        hart.registers[:] = self.values
        hart.pc = self.pc
        hart.fcsr = self.fcsr

    def with_result(self, value: int) -> Registers:
        """A copy with a system call's result in a0."""
        return self.with_x(10, value)

    def with_x(self, number: int, value: int) -> Registers:
        """A copy with another value in x register ``number``, or in f register ``number`` - 32."""
        values = self.values[:]
        values[number] = value & MASK_64
        return Registers(values, self.pc, self.fcsr)


class WhenStopped(Enum):
    """What a stop of the process does to a waiting system call (signal(7)): it continues with the same timeout, its
    timeout is paused, or it fails with EINTR."""

    CONTINUES = 0
    PAUSES_TIMEOUT = 1
    FAILS = 2


class Wait(Exception):
    """Raised by a system call that has to wait.

    ``ready``: returns the call's result when the wait is over, else None; called after every event or, if
    ``is_notified``, only after `WaitQueue.notify`.
    ``until``: timeout in elapsed nanoseconds, at which ``timed_out`` gives the result; None: no timeout.
    ``restartable``: whether the call may be restarted after a signal handler. ``interrupted``: called when a signal
    ends the call; returns its result, or None for EINTR. ``when_stopped``: what a stop of the process does to the call.
    ``deadlock``: the message if no event can ever end the wait.
    """

    def __init__(
        self,
        ready: Callable[[], int | None],
        until: int | None = None,
        timed_out: Callable[[], int] | None = None,
        restartable: bool = False,
        interrupted: Callable[[], int | None] | None = None,
        when_stopped: WhenStopped = WhenStopped.CONTINUES,
        is_notified: bool = False,
        deadlock: str = "the guest waits for ever: no timer and no other process will send it a signal",
    ) -> None:
        super().__init__(deadlock)
        self.ready = ready
        self.until = None if until is None else min(until, LAST_NANOSECONDS)
        self.timed_out = timed_out
        self.restartable = restartable
        self.interrupted = interrupted
        self.when_stopped = when_stopped
        self.is_notified = is_notified
        self.deadlock = deadlock


class Replaced(Exception):
    """Raised by a call without a result: the calling thread has ended or executes another program."""


@dataclass(eq=False)
class Thread:
    """A thread. ``registers``: its registers while it does not run; ``restart``: the first argument of an interrupted
    call that may be restarted, else None."""

    tid: int
    process: Process
    signals: ThreadSignals
    name: bytes = b""
    registers: Registers | None = None
    wait: Wait | None = None
    restart: int | None = None
    clear_tid_address: int = 0
    robust_list: int = 0
    used_nanoseconds: int = 0
    """Processor time up to the last charge (`Scheduler.charge_current`)."""

    @property
    def kernel(self) -> LinuxKernel:
        return self.process.kernel


@dataclass(eq=False)
class Process:
    """A process.

    ``status``: exit status as wait4 reports it, None while it runs. ``is_reaped``: it has ended and was reaped, or
    its parent ignores SIGCHLD. ``borrows_memory``: it uses the parent's memory until it executes a program or ends
    (vfork). ``stopped``: the signal that has stopped it, 0 while it runs; ``stop_unreported``: the stop was not yet
    reported to the parent; ``continue_unreported``: it was continued and that was not yet reported. ``is_adopted``:
    the parent that started it has ended."""

    pid: int
    parent: Process | None
    group: int
    session: int
    exit_signal: int = 0
    threads: list[Thread] = field(default_factory=list)
    children: list[Process] = field(default_factory=list)
    status: int | None = None
    is_reaped: bool = False
    borrows_memory: bool = False
    has_executed: bool = False
    is_adopted: bool = False
    nice: int = 0
    """Reported and inherited; it does not affect scheduling."""
    policy: int = 0
    """Scheduling policy; reported and inherited only, as ``nice``."""
    stopped: int = 0
    stop_unreported: bool = False
    continue_unreported: bool = False
    ended_nanoseconds: int = 0
    """Processor time of the ended threads."""
    children_nanoseconds: int = 0
    """Processor time of the reaped children and their reaped children."""
    kernel: LinuxKernel = field(init=False)
