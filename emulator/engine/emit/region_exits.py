"""Where control leaves a block of a region: for another block of it, for the dispatch table, or for Python."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from emulator.engine.blocks import Block
from emulator.engine.codegen.calling_convention import CONVENTION, PINNED, arguments
from emulator.engine.emit.dataflow import Dataflow
from emulator.engine.emit.emitter import ADDRESS_LIMIT, RARELY
from emulator.engine.emit.indirect_targets import IndirectTargets, branch_to
from emulator.engine.emit.registers import RegisterEmitter
from emulator.engine.hart_state import Exit
from emulator.events import OpClass

V = Any
PASSED = frozenset(PINNED)  # registers passed from one translation to the next in host registers


class RegionExits(RegisterEmitter):
    """Emits the exits of a region. ``blocks``: by pc; ``dataflow``: of the same blocks; ``indirect_targets``: targets
    of computed jumps inside the region; ``resident``: of `RegisterEmitter`."""

    def __init__(
        self, blocks: dict[int, Block], dataflow: Dataflow, indirect_targets: IndirectTargets, resident: bool
    ) -> None:
        super().__init__(resident)
        self.blocks = blocks
        self._dataflow = dataflow
        self._indirect_targets = indirect_targets
        self._constants: list[str] = []  # globals of the module
        self._target: V = None  # of the control transfer that ends the block; None for none
        self._condition: V = None  # under which control goes there; None for always
        self._faults: list[tuple[str, V, int]] = []  # label of the check, address, pc
        self._returns: list[tuple[str, V, int, set[int]]] = []  # to Python: label, pc, reason, registers to spill
        self._exit_stubs: list[tuple[str, int, int]] = []  # exit stubs: label, from block, target pc
        self._shared: list[tuple[str, int]] = []  # exit stubs that share the code that leaves: label, target pc

    def _goto(self, block: Block, target: int) -> str:
        """The label to branch to for ``target``: a block of this region or an exit stub."""
        if target in self._dataflow.successors[block.pc]:
            return f"b{target:x}"
        label = self.fresh_label("exit")
        self._exit_stubs.append((label, block.pc, target))
        return label

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

    def _label_of_return(self, pc: V, reason: Exit, registers: set[int] = frozenset()) -> str:  # type: ignore[assignment]
        """A label that returns to Python at ``pc`` with ``reason``. Each has code of its own: a join of values in
        shared code would cost LLVM more."""
        label = self.fresh_label("leave")
        self._returns.append((label, pc, reason, registers))
        return label

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
            self.say(f"br label %{self._label_of_return(target, Exit.ILLEGAL_PC, self._dataflow.dirty_out[source])}")
        else:
            self._spill(self._dataflow.dirty_out[source] - PASSED)
            if self.blocks[source].last.op_class is OpClass.CALL:
                self._dispatch(target)
            else:
                self._shared.append((label, target))
                self.say("br label %out")

    def _indirect(self, block: Block, target: V) -> None:
        """Go on at a computed address; outside the region the dispatch table is a perfect indirect-branch cache."""
        indirect_targets = self._indirect_targets.get(block.pc)
        if indirect_targets:
            other = self.fresh_label("other")
            labels = [f"b{pc:x}" for pc in indirect_targets]
            self._constants.append(branch_to(self, target, indirect_targets, labels, other))
            self.start(other)
        bad = self.let(f"icmp ugt i64 {target}, {ADDRESS_LIMIT}")
        good = self.fresh_label("good")
        leave = self._label_of_return(target, Exit.ILLEGAL_PC, self._dataflow.dirty_out[block.pc])
        self.say(f"br i1 {bad}, label %{leave}, label %{good}, {RARELY}")
        self.start(good)
        self._spill(self._dataflow.dirty_out[block.pc] - PASSED)
        self._dispatch(target)

    def _emit_exits(self) -> None:
        """Emit what all blocks have branched to: the exit stubs, the shared exit, the returns to Python, and the fault
        exit."""
        for label, source, target in self._exit_stubs:
            self._exit_stub(label, source, target)
        if self._shared:
            self.start("out")
            self._dispatch(self.let("phi i64 " + ", ".join(f"[ {pc}, %{label} ]" for label, pc in self._shared)))
        for label, pc, reason, registers in self._returns:
            self.start(label)
            self._spill(registers | PASSED)
            self.state_store("pc", pc)
            self.state_store("reason", int(reason))
            self._return()
        if self._faults:
            # If the guest catches faults, its registers are in the state buffer; otherwise the fault ends it.
            self.start("fault")
            addresses = ", ".join(f"[ {address}, %{label} ]" for label, address, _ in self._faults)
            pcs = ", ".join(f"[ {pc}, %{label} ]" for label, _, pc in self._faults)
            address, pc = self.let(f"phi i64 {addresses}"), self.let(f"phi i64 {pcs}")
            self.state_store("fault_address", address)
            self.state_store("fault_pc", pc)
            self.state_store("reason", int(Exit.FAULT))
            self._return()

    def _return(self) -> None:
        """Return to Python; registers are stored already."""
        self.state_store("budget", self.let("load i64, ptr %vb"))
        self.state_store("record", self.let("load ptr, ptr %vr"), "ptr")
        self.say("ret void")

    def fault_if(self, condition: V, address: V) -> None:
        fine = self.fresh_label("at")
        self._faults.append((self.label, address, self._pc))
        self.say(f"br i1 {condition}, label %fault, label %{fine}, {RARELY}")
        self.start(fine)

    def jump(self, target: V) -> None:
        self._target = target

    def branch(self, condition: V, target: V) -> None:
        self._condition, self._target = condition, target
