"""The guest on the hart: the current process, its address space, and the other address spaces.

The scheduler decides which task runs; `Guest` switches the hart to that task's address space. Faults go to the guest's
own handlers where it has any.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.engine.hart_state import Hart
from emulator.errors import GuestFault
from emulator.execution.address_space import AddressSpace, AddressSpaces
from emulator.execution.backtrace import Places
from emulator.execution.faults import explain, explain_abort, fault_of, signal_code
from emulator.linux.abi.numbers import Signal
from emulator.linux.kernel.hart_protocol import GuestExit
from emulator.linux.linux_kernel import LinuxKernel
from emulator.linux.loader.process_image import ProcessImage
from emulator.listeners import GuestListener
from emulator.memory import GuestMemory, MemoryFault


class Guest:
    """The guest. ``address_space``: of the current process; ``address_spaces``: of all processes.

    ``needs_service``: whether a system call or a switch has happened since `Deadlines.service_guest`.
    """

    def __init__(self, hart: Hart, space: AddressSpace, kernel: LinuxKernel, listener: GuestListener) -> None:
        self.hart = hart
        self.address_space = space
        self.address_spaces = AddressSpaces(space, kernel.process.program)
        self.kernel = kernel
        self.scheduler = kernel.scheduler
        self.scheduler.attach(listener)
        self.needs_service = False
        self._listener = listener
        self._process = kernel.process
        hart.pc = self.program.entry
        hart.x[2] = self.program.stack_pointer
        space.enter(hart)

    @property
    def program(self) -> ProcessImage:
        """The program that the current process executes."""
        return self.kernel.process.program

    @property
    def memory(self) -> GuestMemory:
        return self.address_space.memory

    # --- processes
    def changed(self) -> None:
        """Report that translations for this process may have to emit something else now."""
        self._listener.process_changed()

    def follow_scheduler(self) -> None:
        """Follow the scheduler: another thread has the hart, or the current one has executed another program."""
        self.hart.empty_reservation()
        self.needs_service = True
        process = self.kernel.process
        if process is not self._process or process.memory is not self.address_space.memory:
            self._process = process
            self.changed()
        if process.memory is not self.address_space.memory:
            self._enter(process.memory)

    def _enter(self, memory: GuestMemory) -> None:
        """Switch the hart to the address space of ``memory``, and close those that no process uses."""
        space = self.address_spaces.get(memory)
        begins = space is None
        if space is None:
            space = self.address_spaces.begin(memory, self.program, self.address_space)
        self.address_space = space
        self._listener.space_entered(space, begins)
        space.enter(self.hart)
        used = {process.memory for process in self.scheduler.processes.values() if process.threads}
        self.address_spaces.keep_only(used)

    # --- faults
    def attempt(self, action: Callable[..., None], *arguments: int) -> bool:
        """Call ``action`` and `deliver` its fault, if any; returns whether there was none."""
        try:
            action(*arguments)
        except (MemoryFault, GuestFault) as fault:
            self.deliver(fault)
            return False
        return True

    def deliver(self, fault: MemoryFault | GuestFault) -> None:
        """Deliver the fault's signal to the process, which ends without a handler. Raises `GuestFault` if the first
        process ends."""
        if isinstance(fault, MemoryFault):
            fault = fault_of(fault, self.hart.pc)
        self.hart.pc = fault.pc
        code, address = signal_code(fault), fault.address or fault.pc
        if not self.kernel.deliver_fault(self.hart, fault.signal, code, address):
            if self.kernel.process.parent is None:
                raise fault
            self.kernel.exit_process(self.hart, GuestExit(128 + fault.signal, fault.signal))

    # --- messages
    def place(self) -> str:
        """The current pc as text, with function and source line."""
        return Places(self.kernel).text(self.hart.pc)

    def explain(self, fault: GuestFault) -> str:
        """The message of a fault that has ended the guest."""
        return explain(fault, self.hart, self.program, self.address_space.fetch, Places(self.kernel))

    def explain_exit(self, signal: int) -> str:
        """The message of a signal that has ended the guest."""
        return explain_abort(signal, self.hart, Places(self.kernel))


def caught_faults(kernel: LinuxKernel) -> tuple[bool, bool]:
    """Whether the process catches SIGSEGV, and SIGBUS: then registers have to be exact at accesses that may fault."""
    return kernel.signals.is_caught(Signal.SIGSEGV), kernel.signals.is_caught(Signal.SIGBUS)
