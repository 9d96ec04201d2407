"""System calls on signals. Every public method is the system call of that name.

`sigaltstack` and `rt_sigreturn` need registers and get the hart as their first argument.
"""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import N_SIGNALS, Signal, signed
from emulator.linux.kernel.clock import VirtualClock
from emulator.linux.kernel.hart_protocol import Hart
from emulator.linux.kernel.job_control import members
from emulator.linux.kernel.scheduler import Scheduler
from emulator.linux.kernel.signals import (
    SI_TKILL,
    SI_USER,
    SS_AUTODISARM,
    SS_DISABLE,
    SS_ONSTACK,
    Action,
    AlternateStack,
    SignalInfo,
    SignalState,
    sent_by_user,
)
from emulator.linux.kernel.tasks import Process, Thread, Wait, WhenStopped
from emulator.memory import GuestMemory, MemoryFault

_SIG_BLOCK, _SIG_UNBLOCK, _SIG_SETMASK = 0, 1, 2
_MINIMUM_STACK_BYTES = 2048


class SignalCalls:
    def __init__(
        self,
        memory: GuestMemory,
        signals: SignalState,
        clock: VirtualClock,
        scheduler: Scheduler,
        owner: Process,
    ) -> None:
        self._memory = memory
        self._signals = signals
        self._clock = clock
        self._scheduler = scheduler
        self._owner = owner

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
        raise Wait(lambda: None)

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

        def ready() -> int | None:
            signal = signals.next_pending(others)
            if signal is None:
                return None
            taken = signals.take(signal)
            if info:
                self._memory.write(info, taken.packed())
            return signal

        raise Wait(ready, until, lambda: -errno.EAGAIN, when_stopped=WhenStopped.FAILS)

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
        number, processes = signed(pid, 32), self._scheduler.processes
        if number > 0:
            thread = self._scheduler.thread(number)
            found = processes.get(number) if thread is None else thread.process
            targets = [] if found is None else [found]
        elif number == -1:
            others = [process for process in processes.values() if process is not self._owner]
            targets = others or [self._owner]
        else:
            targets = members(self._scheduler, -number or self._owner.group)
        if not targets:
            raise OSError(errno.ESRCH, "process")
        info = self._checked(signal, SI_USER)
        for process in targets:
            if info is not None and process.status is None:
                process.kernel.signals.send(info)
        return 0

    def tkill(self, tid: int, signal: int) -> int:
        return self._send_to(self._scheduler.thread(tid), signal)

    def tgkill(self, pid: int, tid: int, signal: int) -> int:
        thread = self._scheduler.thread(tid)
        return self._send_to(None if thread is None or thread.process.pid != pid else thread, signal)

    def rt_sigqueueinfo(self, pid: int, signal: int, address: int) -> int:
        process = self._scheduler.processes.get(pid)
        if process is None or process.status is not None:
            raise OSError(errno.ESRCH, "process")
        info = self._queued(signal, address)
        if info is not None:
            process.kernel.signals.send(info)
        return 0

    def rt_tgsigqueueinfo(self, pid: int, tid: int, signal: int, address: int) -> int:
        thread = self._scheduler.thread(tid)
        if thread is None or thread.process.pid != pid:
            raise OSError(errno.ESRCH, "thread")
        info = self._queued(signal, address)
        if info is not None:
            thread.kernel.signals.send(info, thread.signals)
        return 0

    def _queued(self, signal: int, address: int) -> SignalInfo | None:
        raw = self._memory.read(address, 128)
        info = self._checked(signal, struct.unpack_from("<i", raw, 8)[0])
        return None if info is None else info._replace(fields=raw[16:])

    def _send_to(self, thread: Thread | None, signal: int) -> int:
        if thread is None:
            raise OSError(errno.ESRCH, "thread")
        info = self._checked(signal, SI_TKILL)
        if info is not None:
            thread.kernel.signals.send(info, thread.signals)
        return 0

    def _checked(self, signal: int, code: int) -> SignalInfo | None:
        """The signal to send; None for signal 0, which only checks that the target exists. Raises OSError(EINVAL)."""
        if signal > N_SIGNALS:
            raise OSError(errno.EINVAL, "signal")
        return sent_by_user(signal, code, self._owner.pid) if signal else None

    @staticmethod
    def _check_size(size: int) -> None:
        if size != 8:
            raise OSError(errno.EINVAL, "sigset size")
