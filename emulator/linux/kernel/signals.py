"""Signals of a process: pending signals, masks, actions, and the frame that a handler runs on.

A handler is real guest code: `SignalState.deliver` builds the frame that the riscv64 kernel would build
(``struct rt_sigframe`` of arch/riscv/kernel/signal.c: siginfo, then ucontext with all registers), points the
return address at the trampoline page, and `SignalState.restore` undoes it when the guest calls rt_sigreturn.
The system calls, which read the guest's structures, are in `signal_handling`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from emulator.linux.abi.numbers import FIRST_REAL_TIME_SIGNAL, MASK_64, N_SIGNALS, PID, UID, Signal
from emulator.linux.kernel.hart_protocol import GuestExit, Hart
from emulator.memory import WRITE, GuestMemory, MemoryFault

SIG_DFL, SIG_IGN = 0, 1

SA_NODEFER, SA_ONSTACK, SA_RESTART, SA_RESETHAND = 0x4000_0000, 0x0800_0000, 0x1000_0000, 0x8000_0000

SS_ONSTACK, SS_DISABLE, SS_AUTODISARM = 1, 2, 1 << 31

# si_code: the source of the signal
SI_USER, SI_KERNEL, SI_TIMER, SI_TKILL = 0, 0x80, -2, -6
SEGV_MAPERR, SEGV_ACCERR = 1, 2
ILL_ILLOPC, TRAP_BRKPT, BUS_ADRALN = 1, 1, 1

_MAX_PENDING = 4096  # queued real-time signals, as RLIMIT_SIGPENDING; more are lost
_UNBLOCKABLE = 1 << (Signal.SIGKILL - 1) | 1 << (Signal.SIGSTOP - 1)
_IGNORED_BY_DEFAULT = {Signal.SIGCHLD, Signal.SIGCONT, Signal.SIGURG, Signal.SIGWINCH}
STOPPING = frozenset({Signal.SIGSTOP, Signal.SIGTSTP, Signal.SIGTTIN, Signal.SIGTTOU})
"""Signals that stop a process unless they are caught or ignored."""

# rt_sigframe: siginfo (128 bytes), then ucontext: flags, link, stack (sp, flags, size), mask in 128 bytes,
# and the 16-byte aligned sigcontext: pc and x1-x31, f0-f31, fcsr, and room up to the quad-precision size.
_UCONTEXT = 128
_MASK = _UCONTEXT + 40
_REGISTERS = _UCONTEXT + 176
_FLOATS = _REGISTERS + 256
_FCSR = _FLOATS + 256
_FRAME_BYTES = _FLOATS + 528


class SignalInfo(NamedTuple):
    """A signal that was sent; ``fields``: the bytes of siginfo from offset 16 on."""

    signal: int
    code: int
    fields: bytes = b""

    def packed(self) -> bytes:
        """``siginfo_t``, 128 bytes."""
        return (struct.pack("<iiii", self.signal, 0, self.code, 0) + self.fields).ljust(128, b"\0")


def sent_by_user(signal: int, code: int = SI_USER, pid: int = PID) -> SignalInfo:
    return SignalInfo(signal, code, struct.pack("<iI", pid, UID))


def fault_info(signal: int, code: int, address: int) -> SignalInfo:
    """A signal caused by an instruction; ``address`` becomes ``si_addr``."""
    return SignalInfo(signal, code, struct.pack("<Q", address & MASK_64))


class Action(NamedTuple):
    """The action of a signal (``struct sigaction``); ``handler`` is SIG_DFL, SIG_IGN or a guest address."""

    handler: int = SIG_DFL
    flags: int = 0
    mask: int = 0


class AlternateStack(NamedTuple):
    pointer: int = 0
    flags: int = SS_DISABLE
    size_bytes: int = 0

    def contains(self, address: int) -> bool:
        return self.pointer < address <= self.pointer + self.size_bytes

    def packed(self, flags: int) -> bytes:
        return struct.pack("<QiiQ", self.pointer, signed_flags(flags), 0, self.size_bytes)


def _mask_of(pending: list[SignalInfo]) -> int:
    mask = 0
    for info in pending:
        mask |= 1 << (info.signal - 1)
    return mask


def signed_flags(flags: int) -> int:
    return flags - (flags >> 31 << 32)


_DEFAULT = Action()


class ThreadSignals:
    """Signal state of one thread: mask, alternate stack, and the signals sent to this thread only."""

    def __init__(self, mask: int = 0) -> None:
        self.mask = mask
        self.mask_to_restore: int | None = None
        self.alternate_stack = AlternateStack()
        self.pending: list[SignalInfo] = []

    @property
    def pending_mask(self) -> int:
        return _mask_of(self.pending)


class SignalState:
    """Signals of a process; masks have bit ``signal - 1``. ``thread``: the state of the thread that has the hart.

    ``before_send``: called with the number of each signal that is sent, before it becomes pending.
    """

    def __init__(self, memory: GuestMemory, trampoline: int, before_send: Callable[[int], None]) -> None:
        self._memory = memory
        self._trampoline = trampoline
        self._actions: dict[int, Action] = {}
        self._pending: list[SignalInfo] = []
        self.thread = ThreadSignals()
        self._before_send = before_send
        self.n_changes = 0
        """How often the guest has set an action."""
        self.arrivals = 0
        """How many signals became pending so far; edge-triggered epoll compares this count."""

    def copy_actions(self, other: SignalState, keep_handlers: bool = True) -> None:
        """Copy the actions of ``other``; without ``keep_handlers`` (execve) only the ignored signals."""
        self._actions = {
            signal: action for signal, action in other._actions.items() if keep_handlers or action.handler == SIG_IGN
        }

    def copy_pending(self, other: SignalState) -> None:
        """Copy the pending signals of the process of ``other``."""
        self._pending = list(other._pending)

    @property
    def mask(self) -> int:
        return self.thread.mask

    @property
    def mask_to_restore(self) -> int | None:
        """The mask from before rt_sigsuspend, ppoll and the like, while they wait; the signal frame saves it."""
        return self.thread.mask_to_restore

    @mask_to_restore.setter
    def mask_to_restore(self, mask: int | None) -> None:
        self.thread.mask_to_restore = mask

    @property
    def alternate_stack(self) -> AlternateStack:
        return self.thread.alternate_stack

    @alternate_stack.setter
    def alternate_stack(self, stack: AlternateStack) -> None:
        self.thread.alternate_stack = stack

    def action(self, signal: int) -> Action:
        return self._actions.get(signal, _DEFAULT)

    def actions_mask(self, is_ignored: bool) -> int:
        """The mask of the ignored signals, or of the caught ones."""
        signals = [
            signal
            for signal, action in self._actions.items()
            if (action.handler == SIG_IGN if is_ignored else action.handler not in (SIG_DFL, SIG_IGN))
        ]
        return sum(1 << (signal - 1) for signal in signals)

    def set_action(self, signal: int, action: Action) -> None:
        self._actions[signal] = action._replace(mask=action.mask & ~_UNBLOCKABLE)
        self.n_changes += 1
        if self._is_ignored(signal):
            self._pending = [info for info in self._pending if info.signal != signal]
            self.thread.pending = [info for info in self.thread.pending if info.signal != signal]

    def set_mask(self, mask: int) -> None:
        self.thread.mask = mask & ~_UNBLOCKABLE & MASK_64

    @property
    def shared_pending_mask(self) -> int:
        """The mask of the signals pending for the process."""
        return _mask_of(self._pending)

    @property
    def pending_mask(self) -> int:
        """The mask of the signals pending for the process or the current thread."""
        return _mask_of(self._pending) | _mask_of(self.thread.pending)

    def send(self, info: SignalInfo, to: ThreadSignals | None = None) -> None:
        """Make a signal pending: standard ones once, real-time ones as often as they are sent.

        ``to``: the thread that gets the signal; None: any thread of the process.
        """
        if not 1 <= info.signal <= N_SIGNALS:
            raise ValueError(f"signal {info.signal}: expected 1 to {N_SIGNALS}")
        self._before_send(info.signal)
        blocked = (self.thread if to is None else to).mask >> (info.signal - 1) & 1
        if self._is_ignored(info.signal) and not blocked:
            return
        pending = self._pending if to is None else to.pending
        if info.signal < FIRST_REAL_TIME_SIGNAL and _mask_of(pending) >> (info.signal - 1) & 1:
            return
        if len(pending) < _MAX_PENDING:
            pending.append(info)
            self.arrivals += 1

    def discard(self, signals: Collection[int], threads: Iterable[ThreadSignals]) -> None:
        """Remove pending instances of ``signals`` from the process and from ``threads``."""
        for pending in (self._pending, *(thread.pending for thread in threads)):
            pending[:] = [info for info in pending if info.signal not in signals]

    def stops(self, signal: int) -> bool:
        """Whether its delivery stops the process."""
        return signal in STOPPING and self.action(signal).handler == SIG_DFL

    def force(self, signal: int) -> None:
        """Send a signal to the current thread; if it is blocked or ignored, it is reset to the default action."""
        if self.mask >> (signal - 1) & 1 or self.action(signal).handler == SIG_IGN:
            self._actions.pop(signal, None)
            self.set_mask(self.mask & ~(1 << (signal - 1)))
        self.send(SignalInfo(signal, SI_KERNEL), self.thread)

    def next_pending(self, mask: int | None = None) -> int | None:
        """The lowest pending signal that ``mask`` (default: the current mask) does not block, or None."""
        if not self.thread.pending and not self._pending:
            return None
        both = (*self.thread.pending, *self._pending)
        blocked = self.mask if mask is None else mask
        ready = [info.signal for info in both if not blocked >> (info.signal - 1) & 1]
        return min(ready, default=None)

    def nothing_pending(self, thread: ThreadSignals) -> bool:
        """Whether no signal is pending for ``thread`` or the process, blocked or not."""
        return not thread.pending and not self._pending

    def pending_for(self, thread: ThreadSignals) -> tuple[list[SignalInfo], list[SignalInfo]]:
        """The signals pending for ``thread`` and for the process that ``thread`` does not block."""
        own, shared = (
            [info for info in pending if not thread.mask >> (info.signal - 1) & 1]
            for pending in (thread.pending, self._pending)
        )
        return own, shared

    def take(self, signal: int) -> SignalInfo:
        """Remove and return the oldest pending instance of ``signal``."""
        for pending in (self.thread.pending, self._pending):
            for index, info in enumerate(pending):
                if info.signal == signal:
                    return pending.pop(index)
        raise ValueError(f"signal {signal} is not pending")

    def is_caught(self, signal: int) -> bool:
        """Whether the signal has a guest handler."""
        return self.action(signal).handler not in (SIG_DFL, SIG_IGN)

    def wants_restart(self, signal: int) -> bool:
        """Whether an interrupted system call is restarted after the handler (SA_RESTART)."""
        return bool(self.action(signal).flags & SA_RESTART)

    def deliver(self, hart: Hart, info: SignalInfo) -> bool:
        """Perform a signal's action; True if a handler was entered. Stop signals are left to `job_control`.

        Raises `GuestExit` if the signal ends the process, also if the frame does not fit on the stack.
        """
        action = self.action(info.signal)
        if action.handler == SIG_DFL:
            if info.signal in _IGNORED_BY_DEFAULT:
                return False
            raise GuestExit(128 + info.signal, info.signal)
        if action.handler == SIG_IGN:
            return False
        try:
            self._enter_handler(hart, info, action)
        except MemoryFault:
            # As in Linux: no room for a frame is a SIGSEGV, which only a handler on another stack can catch.
            if info.signal == Signal.SIGSEGV or not self.is_caught(Signal.SIGSEGV):
                raise GuestExit(128 + Signal.SIGSEGV, Signal.SIGSEGV) from None
            return self.deliver(hart, SignalInfo(Signal.SIGSEGV, SI_KERNEL))
        return True

    def handles_fault(self, signal: int) -> bool:
        """Whether the guest has a handler for the signal of a fault of the current instruction.

        A blocked or ignored fault cannot be deferred: it counts as not handled.
        """
        return self.is_caught(signal) and not self.mask >> (signal - 1) & 1

    def end_wait(self) -> None:
        """Restore the mask from before rt_sigsuspend and the like if no handler was entered, whose frame would do
        it."""
        if self.mask_to_restore is not None:
            self.set_mask(self.mask_to_restore)
            self.mask_to_restore = None

    def restore(self, hart: Hart) -> None:
        """rt_sigreturn: restore all registers, the mask and the alternate stack from the frame at sp.

        Raises `MemoryFault` if the frame cannot be read.
        """
        frame = self._memory.read(int(hart.x[2]), _FRAME_BYTES)
        registers = struct.unpack_from("<32Q", frame, _REGISTERS)
        hart.x[1:] = registers[1:]
        hart.pc = registers[0]
        hart.f[:] = struct.unpack_from("<32Q", frame, _FLOATS)
        hart.fcsr = struct.unpack_from("<I", frame, _FCSR)[0] & 0xFF
        self.set_mask(struct.unpack_from("<Q", frame, _MASK)[0])
        pointer, flags, _, size_bytes = struct.unpack_from("<QIiQ", frame, _UCONTEXT + 16)
        self.alternate_stack = AlternateStack(pointer, flags & ~SS_ONSTACK, size_bytes)

    def on_alternate_stack(self, stack_pointer: int) -> bool:
        stack = self.alternate_stack
        return not stack.flags & (SS_AUTODISARM | SS_DISABLE) and stack.contains(stack_pointer)

    def stack_flags(self, stack_pointer: int) -> int:
        """``ss_flags`` as sigaltstack and a frame report them."""
        return self.alternate_stack.flags | (SS_ONSTACK if self.on_alternate_stack(stack_pointer) else 0)

    def _is_ignored(self, signal: int) -> bool:
        handler = self.action(signal).handler
        return handler == SIG_IGN or (handler == SIG_DFL and signal in _IGNORED_BY_DEFAULT)

    def _enter_handler(self, hart: Hart, info: SignalInfo, action: Action) -> None:
        old_pointer = int(hart.x[2])
        stack = self.alternate_stack
        pointer = old_pointer
        if action.flags & SA_ONSTACK and not stack.flags & SS_DISABLE and not self.on_alternate_stack(pointer):
            pointer = stack.pointer + stack.size_bytes
        frame_address = (pointer - _FRAME_BYTES) & -16
        if self.on_alternate_stack(old_pointer) and not stack.contains(frame_address):
            raise MemoryFault(frame_address & MASK_64, WRITE, mapped=False)

        frame = bytearray(_FRAME_BYTES)
        frame[:128] = info.packed()
        frame[_UCONTEXT + 16 : _MASK] = stack.packed(self.stack_flags(old_pointer))
        mask = self.mask if self.mask_to_restore is None else self.mask_to_restore
        struct.pack_into("<Q", frame, _MASK, mask)
        struct.pack_into("<32Q", frame, _REGISTERS, hart.pc, *hart.x[1:].tolist())
        struct.pack_into("<32Q", frame, _FLOATS, *hart.f.tolist())
        struct.pack_into("<I", frame, _FCSR, hart.fcsr)
        self._memory.write(frame_address & MASK_64, frame)

        self.mask_to_restore = None
        blocked = action.mask if action.flags & SA_NODEFER else action.mask | 1 << (info.signal - 1)
        self.set_mask(self.mask | blocked)
        if action.flags & SA_RESETHAND:
            self._actions[info.signal] = action._replace(handler=SIG_DFL)
        if stack.flags & SS_AUTODISARM:
            self.alternate_stack = AlternateStack()
        hart.x[1] = self._trampoline
        hart.x[2] = frame_address
        hart.x[10] = info.signal
        hart.x[11] = frame_address
        hart.x[12] = frame_address + _UCONTEXT
        hart.pc = action.handler
