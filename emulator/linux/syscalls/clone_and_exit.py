"""clone and exit: creating and ending threads and processes. Every public method is the system call of that name."""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import Signal
from emulator.linux.kernel import job_control as jobs
from emulator.linux.kernel.hart_protocol import GuestExit, Hart
from emulator.linux.kernel.scheduler import Scheduler
from emulator.linux.kernel.signals import SIG_IGN, ThreadSignals
from emulator.linux.kernel.tasks import Process, Registers, Replaced, Thread, Wait
from emulator.linux.syscalls.base import KernelCalls
from emulator.linux.syscalls.futex import release_futexes
from emulator.linux.syscalls.optional.pidfd import PidFile
from emulator.linux.syscalls.optional.sysv_semaphores import undo_semaphores
from emulator.linux.syscalls.wait_children import end_info
from emulator.linux.vfs.descriptor_table import MAX_DESCRIPTORS
from emulator.memory import GuestMemory

_CLONE_VM, _CLONE_FS, _CLONE_FILES, _CLONE_SIGHAND = 0x100, 0x200, 0x400, 0x800
_CLONE_PIDFD, _CLONE_VFORK, _CLONE_PARENT, _CLONE_THREAD = 0x1000, 0x4000, 0x8000, 0x1_0000
_CLONE_SETTLS, _CLONE_PARENT_SETTID, _CLONE_CHILD_CLEARTID = 0x8_0000, 0x10_0000, 0x20_0000
_CLONE_DETACHED, _CLONE_SYSVSEM, _CLONE_CHILD_SETTID = 0x40_0000, 0x4_0000, 0x100_0000
_CLONE_CLEAR_SIGHAND, _CLONE_IO = 0x1_0000_0000, 0x8000_0000
_CLONE_KNOWN = (
    _CLONE_VM | _CLONE_FS | _CLONE_FILES | _CLONE_PIDFD | _CLONE_SIGHAND | _CLONE_VFORK | _CLONE_PARENT | _CLONE_THREAD
    | _CLONE_SETTLS | _CLONE_PARENT_SETTID | _CLONE_CHILD_CLEARTID | _CLONE_DETACHED | _CLONE_SYSVSEM
    | _CLONE_CHILD_SETTID | _CLONE_CLEAR_SIGHAND | _CLONE_IO
)  # fmt: skip

_SA_NOCLDWAIT = 2

_STACK_POINTER, _THREAD_POINTER = 2, 4


