"""Processes and the programs that they execute: the first process, fork, execve."""

from __future__ import annotations

from functools import partial

from emulator.linux.abi.numbers import PID
from emulator.linux.kernel.job_control import apply_on_send
from emulator.linux.kernel.limits import ResourceLimits
from emulator.linux.kernel.process_timers import ProcessTimers
from emulator.linux.kernel.procfs import ProcFs
from emulator.linux.kernel.signals import SignalInfo, SignalState
from emulator.linux.kernel.system import System
from emulator.linux.kernel.tasks import Process, Thread
from emulator.linux.loader.process_image import ProcessImage
from emulator.linux.mm.mappings import Mappings
from emulator.linux.vfs.files import VirtualFiles
from emulator.memory import GuestMemory

_NAME_BYTES = 15


def command_name(program: ProcessImage) -> bytes:
    """The initial name of a program's thread: the program's name without its directory, at most 15 bytes."""
    name = program.arguments[0] if program.arguments else program.image.name
    return name.rsplit("/", 1)[-1].encode(errors="replace")[:_NAME_BYTES]


def start_first_process(system: System, memory: GuestMemory, program: ProcessImage, files: VirtualFiles) -> Process:
    """Make the first process of a guest and its thread, which gets the hart."""
    process = Process(PID, None, PID, PID)
    system.scheduler.processes[system.scheduler.new_pid()] = process
    _set_up(system, process, memory, program, files, None)
    process.program_path = files.absolute(program.image.name)
    system.first_program = program.image.data
    thread = Thread(PID, process, process.signals.thread, command_name(program))
    process.threads.append(thread)
    system.scheduler.begin(thread)
    return process


def fork_process(
    system: System, child: Process, parent: Process, memory: GuestMemory, files: VirtualFiles,
    keeps_handlers: bool,
) -> None:  # fmt: skip
    """Let ``child`` execute the program of ``parent`` in ``memory``, which is shared or a copy, with ``files``;
    without ``keeps_handlers`` no signal is caught."""
    _set_up(system, child, memory, parent.program, files, parent.limits)
    child.program_path = parent.program_path
    child.mappings.continue_from(parent.mappings)
    child.signals.copy_actions(parent.signals, keeps_handlers)


def replace_program(system: System, process: Process, memory: GuestMemory, program: ProcessImage) -> None:
    """Let a process execute another program: mappings and POSIX timers of the one before end; descriptors, limits,
    interval timers, ignored and pending signals stay."""
    limits, timers, mappings, signals = process.limits, process.timers, process.mappings, process.signals
    limits.release()
    system.note_executed(program.image)
    _set_up(system, process, memory, program, process.files, limits)
    process.program_path = process.files.absolute(program.image.name)
    process.timers.continue_from(timers)
    timers.release()
    mappings.release()
    process.signals.copy_actions(signals, keep_handlers=False)
    process.signals.copy_pending(signals)


def release_process(process: Process) -> None:
    """Remove timers, mappings and descriptors of a process that has ended."""
    process.timers.release()
    process.limits.release()
    process.mappings.release()
    process.files.descriptors.release()
    process.files.locks.release(process.pid)
    process.files.locks.release_closed()


def _set_up(
    system: System, process: Process, memory: GuestMemory, program: ProcessImage, files: VirtualFiles,
    limits: ResourceLimits | None,
) -> None:  # fmt: skip
    """Set the fields of a process for a new program; ``limits``: the ones to inherit."""
    scheduler = system.scheduler
    process.memory, process.program, process.files = memory, program, files
    process.signals = SignalState(memory, program.trampoline, partial(apply_on_send, scheduler, process))
    process.timers = ProcessTimers(system.timers, process.signals)
    process.limits = ResourceLimits(
        system.timers, program.layout.stack_bytes, partial(scheduler.used_nanoseconds, process),
        partial(_send, process), limits,
    )  # fmt: skip
    process.mappings = Mappings(memory, program, files, system.report)
    files.mount_procfs(ProcFs(scheduler, process))
    files.inodes.now = system.clock.wall


def _send(process: Process, info: SignalInfo) -> None:
    process.signals.send(info)
