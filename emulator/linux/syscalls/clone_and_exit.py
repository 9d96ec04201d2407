"""clone and exit: creating and ending threads and processes.

Every public function handles the system call of that name.
"""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import Signal
from emulator.linux.kernel import job_control as jobs
from emulator.linux.kernel.hart_protocol import GuestExit, Hart
from emulator.linux.kernel.pid_file import PidFile
from emulator.linux.kernel.programs import fork_process, release_process
from emulator.linux.kernel.signals import SIG_IGN, ThreadSignals
from emulator.linux.kernel.system import System
from emulator.linux.kernel.task import Task
from emulator.linux.kernel.tasks import Process, Registers, Thread
from emulator.linux.kernel.waits import Wait
from emulator.linux.syscalls.futex import release_futexes
from emulator.linux.syscalls.wait_children import end_info
from emulator.linux.vfs.descriptor_table import MAX_DESCRIPTORS

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


# Identity


def getpid(task: Task) -> int:
    return task.process.pid


def gettid(task: Task) -> int:
    return task.thread.tid


def getppid(task: Task) -> int:
    return 1 if task.process.parent is None else task.process.parent.pid


# Starting


def clone(task: Task, flags: int, stack: int, parent_tid: int, thread_pointer: int, child_tid: int) -> int | Wait:
    # with CLONE_PIDFD, clone writes the pidfd to the address of the parent's tid
    return _clone(task, flags & ~0xFF, flags & 0xFF, stack, parent_tid, thread_pointer, child_tid, parent_tid)


def clone3(task: Task, address: int, size: int) -> int | Wait:
    if size < 64:
        raise OSError(errno.EINVAL, "clone3")
    flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_bytes, thread_pointer = struct.unpack(
        "<8Q", task.memory.read(address, 64)
    )
    top = stack + stack_bytes if stack else 0
    return _clone(task, flags, exit_signal, top, parent_tid, thread_pointer, child_tid, pidfd)


def _clone(
    task: Task, flags: int, exit_signal: int, stack: int, parent_tid: int, thread_pointer: int,
    child_tid: int, pidfd: int,
) -> int | Wait:  # fmt: skip
    if flags & ~_CLONE_KNOWN:
        task.report(f"clone with flags {flags & ~_CLONE_KNOWN:#x}")
        raise OSError(errno.EINVAL, "clone flags")
    is_thread = bool(flags & _CLONE_THREAD)
    if is_thread and not (flags & _CLONE_VM and flags & _CLONE_SIGHAND):
        raise OSError(errno.EINVAL, "a thread must share memory and handlers")
    if flags & _CLONE_PIDFD and is_thread:
        raise OSError(errno.EINVAL, "a pidfd of a thread")
    if flags & _CLONE_PIDFD and len(task.descriptors.items()) >= MAX_DESCRIPTORS:
        raise OSError(errno.EMFILE, "descriptors")
    task.scheduler.check_room(task.process.limits.max_tasks)
    caller = task.thread
    tid = task.scheduler.new_pid()
    process = task.process if is_thread else _fork(task, tid, flags, exit_signal)
    signals = ThreadSignals(caller.signals.mask)
    if not is_thread and not (flags & _CLONE_VM and not flags & _CLONE_VFORK):
        signals.alternate_stack = caller.signals.alternate_stack
    thread = Thread(tid, process, signals, caller.name)
    process.threads.append(thread)
    if not is_thread:
        process.signals.thread = signals
    thread.registers = _child_registers(task.hart, flags, stack, thread_pointer)
    if flags & _CLONE_PARENT_SETTID:
        task.memory.write_int(parent_tid, 4, tid)
    if flags & _CLONE_CHILD_SETTID:
        process.memory.write_int(child_tid, 4, tid)
    if flags & _CLONE_CHILD_CLEARTID:
        thread.clear_tid_address = child_tid
    if flags & _CLONE_PIDFD:
        number = task.descriptors.install(PidFile(process, 0), close_on_exec=True)
        task.memory.write_int(pidfd, 4, number)
    task.scheduler.add(thread)
    if flags & _CLONE_VFORK and not is_thread:
        return Wait(_tid_when_released, process, tid)
    return tid


def _tid_when_released(child: Process, tid: int) -> int | None:
    """vfork: the parent waits until the child does not use its memory any more."""
    return None if child.borrows_memory else tid


def _child_registers(hart: Hart, flags: int, stack: int, thread_pointer: int) -> Registers:
    mine = Registers.of(hart).with_result(0)
    if stack:
        mine = mine.with_x(_STACK_POINTER, stack)
    return mine.with_x(_THREAD_POINTER, thread_pointer) if flags & _CLONE_SETTLS else mine


def _fork(task: Task, pid: int, flags: int, exit_signal: int) -> Process:
    parent = task.process.parent if flags & _CLONE_PARENT and task.process.parent else task.process
    shares = bool(flags & _CLONE_VM)
    memory = task.memory if shares else task.memory.copy()
    if not shares and task.scheduler.listener is not None:
        task.scheduler.listener.memory_forked(task.memory, memory)
    child = Process(pid, parent, task.process.group, task.process.session, exit_signal)
    child.nice, child.policy = task.process.nice, task.process.policy
    child.borrows_memory = bool(flags & _CLONE_VFORK)
    files = task.files.fork(share_descriptors=bool(flags & _CLONE_FILES))
    fork_process(task.system, child, task.process, memory, files, not flags & _CLONE_CLEAR_SIGHAND)
    parent.children.append(child)
    task.scheduler.processes[pid] = child
    return child


# Ending


def exit(task: Task, status: int) -> None:
    if len(task.process.threads) == 1:
        raise GuestExit(status & 0xFF)
    end_thread(task.system, task.thread)
    task.scheduler.switch(task.hart)


def exit_group(task: Task, status: int) -> None:
    raise GuestExit(status & 0xFF)


def end_thread(system: System, thread: Thread) -> None:
    """End a thread; if it is the current one, the caller must call `Scheduler.switch`."""
    scheduler, process = system.scheduler, thread.process
    scheduler.charge_current()
    scheduler.remove(thread)
    process.threads.remove(thread)
    process.ended_nanoseconds += thread.used_nanoseconds
    release_futexes(system.futexes, thread, process.memory)
    if thread is scheduler.current:
        process.signals.thread = process.threads[0].signals if process.threads else thread.signals


def end_process(system: System, process: Process, status: int) -> None:
    """End a process other than the first one, with ``status`` as wait4 reports it.

    The caller must call `Scheduler.switch`."""
    scheduler = system.scheduler
    for thread in list(process.threads):
        end_thread(system, thread)
    release_process(process)
    for listener in system.process_listeners:
        listener.process_ended(process)
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
    action = parent.signals.action(Signal.SIGCHLD)
    if process.exit_signal:
        parent.signals.send(end_info(process))
    if action.handler == SIG_IGN or action.flags & _SA_NOCLDWAIT:
        parent.children.remove(process)
        process.is_reaped = True
        del scheduler.processes[process.pid]
    scheduler.recheck_waits = True
