"""The run loop: runs a guest to an instruction count, a cycle count, through intervals, or to its end.

Between runs of the engine the record goes to its consumers, and timers, thread switches and signals are served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from emulator.errors import GuestFault
from emulator.execution.deadlines import Deadlines
from emulator.execution.guest import Guest
from emulator.execution.observers import Observers
from emulator.execution.oracle_runner import OracleRunner
from emulator.execution.translated_runner import LONGEST_PATH, TranslatedRunner
from emulator.execution.virtual_time import VirtualTime
from emulator.linux.kernel.hart_protocol import GuestExit

if TYPE_CHECKING:
    from emulator.execution.intervals import Intervals, IntervalWatcher, IntervalWriter, Place


class Ending(NamedTuple):
    """How a guest ended. ``status``: as a shell shows it; ``message``: None unless a fault or signal ended it."""

    status: int
    signal: int | None
    message: str | None


class RunLoop:
    """Runs the guest on ``translated``, or on ``oracle`` where that is None. `Machine` documents the methods that it
    passes on.

    ``ending``: None while the guest has not ended; ``at_end``: called when it has.
    """

    def __init__(
        self, guest: Guest, observers: Observers, time: VirtualTime, deadlines: Deadlines, oracle: OracleRunner,
        translated: TranslatedRunner | None, at_end: Callable[[], None],
    ) -> None:  # fmt: skip
        self.ending: Ending | None = None
        self._guest = guest
        self._observers = observers
        self._record = observers.record
        self._time = time
        self._deadlines = deadlines
        self._oracle = oracle
        self._translated = translated
        self._at_end = at_end
        self._intervals: IntervalWriter | None = None

    def leave_translations(self) -> None:
        """Stop using translations: they are closed."""
        self._translated = None

    def advance(self, instructions: int) -> None:
        """Run about ``instructions`` more."""
        if self.ending is None:
            self._guarded(self._advance, instructions)

    def advance_to_instructions(self, target: int) -> bool:
        """Run to the first block boundary at or after ``target``; False when the guest has ended."""
        time, translated = self._time, None if self._observers.selection.exact_stop else self._translated
        while self.ending is None and time.instructions < target:
            remaining = target - time.instructions
            if translated is None:
                self.advance(remaining)
            elif remaining > LONGEST_PATH:
                self.advance(remaining - LONGEST_PATH)
            else:
                translated.step_exactly(True)
                self.advance(remaining)
                translated.step_exactly(False)
        return self.ending is None

    def advance_to_cycles(self, target: int, tolerance_cycles: int) -> bool:
        """Run to about ``target`` cycles; False when the guest has ended."""
        while self.ending is None:
            cycles = self._time.cycles
            if target - cycles <= tolerance_cycles:
                break
            # Instructions that take no time do not count, so that a run in which they are executed and not seen stops
            # where one without them does.
            end = self._time.timed_instructions + self._time.step_towards(target, cycles)
            while self.ending is None and (left := end - self._time.timed_instructions) > 0:
                self.advance(left)
        return self.ending is None

    def run_intervals(
        self, length_instructions: int, at_most: int, watcher: IntervalWatcher | None = None
    ) -> Intervals:
        """Run up to ``at_most`` intervals, or until ``watcher`` ends the series; the executions of each."""
        from emulator.execution.intervals import IntervalWriter  # a plain run starts without it

        time, writer, facts = self._time, self._intervals, self._guest.address_space.cache.facts
        if writer is None:
            writer = self._intervals = IntervalWriter(self._guest.hart)
        writer.begin(at_most, time.instructions, length_instructions, watcher)
        translated, chosen = self._translated, self._observers.selection
        if translated is None or chosen.delivers or chosen.exact_stop or chosen.hooks:
            end = time.instructions
            for _ in range(at_most):
                self.advance_to_instructions(writer.target)
                if time.instructions > end:
                    writer.close(time.instructions, facts.n_blocks)
                end = time.instructions
                if self.ending is not None or writer.is_full:
                    break
        else:
            self._guarded(self._run_intervals, translated, writer)
            translated.step_exactly(False)
            if self.ending is not None and writer.is_open(time.instructions):
                writer.close(time.instructions, facts.n_blocks)
        return writer.intervals()

    @property
    def interval_place(self) -> Place | None:
        """Where the intervals have come to, for `go_back`."""
        return self._intervals.place if self._intervals is not None else None

    def go_back(self, place: Place | None) -> None:
        """The guest is again where intervals had come to ``place``."""
        if self._intervals is not None:
            self._intervals.go_back(place)

    def count_from_here(self) -> None:
        """Let the next interval begin here."""
        if self._intervals is not None:
            self._intervals.count_from_here(self._guest.address_space.cache.facts.n_blocks)

    def _guarded(self, action: Callable[..., None], *arguments: Any) -> None:
        """Call ``action``, which runs the guest; set ``ending`` if the guest ends."""
        if self._translated is not None:
            self._translated.claim_faults()
        try:
            action(*arguments)
        except GuestExit as exit_:
            message = self._guest.explain_exit(exit_.signal) if exit_.signal is not None else None
            self.ending = Ending(exit_.status, exit_.signal, message)
        except GuestFault as fault:
            self.ending = Ending(128 + fault.signal, fault.signal, self._guest.explain(fault))
        if self.ending is not None:
            self._observers.drain()
            self._at_end()

    def _advance(self, instructions: int) -> None:
        """Run about ``instructions`` more, deadline by deadline."""
        time, record, deadlines = self._time, self._record, self._deadlines
        run = (self._translated or self._oracle).run
        end = time.instructions + instructions
        while time.instructions < end:
            budget = deadlines.until_next()
            if record.instructions >= record.limit:
                self._observers.drain()
            run(min(budget, end - time.instructions, record.limit - record.instructions), deadlines.exact_budget)
            deadlines.service_guest()

    def _run_intervals(self, translated: TranslatedRunner, writer: IntervalWriter) -> None:
        while not writer.is_full:
            translated.run_intervals(writer, self._time.instructions + self._deadlines.until_next())
            self._deadlines.service_guest()
