"""System calls on signals. Every public method is the system call of that name.

`sigaltstack` and `rt_sigreturn` need registers and get the hart as their first argument.
"""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi import N_SIGNALS, PID, TID, Signal, signed
from emulator.linux.clock import Timers, VirtualClock, sleep
from emulator.linux.hart import Hart, Interrupted
from emulator.linux.signals import (
    SI_TKILL,
    SI_USER,
    SS_AUTODISARM,
    SS_DISABLE,
    SS_ONSTACK,
    Action,
    AlternateStack,
    SignalState,
    sent_by_user,
)
from emulator.memory import GuestMemory, MemoryFault

_SIG_BLOCK, _SIG_UNBLOCK, _SIG_SETMASK = 0, 1, 2
_MINIMUM_STACK_BYTES = 2048


class SignalCalls:
    def __init__(
        self, memory: GuestMemory, signals: SignalState, clock: VirtualClock, timers: Timers
    ) -> None:
        self._memory = memory
        self._signals = signals
        self._clock = clock
        self._timers = timers

    def rt_sigaction(self, signal: int, new: int, old: int, size: int) -> int:
        self._check_size(size)
        signal = signed(signal, 32)
        if not 1 <= signal <= N_SIGNALS or (new and signal in (Signal.SIGKILL, Signal.SIGSTOP)):
            raise OSError(errno.EINVAL, "signal")
        before = self._signals.action(signal)
        action = Action(*struct.unpack("<QQQ", self._memory.read(new, 24))) if new else None
        if old:
            self._memory.write(old, struct.pack("<QQQ", before.handler, before.flags, before.mask))
        if action:
            self._signals.set_action(signal, action)
        return 0

    def rt_sigprocmask(self, how: int, new: int, old: int, size: int) -> int:
        self._check_size(size)
        before = mask = self._signals.mask
        if new:
            change = self._memory.read_int(new, 8)
            if how == _SIG_BLOCK:
                mask |= change
            elif how == _SIG_UNBLOCK:
                mask &= ~change
            elif how == _SIG_SETMASK:
                mask = change
            else:
                raise OSError(errno.EINVAL, "how")
        if old:
            self._memory.write_int(old, 8, before)
        self._signals.set_mask(mask)
        return 0

    def rt_sigpending(self, address: int, size: int) -> int:
        if size > 8:
            raise OSError(errno.EINVAL, "sigset size")
        pending = self._signals.pending_mask & self._signals.mask
        self._memory.write(address, struct.pack("<Q", pending)[:size])
        return 0

    def rt_sigsuspend(self, address: int, size: int) -> int:
        self._check_size(size)
        mask = self._memory.read_int(address, 8)
        self._signals.mask_to_restore = self._signals.mask
        self._signals.set_mask(mask)
        sleep(self._clock, self._timers, self._signals.has_pending, None)
        raise Interrupted(restartable=False)

    def rt_sigtimedwait(self, address: int, info: int, timeout: int, size: int) -> int:
        self._check_size(size)
        others = ~self._memory.read_int(address, 8)
        until = None
        if timeout:
            seconds, nanoseconds = struct.unpack("<qq", self._memory.read(timeout, 16))
            if seconds < 0 or not 0 <= nanoseconds < 1_000_000_000:
                raise OSError(errno.EINVAL, "timeout")
            until = self._clock.elapsed() + seconds * 1_000_000_000 + nanoseconds
        signals = self._signals
        came = sleep(
            self._clock,
            self._timers,
            lambda: signals.next_pending(others) is not None or signals.has_pending(),
            until,
        )
        signal = signals.next_pending(others)
        if signal is None:
            raise Interrupted(restartable=False) if not came else OSError(errno.EAGAIN, "timed out")
        taken = signals.take(signal)
        if info:
            self._memory.write(info, taken.packed())
        return signal

    def sigaltstack(self, hart: Hart, new: int, old: int) -> int:
        signals = self._signals
        stack_pointer = int(hart.x[2])
        replacement = None
        if new:
            pointer, flags, _, size_bytes = struct.unpack("<QIiQ", self._memory.read(new, 24))
            mode = flags & ~SS_AUTODISARM
            if signals.on_alternate_stack(stack_pointer):
                raise OSError(errno.EPERM, "the stack is in use")
            if mode not in (0, SS_ONSTACK, SS_DISABLE):
                raise OSError(errno.EINVAL, "flags")
            if mode == SS_DISABLE:
                replacement = AlternateStack(flags=flags)
            elif size_bytes < _MINIMUM_STACK_BYTES:
                raise OSError(errno.ENOMEM, "stack too small")
            else:
                replacement = AlternateStack(pointer, flags & SS_AUTODISARM, size_bytes)
        if old:
            self._memory.write(old, signals.alternate_stack.packed(signals.stack_flags(stack_pointer)))
        if replacement:
            signals.alternate_stack = replacement
        return 0

    def rt_sigreturn(self, hart: Hart) -> None:
        try:
            self._signals.restore(hart)
        except MemoryFault:
            self._signals.force(Signal.SIGSEGV)

    def kill(self, pid: int, signal: int) -> int:
        if signed(pid, 32) not in (PID, 0, -1, -PID):
            raise OSError(errno.ESRCH, "process")
        return self._send(signal, SI_USER)

    def tkill(self, tid: int, signal: int) -> int:
        if tid != TID:
            raise OSError(errno.ESRCH, "thread")
        return self._send(signal, SI_TKILL)

    def tgkill(self, pid: int, tid: int, signal: int) -> int:
        if pid != PID:
            raise OSError(errno.ESRCH, "process")
        return self.tkill(tid, signal)

    def _send(self, signal: int, code: int) -> int:
        if signal > N_SIGNALS:
            raise OSError(errno.EINVAL, "signal")
        if signal:
            self._signals.send(sent_by_user(signal, code))
        return 0

    @staticmethod
    def _check_size(size: int) -> None:
        if size != 8:
            raise OSError(errno.EINVAL, "sigset size")
