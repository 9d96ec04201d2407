"""Scheduler: the threads of all processes share the one hart, round robin and in a deterministic order.

A thread runs until it waits, ends, or has used its time slice of `TIME_SLICE_INSTRUCTIONS` while others are runnable.
Runnable threads are in a queue. The conditions of waiting threads (`wait_queue`) are checked again after every event
that may have changed one (a system call, a timer). If no thread is runnable, virtual time advances to the next timer or
timeout.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from emulator.linux.abi.numbers import Signal, signal_name
from emulator.linux.kernel.clock import Deadlock, TimeBase, Timers, VirtualClock
from emulator.linux.kernel.hart_protocol import Hart
from emulator.linux.kernel.limits import MAX_TASKS
from emulator.linux.kernel.signals import SI_TIMER, SignalInfo
from emulator.linux.kernel.tasks import Process, Registers, Thread
from emulator.linux.kernel.wait_queue import WaitQueue
from emulator.linux.kernel.waits import Wait, WhenStopped
from emulator.linux.vfs.open_files import WouldBlock
from emulator.listeners import GuestListener
from emulator.memory import MemoryFault, MemoryLimit

TIME_SLICE_INSTRUCTIONS = 1_000_000

_FIRST_PID = 1000
_LAST_PID = 1 << 22
# After so many timers that end no wait, the guest is deadlocked: their signals are blocked or ignored.
_MAX_WAKEUPS = 1000


class Scheduler:
    """All threads of a guest. ``current`` has the hart; ``instructions`` returns how many took time so
    far: a time slice has as many of these, whatever else is executed that the machine does not see.

    ``stops_waiting``: takes the stop signals of a waiting thread and returns whether its process is stopped.
    """

    def __init__(
        self, clock: VirtualClock, timers: Timers, instructions: Callable[[], int],
        stops_waiting: Callable[[Scheduler, Thread], bool],
    ) -> None:  # fmt: skip
        self.clock = clock
        self.timers = timers
        self._instructions = instructions
        self._stops_waiting = stops_waiting
        self.current: Thread
        self.acting: Thread
        """The thread on whose behalf kernel code runs: the current one, or the one whose wait is being checked."""
        self.runnable: list[Thread] = []
        self.waiting = WaitQueue()
        self.held: list[Thread] = []  # runnable threads of stopped processes
        self.processes: dict[int, Process] = {}
        self.slice_end = TIME_SLICE_INSTRUCTIONS
        self.recheck_waits = False
        """Whether an event happened that may end a wait."""
        self.counters_stand_still = False
        """Whether the guest has stopped its performance counters: the thread that reads them may finish, for up to
        another time slice. What the others did meanwhile would not be counted."""
        self.listener: GuestListener | None = None
        self.has_started_tasks = False
        """Whether there was ever a thread or process beside the first."""
        self.foreground_group = 0
        """The foreground process group of the terminal; 0: the group of the first process."""
        self._next_pid = _FIRST_PID
        self._charged_until_nanoseconds = 0

    def attach(self, listener: GuestListener) -> None:
        """Report forks and switches to ``listener`` from now on."""
        self.listener = listener

    # --- numbers
    def new_pid(self) -> int:
        """A new pid or tid; a number is reused only after all others were used."""
        taken = {thread.tid for process in self.processes.values() for thread in process.threads}
        taken |= {number for process in self.processes.values() for number in (process.group, process.session)}
        while self._next_pid in taken or self._next_pid in self.processes:
            self._next_pid += 1
        found = self._next_pid
        self._next_pid = found + 1 if found + 1 < _LAST_PID else _FIRST_PID
        return found

    def check_room(self, max_tasks: int) -> None:
        """Raises OSError(EAGAIN) if there are ``max_tasks`` or MAX_TASKS threads and ended processes."""
        n_tasks = sum(len(one.threads) or 1 for one in self.processes.values())
        if n_tasks >= min(max_tasks, MAX_TASKS):
            raise OSError(errno.EAGAIN, "threads or processes")

    def thread(self, tid: int) -> Thread | None:
        """The running or waiting thread with that tid, or None."""
        for process in self.processes.values():
            for thread in process.threads:
                if thread.tid == tid:
                    return thread
        return None

    # --- starting and ending
    def begin(self, thread: Thread) -> None:
        """Give the hart to the first thread of the guest."""
        self.current = self.acting = thread

    def add(self, thread: Thread) -> None:
        """Make a new thread runnable; its registers are set."""
        self.has_started_tasks = True
        self._enqueue(thread)

    def remove(self, thread: Thread) -> None:
        """Remove an ending thread; if it is the current one, the caller must call `switch`."""
        for place in (self.runnable, self.held):
            if thread in place:
                place.remove(thread)
        self.waiting.remove(thread)

    def hold(self, process: Process) -> None:
        """Stop the threads of a stopped process; their waits continue, pause or fail (`WhenStopped`)."""
        self.held += [thread for thread in self.runnable if thread.process is process]
        self.runnable = [thread for thread in self.runnable if thread.process is not process]
        for thread in list(self.waiting):
            wait = thread.wait
            if thread.process is not process or wait is None:
                continue
            if wait.when_stopped is WhenStopped.FAILS:
                self._interrupt(thread, wait)
            elif wait.when_stopped is WhenStopped.PAUSES_TIMEOUT and wait.until is not None:
                wait.until -= self.clock.elapsed()
        self.waiting.check_all()
        self.recheck_waits = True

    def release(self, process: Process) -> None:
        """Let the threads of a continued process run again."""
        freed = [thread for thread in self.held if thread.process is process]
        self.held = [thread for thread in self.held if thread.process is not process]
        for thread in freed:
            self._enqueue(thread)
        for thread in self.waiting:
            wait = thread.wait
            if thread.process is not process or wait is None or wait.until is None:
                continue
            if wait.when_stopped is WhenStopped.PAUSES_TIMEOUT:
                wait.until += self.clock.elapsed()
        self.waiting.check_all()
        self.recheck_waits = True

    def _interrupt(self, thread: Thread, wait: Wait) -> None:
        """End the thread's system call with EINTR because its process is stopped."""
        signals = thread.process.signals
        before, signals.thread = signals.thread, thread.signals
        result = wait.result_if_interrupted()
        signals.end_wait()
        signals.thread = before
        assert thread.registers is not None
        thread.registers = thread.registers.with_result(-errno.EINTR if result is None else result)
        thread.restart = None
        self.waiting.remove(thread)
        self.held.append(thread)

    # --- processor time
    def charge_current(self) -> None:
        """Add the processor time since the last charge or switch to the current thread."""
        now = self.clock.processor()
        self.current.used_nanoseconds += now - self._charged_until_nanoseconds
        self._charged_until_nanoseconds = now

    def used_nanoseconds(self, process: Process) -> int:
        """Processor time of all threads of the process, including ended ones."""
        self.charge_current()
        return process.ended_nanoseconds + sum(thread.used_nanoseconds for thread in process.threads)

    # --- signals
    def next_signal(self, thread: Thread) -> int | None:
        """The lowest pending signal that ``thread`` is to take, or None.

        As in Linux, one thread takes a caught signal of the process: of those that do not block it the current one if a
        timer of processor time or of timer_create has sent it, else the first.
        """
        process = thread.process
        if process.signals.nothing_pending(thread.signals):
            return None
        own, shared = process.signals.pending_for(thread.signals)
        mine = [info.signal for info in own]
        mine += [info.signal for info in shared if self._taker(process, info) in (thread, None)]
        return min(mine, default=None)

    def _taker(self, process: Process, info: SignalInfo) -> Thread | None:
        """The thread that takes a signal of the process; None for any."""
        if len(process.threads) == 1 or not process.signals.is_caught(info.signal):
            return None
        ready = [thread for thread in process.threads if not thread.signals.mask >> (info.signal - 1) & 1]
        prefers_current = info.code == SI_TIMER or info.signal in (Signal.SIGVTALRM, Signal.SIGPROF)
        return self.current if prefers_current and self.current in ready else next(iter(ready), None)

    # --- waiting
    def block(self, wait: Wait, hart: Hart, first_argument: int = 0) -> None:
        """Let the current thread wait and switch to the next one; it may be the same if its wait is over at once."""
        thread = self.current
        thread.restart = first_argument if wait.restartable else None
        thread.registers = Registers.of(hart)
        self.waiting.add(thread, wait)
        try:
            self.switch(hart)
        except Deadlock:
            self.remove(thread)
            raise

    def yield_hart(self, hart: Hart) -> None:
        """Move the current thread behind the other runnable ones."""
        if self.runnable:
            self._preempt(hart)

    def switch_from_stopped(self, hart: Hart) -> None:
        """Switch away from the current thread, whose process was stopped."""
        thread = self.current
        try:
            self._preempt(hart)
        except Deadlock:
            self.remove(thread)
            raise

    def reschedule(self, hart: Hart) -> None:
        """Called when the run loop returns: end waits that are over, and the time slice of the current thread."""
        if self.recheck_waits:
            self._check_waits()
        if self.current.process.stopped:
            self.switch_from_stopped(hart)
        elif self.runnable and self._left_of_slice() <= 0:
            self._preempt(hart)

    def continues_with(self, process: Process) -> bool:
        """A cheaper `reschedule` after a system call of ``process`` while no timeout or timer is armed.

        Returns whether translated code may continue at once: a thread of the process runs and has no signals."""
        if self.waiting.timed or self.timers.next_deadline() is not None:
            return False
        if self.recheck_waits:
            self._check_waits()
        current = self.current
        return (
            current.process is process
            and not process.stopped
            and process.signals.nothing_pending(current.signals)
            and current.restart is None
            and not self.waiting.timed
        )

    def until_slice_ends(self) -> int | None:
        """Instructions left in the current thread's time slice; None if no other thread is runnable."""
        return max(self._left_of_slice(), 1) if self.runnable else None

    def next_deadline(self) -> int | None:
        """Time of the clock source at which the next timer or timeout expires if the current thread keeps running."""
        timer = self.timers.next_deadline()
        if not self.waiting.timed:
            return timer
        ends = self.waiting.ends()
        deadlines = [self.clock.to_source(TimeBase.ELAPSED, end) for end in ends]
        return min(deadlines if timer is None else [*deadlines, timer], default=None)

    def switch(self, hart: Hart) -> None:
        """Give the hart to the next runnable thread; the current thread's registers are already saved.

        Raises `Deadlock` if no thread can ever run again.
        """
        wakeups = 0
        self._check_waits()
        while not self.runnable:
            wakeups += 1
            self._pass_time(wakeups)
            self._check_waits()
        self.charge_current()
        chosen = self.runnable.pop(0)
        changed = chosen is not self.current
        self.current = self.acting = chosen
        chosen.process.signals.thread = chosen.signals
        assert chosen.registers is not None
        chosen.registers.put(hart)
        chosen.registers = None
        self.slice_end = self._instructions() + TIME_SLICE_INSTRUCTIONS
        if changed and self.listener is not None:
            self.listener.task_switched()

    def _left_of_slice(self) -> int:
        end = self.slice_end + TIME_SLICE_INSTRUCTIONS if self.counters_stand_still else self.slice_end
        return end - self._instructions()

    def _preempt(self, hart: Hart) -> None:
        self.current.registers = Registers.of(hart)
        self._enqueue(self.current)
        self.switch(hart)

    def _enqueue(self, thread: Thread) -> None:
        if thread.process.stopped:
            self.held.append(thread)
            return
        if not self.runnable:
            self.slice_end = self._instructions() + TIME_SLICE_INSTRUCTIONS
        self.runnable.append(thread)

    def _check_waits(self) -> None:
        """Move all threads whose wait is over to the run queue."""
        if self.waiting.is_quiet:
            self.recheck_waits = False
            return
        self.recheck_waits = True
        while self.recheck_waits:  # a process that is stopped by a check may end the wait of its parent
            self.recheck_waits = False
            for thread in self.waiting.to_check(self.clock.elapsed):
                wait = thread.wait
                if wait is not None and not thread.process.stopped and self._is_over(thread, wait):
                    self.waiting.remove(thread)
                    self._enqueue(thread)

    def _is_over(self, thread: Thread, wait: Wait) -> bool:
        signals = thread.process.signals
        if wait.is_notified:
            notified = wait.result()
            if isinstance(notified, int):
                thread.restart = None
                return self._set_result(thread, notified)
            if wait.until is None and signals.nothing_pending(thread.signals):
                return False
        before, signals.thread = signals.thread, thread.signals
        restart, thread.restart = thread.restart, None
        self.acting = thread
        try:
            try:
                result = wait.result()
            except WouldBlock:
                result = None
            if isinstance(result, Wait):  # the call made progress and waits for the rest
                self.waiting.add(thread, result)
                self.recheck_waits = True  # a signal may have arrived before
                restart = restart if result.restartable else None
                result = None
            elif result is None and self._stops_waiting(self, thread):
                thread.restart = restart
                return False
            elif result is None and self.next_signal(thread) is not None:
                result = wait.result_if_interrupted()
                if result is None:
                    result, thread.restart = -errno.EINTR, restart
            elif result is None and wait.until is not None and self.clock.elapsed() >= wait.until:
                result = wait.result_at_timeout()
        except OSError as error:
            result = -(error.errno or errno.EIO)
        except MemoryFault:
            result = -errno.EFAULT
        except MemoryLimit:
            result = -errno.ENOMEM
        finally:
            signals.thread = before
            self.acting = self.current
        if result is None:
            thread.restart = restart
            return False
        return self._set_result(thread, result)

    @staticmethod
    def _set_result(thread: Thread, result: int) -> bool:
        assert thread.registers is not None
        thread.registers = thread.registers.with_result(result)
        return True

    def _pass_time(self, wakeups: int) -> None:
        """No thread is runnable: advance time to the next timer or timeout. Raises `Deadlock` if there is none."""
        ends = self.waiting.ends()
        timer = self.timers.next_wakeup()
        if not ends and (timer is None or wakeups > _MAX_WAKEUPS or not (self.waiting or self.held)):
            raise Deadlock(self._deadlock_reason())
        if timer is not None:
            ends.append(timer)
        self.clock.sleep_until(min(ends))
        self.timers.fire()

    def _deadlock_reason(self) -> str:
        not_stopped = [thread for thread in self.waiting if not thread.process.stopped]
        waits = [thread.wait.deadlock for thread in not_stopped if thread.wait is not None]
        stopped = ", ".join(
            f"{signal_name(process.stopped)} has stopped process {process.pid}"
            for process in self.processes.values()
            if process.stopped
        )
        if not waits:
            why = f"{stopped}, and no running process can continue it" if stopped else "no thread is left to run"
            return f"the guest waits for ever: {why}"
        others = "" if len(waits) == 1 else f" ({len(waits)} threads wait, none for an event that can happen)"
        return waits[0] + others + (f"; {stopped}" if stopped else "")
