"""Where control leaves a block of a region: for another block of it, for the dispatch table, or for Python."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from emulator.engine.blocks import Block
from emulator.engine.emit.counter_placement import CounterPlacement
from emulator.engine.emit.dataflow import Dataflow
from emulator.engine.emit.emitter import ADDRESS_LIMIT, RARELY
from emulator.engine.emit.indirect_targets import IndirectTargets, branch_to
from emulator.engine.emit.region_symbols import counters_of
from emulator.engine.emit.registers import RegisterEmitter
from emulator.engine.entry.calling_convention import CONVENTION, PINNED, arguments
from emulator.engine.hart_state import Exit
from emulator.events import OpClass

V = Any
PASSED = frozenset(PINNED)  # registers passed from one translation to the next in host registers


def label_of_block(pc: int, copy: int = 0) -> str:
    """The label where the block at ``pc`` begins, or a copy of it."""
    return f"b{pc:x}.{copy}" if copy else f"b{pc:x}"


def label_of_fetch(pc: int, copy: int = 0) -> str:
    """The label before that of a block or its copy, where its code is fetched, if fetches are counted."""
    return f"f{label_of_block(pc, copy)}"


class RegionExits(RegisterEmitter):
    """Emits the exits of a region. ``blocks``: by pc; ``dataflow``: of the same blocks; ``indirect_targets``: targets
    of computed jumps inside the region; ``counters``: places of counters on branches, None for none; ``resident``: of
    `RegisterEmitter`; ``code_bits``: log2 of the size of the lines whose fetches are followed, 0 for none."""

    function: str  # the symbol of the region's function

    def __init__(
        self, blocks: dict[int, Block], dataflow: Dataflow, indirect_targets: IndirectTargets,
        counters: CounterPlacement | None, resident: bool, code_bits: int,
    ) -> None:  # fmt: skip
        super().__init__(resident)
        self._code_bits = code_bits
        self._counters = counters
        self.blocks = blocks
        self._dataflow = dataflow
        self._indirect_targets = indirect_targets
        self._constants: dict[str, None] = {}  # globals of the module, in order
        self._target: V = None  # of the control transfer that ends the block; None for none
        self._condition: V = None  # under which control goes there; None for always
        self._faults: list[tuple[str, V, int, int]] = []  # label of the check, address, pc, pc of the block
        self._block_pc = 0  # of the block being emitted
        self._copy_of_block = 0
        # Returns to Python: label, pc, reason, registers to spill, counter.
        self._returns: list[tuple[str, V, int, Collection[int], int | None]] = []
        self._exit_stubs: list[tuple[str, int, int]] = []  # exit stubs: label, from block, target pc
        self._counted: list[tuple[str, int, str]] = []  # branches with a counter: label, its number, label they go to
        self._shared: list[tuple[str, int]] = []  # exit stubs that share the code that leaves: label, target pc

    def _goto(self, block: Block, target: int) -> str:
        """The label to branch to for ``target``: a block of this region or an exit stub."""
        if target in self._dataflow.successors[block.pc]:
            return self._inside(block, target)
        label = self.fresh_label("exit")
        self._exit_stubs.append((label, block.pc, target))
        return label

    def _inside(self, block: Block, target: int) -> str:
        """The label to branch to for ``target``, a block of this region."""
        copy = (self._copy_of_block + 1) % self._copies(block) if target == block.pc else 0
        fetches = self._code_bits > 0 and not self._has_fetched(block, target)
        inside = label_of_fetch(target, copy) if fetches else label_of_block(target, copy)
        counter = self._counters.on_branch(block.pc, target, copy) if self._counters else None
        if counter is None:
            return inside
        label = self.fresh_label("counted")
        self._counted.append((label, counter, inside))
        return label

    def _has_fetched(self, block: Block, target: int) -> bool:
        """Whether all lines of the block at ``target`` are the line that the block has fetched last: neither does
        fetching it change anything, nor the order of fetches."""
        last, first = block.end_pc - 1 >> self._code_bits, target >> self._code_bits
        return first == last == self.blocks[target].end_pc - 1 >> self._code_bits

    def _copies(self, block: Block) -> int:
        """How many copies of the block there are; control goes from each to the next, and enters at the first."""
        return self._counters.copies(block.pc) if self._counters else 1

    def _count_with(self, counter: int | None) -> None:
        """Add one to a counter of the region; nothing for None."""
        if counter is not None:
            place = f"add (i64 ptrtoint (ptr @{counters_of(self.function)} to i64), i64 {8 * counter})"
            self.count_at(self.let(f"getelementptr i8, ptr %st, i64 {place}"))

    def _count_left(self, pc: int) -> None:
        """Count what is owed when control leaves the region after the block at ``pc``."""
        if self._counters:
            self._count_with(self._counters.at_exit(pc))

    def _spill(self, registers: Collection[int]) -> None:
        """Store these registers in the state buffer."""
        if self._resident:
            return  # they are in the state buffer already
        for n in sorted(registers):
            kind = "i64" if n < 32 else "double"
            value = self.let(f"load {kind}, ptr %r{n}")
            pointer = self.let(f"getelementptr i8, ptr %st, i64 {8 * n}")
            self.say(f"store {kind} {value}, ptr {pointer}")

    def _tail_call(self, function: str) -> None:
        """Tail-call the host function with the pinned registers, budget and record."""
        pinned = {n: self.let(f"load i64, ptr {self._place(n)}") for n in PINNED}
        budget = self.let("load i64, ptr %vb")
        record = self.let("load ptr, ptr %vr")
        self.say(f"musttail call {CONVENTION} void {function}({arguments(budget, record, pinned)})")
        self.say("ret void")

    def _label_of_return(
        self, pc: V, reason: Exit, registers: Collection[int] = (), counter: int | None = None
    ) -> str:  # fmt: skip
        """A label that returns to Python at ``pc`` with ``reason``, and counts with ``counter``. Each has code of its
        own: a join of values in shared code would cost LLVM more."""
        label = self.fresh_label("leave")
        self._returns.append((label, pc, reason, registers, counter))
        return label

    def _label_after(self, pc: int, at: V, reason: Exit) -> str:
        """A label that returns to Python at ``at`` after the block at ``pc`` was executed."""
        counter = self._counters.at_exit(pc) if self._counters else None
        return self._label_of_return(at, reason, self._dataflow.dirty_out[pc], counter)

    def _dispatch(self, pc: V) -> None:
        """Leave the region for ``pc`` through the dispatch table; a miss goes to the dispatch-miss function."""
        self.state_store("pc", pc)
        offset = 4 * pc if isinstance(pc, int) else self.let(f"shl i64 {pc}, 2")
        entry = self.let(f"getelementptr i8, ptr {self.state_load('dispatch_table', 'ptr')}, i64 {offset}")
        function = self.let(f"load ptr, ptr {entry}")
        unknown = self.let(f"icmp eq ptr {function}, null")
        miss = self.state_load("dispatch_miss", "ptr")
        self._tail_call(self.let(f"select i1 {unknown}, ptr {miss}, ptr {function}"))

    def _exit_stub(self, label: str, source: int, target: int) -> None:
        """Emit the exit stub for a static target. Calls leave directly; other exits, which are rare, share the code
        that leaves, which would otherwise be half of LLVM's work for a region."""
        self.start(label)
        if not 0 <= target <= ADDRESS_LIMIT:
            self.say(f"br label %{self._label_after(source, target, Exit.ILLEGAL_PC)}")
        else:
            self._count_left(source)
            self._spill(self._dataflow.dirty_out[source] - PASSED)
            if self.blocks[source].last.op_class is OpClass.CALL:
                self._dispatch(target)
            else:
                self._shared.append((label, target))
                self.say("br label %out")

    def _indirect(self, block: Block, target: V) -> None:
        """Go on at a computed address; outside the region the dispatch table is a perfect indirect-branch cache."""
        indirect_targets = self._indirect_targets.get(block.pc)
        is_paid = self._counters is not None and self._counters.pays_before_jump(block.pc)
        if is_paid:
            self._count_left(block.pc)
        if indirect_targets:
            other = self.fresh_label("other")
            labels = [self._inside(block, pc) for pc in indirect_targets]
            self._constants[branch_to(self, target, indirect_targets, labels, other)] = None
            self.start(other)
        bad = self.let(f"icmp ugt i64 {target}, {ADDRESS_LIMIT}")
        good = self.fresh_label("good")
        if is_paid:
            leave = self._label_of_return(target, Exit.ILLEGAL_PC, self._dataflow.dirty_out[block.pc])
        else:
            leave = self._label_after(block.pc, target, Exit.ILLEGAL_PC)
        self.say(f"br i1 {bad}, label %{leave}, label %{good}, {RARELY}")
        self.start(good)
        if not is_paid:
            self._count_left(block.pc)
        self._spill(self._dataflow.dirty_out[block.pc] - PASSED)
        self._dispatch(target)

    def _emit_exits(self) -> None:
        """Emit what all blocks have branched to: the exit stubs, the shared exit, branches with counters, the returns
        to Python, and the fault exit."""
        for label, source, target in self._exit_stubs:
            self._exit_stub(label, source, target)
        if self._shared:
            self.start("out")
            self._dispatch(self.let("phi i64 " + ", ".join(f"[ {pc}, %{label} ]" for label, pc in self._shared)))
        for label, number, inside in self._counted:
            self.start(label)
            self._count_with(number)
            self.say(f"br label %{inside}")
        for label, pc, reason, registers, counter in self._returns:
            self.start(label)
            self._count_with(counter)
            self._spill(PASSED.union(registers))
            self.state_store("pc", pc)
            self.state_store("reason", int(reason))
            self._return()
        if self._faults:
            # If the guest catches faults, its registers are in the state buffer; otherwise the fault ends it.
            self.start("fault")
            rows = [[f"[ {value}, %{label} ]" for value in values] for label, *values in self._faults]
            columns = zip(*rows, strict=True)
            address, pc, block = (self.let("phi i64 " + ", ".join(column)) for column in columns)
            self.state_store("fault_address", address)
            self.state_store("fault_pc", pc)
            if self._counters:  # what is owed in that block is counted by `Translator.count_to_fault`
                self.state_store("fault_block", block)
                self.state_store("fault_function", f"@{self.function}", "ptr")
            self.state_store("reason", int(Exit.FAULT))
            self._return()

    def _return(self) -> None:
        """Return to Python; registers are stored already."""
        self.state_store("budget", self.let("load i64, ptr %vb"))
        self.state_store("record", self.let("load ptr, ptr %vr"), "ptr")
        self.say("ret void")

    def fault_if(self, condition: V, address: V) -> None:
        fine = self.fresh_label("at")
        self._faults.append((self.label, address, self._pc, self._block_pc))
        self.say(f"br i1 {condition}, label %fault, label %{fine}, {RARELY}")
        self.start(fine)

    def jump(self, target: V) -> None:
        self._target = target

    def branch(self, condition: V, target: V) -> None:
        self._condition, self._target = condition, target
