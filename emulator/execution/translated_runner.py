"""Running translated code: entering it, and handling the reasons for which it returns to Python.

A translation may run up to `LONGEST_PATH` instructions beyond its budget. Where the guest has to stop exactly, the
interpreting tier runs the last instructions.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from emulator.engine.emit.dataflow import MAX_UNCHECKED_INSTRUCTIONS
from emulator.engine.entry.entry import Entry
from emulator.engine.hart_state import Exit, Hart
from emulator.engine.persist.program_translations import ProgramTranslations
from emulator.engine.persist.translation_store import TranslationStore
from emulator.engine.translator import Translator
from emulator.errors import GuestFault
from emulator.events import MAX_BLOCK_INSTRUCTIONS
from emulator.execution.address_space import AddressSpace
from emulator.execution.cut_blocks import CutBlocks
from emulator.execution.faults import reported_fault
from emulator.execution.guest import Guest, caught_faults
from emulator.execution.observers import Observers
from emulator.execution.oracle_runner import OracleRunner
from emulator.execution.virtual_time import VirtualTime
from emulator.linux.abi.numbers import Signal
from emulator.linux.loader.elf import hash_of
from emulator.memory import ADDRESS_SPACE_BYTES, MemoryFault

if TYPE_CHECKING:
    from emulator.execution.intervals import IntervalWriter

# Instructions that a translation may run beyond its budget.
LONGEST_PATH = MAX_UNCHECKED_INSTRUCTIONS + MAX_BLOCK_INSTRUCTIONS
# New blocks are interpreted until the slice ends, when their templates are emitted: a slice has at least so many
# instructions (a return to Python costs 20 us), and 1 / 2**_SLICE_SHIFT of all instructions executed so far.
_MIN_SLICE = 200_000
_SLICE_SHIFT = 6
_NOT_ENTERED = -1
_SLOW, _HOOK, _HOT, _FAULT = int(Exit.SLOW), int(Exit.HOOK), int(Exit.HOT), int(Exit.FAULT)


class TranslatedRunner:
    """Runs the guest on translations, and on ``oracle`` the parts that they leave to it.

    ``translator``: of the current address space; ``make_translator``: makes a `Translator` of the hart from a block
    cache, ``program`` and ``source``; ``keep``: use the translation store on disk.
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
        self._cut_blocks = CutBlocks(guest, observers, time)
        self._make_translator = make_translator
        self._keep = keep
        self._programs: dict[str, ProgramTranslations] = {}
        self._selected = False  # whether the translator has the current selection: it gets it when the guest runs
        self._is_unobserved = False  # whether the guest has no observers and no timing core
        self._is_exact = False  # whether the interpreting tier, which stops exactly, is in force
        self._slice_instructions = _MIN_SLICE  # the longest run before templates of new blocks are emitted
        self._entry = Entry.get()
        self._enter, self._hart_address = self._entry.enter, self._hart.address
        place = self._entry.register(self._hart.address)
        # Without a call of `close`, the handler must not write faults of later machines into this freed state.
        self._unregister = weakref.finalize(self, _unregister, self._entry, place, self._hart)
        self.enter(guest.address_space, begins=True)

    def close(self) -> None:
        """Unregister the hart from the fault handler."""
        self._unregister()

    # --- address space and selection
    def enter(self, space: AddressSpace, begins: bool) -> None:
        """Switch to another address space; ``begins``: a new program begins there."""
        if space.translator is None:
            program = self._program() if begins else None
            space.set_translator(self._hart, self._make_translator(space.cache, program=program, source=space))
        assert space.translator is not None
        self._space, self.translator = space, space.translator
        self._oracle.enter(space)

    def reselect(self) -> None:
        """Let the next run `select` anew: the selection or the process on the hart has changed."""
        self._selected = False

    def select(self) -> None:
        """Give the translator the current selection; a run does so after a change."""
        selection = self._observers.selection.in_program(self._space.program)
        if any(caught_faults(self._guest.kernel)):
            selection = replace(selection, exact_faults=True)
        self.translator.select(selection)
        self._selected = True
        self._is_unobserved = self._time.core is None and self._observers.is_unobserved
        if self._is_exact:
            self.translator.step_exactly(True)

    def step_exactly(self, on: bool) -> None:
        """Stop at the first block boundary after the budget, by interpreting, or go back to translations."""
        if on and not self._selected:
            self.select()
        self._is_exact = on
        if self._selected:
            self.translator.step_exactly(on)

    def save(self) -> None:
        """Save the translations for later processes of the host."""
        self._guest.address_spaces.hand_over()
        for program in self._programs.values():
            program.write()

    def _program(self) -> ProgramTranslations:
        """The saved translations of the program that begins now."""
        process = self._guest.program
        layout = f"{process.brk_start} {process.mmap_high}" if process.interpreter is not None else ""
        # A hash, for a guest may execute any number of large programs.
        identity = f"{hash_of(process.image.data)}\0{layout}"
        if identity not in self._programs:
            store = TranslationStore(identity, self._entry.compiler.host) if self._keep else None
            self._programs[identity] = ProgramTranslations(store)
        return self._programs[identity]

    # --- running
    def claim_faults(self) -> None:
        """Let host faults of the guest come here, whatever handlers other libraries have installed meanwhile."""
        self._entry.claim_faults()

    def run(self, budget: int, exact_budget: int | None) -> None:
        """Run for about ``budget`` instructions, or for exactly ``exact_budget`` if that is less."""
        if not self._hart.host_rounding:
            self._oracle.leave_rounding_mode(budget)
        elif exact_budget is None or self._is_exact or self._observers.selection.exact_stop:
            self._run_translated(budget)
        elif exact_budget > LONGEST_PATH:
            self._run_translated(min(budget, exact_budget - LONGEST_PATH))
        elif self._may_enter():
            self.step_exactly(True)
            self._run_translated(min(budget, exact_budget))
            self.step_exactly(False)

    def run_intervals(self, writer: IntervalWriter, stop: int) -> None:
        """Let ``writer`` record intervals, until it is full or about ``stop`` instructions in all ran."""
        time, translator = self._time, self.translator
        if not self._hart.host_rounding:
            self._oracle.leave_rounding_mode(min(stop, writer.target) - time.instructions)
            if time.instructions >= writer.target:
                writer.close(time.instructions, int(translator.block_table.n_blocks()[0]))
        elif self._may_enter():
            slice_end = time.instructions + self._slice_instructions
            translator.step_exactly(False)
            translator.begin_run()
            time.instructions, exactly, reason = writer.run(
                self._entry.enter_address, translator.fast_and_exact(), LONGEST_PATH, time.instructions,
                min(stop, slice_end), translator.block_table.n_blocks(),
            )  # fmt: skip
            self._adapt_slice(translator.end_run(), time.instructions >= slice_end)
            self.step_exactly(exactly)
            self._handle_exit(reason)

    def _run_translated(self, budget: int) -> None:
        """Run for about ``budget``, or until the guest needs service."""
        hart, scheduler = self._hart, self._guest.scheduler
        while True:
            process, had_others = scheduler.current.process, bool(scheduler.runnable)
            executed, reason = self._run_slice(budget)
            self._handle_exit(reason)
            budget -= executed
            if (
                reason != _SLOW
                or not self._is_unobserved
                or not hart.host_rounding
                or not scheduler.continues_with(process)
            ):
                return
            if scheduler.runnable and not had_others:  # from now on the time slice of this thread ends
                budget = min(budget, scheduler.slice_end - self._time.instructions - LONGEST_PATH)
            if budget <= 0:
                return

    def _run_slice(self, budget: int) -> tuple[int, int]:
        """Run for about ``budget``, at most a slice, and emit templates of the blocks discovered in it: the interpreter
        is four times as slow as templates. Returns instructions, and the reason of the return to Python."""
        hart, time = self._hart, self._time
        if budget > self._slice_instructions:
            budget = self._slice_instructions
        hart.begin_run(budget, time.instructions)
        if not self._may_enter():
            return 0, _NOT_ENTERED
        translator = self.translator
        translator.begin_run()
        self._enter(self._hart_address)
        n_new = translator.end_run()
        executed = budget - hart.budget
        time.instructions += executed
        self._adapt_slice(n_new, executed >= budget)
        self._record.instructions += executed
        return executed, hart.reason

    def _adapt_slice(self, n_new: int, was_full: bool) -> None:
        """Set the length of the next slice after one with ``n_new`` new blocks; ``was_full``: it ran to its end."""
        if n_new:
            self._slice_instructions = max(_MIN_SLICE, self._time.instructions >> _SLICE_SHIFT)
        elif was_full:
            self._slice_instructions *= 2

    def _may_enter(self) -> bool:
        """Make the dispatch table have an entry for pc; False when a fault's handler is to run first. Raises
        `GuestFault` for a pc outside of the address space."""
        if not self._selected:
            self.select()
        pc, translator = self._hart.pc, self.translator
        if self._space.dirty_pages:
            self._space.invalidate_changed()
        if not 0 <= pc < ADDRESS_SPACE_BYTES:
            raise GuestFault(f"jump to {pc:#x}, outside the address space", Signal.SIGSEGV, pc, pc)
        return translator.has_entry(pc) or self._guest.attempt(translator.discover, pc)

    # --- returns to Python
    def _handle_exit(self, reason: int) -> None:
        """Handle the reason for which translated code returned."""
        if reason == _SLOW:
            try:
                self._oracle.execute_slow()
            except (MemoryFault, GuestFault) as fault:
                self._guest.deliver(fault)
        elif reason == _HOOK:
            self._oracle.run(1)
        elif reason == _HOT:
            self.translator.on_hot_block(self._hart.pc)
        elif reason == _FAULT:
            self._guest.attempt(self._raise_fault)

    def _raise_fault(self) -> None:
        guest = self._guest
        self.translator.count_to_fault()
        fault = reported_fault(
            self._hart, guest.memory, guest.address_space.fetch, self.translator.guest_pc_of,
            self._has_exact_registers_at,
        )  # fmt: skip
        block = guest.address_space.cache.known_block(self._hart.get("fault_block"))
        if block is not None:
            self._cut_blocks.cut(block, fault.pc)
        raise fault

    def _has_exact_registers_at(self, host_pc: int) -> bool:
        """Whether the guest's registers are in the state of the hart at a host instruction of a translation."""
        tier, _ = self.translator.region_at(host_pc)
        return tier is None or tier.selection.exact_faults


def _unregister(entry: Entry, place: int, hart: Hart) -> None:
    """Unregister a machine; the argument ``hart`` keeps its memory alive until then."""
    entry.unregister(place)
