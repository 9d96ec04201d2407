"""Running on the oracle, block by block: a whole guest, or the parts that translations leave to it.

Translations leave three things to it: slow instructions (those that reach outside of the hart), blocks with hooks, and
code in a rounding mode that the host does not have.
"""

from __future__ import annotations

from emulator.engine.blocks import Block
from emulator.engine.entry.entry import Entry
from emulator.engine.instrument.inline_functions import execute as execute_with_calls
from emulator.engine.oracle import ECALL, ECALL_BYTES, Environment, Oracle
from emulator.engine.selections import is_hooked
from emulator.errors import GuestFault
from emulator.events import ACCESS_STORE, TOUCH_EPOCH, TraceSelection
from emulator.execution.address_space import AddressSpace
from emulator.execution.cut_blocks import CutBlocks
from emulator.execution.guest import Guest
from emulator.execution.observers import Observers
from emulator.execution.virtual_time import VirtualTime
from emulator.isa.decode import Instruction
from emulator.memory import MemoryFault


class OracleRunner:
    """Runs the guest on ``oracle``, and gives ``observers`` the same record as translations, to the bit."""

    def __init__(self, guest: Guest, observers: Observers, time: VirtualTime, environment: Environment) -> None:
        self._guest = guest
        self._hart = guest.hart
        self._observers = observers
        self._record = observers.record
        self._time = time
        self._accesses: list[int] = []  # of one instruction
        self._block_begin = 0  # of the block in the record
        self._block: Block | None = None  # the block under way, while a fault may still cut it short
        self._cut_blocks = CutBlocks(guest, observers, time)
        self.oracle = Oracle(guest.hart, guest.memory, environment, self._accesses.append)

    def enter(self, space: AddressSpace, begins: bool = False) -> None:
        """Switch to another address space; whether a program ``begins`` there does not matter here."""
        self.oracle.memory = space.memory

    def reselect(self) -> None:
        """Do nothing: the oracle looks at the selection before each block."""

    def run(self, budget: int, exact_budget: int | None = None) -> None:
        """Run to the first block boundary at or after ``budget`` instructions, or until the guest needs service.

        ``exact_budget`` is ignored: only translations may run past ``budget`` by more than a block, so only they need
        it.
        """
        guest, record, time = self._guest, self._record, self._time
        end = time.instructions + budget
        while time.instructions < end:
            self._block = None
            try:
                self._run_block()
            except (MemoryFault, GuestFault) as fault:
                if self._block is not None:
                    record.end = self._block_begin
                    self._cut_blocks.cut(self._block, self._hart.pc)
                guest.deliver(fault)
            if guest.needs_service or record.instructions >= record.limit or guest.kernel.pending_signal() is not None:
                return

    def leave_rounding_mode(self, budget: int) -> None:
        """Run until the guest chooses a rounding mode that the host has, or needs service, or the budget ends."""
        end = self._time.instructions + budget
        while not self._hart.host_rounding and not self._guest.needs_service and self._time.instructions < end:
            self.run(1)

    def execute_slow(self) -> None:
        """Execute the slow instruction at pc, which ends a translated block."""
        pc, space = self._hart.pc, self._guest.address_space
        self.oracle.hooks = None
        self._record.begin_events()
        if space.memory.peek(pc, ECALL_BYTES) == ECALL and not self._observers.selection.inline:
            self.oracle.execute_ecall(pc)
            return
        word, instruction = space.instruction_at(pc)
        self._execute(instruction, instruction.op_class, word, self._observers.selection.in_program(space.program))

    def _run_block(self) -> None:
        """Execute the block at pc, and record it as selected."""
        observers, record, time, space = self._observers, self._record, self._time, self._guest.address_space
        if space.dirty_pages:
            space.invalidate_changed()
        block = space.cache.get(self._hart.pc)
        touch_time = TOUCH_EPOCH + time.instructions
        self._call_hooks(block)
        selection = observers.selection.in_program(space.program)
        if selection.counts:
            self._hart.counts[block.number] += 1
        self._block, self._block_begin = block, record.end
        if selection.blocks:
            record.append(block.number)
        record.begin_events()
        time.instructions += len(block.instructions)
        record.instructions += len(block.instructions)
        followed = observers.followed_lines if any(selection.followed_lines) else None
        if followed is not None:
            followed.fetch(block.pc, block.end_pc, touch_time)
        facts = space.cache.facts
        first = int(facts.blocks["first_instruction"][block.number])
        for place, instruction in enumerate(block.instructions):
            self._accesses.clear()
            if instruction.slow:
                self._block = None
            op_class = facts.instructions["op_class"][first + place]
            self._execute(instruction, op_class, block.words[place], selection)
            if selection.blocks and observers.selection.addresses:
                for address in self._accesses:
                    record.append(address & 0xFFFFFFFF)
            if followed is not None and self._accesses:
                is_store = bool(instruction.row.access & ACCESS_STORE)
                followed.access(self._accesses[0], is_store, touch_time + place, selection.follows_stores)
        record.commit_events()

    def _call_hooks(self, block: Block) -> None:
        """Call `Hooks.enter` if the block has a hook; it may change the selection, or remove the hooks."""
        self.oracle.hooks = None
        hooks = self._observers.hooks
        selection = self._observers.selection.in_program(self._guest.address_space.program)
        if hooks is not None and is_hooked(selection, block):
            hooks.enter(block)
            self.oracle.hooks = self._observers.hooks

    def _execute(self, instruction: Instruction, op_class: int, word: int, selection: TraceSelection) -> None:
        """Execute ``instruction`` with its inline calls."""
        if not selection.inline:
            self.oracle.execute(instruction)
            return
        compiler = Entry.get().compiler
        calls, memory = selection.inline, self._guest.memory.base
        if instruction.slow:  # the record may be drained meanwhile
            self._record.commit_events()
        try:
            execute_with_calls(self.oracle, instruction, op_class, word, calls, compiler, memory)
        finally:
            if instruction.slow:
                self._record.commit_events()
