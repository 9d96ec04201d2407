"""The guest on the hart: the process that runs, its kernel and address space, and those of the other processes.

The scheduler decides who runs; here the hart goes over to another address space. Faults go to the guest's own handlers
where it has any.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.engine.state import Hart
from emulator.errors import GuestFault
from emulator.faults import explain, fault_of, place_of, signal_code
from emulator.linux.abi import Signal
from emulator.linux.hart import GuestExit
from emulator.linux.process import ProcessImage
from emulator.linux.syscalls import LinuxKernel
from emulator.memory import GuestMemory, MemoryFault
from emulator.spaces import Space, Spaces


class Guest:
    """``kernel``, ``space``: of the process that runs; ``spaces``: of all.

    ``look``: whether something has happened, a system call or a switch, since somebody looked after the guest.
    """

    def __init__(self, hart: Hart, space: Space, kernel: LinuxKernel) -> None:
        self.hart = hart
        self.space = space
        self.spaces = Spaces(space)
        self.kernel = kernel
        self.scheduler = kernel.scheduler
        self.scheduler.on_fork, self.scheduler.on_switch = self.spaces.fork, self._switched
        self.look = False
        self.on_change: Callable[[], None] | None = None
        """Called when another process runs, or it catches faults that it did not, or no longer."""
        self.on_enter: Callable[[Space, bool], None] | None = None
        """Called with the address space that the hart enters, and whether a program begins there."""
        hart.pc = kernel.process.entry
        hart.x[2] = kernel.process.stack_pointer
        space.enter(hart)

    @property
    def process(self) -> ProcessImage:
        return self.kernel.process

    @property
    def memory(self) -> GuestMemory:
        return self.space.memory

    # --- processes
    def changed(self) -> None:
        """What translations have to emit for this process may be something else now."""
        if self.on_change is not None:
            self.on_change()

    def _switched(self) -> None:
        """Another thread has got the hart, or the one that has it runs another program."""
        self.hart.empty_reservation()
        self.look = True
        kernel = self.scheduler.current.process.kernel
        if kernel is not self.kernel:
            self.kernel = kernel
            self.changed()
        if kernel.memory is not self.space.memory:
            self._enter(kernel.memory)

    def _enter(self, memory: GuestMemory) -> None:
        space = self.spaces.get(memory)
        begins = space is None
        if space is None:
            space = self.spaces.begin(memory, self.space)
        self.space = space
        if self.on_enter is not None:
            self.on_enter(space, begins)
        space.enter(self.hart)
        used = {process.kernel.memory for process in self.scheduler.processes.values() if process.threads}
        self.spaces.keep_only(used)

    # --- faults
    def attempt(self, action: Callable[..., None], *arguments: int) -> bool:
        """Call ``action``; a fault goes to the guest's handler if it has one. False when there was a fault."""
        try:
            action(*arguments)
        except (MemoryFault, GuestFault) as fault:
            self.deliver(fault)
            return False
        return True

    def deliver(self, fault: MemoryFault | GuestFault) -> None:
        """Let the guest's handler run, or end the process. Raises `GuestFault` for the first one."""
        if isinstance(fault, MemoryFault):
            fault = fault_of(fault, self.hart.pc)
        self.hart.pc = fault.pc
        code, address = signal_code(fault), fault.address or fault.pc
        if not self.kernel.deliver_fault(self.hart, fault.signal, code, address):
            if self.kernel.owner.parent is None:
                raise fault
            self.kernel.end(self.hart, GuestExit(128 + fault.signal, fault.signal))

    # --- to people
    def place(self) -> str:
        """Where the process is."""
        return place_of(self.process, self.hart.pc, self._file_at)

    def explain(self, fault: GuestFault) -> str:
        """What a fault that has ended the guest was."""
        return explain(fault, self.process, self.space.fetch, self._file_at)

    def _file_at(self, address: int) -> str | None:
        return self.kernel.memory_calls.file_at(address)


def caught_faults(kernel: LinuxKernel) -> tuple[bool, bool]:
    """Whether the process catches SIGSEGV, and SIGBUS: then all registers are to be exact where a fault may be."""
    return kernel.signals.is_caught(Signal.SIGSEGV), kernel.signals.is_caught(Signal.SIGBUS)
