"""Running on the oracle, block by block: all of a guest, or what translated code leaves to it.

Translated code leaves to it single instructions that reach outside of the hart, blocks for whose instructions somebody
is to be called, and rounding modes that the host does not have.
"""

from __future__ import annotations

from emulator.engine.blocks import Block
from emulator.engine.entry import Entry
from emulator.engine.inline import execute as execute_with_calls
from emulator.engine.lines import noted
from emulator.engine.oracle import ECALL, ECALL_BYTES, Environment, Oracle
from emulator.engine.state import TOUCH_EPOCH
from emulator.engine.translator import is_hooked
from emulator.errors import GuestFault
from emulator.events import ACCESS_STORE, TraceSelection
from emulator.isa.decode import Instruction
from emulator.memory import MemoryFault
from emulator.running.guest import Guest
from emulator.running.observers import Observers
from emulator.running.virtual_time import VirtualTime
from emulator.spaces import Space


class OracleRunner:
    """Tells ``observers`` what translations would, to the bit. ``oracle``: who executes."""

    def __init__(
        self, guest: Guest, observers: Observers, time: VirtualTime, environment: Environment
    ) -> None:
        self._guest = guest
        self._hart = guest.hart
        self._observers = observers
        self._record = observers.record
        self._time = time
        self._accesses: list[int] = []  # of one instruction
        self._block_begin: int | None = None  # in the record, while the block may still be taken back
        self.oracle = Oracle(guest.hart, guest.memory, environment, self._accesses.append)

    def enter(self, space: Space, begins: bool = False) -> None:
        """The guest has gone over to another address space; whether a program ``begins`` there does not matter here."""
        self.oracle.memory = space.memory

    def run(self, budget: int, until_exactly: int | None = None) -> None:
        """Run to the first block boundary at or after ``budget`` instructions, or until somebody has to look.

        ``until_exactly``: of no use to who is exact anyway.
        """
        guest, record, time = self._guest, self._record, self._time
        end = time.instructions + budget
        while time.instructions < end:
            self._block_begin = None
            try:
                self._run_block()
            except (MemoryFault, GuestFault) as fault:
                if self._block_begin is not None:
                    record.end = self._block_begin
                guest.deliver(fault)
            if guest.look or record.instructions >= record.limit or guest.kernel.pending_signal() is not None:
                return

    def leave_rounding_mode(self, budget: int) -> None:
        """The host cannot round like this: the oracle runs until the guest chooses another mode."""
        end = self._time.instructions + budget
        while not self._hart.host_rounding and not self._guest.look and self._time.instructions < end:
            self.run(1)

    def execute_slow(self) -> None:
        """Execute the instruction at pc, which ends a translated block."""
        pc, space = self._hart.pc, self._guest.space
        self.oracle.hooks = None
        self._record.begin_events()
        if space.memory.peek(pc, ECALL_BYTES) == ECALL and not self._observers.selection.inline:
            self.oracle.execute_ecall(pc)
            return
        word, instruction = space.instruction_at(pc)
        self._execute(instruction, instruction.op_class, word, self._observers.selection)

    def _run_block(self) -> None:
        observers, record, time, space = self._observers, self._record, self._time, self._guest.space
        if space.in_doubt:
            space.settle()
        block = space.cache.get(self._hart.pc)
        touch_time = TOUCH_EPOCH + time.instructions
        self._call_hooks(block)
        selection = observers.selection
        if selection.counts:
            self._hart.counts[block.number] += 1
        if selection.blocks:
            self._block_begin = record.end
            record.append(block.number)
        record.begin_events()
        time.instructions += len(block.instructions)
        record.instructions += len(block.instructions)
        places = noted(block.instructions) if selection.line_bits else []
        facts = space.cache.facts
        first = int(facts.blocks["first_instruction"][block.number])
        for place, instruction in enumerate(block.instructions):
            self._accesses.clear()
            if instruction.slow:
                self._block_begin = None
            try:
                told = facts.instructions["op_class"][first + place]
                self._execute(instruction, told, block.words[place], selection)
            finally:
                if selection.blocks and observers.selection.addresses:
                    for address in self._accesses:
                        record.append(address & 0xFFFFFFFF)
                if observers.lines is not None and self._accesses and places and places[place]:
                    is_store = bool(instruction.row.access & ACCESS_STORE)
                    observers.lines.touch(
                        self._accesses[0], touch_time + place, is_store, observers.selection.reuse_times
                    )
        record.commit_events()

    def _call_hooks(self, block: Block) -> None:
        """``enter`` may select something else, or have nobody called any more."""
        self.oracle.hooks = None
        hooks = self._observers.hooks
        if hooks is not None and is_hooked(self._observers.selection, block):
            hooks.enter(block)
            self.oracle.hooks = self._observers.hooks

    def _execute(self, instruction: Instruction, op_class: int, word: int, selection: TraceSelection) -> None:
        """Let the oracle execute it, with the inline functions that are called for it."""
        if not selection.inline:
            self.oracle.execute(instruction)
            return
        compiler = Entry.get().compiler
        calls, memory = selection.inline, self._guest.memory.base
        if instruction.slow:  # the record may be passed on meanwhile
            self._record.commit_events()
        try:
            execute_with_calls(self.oracle, instruction, op_class, word, calls, compiler, memory)
        finally:
            if instruction.slow:
                self._record.commit_events()
