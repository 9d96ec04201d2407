"""What all processes of a guest share: clocks, timers, the scheduler, futexes, random bytes."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from emulator.linux.kernel.clock import Timers, VirtualClock
from emulator.linux.kernel.futex_queues import Futexes
from emulator.linux.kernel.job_control import stops_waiting
from emulator.linux.kernel.scheduler import Scheduler
from emulator.linux.kernel.tasks import Process
from emulator.linux.loader.elf import ElfImage


class ProcessListener(ABC):
    """An object that follows the life of all processes."""

    @abstractmethod
    def process_ended(self, process: Process) -> None:
        """A process other than the first one has ended; its threads, timers and descriptors are released."""


Part = TypeVar("Part")


class System:
    """The shared parts of the kernel. ``unsupported``: features that the guest requested and that are not supported;
    ``first_program``: the contents of the program that the guest began with.

    ``clock`` returns virtual nanoseconds of processor time; the other parameters are those of `LinuxKernel`.
    """

    def __init__(
        self, clock: Callable[[], int], seed: int, timer_phase: float, instructions: Callable[[], int]
    ) -> None:
        self.clock = VirtualClock(clock)
        self.timers = Timers(self.clock, timer_phase)
        self.scheduler = Scheduler(self.clock, self.timers, instructions, stops_waiting)
        self.futexes = Futexes(self.scheduler.waiting.notify)
        self.generator = random.Random(f"getrandom {seed}")
        self.images: list[ElfImage] = []
        """Images of the programs executed last, latest first; processes of one program share its image."""
        self.first_program = b""
        self._other_programs: dict[str, None] = {}
        self.unsupported: list[str] = []
        self.process_listeners: list[ProcessListener] = []
        self._parts: dict[type, Any] = {}

    def part(self, kind: type[Part]) -> Part:
        """The one object of class ``kind``, made by ``kind()`` at the first use: the state of an optional group of
        system calls. A `ProcessListener` begins to listen."""
        found = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = kind()
            if isinstance(found, ProcessListener):
                self.process_listeners.append(found)
        return found

    def note_executed(self, program: ElfImage) -> None:
        """Remember that a process executes ``program``."""
        if program.data != self.first_program:
            self._other_programs[program.name] = None

    @property
    def other_programs(self) -> list[str]:
        """Paths of the programs that processes executed, other than the first one, in the order of their first
        execution; what interpreted a script, not the script."""
        return list(self._other_programs)

    def report(self, what: str) -> None:
        """Record a feature that the guest requested and that is not supported."""
        if what not in self.unsupported:
            self.unsupported.append(what)
