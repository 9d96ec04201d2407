"""The Linux kernel of a guest: dispatch of system calls, delivery of signals, timers.

The handlers of the calls are in `emulator.linux.syscalls`, by the table in `syscalls.table`. Only a read from a
passed-through standard input waits in real time.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from emulator.linux.abi.numbers import MASK_64, SYSTEM_CALL_NAMES, Signal
from emulator.linux.kernel import job_control as jobs
from emulator.linux.kernel.clock import VirtualClock
from emulator.linux.kernel.hart_protocol import GuestExit, Hart
from emulator.linux.kernel.programs import start_first_process
from emulator.linux.kernel.scheduler import Scheduler
from emulator.linux.kernel.signals import SignalInfo, SignalState, fault_info
from emulator.linux.kernel.system import System
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.tasks import Process
from emulator.linux.kernel.waits import Wait
from emulator.linux.loader.process_image import ProcessImage
from emulator.linux.mm.mappings import Mappings
from emulator.linux.syscalls.clone_and_exit import end_process
from emulator.linux.syscalls.table import ALL_SYSTEM_CALLS
from emulator.linux.vfs.files import VirtualFiles
from emulator.linux.vfs.open_files import WouldBlock
from emulator.memory import GuestMemory, MemoryFault, MemoryLimit

_A0, _A7 = 10, 17
_ECALL_BYTES = 4


class LinuxKernel:
    """The kernel of a guest whose first process executes ``program`` in ``memory``.

    ``clock`` returns virtual nanoseconds of processor time, never decreasing. ``seed`` decides what getrandom
    returns; ``timer_phase`` in [0, 1) shortens the first period of periodic timers (see `Timers`).
    ``instructions`` returns the number executed so far, for time slices.

    After each system call and whenever the machine has stopped the guest, the caller must call `fire_timers` and
    `serve_signals`.
    """

    def __init__(
        self,
        memory: GuestMemory,
        program: ProcessImage,
        files: VirtualFiles | None = None,
        clock: Callable[[], int] = lambda: 0,
        seed: int = 0,
        timer_phase: float = 0.0,
        instructions: Callable[[], int] = lambda: 0,
    ) -> None:
        self.system = System(clock, seed, timer_phase, instructions)
        self.scheduler: Scheduler = self.system.scheduler
        self._task: Task | None = None  # the task of the last system call
        start_first_process(self.system, memory, program, files or VirtualFiles())

    # --- the process that has the hart
    @property
    def process(self) -> Process:
        return self.scheduler.current.process

    @property
    def memory(self) -> GuestMemory:
        return self.process.memory

    @property
    def files(self) -> VirtualFiles:
        return self.process.files

    @property
    def signals(self) -> SignalState:
        return self.process.signals

    @property
    def mappings(self) -> Mappings:
        return self.process.mappings

    # --- all processes
    @property
    def clock(self) -> VirtualClock:
        return self.system.clock

    @property
    def unsupported(self) -> list[str]:
        """Features that the guest requested and that are not supported (`System.report`)."""
        return self.system.unsupported

    def syscall(self, hart: Hart) -> None:
        """Execute the call whose number is in a7; ``hart.pc`` is already after the ``ecall``.

        Afterwards the hart may belong to another thread. Raises `GuestExit` when the first process ends and `Deadlock`
        when all threads wait for ever.
        """
        registers, scheduler = hart.registers, self.scheduler
        number = registers[_A7]
        call = ALL_SYSTEM_CALLS.get(number)
        scheduler.recheck_waits = True
        if call is None:
            self.system.report(SYSTEM_CALL_NAMES.get(number, f"system call {number}"))
            registers[_A0] = -errno.ENOSYS & MASK_64
            return
        thread = scheduler.current
        thread.restart = None
        first = registers[_A0]
        task = self._task
        if task is None or task.thread is not thread or task.memory is not thread.process.memory:
            task = self._task = Task(self.system, thread, hart)
        arguments = (task, *registers[_A0 : _A0 + call.n_arguments].tolist())
        result: int | Wait | None
        try:
            result = call.handler(*arguments)
        except WouldBlock as block:
            why = f"the guest waits for ever: it {block.what}"
            result = Wait(call.handler, *arguments, restartable=True, deadlock=why)
        except OSError as error:
            result = -(error.errno or errno.EIO)
        except MemoryFault:
            result = -errno.EFAULT
        except MemoryLimit:
            result = -errno.ENOMEM
        except GuestExit as end:
            self.exit_process(hart, end)
            return
        if isinstance(result, Wait):
            scheduler.block(result, hart, first)
        elif result is not None:
            registers[_A0] = result & MASK_64

    def exit_process(self, hart: Hart, end: GuestExit) -> None:
        """End the current process and switch to another thread. Raises ``end`` for the first process."""
        if self.process.parent is None:
            raise end
        status = (end.status & 0xFF) << 8 if end.signal is None else end.signal
        end_process(self.system, self.process, status)
        self.scheduler.switch(hart)

    def pending_signal(self) -> int | None:
        """The number of the next signal that the current thread is to take, or None."""
        return self.scheduler.next_signal(self.scheduler.current)

    def serve_signals(self, hart: Hart) -> None:
        """Deliver the signals of the current thread, and of each that gets the hart by this. Raises as `deliver`."""
        while self.pending_signal() is not None:
            self.deliver(hart)
        if self.scheduler.current.restart is not None:  # another thread has taken the signal that interrupted the call
            self._restart_call(hart)

    def deliver(self, hart: Hart) -> None:
        """Deliver all pending signals that are not blocked: enter handlers, or do the default action.

        If a signal stops the process, the hart belongs to another thread afterwards. Raises `GuestExit` when a signal
        ends the guest (status 128 + its number, as a shell reports it), and `Deadlock` when all processes are stopped.
        """
        thread, signals = self.scheduler.current, self.signals
        entered = False
        while (signal := self.scheduler.next_signal(thread)) is not None:
            info = signals.take(signal)
            if not self._is_wanted(info):
                continue
            if signals.stops(signal):
                if jobs.stop(self.scheduler, thread.process, signal):
                    break
                continue
            if thread.restart is not None and signals.wants_restart(signal):
                self._restart_call(hart)
            try:
                entered = signals.deliver(hart, info) or entered
            except GuestExit as end:
                self.exit_process(hart, end)
                return
            if entered:
                thread.restart = None
        signals.end_wait()
        if thread.restart is not None:
            self._restart_call(hart)
        if thread.process.stopped:
            self.scheduler.switch_from_stopped(hart)

    def deliver_fault(self, hart: Hart, signal: int, code: int, address: int) -> bool:
        """Deliver the signal of a fault of the instruction at ``hart.pc``; False if the guest has no handler.

        ``code`` is the ``si_code`` (SEGV_MAPERR and others of `signals`), ``address`` goes to ``si_addr``.
        """
        info = fault_info(signal, code, address)
        if not self.signals.handles_fault(signal):
            return False
        return not self._is_wanted(info) or self.signals.deliver(hart, info)

    def fire_timers(self) -> None:
        """Fire all timers that are due, and have the waits checked."""
        self.scheduler.recheck_waits = True
        self.system.timers.fire()

    def _is_wanted(self, info: SignalInfo) -> bool:
        """Whether the signal is to be delivered: a debugger may discard it."""
        listener = self.scheduler.listener
        return listener is None or info.signal == Signal.SIGKILL or listener.signal_due(info)

    def _restart_call(self, hart: Hart) -> None:
        thread = self.scheduler.current
        assert thread.restart is not None
        hart.pc -= _ECALL_BYTES
        hart.x[_A0] = thread.restart
        thread.restart = None
