"""What runs: processes, their threads, and what a thread that cannot go on waits for.

Plain records. Who runs when is decided by `scheduler`; what the system calls do with them is in `task_calls`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from emulator.linux.abi import MASK_64
from emulator.linux.clock import LAST_NANOSECONDS
from emulator.linux.hart import Hart
from emulator.linux.signals import ThreadSignals

if TYPE_CHECKING:
    from emulator.linux.syscalls import LinuxKernel

MAX_TASKS = 4096
"""Threads of all processes, and processes that have ended and were not yet waited for: one more fails with EAGAIN, as
RLIMIT_NPROC tells."""


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
        """Those of a program that begins at ``pc``."""
        return Registers(array("Q", bytes(8 * 64)), pc, 0)

    def put(self, hart: Hart) -> None:
        """Give them to the hart."""
        hart.registers[:] = self.values
        hart.pc = self.pc
        hart.fcsr = self.fcsr

    def with_result(self, value: int) -> Registers:
        """The same with a system call's result."""
        return self.with_x(10, value)

    def with_x(self, number: int, value: int) -> Registers:
        """The same with another value in an x register, or in f register ``number`` - 32."""
        values = self.values[:]
        values[number] = value & MASK_64
        return Registers(values, self.pc, self.fcsr)


class WhenStopped(Enum):
    """What becomes of a call that waits while its process is stopped (signal(7)): it goes on with the same end, or with
    the time that was left, or it fails with EINTR."""

    GOES_ON = 0
    TIME_STANDS_STILL = 1
    ENDS = 2


class Wait(Exception):
    """A system call that cannot end yet.

    ``ready``: the call's result as soon as it can end, None until then; asked again whenever something happened or, if
    ``is_told``, whenever `WaitQueue.tell` says so.
    ``until``: elapsed nanoseconds at which the call ends anyway, with what ``timed_out`` gives; None: never.
    ``restartable``: a signal's handler may be followed by the same call again. ``interrupted``: called when a signal
    ends the call; its result is the call's, None stands for EINTR. ``when_stopped``: what a stop of the process does
    to it.
    ``deadlock``: what to say when nothing can ever end it.
    """

    def __init__(
        self,
        ready: Callable[[], int | None],
        until: int | None = None,
        timed_out: Callable[[], int] | None = None,
        restartable: bool = False,
        interrupted: Callable[[], int | None] | None = None,
        when_stopped: WhenStopped = WhenStopped.GOES_ON,
        is_told: bool = False,
        deadlock: str = "the guest waits for ever: no timer will send it a signal, and nobody else can",
    ) -> None:
        super().__init__(deadlock)
        self.ready = ready
        self.until = None if until is None else min(until, LAST_NANOSECONDS)
        self.timed_out = timed_out
        self.restartable = restartable
        self.interrupted = interrupted
        self.when_stopped = when_stopped
        self.is_told = is_told
        self.deadlock = deadlock


class Replaced(Exception):
    """The calling thread goes on elsewhere, or not at all: the call has no result."""


@dataclass(eq=False)
class Thread:
    """A thread. ``registers``: while it does not run; ``restart``: the first argument of an interrupted call that
    may be issued again."""

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
    """Processor time up to when it last gave the hart away."""

    @property
    def kernel(self) -> LinuxKernel:
        return self.process.kernel


@dataclass(eq=False)
class Process:
    """A process. ``status``: how it ended, as wait4 reports it, None while it runs. ``is_forgotten``: it has ended, and
    somebody has waited for it, or nobody will. ``borrows``: the parent's memory is used until the process executes a
    program or ends (vfork). ``stopped``: the signal that has stopped it, 0 while it runs; ``stop_is_news``: nobody has
    waited for that; ``is_continued``: it goes on since, and nobody has waited for that. ``is_adopted``: the parent that
    started it has ended."""

    pid: int
    parent: Process | None
    group: int
    session: int
    exit_signal: int = 0
    threads: list[Thread] = field(default_factory=list)
    children: list[Process] = field(default_factory=list)
    status: int | None = None
    is_forgotten: bool = False
    borrows: bool = False
    has_executed: bool = False
    is_adopted: bool = False
    nice: int = 0
    """Told and inherited; it changes nothing."""
    policy: int = 0
    """Of scheduling, as ``nice``."""
    stopped: int = 0
    stop_is_news: bool = False
    is_continued: bool = False
    ended_nanoseconds: int = 0
    """Processor time of threads that have ended."""
    children_nanoseconds: int = 0
    """Processor time of children that were waited for, and of theirs."""
    kernel: LinuxKernel = field(init=False)
