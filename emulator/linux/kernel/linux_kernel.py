"""The Linux kernel of one process: dispatch of system calls, signal delivery and timers.

The calls themselves are in `emulator.linux.syscalls`, one class a subject. They take the argument registers as unsigned
integers and return the result; an `OSError` becomes the negative error number, a faulting memory access EFAULT. Only a
read from a passed-through standard input waits in real time.
"""

from __future__ import annotations

import errno
import functools
import random
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from emulator.linux.abi.numbers import MASK_64, PID, SYSTEM_CALL_NAMES
from emulator.linux.kernel import job_control as jobs
from emulator.linux.kernel.clock import Timers, VirtualClock
from emulator.linux.kernel.hart_protocol import GuestExit, Hart
from emulator.linux.kernel.scheduler import Scheduler
from emulator.linux.kernel.signals import SignalState, fault_info
from emulator.linux.kernel.tasks import Process, Replaced, Thread, Wait
from emulator.linux.loader.process_image import ProcessImage
from emulator.linux.syscalls.clocks_and_timers import TimeCalls
from emulator.linux.syscalls.clone_and_exit import TaskCalls, end_process
from emulator.linux.syscalls.credentials import CredentialCalls
from emulator.linux.syscalls.event_descriptors import EventCalls
from emulator.linux.syscalls.execve import ExecCalls
from emulator.linux.syscalls.fcntl_ioctl import FcntlIoctlCalls
from emulator.linux.syscalls.file_attributes import AttributeCalls
from emulator.linux.syscalls.file_copies import CopyCalls
from emulator.linux.syscalls.file_io import FileCalls
from emulator.linux.syscalls.futex import FutexCalls
from emulator.linux.syscalls.memory_maps import MemoryCalls
from emulator.linux.syscalls.optional.inotify_calls import InotifyCalls
from emulator.linux.syscalls.optional.pidfd import PidfdCalls
from emulator.linux.syscalls.optional.sysv_messages import MessageCalls
from emulator.linux.syscalls.optional.sysv_semaphores import SemaphoreCalls
from emulator.linux.syscalls.optional.sysv_shared_memory import SharedMemoryCalls
from emulator.linux.syscalls.page_ranges import PageCalls
from emulator.linux.syscalls.paths import PathCalls
from emulator.linux.syscalls.poll import PollCalls
from emulator.linux.syscalls.process_groups import ProcessGroupCalls
from emulator.linux.syscalls.scheduling import SchedulingCalls
from emulator.linux.syscalls.signal_handling import SignalCalls
from emulator.linux.syscalls.socket_io import SocketCalls
from emulator.linux.syscalls.system_limits import ProcessCalls, command_name
from emulator.linux.syscalls.wait_children import WaitCalls
from emulator.linux.vfs.files import VirtualFiles
from emulator.linux.vfs.open_files import WouldBlock
from emulator.linux.vfs.procfs import ProcFs
from emulator.memory import GuestMemory, MemoryFault, MemoryLimit

_A0, _A7 = 10, 17
_ECALL_BYTES = 4


class _Call(NamedTuple):
    name: str
    function: Callable[..., int | None]
    n_arguments: int
    takes_hart: bool


