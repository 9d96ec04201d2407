"""Records of processes, threads and saved registers.

`scheduler` decides which thread runs; the system calls that create and end tasks are in `clone_and_exit`.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from emulator.linux.abi.numbers import MASK_64
from emulator.linux.kernel.hart_protocol import Hart
from emulator.linux.kernel.limits import ResourceLimits
from emulator.linux.kernel.process_timers import ProcessTimers
from emulator.linux.kernel.signals import SignalState, ThreadSignals
from emulator.linux.kernel.waits import Wait
from emulator.linux.loader.process_image import ProcessImage
from emulator.linux.mm.mappings import Mappings
from emulator.linux.vfs.files import VirtualFiles
from emulator.memory import GuestMemory


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


@dataclass(eq=False)
class Process:
    """A process.

    ``status``: exit status as wait4 reports it, None while it runs. ``is_reaped``: it has ended and was reaped, or
    its parent ignores SIGCHLD. ``borrows_memory``: it uses the parent's memory until it executes a program or ends
    (vfork). ``stopped``: the signal that has stopped it, 0 while it runs; ``stop_unreported``: the stop was not yet
    reported to the parent; ``continue_unreported``: it was continued and that was not yet reported. ``is_adopted``:
    the parent that started it has ended. The fields of the program that it executes are set by `programs`."""

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
    memory: GuestMemory = field(init=False)
    program: ProcessImage = field(init=False)
    program_path: str = field(init=False)
    files: VirtualFiles = field(init=False)
    signals: SignalState = field(init=False)
    mappings: Mappings = field(init=False)
    timers: ProcessTimers = field(init=False)
    limits: ResourceLimits = field(init=False)
