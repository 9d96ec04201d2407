"""The stencil compiler: IR of the interpreter's handlers as stencils, with holes for the fields of an operation.

The handlers, from the instruction table, are compiled once for a selection, each as a function that tail-calls the code
behind it. `templates` emits a block by copying stencils one behind the other and filling in the holes: no compiler
runs, and the work of interpretation - finding the next operation and its registers - is done at emission.
("Copy and patch": Xu and Kjolstad, OOPSLA 2021.)

A hole is the address of an undefined symbol. Registers stay in the state buffer.
"""

from __future__ import annotations

from typing import Any

from emulator.engine.decode.operations import (
    FALL_THROUGH,
    HANDLERS,
    RESTORE_ROUNDING,
    SET_ROUNDING,
    SLOW,
)
from emulator.engine.emit.emitter import ADDRESS_LIMIT, DECLARATIONS, INVARIANT, METADATA, RARELY
from emulator.engine.emit.interpreter import InterpreterEmitter
from emulator.engine.entry.calling_convention import CONVENTION, PARAMETERS, PINNED, arguments
from emulator.engine.hart_state import Exit
from emulator.engine.instrument.columns import emit_commit
from emulator.engine.stencils.stencil_layout import (
    CODE_AREA_SHIFT,
    EXIT_STUB,
    FAULT_STUB,
    HEAD,
    HOLE_RANGES,
    PROLOGUE,
)
from emulator.events import TraceSelection
from emulator.isa.table import TABLE

V = Any