class LinuxKernel:
    """The system calls of one guest process; all processes share clock, timers and `Scheduler`.

    ``clock`` returns virtual nanoseconds of processor time, never decreasing. ``seed`` decides what getrandom
    returns; ``timer_phase`` in [0, 1) shortens the first period of periodic timers (see `Timers`).
    ``instructions`` returns the number executed so far, for time slices. ``before``: the kernel of the process that was
    forked, or of the program that this one replaces in the process ``owner``.

    After each system call and whenever the machine has stopped the guest, the caller must call `fire_timers`, and
    `deliver` while `pending_signal` is not None.
    """

    def __init__(
        self,
        memory: GuestMemory,
        process: ProcessImage,
        files: VirtualFiles | None = None,
        clock: Callable[[], int] = lambda: 0,
        seed: int = 0,
        timer_phase: float = 0.0,
        instructions: Callable[[], int] = lambda: 0,
        *,
        before: LinuxKernel | None = None,
        owner: Process | None = None,
    ) -> None:
        self.memory = memory
        self.process = process
        self.files = files or VirtualFiles()
        is_fork = before is not None and before.process is process  # its working directory may differ
        self.program_path: str = (
            before.program_path if before and is_fork else self.files.absolute(process.image.name)
        )
        self.signals = SignalState(memory, process.trampoline)
        if before is None:
            self.clock = VirtualClock(clock)
            self.timers = Timers(self.clock, timer_phase)
            self.scheduler = Scheduler(self.clock, self.timers, instructions)
            self.generator = random.Random(f"getrandom {seed}")
            self.owner = self._first_process()
        else:
            self.clock, self.timers, self.scheduler = before.clock, before.timers, before.scheduler
            self.generator = before.generator
            assert owner is not None
            self.owner = owner
        self.times = TimeCalls(self)
        self.limits: ProcessCalls = ProcessCalls(
            memory, process, self.owner, self.clock, self.generator, self.scheduler,
            None if before is None else before.limits,
        )  # fmt: skip
        self.memory_calls = MemoryCalls(memory, process, self.files, self.scheduler.report)
        groups = (
            FileCalls(self),
            FcntlIoctlCalls(self),
            CopyCalls(self),
            PathCalls(self),
            AttributeCalls(self),
            SocketCalls(self),
            PollCalls(memory, self.files.descriptors, self.signals, self.clock),
            self.memory_calls,
            PageCalls(memory, self.memory_calls),
            self.times,
            SignalCalls(memory, self.signals, self.clock, self.scheduler, self.owner),
            self.limits,
            CredentialCalls(self),
            SchedulingCalls(self),
            TaskCalls(self),
            WaitCalls(self),
            ProcessGroupCalls(self),
            ExecCalls(self),
            PidfdCalls(self),
            FutexCalls(memory, self.clock, self.scheduler),
            EventCalls(self),
            InotifyCalls(self),
            SharedMemoryCalls(self),
            SemaphoreCalls(self),
            MessageCalls(self),
        )
        by_name = {call.name: call for group in groups for call in _calls(group)}
        self._calls = {n: by_name[name] for n, name in SYSTEM_CALL_NAMES.items() if name in by_name}
        self.owner.kernel = self
        self.signals.on_send = self._before_send
        self.files.mount_procfs(ProcFs(self))
        self.files.inodes.now = self.clock.wall

    def _first_process(self) -> Process:
        owner = Process(PID, None, PID, PID)
        self.scheduler.processes[self.scheduler.new_pid()] = owner
        thread = Thread(PID, owner, self.signals.thread, command_name(self.process))
        owner.threads.append(thread)
        self.scheduler.begin(thread)
        return owner

    def _before_send(self, signal: int) -> None:
        self.scheduler.waiting.check_all()
        jobs.apply_on_send(self.scheduler, self.owner, signal)

    @property
    def unsupported(self) -> list[str]:
        """Features that a process requested and that are not supported (`Scheduler.report`)."""
        return self.scheduler.unsupported

    def release(self) -> None:
        """The process has ended or executes another program: remove its timers and mappings."""
        self.times.release()
        self.limits.release()
        self.memory_calls.release()

    def syscall(self, hart: Hart) -> None:
        """Execute the call whose number is in a7; ``hart.pc`` is already after the ``ecall``.

        Afterwards the hart may belong to another thread. Raises `GuestExit` when the first process ends and `Deadlock`
        when all threads wait for ever.
        """
        registers, scheduler = hart.registers, self.scheduler
        number = registers[_A7]
        call = self._calls.get(number)
        scheduler.recheck_waits = True
        if call is None:
            scheduler.report(SYSTEM_CALL_NAMES.get(number, f"system call {number}"))
            registers[_A0] = -errno.ENOSYS & MASK_64
            return
        first = registers[_A0]
        scheduler.current.restart = None
        _, function, n_arguments, takes_hart = call
        arguments: list[Any] = registers[_A0 : _A0 + n_arguments].tolist()
        if takes_hart:
            arguments.insert(0, hart)
        try:
            result = function(*arguments)
        except WouldBlock as block:
            scheduler.block(_retry(call, arguments, block), hart, first)
            return
        except OSError as error:
            result = -(error.errno or errno.EIO)
        except MemoryFault:
            result = -errno.EFAULT
        except MemoryLimit:
            result = -errno.ENOMEM
        except Wait as wait:
            scheduler.block(wait, hart, first)
            return
        except Replaced:
            return
        except GuestExit as end:
            self.exit_process(hart, end)
            return
        if result is not None:
            registers[_A0] = result & MASK_64

    def exit_process(self, hart: Hart, end: GuestExit) -> None:
        """End the process and switch to another thread. Raises ``end`` for the first process."""
        if self.owner.parent is None:
            raise end
        status = (end.status & 0xFF) << 8 if end.signal is None else end.signal
        end_process(self.scheduler, self.owner, status)
        self.scheduler.switch(hart)

    def pending_signal(self) -> int | None:
        """The number of the next pending signal that is not blocked, or None."""
        return self.signals.next_pending()

    def deliver(self, hart: Hart) -> None:
        """Deliver all pending signals that are not blocked: enter handlers, or do the default action.

        If a signal stops the process, the hart belongs to another thread afterwards. Raises `GuestExit` when a signal
        ends the guest (status 128 + its number, as a shell reports it), and `Deadlock` when all processes are stopped.
        """
        thread = self.scheduler.current
        entered = False
        while (signal := self.signals.next_pending()) is not None:
            info = self.signals.take(signal)
            if self.signals.stops(signal):
                if jobs.stop(self.scheduler, self.owner, signal):
                    break
                continue
            if thread.restart is not None and self.signals.wants_restart(signal):
                self._restart_call(hart)
            try:
                entered = self.signals.deliver(hart, info) or entered
            except GuestExit as end:
                self.exit_process(hart, end)
                return
            if entered:
                thread.restart = None
        self.signals.end_wait()
        if thread.restart is not None:
            self._restart_call(hart)
        if self.owner.stopped:
            self.scheduler.switch_from_stopped(hart)

    def deliver_fault(self, hart: Hart, signal: int, code: int, address: int) -> bool:
        """Deliver the signal of a fault of the instruction at ``hart.pc``; False if the guest has no handler.

        ``code`` is the ``si_code`` (SEGV_MAPERR and others of `signals`), ``address`` goes to ``si_addr``.
        """
        return self.signals.deliver_fault(hart, fault_info(signal, code, address))

    def next_timer_deadline_nanoseconds(self) -> int | None:
        """Value of ``clock`` at which the next timer or timeout expires; None without one."""
        return self.scheduler.next_deadline()

    def fire_timers(self) -> None:
        """Fire all timers that are due, and have the waits checked."""
        self.scheduler.recheck_waits = True
        self.timers.fire()

    def _restart_call(self, hart: Hart) -> None:
        thread = self.scheduler.current
        assert thread.restart is not None
        hart.pc -= _ECALL_BYTES
        hart.x[_A0] = thread.restart
        thread.restart = None


