"""When the guest is to be stopped and looked after: turns of threads, timers, the limit; and looking: signals."""

from __future__ import annotations

from emulator.errors import EmulatorError, InstructionLimit
from emulator.running.guest import Guest
from emulator.running.observers import Observers
from emulator.running.virtual_time import VirtualTime

UNTRACED_BATCH_INSTRUCTIONS = 1 << 30


class Stops:
    """``limit_instructions``: what the guest may run in all.

    ``until_exactly``: instructions to the next moment that is known exactly, another thread's turn or a timer; None
    without one. Told by `until_next`.
    """

    def __init__(
        self, guest: Guest, time: VirtualTime, observers: Observers, limit_instructions: int | None
    ) -> None:
        self.limit_instructions = limit_instructions
        self.until_exactly: int | None = None
        self._guest = guest
        self._scheduler = guest.scheduler
        self._time = time
        self._observers = observers

    def until_next(self) -> int:
        """Instructions to run before looking after the guest again. Raises `InstructionLimit`."""
        most, scheduler = UNTRACED_BATCH_INSTRUCTIONS, self._scheduler
        limit, executed = self.limit_instructions, self._time.instructions
        if limit is not None:
            if executed >= limit:
                raise InstructionLimit(
                    f"the program did not end within {limit} instructions; it is now at "
                    f"{self._guest.place()}. Raise the limit or give it less work"
                )
            most = min(most, limit - executed)
        self.until_exactly = turn = scheduler.until_turn_ends()
        deadline = scheduler.next_deadline()
        if turn is not None and turn < most:
            most = turn
        if deadline is not None:
            until = self._time.instructions_until(deadline)
            most = min(most, until)
            if self._time.core is None:  # with one, when it comes is known only about
                self.until_exactly = until if turn is None else min(turn, until)
        return most

    def look_after_guest(self) -> None:
        """Timers, turns of threads, and signals, between stretches of running."""
        guest = self._guest
        guest.look = False
        if self._observers.selection.inline and guest.hart.get("inline_failed"):
            raise EmulatorError(
                "an inline function of an analyzer has raised an exception; expected it to raise none"
            )
        scheduler = self._scheduler
        deadline = scheduler.next_deadline()
        if deadline is not None and self._time.nanoseconds() >= deadline:
            guest.kernel.fire_timers()
        scheduler.look(guest.hart)
        while guest.kernel.pending_signal() is not None:
            guest.kernel.deliver(guest.hart)
