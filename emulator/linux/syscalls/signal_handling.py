"""System calls on signals. Every public function handles the system call of that name."""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import N_SIGNALS, Signal, signed
from emulator.linux.kernel.job_control import members
from emulator.linux.kernel.signals import (
    SI_TKILL,
    SI_USER,
    SS_AUTODISARM,
    SS_DISABLE,
    SS_ONSTACK,
    Action,
    AlternateStack,
    SignalInfo,
    sent_by_user,
)
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.tasks import Thread
from emulator.linux.kernel.waits import Wait, WhenStopped, never
from emulator.memory import MemoryFault

_SIG_BLOCK, _SIG_UNBLOCK, _SIG_SETMASK = 0, 1, 2
_MINIMUM_STACK_BYTES = 2048


def rt_sigaction(task: Task, signal: int, new: int, old: int, size: int) -> int:
    _check_size(size)
    signal = signed(signal, 32)
    if not 1 <= signal <= N_SIGNALS or (new and signal in (Signal.SIGKILL, Signal.SIGSTOP)):
        raise OSError(errno.EINVAL, "signal")
    before = task.signals.action(signal)
    action = Action(*struct.unpack("<QQQ", task.memory.read(new, 24))) if new else None
    if old:
        task.memory.write(old, struct.pack("<QQQ", before.handler, before.flags, before.mask))
    if action:
        task.signals.set_action(signal, action)
    return 0


def rt_sigprocmask(task: Task, how: int, new: int, old: int, size: int) -> int:
    _check_size(size)
    before = mask = task.signals.mask
    if new:
        change = task.memory.read_int(new, 8)
        if how == _SIG_BLOCK:
            mask |= change
        elif how == _SIG_UNBLOCK:
            mask &= ~change
        elif how == _SIG_SETMASK:
            mask = change
        else:
            raise OSError(errno.EINVAL, "how")
    if old:
        task.memory.write_int(old, 8, before)
    task.signals.set_mask(mask)
    return 0


def rt_sigpending(task: Task, address: int, size: int) -> int:
    if size > 8:
        raise OSError(errno.EINVAL, "sigset size")
    pending = task.signals.pending_mask & task.signals.mask
    task.memory.write(address, struct.pack("<Q", pending)[:size])
    return 0


def rt_sigsuspend(task: Task, address: int, size: int) -> Wait:
    _check_size(size)
    mask = task.memory.read_int(address, 8)
    task.signals.mask_to_restore = task.signals.mask
    task.signals.set_mask(mask)
    return Wait(never)


def rt_sigtimedwait(task: Task, address: int, info: int, timeout: int, size: int) -> Wait:
    _check_size(size)
    others = ~task.memory.read_int(address, 8)
    until = None
    if timeout:
        seconds, nanoseconds = struct.unpack("<qq", task.memory.read(timeout, 16))
        if seconds < 0 or not 0 <= nanoseconds < 1_000_000_000:
            raise OSError(errno.EINVAL, "timeout")
        until = task.clock.elapsed() + seconds * 1_000_000_000 + nanoseconds
    return Wait(_take_signal, task, others, info, until=until, at_timeout=_no_signal, when_stopped=WhenStopped.FAILS)


def _take_signal(task: Task, others: int, info: int) -> int | None:
    """Take a pending signal that the mask ``others`` does not contain, and write its siginfo; None without one."""
    signal = task.signals.next_pending(others)
    if signal is None:
        return None
    taken = task.signals.take(signal)
    if info:
        task.memory.write(info, taken.packed())
    return signal


def _no_signal(task: Task, others: int, info: int) -> int:
    return -errno.EAGAIN


def sigaltstack(task: Task, new: int, old: int) -> int:
    signals = task.signals
    stack_pointer = int(task.hart.x[2])
    replacement = None
    if new:
        pointer, flags, _, size_bytes = struct.unpack("<QIiQ", task.memory.read(new, 24))
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
        task.memory.write(old, signals.alternate_stack.packed(signals.stack_flags(stack_pointer)))
    if replacement:
        signals.alternate_stack = replacement
    return 0


def rt_sigreturn(task: Task) -> None:
    try:
        task.signals.restore(task.hart)
    except MemoryFault:
        task.signals.force(Signal.SIGSEGV)


def kill(task: Task, pid: int, signal: int) -> int:
    number, processes = signed(pid, 32), task.scheduler.processes
    if number > 0:
        thread = task.scheduler.thread(number)
        found = processes.get(number) if thread is None else thread.process
        targets = [] if found is None else [found]
    elif number == -1:
        others = [process for process in processes.values() if process is not task.process]
        targets = others or [task.process]
    else:
        targets = members(task.scheduler, -number or task.process.group)
    if not targets:
        raise OSError(errno.ESRCH, "process")
    info = _checked(task, signal, SI_USER)
    for process in targets:
        if info is not None and process.status is None:
            process.signals.send(info)
    return 0


def tkill(task: Task, tid: int, signal: int) -> int:
    return _send_to(task, task.scheduler.thread(tid), signal)


def tgkill(task: Task, pid: int, tid: int, signal: int) -> int:
    thread = task.scheduler.thread(tid)
    return _send_to(task, None if thread is None or thread.process.pid != pid else thread, signal)


def rt_sigqueueinfo(task: Task, pid: int, signal: int, address: int) -> int:
    process = task.scheduler.processes.get(pid)
    if process is None or process.status is not None:
        raise OSError(errno.ESRCH, "process")
    info = _queued(task, signal, address)
    if info is not None:
        process.signals.send(info)
    return 0


def rt_tgsigqueueinfo(task: Task, pid: int, tid: int, signal: int, address: int) -> int:
    thread = task.scheduler.thread(tid)
    if thread is None or thread.process.pid != pid:
        raise OSError(errno.ESRCH, "thread")
    info = _queued(task, signal, address)
    if info is not None:
        thread.process.signals.send(info, thread.signals)
    return 0


def _queued(task: Task, signal: int, address: int) -> SignalInfo | None:
    raw = task.memory.read(address, 128)
    info = _checked(task, signal, struct.unpack_from("<i", raw, 8)[0])
    return None if info is None else info._replace(fields=raw[16:])


def _send_to(task: Task, thread: Thread | None, signal: int) -> int:
    if thread is None:
        raise OSError(errno.ESRCH, "thread")
    info = _checked(task, signal, SI_TKILL)
    if info is not None:
        thread.process.signals.send(info, thread.signals)
    return 0


def _checked(task: Task, signal: int, code: int) -> SignalInfo | None:
    """The signal to send; None for signal 0, which only checks that the target exists. Raises OSError(EINVAL)."""
    if signal > N_SIGNALS:
        raise OSError(errno.EINVAL, "signal")
    return sent_by_user(signal, code, task.process.pid) if signal else None


def _check_size(size: int) -> None:
    if size != 8:
        raise OSError(errno.EINVAL, "sigset size")
