"""Who runs: threads of all processes take turns on the one hart, always in the same order.

A thread runs until it waits, ends, or has used up its turn of `TURN_INSTRUCTIONS` while others could run. Threads
that can run stand in a queue; those that wait are asked whether they still do (`wait_queue`) whenever something has
happened that might have changed it (a system call, a timer). When nobody can run, virtual time passes to the next
moment at which somebody may.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from emulator.linux.abi import signal_name
from emulator.linux.clock import Deadlock, TimeBase, Timers, VirtualClock
from emulator.linux.elf import ElfImage
from emulator.linux.futexes import Futexes
from emulator.linux.hart import Hart
from emulator.linux.ipc import IpcTable
from emulator.linux.ipc_memory import MAX_SEGMENTS, Segment
from emulator.linux.ipc_messages import MAX_QUEUES, MessageQueue
from emulator.linux.ipc_semaphores import MAX_SETS, SemaphoreSet
from emulator.linux.jobs import stops_waiting
from emulator.linux.tasks import MAX_TASKS, Process, Registers, Thread, Wait, WhenStopped
from emulator.linux.wait_queue import WaitQueue
from emulator.memory import GuestMemory, MemoryFault, MemoryLimit

TURN_INSTRUCTIONS = 1_000_000

_FIRST_PID = 1000
_LAST_PID = 1 << 22
# A wait without end that so many timers have not ended: their signals are blocked or ignored.
_MAX_WAKEUPS = 1000


class Scheduler:
    """All threads of a guest. ``current`` has the hart; ``instructions`` tells how many were executed."""

    def __init__(self, clock: VirtualClock, timers: Timers, instructions: Callable[[], int]) -> None:
        self.clock = clock
        self.timers = timers
        self._instructions = instructions
        self.current: Thread
        self._asked: Thread | None = None  # who waits and is asked whether it still does
        self.runnable: list[Thread] = []
        self.waiting = WaitQueue()
        self.futexes = Futexes(self.waiting.tell)
        self.held: list[Thread] = []  # they could run, but their process is stopped
        self.processes: dict[int, Process] = {}
        self.turn_end = TURN_INSTRUCTIONS
        self.stirred = False
        """Something happened that may end a wait."""
        self.unsupported: list[str] = []
        self.on_fork: Callable[[GuestMemory, GuestMemory], None] | None = None
        """Called with a memory and its copy, before either is changed."""
        self.on_switch: Callable[[], None] | None = None
        """Called when another thread has got the hart, or this one another program."""
        self.foreground_group = 0
        """The process group that the terminal belongs to; 0: the first process's."""
        self.segments = IpcTable[Segment](MAX_SEGMENTS)
        self.semaphores = IpcTable[SemaphoreSet](MAX_SETS)
        self.queues = IpcTable[MessageQueue](MAX_QUEUES)
        self.images: list[ElfImage] = []
        """Of programs executed last, the last one first: their processes have one copy of each."""
        self._next_pid = _FIRST_PID
        self._turn_start_nanoseconds = 0

    # --- numbers
    def new_pid(self) -> int:
        """A number for a process or thread; none is used twice before all have been used."""
        taken = {thread.tid for process in self.processes.values() for thread in process.threads}
        taken |= {
            number for process in self.processes.values() for number in (process.group, process.session)
        }
        while self._next_pid in taken or self._next_pid in self.processes:
            self._next_pid += 1
        found = self._next_pid
        self._next_pid = found + 1 if found + 1 < _LAST_PID else _FIRST_PID
        return found

    def check_room(self, most_tasks: int) -> None:
        """Raises OSError(EAGAIN) when there are ``most_tasks`` threads and processes, or as many as can be."""
        n_tasks = sum(len(one.threads) or 1 for one in self.processes.values())
        if n_tasks >= min(most_tasks, MAX_TASKS):
            raise OSError(errno.EAGAIN, "threads or processes")

    def thread(self, tid: int) -> Thread | None:
        """The living thread of that number."""
        for process in self.processes.values():
            for thread in process.threads:
                if thread.tid == tid:
                    return thread
        return None

    def report(self, what: str) -> None:
        """Note what the guest asked for and does not get."""
        if what not in self.unsupported:
            self.unsupported.append(what)

    @property
    def acting(self) -> Thread:
        """In whose name something is done: the current thread's, or that of one whose wait may be over."""
        return self.current if self._asked is None else self._asked

    # --- starting and ending
    def begin(self, thread: Thread) -> None:
        """The first thread of all has the hart."""
        self.current = thread

    def add(self, thread: Thread) -> None:
        """A new thread, with its registers, wants to run."""
        self._enqueue(thread)

    def remove(self, thread: Thread) -> None:
        """The thread runs no more; when it is the current one, `switch` must follow."""
        for place in (self.runnable, self.held):
            if thread in place:
                place.remove(thread)
        self.waiting.remove(thread)

    def hold(self, process: Process) -> None:
        """The process was stopped: its threads do not run, and waits end or stand still as the calls want it."""
        self.held += [thread for thread in self.runnable if thread.process is process]
        self.runnable = [thread for thread in self.runnable if thread.process is not process]
        for thread in list(self.waiting):
            wait = thread.wait
            if thread.process is not process or wait is None:
                continue
            if wait.when_stopped is WhenStopped.ENDS:
                self._interrupt(thread, wait)
            elif wait.when_stopped is WhenStopped.TIME_STANDS_STILL and wait.until is not None:
                wait.until -= self.clock.elapsed()
        self.waiting.ask_everybody()
        self.stirred = True

    def release(self, process: Process) -> None:
        """The process is not stopped any more."""
        freed = [thread for thread in self.held if thread.process is process]
        self.held = [thread for thread in self.held if thread.process is not process]
        for thread in freed:
            self._enqueue(thread)
        for thread in self.waiting:
            wait = thread.wait
            if thread.process is not process or wait is None or wait.until is None:
                continue
            if wait.when_stopped is WhenStopped.TIME_STANDS_STILL:
                wait.until += self.clock.elapsed()
        self.waiting.ask_everybody()
        self.stirred = True

    def _interrupt(self, thread: Thread, wait: Wait) -> None:
        """The thread's call fails with EINTR as its process is stopped."""
        signals = thread.kernel.signals
        before, signals.thread = signals.thread, thread.signals
        result = None if wait.interrupted is None else wait.interrupted()
        signals.end_wait()
        signals.thread = before
        assert thread.registers is not None
        thread.registers = thread.registers.with_result(-errno.EINTR if result is None else result)
        self.waiting.remove(thread)
        self.held.append(thread)

    # --- processor time
    def settle(self) -> None:
        """Charge the current thread for the time since it got the hart, or since it was charged last."""
        now = self.clock.processor()
        self.current.used_nanoseconds += now - self._turn_start_nanoseconds
        self._turn_start_nanoseconds = now

    def used_nanoseconds(self, process: Process) -> int:
        """Processor time of all threads that the process has and had."""
        self.settle()
        return process.ended_nanoseconds + sum(thread.used_nanoseconds for thread in process.threads)

    # --- waiting
    def block(self, wait: Wait, hart: Hart, first_argument: int = 0) -> None:
        """Let the current thread wait and go on with another one, or with the same when it is through at once."""
        thread = self.current
        thread.restart = first_argument if wait.restartable else None
        thread.registers = Registers.of(hart)
        self.waiting.add(thread, wait)
        try:
            self.switch(hart)
        except Deadlock:
            self.remove(thread)
            raise

    def yield_turn(self, hart: Hart) -> None:
        """Let the others that can run go first."""
        if self.runnable:
            self._preempt(hart)

    def leave_stopped(self, hart: Hart) -> None:
        """The current thread's process was stopped: go on with another one."""
        thread = self.current
        try:
            self._preempt(hart)
        except Deadlock:
            self.remove(thread)
            raise

    def look(self, hart: Hart) -> None:
        """Between stretches of running: end waits that are over, and the turn of the current thread."""
        if self.stirred:
            self._ask()
        if self.current.process.stopped:
            self.leave_stopped(hart)
        elif self.runnable and self._instructions() >= self.turn_end:
            self._preempt(hart)

    def goes_on(self, process: Process) -> bool:
        """What `look` does after a system call of ``process`` where time does not matter; whether nothing is left to be
        done: a thread of the process runs, and has no signals."""
        if self.waiting.timed or self.timers.next_deadline() is not None:
            return False
        if self.stirred:
            self._ask()
        current = self.current
        return (
            current.process is process
            and not process.stopped
            and process.kernel.signals.is_idle(current.signals)
            and not self.waiting.timed
        )

    def until_turn_ends(self) -> int | None:
        """Instructions that the current thread may still run; None when nobody else wants to."""
        if not self.runnable:
            return None
        left = self.turn_end - self._instructions()
        return left if left > 0 else 1

    def next_deadline(self) -> int | None:
        """The clock source's time at which a timer or a wait ends if the current thread computes on."""
        timer = self.timers.next_deadline()
        if not self.waiting.timed:
            return timer
        ends = self.waiting.ends()
        deadlines = [self.clock.to_source(TimeBase.ELAPSED, end) for end in ends]
        return min(deadlines if timer is None else [*deadlines, timer], default=None)

    def switch(self, hart: Hart) -> None:
        """Give the hart to the next thread; what the current one needs is saved already.

        Raises `Deadlock` when nobody can ever run again.
        """
        wakeups = 0
        self._ask()
        while not self.runnable:
            wakeups += 1
            self._pass_time(wakeups)
            self._ask()
        self.settle()
        chosen = self.runnable.pop(0)
        changed = chosen is not self.current
        self.current = chosen
        chosen.process.kernel.signals.thread = chosen.signals
        assert chosen.registers is not None
        chosen.registers.put(hart)
        chosen.registers = None
        self.turn_end = self._instructions() + TURN_INSTRUCTIONS
        if changed and self.on_switch is not None:
            self.on_switch()

    def _preempt(self, hart: Hart) -> None:
        self.current.registers = Registers.of(hart)
        self._enqueue(self.current)
        self.switch(hart)

    def _enqueue(self, thread: Thread) -> None:
        if thread.process.stopped:
            self.held.append(thread)
            return
        if not self.runnable:
            self.turn_end = self._instructions() + TURN_INSTRUCTIONS
        self.runnable.append(thread)

    def _ask(self) -> None:
        """Put all whose wait is over in the queue."""
        if self.waiting.is_quiet:
            self.stirred = False
            return
        self.stirred = True
        while self.stirred:  # who is stopped meanwhile stirs its parent
            self.stirred = False
            for thread in self.waiting.to_ask(self.clock.elapsed):
                wait = thread.wait
                if wait is not None and not thread.process.stopped and self._is_over(thread, wait):
                    self.waiting.remove(thread)
                    self._enqueue(thread)

    def _is_over(self, thread: Thread, wait: Wait) -> bool:
        signals = thread.process.kernel.signals
        if wait.is_told:
            result = wait.ready()
            if result is not None:
                thread.restart = None
                return self._ends_with(thread, result)
            if wait.until is None and signals.is_idle(thread.signals):
                return False
        before, signals.thread = signals.thread, thread.signals
        restart, thread.restart = thread.restart, None
        self._asked = thread
        try:
            result = wait.ready()
            if result is None and stops_waiting(self, thread):
                thread.restart = restart
                return False
            if result is None and signals.has_pending():
                result = None if wait.interrupted is None else wait.interrupted()
                if result is None:
                    result, thread.restart = -errno.EINTR, restart
            elif result is None and wait.until is not None and self.clock.elapsed() >= wait.until:
                result = 0 if wait.timed_out is None else wait.timed_out()
        except OSError as error:
            result = -(error.errno or errno.EIO)
        except MemoryFault:
            result = -errno.EFAULT
        except MemoryLimit:
            result = -errno.ENOMEM
        # The call got on and waits for the rest. It is asked again, because a signal may have come before.
        except Wait as further:
            self.waiting.add(thread, further)
            result = None
            restart = restart if further.restartable else None
            self.stirred = True
        finally:
            signals.thread = before
            self._asked = None
        if result is None:
            thread.restart = restart
            return False
        return self._ends_with(thread, result)

    @staticmethod
    def _ends_with(thread: Thread, result: int) -> bool:
        assert thread.registers is not None
        thread.registers = thread.registers.with_result(result)
        return True

    def _pass_time(self, wakeups: int) -> None:
        """Nobody can run: let time pass until somebody may. Raises `Deadlock`."""
        ends = self.waiting.ends()
        timer = self.timers.next_wakeup()
        if not ends and (timer is None or wakeups > _MAX_WAKEUPS or not (self.waiting or self.held)):
            raise Deadlock(self._why())
        if timer is not None:
            ends.append(timer)
        self.clock.sleep_until(min(ends))
        self.timers.fire()

    def _why(self) -> str:
        goes_on = [thread for thread in self.waiting if not thread.process.stopped]
        waits = [thread.wait.deadlock for thread in goes_on if thread.wait is not None]
        stopped = ", ".join(
            f"{signal_name(process.stopped)} has stopped process {process.pid}"
            for process in self.processes.values()
            if process.stopped
        )
        if not waits:
            why = f"{stopped}, and nobody who runs can continue it" if stopped else "nobody is left to run"
            return f"the guest waits for ever: {why}"
        others = "" if len(waits) == 1 else f" ({len(waits)} threads wait, none for anything that can happen)"
        return waits[0] + others + (f"; {stopped}" if stopped else "")
