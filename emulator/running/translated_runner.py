"""Running translated code: into it, back from it, and what it came back for.

A translation may run up to `LONGEST_PATH` instructions beyond its budget. Where the guest has to stop exactly, a tier
that only interprets takes it over the last stretch.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from emulator.engine.archive import Archive
from emulator.engine.entry import Entry
from emulator.engine.flow import MAX_UNCHECKED_INSTRUCTIONS
from emulator.engine.programs import Program
from emulator.engine.state import Exit, Hart
from emulator.engine.translator import Translator
from emulator.errors import GuestFault
from emulator.events import MAX_BLOCK_INSTRUCTIONS
from emulator.faults import reported_fault
from emulator.linux.abi import Signal
from emulator.memory import ADDRESS_SPACE_BYTES, MemoryFault
from emulator.running.guest import Guest, caught_faults
from emulator.running.observers import Observers
from emulator.running.oracle_runner import OracleRunner
from emulator.running.virtual_time import VirtualTime
from emulator.spaces import Space

if TYPE_CHECKING:
    from emulator.intervals import IntervalWriter

# What a translation may run beyond its budget.
LONGEST_PATH = MAX_UNCHECKED_INSTRUCTIONS + MAX_BLOCK_INSTRUCTIONS
# How long new blocks may be interpreted before they are laid: at least so many instructions (coming back costs 20 us),
# and this power of two of all that the guest has executed.
_LEAST_STRETCH = 200_000
_STRETCH_SHIFT = 6
_NOT_ENTERED = -1
_SLOW, _HOOK, _HOT, _FAULT = int(Exit.SLOW), int(Exit.HOOK), int(Exit.HOT), int(Exit.FAULT)


class TranslatedRunner:
    """Runs the guest on translations, and on ``oracle`` what they leave to it.

    ``translator``: that of the address space that the hart is in; ``make_translator``: a `Translator` of the hart's,
    given blocks, ``program`` and ``source``. ``keep``: begin with what is on disk of a program.
    """

    translator: Translator

    def __init__(
        self, guest: Guest, observers: Observers, time: VirtualTime, oracle: OracleRunner,
        make_translator: Callable[..., Translator], keep: bool,
    ) -> None:  # fmt: skip
        self._guest = guest
        self._hart = guest.hart
        self._observers = observers
        self._record = observers.record
        self._time = time
        self._oracle = oracle
        self._make_translator = make_translator
        self._keep = keep
        self._programs: dict[str, Program] = {}
        self._selected = False  # whether the translator knows the selection: it learns it when the guest runs
        self._is_alone = False  # whether the guest has no observers and no timing core
        self._exactly = False  # whether the tier that stops exactly is in force
        self._stretch = _LEAST_STRETCH  # instructions before new blocks are laid, at most
        self._entry = Entry.get()
        self._enter, self._hart_address = self._entry.enter, self._hart.address
        place = self._entry.register(self._hart.address)
        # Whoever forgets `close` must not leave a state behind in which faults of later machines are noted.
        self._unregister = weakref.finalize(self, _unregister, self._entry, place, self._hart)
        self.enter(guest.space, begins=True)

    def close(self) -> None:
        """Faults in the hart's memory are the guest's no more."""
        self._unregister()

    # --- what translations there are, and what they emit
    def enter(self, space: Space, begins: bool) -> None:
        """The guest has gone over to another address space; ``begins``: with another program."""
        if space.translator is None:
            program = self._program() if begins else None
            space.translate(self._hart, self._make_translator(space.cache, program=program, source=space))
        assert space.translator is not None
        self._space, self.translator = space, space.translator
        self._oracle.enter(space)

    def select_anew(self) -> None:
        """Something else may be selected, or another process has got the hart."""
        self._selected = False

    def select(self) -> None:
        """Let the translator know what is selected; running does it when it is new."""
        selection = self._observers.selection
        if any(caught_faults(self._guest.kernel)):
            selection = replace(selection, exact_faults=True)
        self.translator.select(selection)
        self._selected = True
        self._is_alone = self._time.core is None and self._observers.is_alone
        if self._exactly:
            self.translator.step_exactly(True)

    def step_exactly(self, on: bool) -> None:
        """Let budgets end where they say, at the next block boundary, or go back to translations."""
        if on and not self._selected:
            self.select()
        self._exactly = on
        if self._selected:
            self.translator.step_exactly(on)

    def save(self) -> None:
        """Leave what is known to later processes of the host."""
        self._guest.spaces.leave()
        for program in self._programs.values():
            program.write()

    def _program(self) -> Program:
        """The one that begins now."""
        process = self._guest.process
        layout = f"{process.brk_start} {process.mmap_high}" if process.interpreter is not None else ""
        # By a hash: a guest may make any number of large programs.
        identity = f"{hashlib.sha256(process.image.data).hexdigest()}\0{layout}"
        if identity not in self._programs:
            archive = Archive(identity, self._entry.compiler.host) if self._keep else None
            self._programs[identity] = Program(archive)
        return self._programs[identity]

    # --- running
    def run(self, budget: int, until_exactly: int | None) -> None:
        """Run for about ``budget``, or exactly up to ``until_exactly`` if that comes before it."""
        if not self._hart.host_rounding:
            self._oracle.leave_rounding_mode(budget)
        elif until_exactly is None or self._exactly or self._observers.selection.exact_stop:
            self._run_translated(budget)
        elif until_exactly > LONGEST_PATH:
            self._run_translated(min(budget, until_exactly - LONGEST_PATH))
        elif self._may_enter():
            self.step_exactly(True)
            self._run_translated(min(budget, until_exactly))
            self.step_exactly(False)

    def run_intervals(self, writer: IntervalWriter, length: int, stop: int) -> None:
        """Let ``writer`` put down intervals of ``length``, until it is full or about ``stop`` instructions in all."""
        if not self._hart.host_rounding:
            self._oracle.leave_rounding_mode(stop - self._time.instructions)
        elif self._may_enter():
            time, translator = self._time, self.translator
            stretch_end = time.instructions + self._stretch
            translator.step_exactly(False)
            # New blocks of interest to an analyzer's functions have to be told of before they run.
            translator.begin(may_discover=not self._observers.selection.inline)
            time.instructions, exactly, reason = writer.run(
                self._entry.enter_address, translator.fast_and_exact(), LONGEST_PATH, length, min(stop, stretch_end),
                translator.code.n_blocks(),
            )  # fmt: skip
            self._adapt_stretch(translator.end(), time.instructions >= stretch_end)
            self.step_exactly(exactly)
            self._react(reason)

    def _run_translated(self, budget: int) -> None:
        """Run for about ``budget``, or until somebody has to look after the guest."""
        hart, scheduler = self._hart, self._guest.scheduler
        while True:
            process, had_others = scheduler.current.process, bool(scheduler.runnable)
            executed, reason = self._run_stretch(budget)
            self._react(reason)
            budget -= executed
            if (
                reason != _SLOW
                or not self._is_alone
                or not hart.host_rounding
                or not scheduler.goes_on(process)
            ):
                return
            if scheduler.runnable and not had_others:  # turns count from now on
                budget = min(budget, scheduler.turn_end - self._time.instructions - LONGEST_PATH)
            if budget <= 0:
                return

    def _run_stretch(self, budget: int) -> tuple[int, int]:
        """Run for about ``budget``, or until blocks that the interpreter has met are worth laying: it is four times as
        slow as templates, and while new ones come it meets some that stay. Instructions, and why the guest is back."""
        hart, time = self._hart, self._time
        if budget > self._stretch:
            budget = self._stretch
        hart.begin(budget, time.instructions)
        if not self._may_enter():
            return 0, _NOT_ENTERED
        translator = self.translator
        translator.begin()
        self._enter(self._hart_address)
        n_new = translator.end()
        executed = budget - hart.budget
        time.instructions += executed
        self._adapt_stretch(n_new, executed >= budget)
        self._record.instructions += executed
        return executed, hart.reason

    def _adapt_stretch(self, n_new: int, was_full: bool) -> None:
        """A stretch has ended, in which so many new blocks were met."""
        if n_new:
            self._stretch = max(_LEAST_STRETCH, self._time.instructions >> _STRETCH_SHIFT)
        elif was_full:
            self._stretch *= 2

    def _may_enter(self) -> bool:
        """Make the code at pc known; False when the guest's handler is to run first."""
        if not self._selected:
            self.select()
        pc, translator = self._hart.pc, self.translator
        if self._space.in_doubt:
            self._space.settle()
        if not 0 <= pc < ADDRESS_SPACE_BYTES:
            raise GuestFault(f"jump to {pc:#x}, outside the address space", Signal.SIGSEGV, pc, pc)
        return translator.is_known(pc) or self._guest.attempt(translator.discover, pc)

    # --- back
    def _react(self, reason: int) -> None:
        """Do what translated code came back for."""
        if reason == _SLOW:
            try:
                self._oracle.execute_slow()
            except (MemoryFault, GuestFault) as fault:
                self._guest.deliver(fault)
        elif reason == _HOOK:
            self._oracle.run(1)
        elif reason == _HOT:
            self.translator.heat(self._hart.pc)
        elif reason == _FAULT:
            self._guest.attempt(self._raise_fault)

    def _raise_fault(self) -> None:
        guest = self._guest
        raise reported_fault(self._hart, guest.memory, guest.space.fetch, self.translator.guest_pc_of)


def _unregister(entry: Entry, place: int, hart: Hart) -> None:
    """Forget a machine; its ``hart``'s memory is there until then."""
    entry.unregister(place)