class TaskCalls(KernelCalls):
    # Identity

    def getpid(self) -> int:
        return self._owner.pid

    def gettid(self) -> int:
        return self._scheduler.current.tid

    def getppid(self) -> int:
        return 1 if self._owner.parent is None else self._owner.parent.pid

    # Starting

    def clone(
        self, hart: Hart, flags: int, stack: int, parent_tid: int, thread_pointer: int, child_tid: int
    ) -> int:
        # with CLONE_PIDFD, clone writes the pidfd to the address of the parent's tid
        return self._clone(
            hart, flags & ~0xFF, flags & 0xFF, stack, parent_tid, thread_pointer, child_tid, parent_tid
        )

    def clone3(self, hart: Hart, address: int, size: int) -> int:
        if size < 64:
            raise OSError(errno.EINVAL, "clone3")
        flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_bytes, thread_pointer = struct.unpack(
            "<8Q", self._memory.read(address, 64)
        )
        top = stack + stack_bytes if stack else 0
        return self._clone(hart, flags, exit_signal, top, parent_tid, thread_pointer, child_tid, pidfd)

    def _clone(
        self, hart: Hart, flags: int, exit_signal: int, stack: int, parent_tid: int, thread_pointer: int,
        child_tid: int, pidfd: int,
    ) -> int:  # fmt: skip
        if flags & ~_CLONE_KNOWN:
            self._scheduler.report(f"clone with flags {flags & ~_CLONE_KNOWN:#x}")
            raise OSError(errno.EINVAL, "clone flags")
        is_thread = bool(flags & _CLONE_THREAD)
        if is_thread and not (flags & _CLONE_VM and flags & _CLONE_SIGHAND):
            raise OSError(errno.EINVAL, "a thread must share memory and handlers")
        if flags & _CLONE_PIDFD and is_thread:
            raise OSError(errno.EINVAL, "a pidfd of a thread")
        if flags & _CLONE_PIDFD and len(self._table.items()) >= MAX_DESCRIPTORS:
            raise OSError(errno.EMFILE, "descriptors")
        self._scheduler.check_room(self._kernel.limits.max_tasks)
        caller = self._scheduler.current
        tid = self._scheduler.new_pid()
        process = self._owner if is_thread else self._fork(tid, flags, exit_signal)
        signals = ThreadSignals(caller.signals.mask)
        if not is_thread and not (flags & _CLONE_VM and not flags & _CLONE_VFORK):
            signals.alternate_stack = caller.signals.alternate_stack
        thread = Thread(tid, process, signals, caller.name)
        process.threads.append(thread)
        if not is_thread:
            process.kernel.signals.thread = signals
        thread.registers = self._child_registers(hart, flags, stack, thread_pointer)
        if flags & _CLONE_PARENT_SETTID:
            self._memory.write_int(parent_tid, 4, tid)
        if flags & _CLONE_CHILD_SETTID:
            process.kernel.memory.write_int(child_tid, 4, tid)
        if flags & _CLONE_CHILD_CLEARTID:
            thread.clear_tid_address = child_tid
        if flags & _CLONE_PIDFD:
            number = self._table.install(PidFile(process, 0), close_on_exec=True)
            self._memory.write_int(pidfd, 4, number)
        self._scheduler.add(thread)
        if flags & _CLONE_VFORK and not is_thread:
            raise Wait(lambda: None if process.borrows_memory else tid)
        return tid

    @staticmethod
    def _child_registers(hart: Hart, flags: int, stack: int, thread_pointer: int) -> Registers:
        mine = Registers.of(hart).with_result(0)
        if stack:
            mine = mine.with_x(_STACK_POINTER, stack)
        return mine.with_x(_THREAD_POINTER, thread_pointer) if flags & _CLONE_SETTLS else mine

    def _fork(self, pid: int, flags: int, exit_signal: int) -> Process:
        from emulator.linux.kernel.linux_kernel import LinuxKernel

        parent = self._owner.parent if flags & _CLONE_PARENT and self._owner.parent else self._owner
        shares = bool(flags & _CLONE_VM)
        memory = self._memory if shares else self._memory.copy()
        if not shares and self._scheduler.listener is not None:
            self._scheduler.listener.memory_forked(self._memory, memory)
        child = Process(pid, parent, self._owner.group, self._owner.session, exit_signal)
        child.nice, child.policy = self._owner.nice, self._owner.policy
        child.borrows_memory = bool(flags & _CLONE_VFORK)
        files = self._files.fork(share_descriptors=bool(flags & _CLONE_FILES))
        kernel = LinuxKernel(memory, self._kernel.process, files, before=self._kernel, owner=child)
        kernel.memory_calls.continue_from(self._kernel.memory_calls)
        kernel.signals.copy_actions(self._kernel.signals, keep_handlers=not flags & _CLONE_CLEAR_SIGHAND)
        parent.children.append(child)
        self._scheduler.processes[pid] = child
        return child

    # Ending

    def exit(self, hart: Hart, status: int) -> int:
        if len(self._owner.threads) == 1:
            raise GuestExit(status & 0xFF)
        end_thread(self._scheduler, self._scheduler.current, self._memory)
        self._scheduler.switch(hart)
        raise Replaced

    def exit_group(self, status: int) -> int:
        raise GuestExit(status & 0xFF)


def end_thread(scheduler: Scheduler, thread: Thread, memory: GuestMemory) -> None:
    """End a thread; if it is the current one, the caller must call `Scheduler.switch`."""
    scheduler.charge_current()
    scheduler.remove(thread)
    thread.process.threads.remove(thread)
    thread.process.ended_nanoseconds += thread.used_nanoseconds
    release_futexes(scheduler, thread, memory)
    if thread is scheduler.current:
        rest = thread.process.threads
        thread.process.kernel.signals.thread = rest[0].signals if rest else thread.signals


def end_process(scheduler: Scheduler, process: Process, status: int) -> None:
    """End a process other than the first one, with ``status`` as wait4 reports it.

    The caller must call `Scheduler.switch`."""
    kernel = process.kernel
    for thread in list(process.threads):
        end_thread(scheduler, thread, kernel.memory)
    kernel.release()
    kernel.files.descriptors.release()
    kernel.files.locks.release(process.pid)
    kernel.files.locks.release_closed()
    undo_semaphores(scheduler, process)
    process.status = status
    process.borrows_memory, process.stopped = False, 0
    first = next(iter(scheduler.processes.values()))
    children = list(process.children)
    for child in children:
        child.parent, child.is_adopted = first, True
        first.children.append(child)
    process.children.clear()
    jobs.hang_up_orphaned_groups(scheduler, process, children)
    parent = process.parent
    assert parent is not None
    if parent.status is not None:
        parent = first
    action = parent.kernel.signals.action(Signal.SIGCHLD)
    if process.exit_signal:
        parent.kernel.signals.send(end_info(process))
    if action.handler == SIG_IGN or action.flags & _SA_NOCLDWAIT:
        parent.children.remove(process)
        process.is_reaped = True
        del scheduler.processes[process.pid]
    scheduler.recheck_waits = True