def _retry(call: _Call, arguments: list[Any], block: WouldBlock) -> Wait:
    """A wait that retries the call until it does not block."""

    def ready() -> int | None:
        try:
            return call.function(*arguments)
        except WouldBlock:
            return None

    return Wait(ready, restartable=True, deadlock=f"the guest waits for ever: it {block.what}")


def _calls(group: object) -> list[_Call]:
    """The public methods of a ``*Calls`` object."""
    kind: Any = type(group)
    return [_Call(name, getattr(group, name), n, takes_hart) for name, n, takes_hart in _signatures(kind)]


@functools.cache
def _signatures(group: Any) -> list[tuple[str, int, bool]]:
    """Name, number of arguments, and whether it takes the hart, of each public method of a ``*Calls`` class."""
    shapes = []
    members = {name: member for kind in reversed(group.__mro__) for name, member in vars(kind).items()}
    for name, member in members.items():
        if not name.startswith("_") and isinstance(member, types.FunctionType | staticmethod):
            # This runs at every start of the emulator; `inspect.signature` would take ten times as long.
            code = getattr(group, name).__code__
            parameters = code.co_varnames[isinstance(member, types.FunctionType) : code.co_argcount]
            takes_hart = parameters[:1] == ("hart",)
            shapes.append((name, len(parameters) - takes_hart, takes_hart))
    return shapes
