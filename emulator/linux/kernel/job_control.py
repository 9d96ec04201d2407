"""Job control: stopping and continuing processes, process groups, sessions, and the terminal's foreground group.

Signal delivery is in `signals`, scheduling in `scheduler`; the system calls are in `process_groups` and
`wait_children`.
"""

from __future__ import annotations

import errno
import struct

from emulator.linux.abi.numbers import PID, UID, Signal
from emulator.linux.kernel.scheduler import Scheduler
from emulator.linux.kernel.signals import SI_KERNEL, SIG_IGN, STOPPING, SignalInfo
from emulator.linux.kernel.tasks import Process, Thread
from emulator.linux.vfs.open_files import WouldBlock

CLD_EXITED, CLD_KILLED, CLD_STOPPED, CLD_CONTINUED = 1, 2, 5, 6
TERMINAL_SESSION = PID
"""The session of the terminal, if there is one: the session of the first process."""

_SA_NOCLDSTOP = 1


def child_info(child: Process, code: int, value: int) -> SignalInfo:
    """The siginfo that SIGCHLD and waitid give for a child; ``value``: its exit status or the signal."""
    return SignalInfo(Signal.SIGCHLD, code, struct.pack("<iIi", child.pid, UID, value))


def apply_on_send(scheduler: Scheduler, process: Process, signal: int) -> None:
    """The effects of a signal when it is sent, even if it is blocked, ignored or caught: all waits are checked, stop
    signals and SIGCONT discard each other, and SIGCONT and SIGKILL continue a stopped process."""
    scheduler.waiting.check_all()
    signals = process.signals
    threads = [thread.signals for thread in process.threads]
    if signal in STOPPING:
        signals.discard({Signal.SIGCONT}, threads)
    elif signal == Signal.SIGCONT:
        signals.discard(STOPPING, threads)
        if process.stopped:
            process.continue_unreported = True
            _continue(scheduler, process)
            _notify_parent(process, CLD_CONTINUED, Signal.SIGCONT)
    elif signal == Signal.SIGKILL and process.stopped:
        _continue(scheduler, process)


def stop(scheduler: Scheduler, process: Process, signal: int) -> bool:
    """Stop a process by a stop signal's default action. False if its group is orphaned, which ignores the signal.

    The process's threads are not runnable any more; if one has the hart, the caller must switch.
    """
    if signal != Signal.SIGSTOP and is_orphaned(scheduler, process.group):
        return False
    process.stopped, process.stop_unreported, process.continue_unreported = signal, True, False
    scheduler.hold(process)
    _notify_parent(process, CLD_STOPPED, signal)
    return True


def stops_waiting(scheduler: Scheduler, thread: Thread) -> bool:
    """Take the stop signals pending for a waiting thread, which stays waiting; return whether its process is
    stopped."""
    signals = thread.process.signals
    while (signal := signals.next_pending()) is not None and signals.stops(signal):
        signals.take(signal)
        if stop(scheduler, thread.process, signal):
            return True
    return False


def members(scheduler: Scheduler, group: int) -> list[Process]:
    """The processes of a group, including zombies."""
    return [process for process in scheduler.processes.values() if process.group == group]


def send_to_group(scheduler: Scheduler, group: int, info: SignalInfo) -> None:
    for process in members(scheduler, group):
        if process.status is None:
            process.signals.send(info)


def is_orphaned(scheduler: Scheduler, group: int, without: Process | None = None) -> bool:
    """Whether no process of the group has a parent in another group of the same session, which could continue it."""
    return not any(
        process.parent.group != group and process.parent.session == process.session
        for process in members(scheduler, group)
        if process is not without and process.status is None and process.parent is not None and not process.is_adopted
    )


def hang_up_orphaned_groups(scheduler: Scheduler, process: Process, children: list[Process]) -> None:
    """Send SIGHUP and SIGCONT to the groups that the end of ``process`` orphans and that have stopped members.

    ``children``: the children of the process, which already have another parent."""
    for child in children:
        if child.group != process.group and child.session == process.session:
            _hang_up_orphaned(scheduler, child.group, None)
    parent = process.parent
    if parent is not None and parent.group != process.group and parent.session == process.session:
        _hang_up_orphaned(scheduler, process.group, process)


def check_terminal(scheduler: Scheduler, process: Process, signal: int) -> None:
    """Check that a process may use the terminal; a background process's group gets ``signal``: SIGTTIN for reading,
    SIGTTOU for changing the terminal.

    Raises OSError(EIO) if the group is orphaned or ignores SIGTTIN, and `WouldBlock` to retry after the signal.
    """
    foreground = scheduler.foreground_group or PID
    if process.session != TERMINAL_SESSION or process.group == foreground:
        return
    signals = process.signals
    if signals.mask >> (signal - 1) & 1 or signals.action(signal).handler == SIG_IGN:
        if signal == Signal.SIGTTIN:
            raise OSError(errno.EIO, "reads from the terminal in the background")
        return
    if is_orphaned(scheduler, process.group):
        raise OSError(errno.EIO, "uses the terminal in the background")
    send_to_group(scheduler, process.group, SignalInfo(signal, SI_KERNEL))
    raise WouldBlock("uses the terminal, whose foreground process group is another one")


def _hang_up_orphaned(scheduler: Scheduler, group: int, without: Process | None) -> None:
    if is_orphaned(scheduler, group, without) and any(one.stopped for one in members(scheduler, group)):
        for signal in (Signal.SIGHUP, Signal.SIGCONT):
            send_to_group(scheduler, group, SignalInfo(signal, SI_KERNEL))


def _continue(scheduler: Scheduler, process: Process) -> None:
    process.stopped, process.stop_unreported = 0, False
    scheduler.release(process)


def _notify_parent(process: Process, code: int, signal: int) -> None:
    parent = process.parent
    if parent is None or parent.status is not None:
        return
    action = parent.signals.action(Signal.SIGCHLD)
    if action.handler != SIG_IGN and not action.flags & _SA_NOCLDSTOP:
        parent.signals.send(child_info(process, code, signal))
