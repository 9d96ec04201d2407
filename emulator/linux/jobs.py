"""Job control: whole processes that are stopped and continued, who is told of it, and groups of processes.

Which signal is delivered when is in `signals`, who runs when in `scheduler`; system calls are in `group_calls` and
`wait_calls`.
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING

from emulator.linux.abi import PID, UID, Signal
from emulator.linux.open_files import WouldBlock
from emulator.linux.signals import SI_KERNEL, SIG_IGN, STOPPING, SignalInfo
from emulator.linux.tasks import Process, Thread

if TYPE_CHECKING:
    from emulator.linux.scheduler import Scheduler

CLD_EXITED, CLD_KILLED, CLD_STOPPED, CLD_CONTINUED = 1, 2, 5, 6
TERMINAL_SESSION = PID
"""The session that the terminal, if there is one, belongs to: the first process's."""

_SA_NOCLDSTOP = 1


def child_info(child: Process, code: int, value: int) -> SignalInfo:
    """What SIGCHLD and waitid tell of a child; ``value`` is its status or the signal."""
    return SignalInfo(Signal.SIGCHLD, code, struct.pack("<iIi", child.pid, UID, value))


def prepare(scheduler: Scheduler, process: Process, signal: int) -> None:
    """What a signal does as soon as it is sent, even if it is blocked, ignored or caught: stop signals and SIGCONT undo
    each other, and SIGCONT and SIGKILL continue what is stopped."""
    signals = process.kernel.signals
    everybody = [thread.signals for thread in process.threads]
    if signal in STOPPING:
        signals.forget({Signal.SIGCONT}, everybody)
    elif signal == Signal.SIGCONT:
        signals.forget(STOPPING, everybody)
        if process.stopped:
            process.is_continued = True
            _go_on(scheduler, process)
            _tell_parent(process, CLD_CONTINUED, Signal.SIGCONT)
    elif signal == Signal.SIGKILL and process.stopped:
        _go_on(scheduler, process)


def stop(scheduler: Scheduler, process: Process, signal: int) -> bool:
    """Do what a stop signal does by default; False where nobody could continue the process, and it is ignored.

    Threads that could run do not any more; the one that has the hart has to give it away.
    """
    if signal != Signal.SIGSTOP and is_orphaned(scheduler, process.group):
        return False
    process.stopped, process.stop_is_news, process.is_continued = signal, True, False
    scheduler.hold(process)
    _tell_parent(process, CLD_STOPPED, signal)
    return True


def stops_waiting(scheduler: Scheduler, thread: Thread) -> bool:
    """Take stop signals that come next for a thread that waits, and goes on waiting; whether its process is stopped."""
    signals = thread.kernel.signals
    while (signal := signals.next_pending()) is not None and signals.stops(signal):
        signals.take(signal)
        if stop(scheduler, thread.process, signal):
            return True
    return False


def members(scheduler: Scheduler, group: int) -> list[Process]:
    """Processes of a group; those that have ended are of it until somebody has waited for them."""
    return [process for process in scheduler.processes.values() if process.group == group]


def send_to_group(scheduler: Scheduler, group: int, info: SignalInfo) -> None:
    for process in members(scheduler, group):
        if process.status is None:
            process.kernel.signals.send(info)


def is_orphaned(scheduler: Scheduler, group: int, without: Process | None = None) -> bool:
    """Whether no process of the group has a parent in another group of the same session, who could continue it."""
    return not any(
        process.parent.group != group and process.parent.session == process.session
        for process in members(scheduler, group)
        if process is not without
        and process.status is None
        and process.parent is not None
        and not process.is_adopted
    )


def leave(scheduler: Scheduler, process: Process, children: list[Process]) -> None:
    """The process has ended and its ``children`` have another parent: groups that are orphaned by this, and have
    somebody stopped, are told to go on (SIGHUP, SIGCONT)."""
    for child in children:
        if child.group != process.group and child.session == process.session:
            _rouse(scheduler, child.group, None)
    parent = process.parent
    if parent is not None and parent.group != process.group and parent.session == process.session:
        _rouse(scheduler, process.group, process)


def check_terminal(scheduler: Scheduler, process: Process, signal: int) -> None:
    """Have a process use the terminal: its group must be the one in the foreground, or gets ``signal``, SIGTTIN for
    reading and SIGTTOU for changing it.

    Raises OSError(EIO) where nobody could continue it, and `WouldBlock` to try again after the signal.
    """
    foreground = scheduler.foreground_group or PID
    if process.session != TERMINAL_SESSION or process.group == foreground:
        return
    signals = process.kernel.signals
    if signals.mask >> (signal - 1) & 1 or signals.action(signal).handler == SIG_IGN:
        if signal == Signal.SIGTTIN:
            raise OSError(errno.EIO, "reads from the terminal in the background")
        return
    if is_orphaned(scheduler, process.group):
        raise OSError(errno.EIO, "uses the terminal in the background")
    send_to_group(scheduler, process.group, SignalInfo(signal, SI_KERNEL))
    raise WouldBlock("uses the terminal, which belongs to another group of processes")


def _rouse(scheduler: Scheduler, group: int, without: Process | None) -> None:
    if is_orphaned(scheduler, group, without) and any(one.stopped for one in members(scheduler, group)):
        for signal in (Signal.SIGHUP, Signal.SIGCONT):
            send_to_group(scheduler, group, SignalInfo(signal, SI_KERNEL))


def _go_on(scheduler: Scheduler, process: Process) -> None:
    process.stopped, process.stop_is_news = 0, False
    scheduler.release(process)


def _tell_parent(process: Process, code: int, signal: int) -> None:
    parent = process.parent
    if parent is None or parent.status is not None:
        return
    action = parent.kernel.signals.action(Signal.SIGCHLD)
    if action.handler != SIG_IGN and not action.flags & _SA_NOCLDSTOP:
        parent.kernel.signals.send(child_info(process, code, signal))