class StencilEmitter(InterpreterEmitter):
    """Emits the stencils for one selection as functions ``s0``, ``s1`` ..."""

    def __init__(self, selection: TraceSelection) -> None:
        super().__init__(selection, "s")
        self._functions: list[str] = []
        self._failures: list[tuple[str, V]] = []  # faulting accesses of the function: label, address

    def emit(self) -> str:
        """The IR text of the module."""
        for (index, variant), number in HANDLERS.items():
            self._begin(number)
            self.say(f"br label %h{number}")
            self._handler(TABLE[index], variant, number)
            self._end()
        self._begin(SET_ROUNDING)
        self.set_host_rounding(self.let(f"trunc i64 {self._field('imm')} to i32"))
        self._step()
        self._end()
        self._begin(RESTORE_ROUNDING)
        self.set_host_rounding(self.host_rounding_of_guest())
        self._step()
        self._end()
        self._begin(FALL_THROUGH)
        self._block_end(self._field("next_pc"))
        self._end()
        self._begin(SLOW)
        emit_commit(self, self._columns)
        self._return_to_python(self._field("pc"), Exit.SLOW)
        self._end()
        self._begin(PROLOGUE)
        for n in PINNED:
            self.say(f"store i64 %p{n}, ptr {self.let(f'getelementptr i8, ptr %st, i64 {8 * n}')}")
        self._step()
        self._end()
        self._begin(HEAD)
        self._block_head()
        self._end()
        self._begin(EXIT_STUB)
        self._exit_stub()
        self._end()
        self._begin(FAULT_STUB)
        self.state_store("fault_address", f"%p{PINNED[0]}")
        self.state_store("reason", int(Exit.FAULT))
        self.state_store("budget", self.let("load i64, ptr %vb"))
        self.say("ret void")
        self._end()
        declared = [
            f"@{name} = external dso_local global i8, !absolute_symbol !{{i64 {low}, i64 {high}}}"
            for name, (low, high) in HOLE_RANGES.items()
        ]
        declared += [f"declare {CONVENTION} void @{name}({PARAMETERS})" for name in ("next", "exit_stub", "fault_stub")]
        return "\n".join([DECLARATIONS, *declared, *self._functions, METADATA])

    # --- functions
    def _begin(self, number: int) -> None:
        """Begin the function of stencil ``number``."""
        self.lines = []
        self.function = f"s{number}"
        self.start("entry")
        for name, kind in (("vb", "i64"), ("vr", "ptr"), ("vt", "i32")):
            self.say(f"%{name} = alloca {kind}")
        self.say("store i64 %budget, ptr %vb")
        self.say("store ptr %rec, ptr %vr")
        self._failures = []

    def _end(self) -> None:
        """End the function, with the tail calls of the fault stub."""
        for label, address in self._failures:
            self.start(label)
            self._tail_call("@fault_stub", dict.fromkeys(PINNED, "poison") | {PINNED[0]: address})
        head = f"define dso_local {CONVENTION} void @{self.function}({PARAMETERS}) strictfp nounwind optsize {{\n"
        self._functions.append(head + "\n".join(self.lines) + "\n}")

    def _tail_call(self, function: str, pinned: dict[int, str] | None = None) -> None:
        """Tail-call ``function``; pinned registers without a value are poison: templates do not read them."""
        budget, record = self.let("load i64, ptr %vb"), self.let("load ptr, ptr %vr")
        passed = arguments(budget, record, pinned or dict.fromkeys(PINNED, "poison"))
        self.say(f"musttail call {CONVENTION} void {function}({passed})")
        self.say("ret void")

    def _step(self) -> None:
        self._tail_call("@next")

    def _block_head(self) -> None:
        """The block head: check the budget, count the execution, report a hot block."""
        budget = self.let("load i64, ptr %vb")
        spent = self.let(f"icmp slt i64 {budget}, 1")
        self.say(f"br i1 {spent}, label %outofbudget, label %counting, {RARELY}")
        self.start("counting")
        self._begin_block(budget, self._far("descriptor"), self._field("pc"))
        self._step()
        for label, reason in (("outofbudget", Exit.BUDGET), ("washot", Exit.HOT)):
            self.start(label)
            self._return_to_python(self._field("pc"), reason)

    def _return_to_python(self, pc: V, reason: Exit) -> None:
        """Return to Python at ``pc`` with ``reason``."""
        self.state_store("pc", pc)
        self.state_store("reason", int(reason))
        self.state_store("budget", self.let("load i64, ptr %vb"))
        self.state_store("record", self.let("load ptr, ptr %vr"), "ptr")
        self.say("ret void")

    def _time_of_block(self) -> str:
        """The time (an i32) of the block's first instruction, from the budget that `HEAD` has left."""
        return self.time_before(self.let(f"add i64 %budget, {_hole('length')}"))

    def _length(self, descriptor: str) -> V:
        return _hole("length")

    # --- from block to block
    def _block_end(self, pc: V) -> None:
        """Go on at ``pc``: in the template of the block there, past its prologue, or through the exit stub."""
        emit_commit(self, self._columns)
        pc, entry = _STATIC_TARGETS.get(pc, (pc, ""))
        if not entry:
            bad = self.let(f"icmp ugt i64 {pc}, {ADDRESS_LIMIT}")
            good, wrong = self.fresh_label("good"), self.fresh_label("wrong")
            self.say(f"br i1 {bad}, label %{wrong}, label %{good}, {RARELY}")
            self.start(wrong)
            self._return_to_python(pc, Exit.ILLEGAL_PC)
            self.start(good)
            dispatch_table = self.let(f"load ptr, ptr {self.state_pointer('dispatch_table')}, {INVARIANT}")
            entry = self.let(f"getelementptr i8, ptr {dispatch_table}, i64 {self.let(f'shl i64 {pc}, 2')}")
        else:
            entry = self._far(entry)
        function = self.let(f"load ptr, ptr {entry}")
        code_area = self.let(f"lshr i64 {self.let(f'ptrtoint ptr {function} to i64')}, {CODE_AREA_SHIFT}")
        inside = self.let(f"icmp eq i64 {code_area}, {_hole('code_area')}")
        near, far = self.fresh_label("near"), self.fresh_label("far")
        self.say(f"br i1 {inside}, label %{near}, label %{far}")
        self.start(near)
        # The label keeps LLVM from merging the jumps of both sides of a branch: the host predicts two jumps better.
        self.say(f'call void asm sideeffect "# {near}", ""()')
        self._tail_call(self.let(f"getelementptr i8, ptr {function}, i64 {_hole('prologue_bytes')}"))
        self.start(far)
        self.state_store("pc", pc)  # a template has its pc in its code and needs no store
        self._tail_call("@exit_stub")

    def _exit_stub(self) -> None:
        """Go on at the pc in the state buffer through the dispatch table."""
        dispatch_table = self.state_load("dispatch_table", "ptr")
        offset = self.let(f"shl i64 {self.state_load('pc')}, 2")
        function = self.let(f"load ptr, ptr {self.let(f'getelementptr i8, ptr {dispatch_table}, i64 {offset}')}")
        unknown = self.let(f"icmp eq ptr {function}, null")
        chosen = self.let(f"select i1 {unknown}, ptr {self.state_load('dispatch_miss', 'ptr')}, ptr {function}")
        places = {n: self.let(f"getelementptr i8, ptr %st, i64 {8 * n}") for n in PINNED}
        self._tail_call(chosen, {n: self.let(f"load i64, ptr {place}") for n, place in places.items()})

    def branch(self, condition: V, target: V) -> None:
        if self.selection.inline:
            super().branch(condition, target)
            return
        self._ended = True
        taken, fall = self.fresh_label("taken"), self.fresh_label("fall")
        self.say(f"br i1 {condition}, label %{taken}, label %{fall}")
        self.start(taken)
        self._block_end(target)
        self.start(fall)
        self._block_end(self.next_pc())

    def _far(self, name: str) -> str:
        """A 64-bit hole, a host address, in a register: LLVM would assume that the symbol is near."""
        return self.let(f'call ptr asm sideeffect "# {name}", "=r,0"(ptr @{name})')

    # --- memory
    def check_address(self, base: V, address: V) -> None:
        self.fault_if(self.let(f"icmp ugt i64 {address}, {ADDRESS_LIMIT}"), address)

    def fault_if(self, condition: V, address: V) -> None:
        self.state_store("fault_pc", self._field("pc"))  # for the host's own fault, too
        fine, wild = self.fresh_label("at"), self.fresh_label("wild")
        self._failures.append((wild, address))
        self.say(f"br i1 {condition}, label %{wild}, label %{fine}, {RARELY}")
        self.start(fine)

    def record_access(self, address: V) -> None:
        if self.selection.followed_lines[0]:
            self.say(f"store i32 {self._time_of_block()}, ptr %vt")
        super().record_access(address)

    # --- fields
    def _field(self, name: str) -> V:
        if name == "moment":  # may be 0, which LLVM assumes no symbol's address to be
            return self.let(f'call i64 asm "", "=r,0"(i64 {_hole(name)})')
        if name in ("rd", "rs1", "rs2", "rs3"):
            return self.let(f"lshr i64 {_hole(name)}, 3")
        return _hole(name)

    def add(self, a: V, b: V) -> V:
        if (a, b) == (_hole("pc"), _hole("imm")):
            return _hole("far_branch_target")
        return super().add(a, b)

    def _register(self, field: str) -> str:
        return self.let(f"getelementptr i8, ptr %st, i64 {_hole(field)}")


def _hole(name: str) -> str:
    return f"ptrtoint (ptr @{name} to i64)"


# Branch targets that are known at emission: the hole with the pc, and the one with its entry in the dispatch table. A
# block with a target outside of the address space gets no template.
_STATIC_TARGETS = {
    _hole("next_pc"): (_hole("next_pc"), "next_entry"),
    _hole("far_branch_target"): (_hole("branch_target"), "branch_target_entry"),
}
