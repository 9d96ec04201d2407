"""The kernel that a static user-mode program sees: dispatch of system calls, signals and timers.

The calls themselves are in ``*_calls.py``, one class a subject. They take the argument registers as unsigned
integers and return the result; an `OSError` becomes the negative error number, an access that the guest may
not make becomes EFAULT. Nothing here waits in real time but reading from a passed-through standard input.
"""

from __future__ import annotations

import errno
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emulator.linux.abi import MASK_64, SYSTEM_CALL_NAMES, Signal
from emulator.linux.clock import Timers, VirtualClock
from emulator.linux.file_calls import FileCalls
from emulator.linux.files import VirtualFiles
from emulator.linux.hart import Hart, Interrupted
from emulator.linux.memory_calls import MemoryCalls
from emulator.linux.path_calls import PathCalls
from emulator.linux.poll_calls import PollCalls
from emulator.linux.process import ProcessImage
from emulator.linux.process_calls import ProcessCalls
from emulator.linux.signal_calls import SignalCalls
from emulator.linux.signals import SignalInfo, SignalState, fault_info
from emulator.linux.time_calls import TimeCalls
from emulator.memory import GuestMemory, MemoryFault, MemoryLimit

_A0, _A7 = 10, 17
_ECALL_BYTES = 4


@dataclass(frozen=True)
class _Call:
    name: str
    function: Callable[..., int | None]
    n_arguments: int
    takes_hart: bool


class LinuxKernel:
    """The system calls of one guest process.

    ``clock`` gives virtual nanoseconds of processor time, never decreasing. ``seed`` decides what getrandom
    returns; ``timer_phase`` in [0, 1) shortens the first period of periodic timers (see `Timers`).
    ``unsupported`` collects the names of calls that were answered with ENOSYS.

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
    ) -> None:
        self.memory = memory
        self.process = process
        self.files = files or VirtualFiles()
        self.clock = VirtualClock(clock)
        self.timers = Timers(self.clock, timer_phase)
        self.signals = SignalState(memory, process.trampoline)
        self.unsupported: list[str] = []
        self._restart: int | None = None  # first argument of an interrupted call that may be issued again
        groups = (
            FileCalls(memory, self.files, self.signals),
            PathCalls(memory, self.files),
            PollCalls(memory, self.files.descriptors, self.signals, self.clock, self.timers),
            MemoryCalls(memory, process, self.files),
            TimeCalls(memory, self.clock, self.timers, self.signals),
            SignalCalls(memory, self.signals, self.clock, self.timers),
            ProcessCalls(memory, process, self.signals, self.clock, self.timers, seed),
        )
        by_name = {call.name: call for group in groups for call in _calls(group)}
        self._calls = {n: by_name[name] for n, name in SYSTEM_CALL_NAMES.items() if name in by_name}

    def syscall(self, hart: Hart) -> None:
        """Execute the call whose number is in a7; ``hart.pc`` is already after the ``ecall``.

        Raises `GuestExit` when the guest ends and `Deadlock` when it waits for what can never happen.
        """
        number, first = int(hart.x[_A7]), int(hart.x[_A0])
        call = self._calls.get(number)
        if call is None:
            self._report_unsupported(SYSTEM_CALL_NAMES.get(number, f"system call {number}"))
            hart.x[_A0] = -errno.ENOSYS & MASK_64
            return
        self._restart = None
        arguments: list[Any] = hart.x[_A0 : _A0 + call.n_arguments].tolist()
        if call.takes_hart:
            arguments = [hart, *arguments]
        try:
            result = call.function(*arguments)
        except OSError as error:
            result = -(error.errno or errno.EIO)
        except MemoryFault:
            result = -errno.EFAULT
        except MemoryLimit:
            result = -errno.ENOMEM
        except Interrupted as interruption:
            result = -errno.EINTR
            self._restart = first if interruption.restartable else None
        if result is not None:
            hart.x[_A0] = result & MASK_64

    def pending_signal(self) -> int | None:
        """The number of a signal that waits to be delivered and is not blocked."""
        return self.signals.next_pending()

    def deliver(self, hart: Hart) -> None:
        """Deliver all pending signals that are not blocked: enter handlers, or do the default action.

        Raises `GuestExit` when a signal ends the guest: status 128 + its number, as a shell shows it.
        """
        entered = False
        while (signal := self.signals.next_pending()) is not None:
            info = self.signals.take(signal)
            if self._restart is not None and self.signals.wants_restart(signal):
                self._issue_again(hart)
            entered = self.signals.deliver(hart, info) or entered
            if entered:
                self._restart = None
        self.signals.end_wait()
        if self._restart is not None:
            self._issue_again(hart)

    def deliver_fault(self, hart: Hart, signal: int, code: int, address: int) -> bool:
        """Deliver a signal that the instruction at ``hart.pc`` caused; False when the guest has no handler.

        ``code`` is the ``si_code`` (SEGV_MAPERR and others of `signals`), ``address`` goes to ``si_addr``.
        """
        return self.signals.deliver_fault(hart, fault_info(signal, code, address))

    def next_timer_deadline_nanoseconds(self) -> int | None:
        """Value of ``clock`` at which `fire_timers` has something to do; None without an armed timer."""
        return self.timers.next_deadline()

    def fire_timers(self) -> None:
        """Send the signals of all timers that are due."""
        self.timers.fire()

    def send_signal(self, signal: int) -> None:
        """A signal from outside, such as an interrupt from the keyboard."""
        self.signals.send(SignalInfo(Signal(signal), 0))

    def _issue_again(self, hart: Hart) -> None:
        assert self._restart is not None
        hart.pc -= _ECALL_BYTES
        hart.x[_A0] = self._restart
        self._restart = None

    def _report_unsupported(self, name: str) -> None:
        if name not in self.unsupported:
            self.unsupported.append(name)


def _calls(group: object) -> list[_Call]:
    """The public methods of a ``*Calls`` class."""
    calls = []
    for name, function in inspect.getmembers(group, inspect.ismethod):
        if not name.startswith("_"):
            parameters = list(inspect.signature(function).parameters)
            takes_hart = parameters[:1] == ["hart"]
            calls.append(_Call(name, function, len(parameters) - takes_hart, takes_hart))
    return calls
