"""Deadlines: when the run loop must stop the guest for a thread switch, a timer or the instruction limit; and serving
these, with signals, once it has stopped."""

from __future__ import annotations

from emulator.errors import EmulatorError, InstructionLimit
from emulator.execution.guest import Guest
from emulator.execution.observers import Observers
from emulator.execution.virtual_time import VirtualTime

UNTRACED_BATCH_INSTRUCTIONS = 1 << 30


class Deadlines:
    """The deadlines of one guest.

    ``limit_instructions``: instructions that the guest may run in all; None for no limit. ``exact_budget``, set by
    `until_next`: instructions to the next deadline that must be met exactly, a thread switch or a timer; None without
    one.
    """

    def __init__(self, guest: Guest, time: VirtualTime, observers: Observers, limit_instructions: int | None) -> None:
        self.limit_instructions = limit_instructions
        self.exact_budget: int | None = None
        self._guest = guest
        self._scheduler = guest.scheduler
        self._time = time
        self._observers = observers
        self._task = guest.scheduler.current

    def until_next(self) -> int:
        """Instructions to run until the next deadline. Raises `InstructionLimit`."""
        most, scheduler = UNTRACED_BATCH_INSTRUCTIONS, self._scheduler
        limit, executed = self.limit_instructions, self._time.instructions
        if limit is not None:
            if executed >= limit:
                raise InstructionLimit(
                    f"the program did not end within {limit:,} instructions; it is now at "
                    f"{self._guest.place()}. Raise the limit or give the program less work"
                )
            most = min(most, limit - executed)
        self.exact_budget = turn = scheduler.until_slice_ends()
        deadline = scheduler.next_deadline()
        if turn is not None and turn < most:
            most = turn
        if deadline is not None:
            until = self._time.instructions_until(deadline)
            most = min(most, until)
            if self._time.core is None:  # with a timing core the deadline in instructions is an estimate
                self.exact_budget = until if turn is None else min(turn, until)
        return most

    def service_guest(self) -> None:
        """Fire due timers, switch threads, and deliver signals. Raises `EmulatorError` if an inline function failed."""
        guest = self._guest
        guest.needs_service = False
        if self._observers.selection.inline and guest.hart.get("inline_failed"):
            raise EmulatorError(
                "an inline function of an analyzer has raised an exception; inline functions must not raise"
            )
        scheduler = self._scheduler
        if scheduler.current is not self._task:  # a system call has waited or ended a task
            self._observers.interrupted(guest.hart.pc)
        task, pc = scheduler.current, guest.hart.pc
        deadline = scheduler.next_deadline()
        if deadline is not None and self._time.nanoseconds() >= deadline:
            guest.kernel.fire_timers()
        scheduler.reschedule(guest.hart)
        guest.kernel.serve_signals(guest.hart)
        self._task = scheduler.current
        if self._task is not task or guest.hart.pc != pc:
            self._observers.interrupted(pc)
