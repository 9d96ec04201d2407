"""The kernel that a process sees: dispatch of system calls, signals and timers.

The calls themselves are in ``*_calls.py``, one class a subject. They take the argument registers as unsigned
integers and return the result; an `OSError` becomes the negative error number, an access that the guest may
not make becomes EFAULT. Nothing here waits in real time but reading from a passed-through standard input.
"""

from __future__ import annotations

import errno
import functools
import random
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from emulator.linux import jobs
from emulator.linux.abi import MASK_64, PID, SYSTEM_CALL_NAMES, Signal
from emulator.linux.attribute_calls import AttributeCalls
from emulator.linux.clock import Timers, VirtualClock
from emulator.linux.control_calls import ControlCalls
from emulator.linux.copy_calls import CopyCalls
from emulator.linux.event_calls import EventCalls
from emulator.linux.exec_calls import ExecCalls
from emulator.linux.file_calls import FileCalls
from emulator.linux.files import VirtualFiles
from emulator.linux.futex_calls import FutexCalls
from emulator.linux.group_calls import GroupCalls
from emulator.linux.hart import GuestExit, Hart
from emulator.linux.ipc_memory import SharedMemoryCalls
from emulator.linux.ipc_messages import MessageCalls
from emulator.linux.ipc_semaphores import SemaphoreCalls
from emulator.linux.memory_calls import MemoryCalls
from emulator.linux.open_files import WouldBlock
from emulator.linux.page_calls import PageCalls
from emulator.linux.path_calls import PathCalls
from emulator.linux.poll_calls import PollCalls
from emulator.linux.process import ProcessImage
from emulator.linux.process_calls import ProcessCalls, command_name
from emulator.linux.process_files import ProcessFileCalls
from emulator.linux.rights_calls import RightsCalls
from emulator.linux.scheduler import Scheduler
from emulator.linux.scheduling_calls import SchedulingCalls
from emulator.linux.signal_calls import SignalCalls
from emulator.linux.signals import SignalInfo, SignalState, fault_info
from emulator.linux.socket_calls import SocketCalls
from emulator.linux.system_files import ProcFiles
from emulator.linux.task_calls import TaskCalls, end_process
from emulator.linux.tasks import Process, Replaced, Thread, Wait
from emulator.linux.time_calls import TimeCalls
from emulator.linux.wait_calls import WaitCalls
from emulator.linux.watch_calls import WatchCalls
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

    ``clock`` gives virtual nanoseconds of processor time, never decreasing. ``seed`` decides what getrandom
    returns; ``timer_phase`` in [0, 1) shortens the first period of periodic timers (see `Timers`).
    ``instructions``: how many were executed so far, for turns. ``before``: the kernel of the process that was forked,
    or of the program that this one replaces in the process ``owner``.

    After each system call and whenever the machine has stopped the guest: `fire_timers`, and `deliver` while
    `pending_signal` is not None.
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
        is_same = (
            before is not None and before.process is process
        )  # a fork, whose working directory may be another
        self.program_path: str = (
            before.program_path if before and is_same else self.files.absolute(process.image.name)
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
            ControlCalls(self),
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
            RightsCalls(self),
            SchedulingCalls(self),
            TaskCalls(self),
            WaitCalls(self),
            GroupCalls(self),
            ExecCalls(self),
            ProcessFileCalls(self),
            FutexCalls(memory, self.clock, self.scheduler),
            EventCalls(self),
            WatchCalls(self),
            SharedMemoryCalls(self),
            SemaphoreCalls(self),
            MessageCalls(self),
        )
        by_name = {call.name: call for group in groups for call in _calls(group)}
        self._calls = {n: by_name[name] for n, name in SYSTEM_CALL_NAMES.items() if name in by_name}
        self.owner.kernel = self
        self.signals.prepare = self._prepare_signal
        self.files.set_system(ProcFiles(self))
        self.files.inodes.now = self.clock.wall

    def _first_process(self) -> Process:
        owner = Process(PID, None, PID, PID)
        self.scheduler.processes[self.scheduler.new_pid()] = owner
        thread = Thread(PID, owner, self.signals.thread, command_name(self.process))
        owner.threads.append(thread)
        self.scheduler.begin(thread)
        return owner

    def _prepare_signal(self, signal: int) -> None:
        self.scheduler.waiting.ask_everybody()
        jobs.prepare(self.scheduler, self.owner, signal)

    @property
    def unsupported(self) -> list[str]:
        """What any process asked for and was answered with ENOSYS."""
        return self.scheduler.unsupported

    def release(self) -> None:
        """The process is gone, or executes another program: no timer of this one sends signals any more."""
        self.times.release()
        self.limits.release()
        self.memory_calls.release()

    def syscall(self, hart: Hart) -> None:
        """Execute the call whose number is in a7; ``hart.pc`` is already after the ``ecall``.

        The hart may be another thread's afterwards. Raises `GuestExit` when the first process ends and `Deadlock`
        when everybody waits for what can never happen.
        """
        registers, scheduler = hart.registers, self.scheduler
        number = registers[_A7]
        call = self._calls.get(number)
        scheduler.stirred = True
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
            scheduler.block(_tried_again(call, arguments, block), hart, first)
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
            self.end(hart, end)
            return
        if result is not None:
            registers[_A0] = result & MASK_64

    def end(self, hart: Hart, end: GuestExit) -> None:
        """The process ends; the hart goes to somebody else. Raises ``end`` for the first process."""
        if self.owner.parent is None:
            raise end
        status = (end.status & 0xFF) << 8 if end.signal is None else end.signal
        end_process(self.scheduler, self.owner, status)
        self.scheduler.switch(hart)

    def pending_signal(self) -> int | None:
        """The number of a signal that waits to be delivered and is not blocked."""
        return self.signals.next_pending()

    def deliver(self, hart: Hart) -> None:
        """Deliver all pending signals that are not blocked: enter handlers, or do the default action.

        The hart is another thread's afterwards when that stops the process. Raises `GuestExit` when a signal ends the
        guest: status 128 + its number, as a shell shows it, and `Deadlock` when everybody is stopped.
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
                self._issue_again(hart)
            try:
                entered = self.signals.deliver(hart, info) or entered
            except GuestExit as end:
                self.end(hart, end)
                return
            if entered:
                thread.restart = None
        self.signals.end_wait()
        if thread.restart is not None:
            self._issue_again(hart)
        if self.owner.stopped:
            self.scheduler.leave_stopped(hart)

    def deliver_fault(self, hart: Hart, signal: int, code: int, address: int) -> bool:
        """Deliver a signal that the instruction at ``hart.pc`` caused; False when the guest has no handler.

        ``code`` is the ``si_code`` (SEGV_MAPERR and others of `signals`), ``address`` goes to ``si_addr``.
        """
        return self.signals.deliver_fault(hart, fault_info(signal, code, address))

    def next_timer_deadline_nanoseconds(self) -> int | None:
        """Value of ``clock`` at which `fire_timers` has something to do; None without an armed timer."""
        return self.scheduler.next_deadline()

    def fire_timers(self) -> None:
        """Send the signals of all timers that are due, and see whose wait is over."""
        self.scheduler.stirred = True
        self.timers.fire()

    def send_signal(self, signal: int) -> None:
        """A signal from outside, such as an interrupt from the keyboard."""
        self.signals.send(SignalInfo(Signal(signal), 0))

    def _issue_again(self, hart: Hart) -> None:
        thread = self.scheduler.current
        assert thread.restart is not None
        hart.pc -= _ECALL_BYTES
        hart.x[_A0] = thread.restart
        thread.restart = None


def _tried_again(call: _Call, arguments: list[Any], block: WouldBlock) -> Wait:
    """Wait by making the same call until it does not block."""

    def ready() -> int | None:
        try:
            return call.function(*arguments)
        except WouldBlock:
            return None

    return Wait(ready, restartable=True, deadlock=f"the guest waits for ever: it {block.what}")


def _calls(group: object) -> list[_Call]:
    """The public methods of a ``*Calls`` object."""
    kind: Any = type(group)
    return [_Call(name, getattr(group, name), n, takes_hart) for name, n, takes_hart in _shapes(kind)]


@functools.cache
def _shapes(group: Any) -> list[tuple[str, int, bool]]:
    """Name, number of arguments, and whether it takes the hart, of each call of a ``*Calls`` class."""
    shapes = []
    members = {name: member for kind in reversed(group.__mro__) for name, member in vars(kind).items()}
    for name, member in members.items():
        if not name.startswith("_") and isinstance(member, types.FunctionType | staticmethod):
            # Every start of the emulator comes here: `inspect.signature` would take ten times as long.
            code = getattr(group, name).__code__
            parameters = code.co_varnames[isinstance(member, types.FunctionType) : code.co_argcount]
            takes_hart = parameters[:1] == ("hart",)
            shapes.append((name, len(parameters) - takes_hart, takes_hart))
    return shapes
