"""Stencils: host code of the interpreter's operations with holes where an operation has its fields.

The same handlers, from the same table, are compiled once for a selection, each as a function of its own that goes on
with whatever comes behind it. Code of a block is made by laying copies of them one behind the other and filling in the
holes (`templates`): no compiler runs, and what was worked out while interpreting - which operation
comes next, which registers it has - is in the code. ("Copy and patch": Xu and Kjolstad, OOPSLA 2021.)

A hole is the address of a symbol that nobody defines. Registers stay in the state buffer.
"""

from __future__ import annotations

from typing import Any

from emulator.engine.abi import CONVENTION, PARAMETERS, PINNED, arguments
from emulator.engine.columns import emit_commit
from emulator.engine.emit import ADDRESS_LIMIT, DECLARATIONS, INVARIANT, METADATA, RARELY
from emulator.engine.interpreter import InterpreterEmitter
from emulator.engine.operations import (
    FALL_THROUGH,
    HANDLERS,
    RESTORE_ROUNDING,
    SET_ROUNDING,
    SLOW,
)
from emulator.engine.state import Exit
from emulator.events import TraceSelection
from emulator.isa.table import TABLE

V = Any
# What is laid before the operations of a block, and what goes on where no template does.
ARRIVE, HEAD, DEPART, FAIL = range(RESTORE_ROUNDING + 1, RESTORE_ROUNDING + 5)
N_STENCILS = FAIL + 1

# Holes, by their place among the values that fill them: of an operation, of a block, of all code.
_RANGES = {
    "rd": (0, 1024), "rs1": (0, 1024), "rs2": (0, 1024), "rs3": (0, 1024),  # offsets of registers in the state
    "noted": (0, 1 << 16), "imm": (-(1 << 31), 1 << 31), "pc": (0, 1 << 31), "next_pc": (0, 1 << 31),
    "length": (0, 1 << 16),  # instructions of the block
    "goal": (0, 1 << 31), "far_goal": (-1, -1),  # pc + imm
    "next_slot": (-1, -1), "goal_slot": (-1, -1), "descriptor": (-1, -1),  # host addresses
    "piece": (0, 1 << 31), "skipped": (0, 128),  # where code is, in pieces of `PIECE_SHIFT`; the size of `ARRIVE`
}  # fmt: skip
PIECE_SHIFT = 26  # all code of a tier's templates is in one aligned piece of memory
HOLES = {name: place for place, name in enumerate([*_RANGES, "next", "depart", "fail", "constants"])}
N_VALUES = 32


class StencilEmitter(InterpreterEmitter):
    """Emits the stencils for one selection as functions ``s0``, ``s1`` ..."""

    def __init__(self, selection: TraceSelection) -> None:
        super().__init__(selection, "s")
        self._functions: list[str] = []
        self._failures: list[tuple[str, V]] = []  # label, address

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
        self._leave(self._field("pc"), Exit.SLOW)
        self._end()
        self._begin(ARRIVE)
        for n in PINNED:
            self.say(f"store i64 %p{n}, ptr {self.let(f'getelementptr i8, ptr %st, i64 {8 * n}')}")
        self._step()
        self._end()
        self._begin(HEAD)
        self._block_head()
        self._end()
        self._begin(DEPART)
        self._depart()
        self._end()
        self._begin(FAIL)
        self.state_store("fault_address", f"%p{PINNED[0]}")
        self.state_store("reason", int(Exit.FAULT))
        self.state_store("budget", self.let("load i64, ptr %vb"))
        self.say("ret void")
        self._end()
        declared = [
            f"@{name} = external dso_local global i8, !absolute_symbol !{{i64 {low}, i64 {high}}}"
            for name, (low, high) in _RANGES.items()
        ]
        declared += [
            f"declare {CONVENTION} void @{name}({PARAMETERS})" for name in ("next", "depart", "fail")
        ]
        return "\n".join([DECLARATIONS, *declared, *self._functions, METADATA])

    # --- functions
    def _begin(self, number: int) -> None:
        self.lines = []
        self.function = f"s{number}"
        self.start("entry")
        for name, kind in (("vb", "i64"), ("vr", "ptr"), ("vt", "i32")):
            self.say(f"%{name} = alloca {kind}")
        self.say("store i64 %budget, ptr %vb")
        self.say("store ptr %rec, ptr %vr")
        self._failures = []

    def _end(self) -> None:
        for label, address in self._failures:
            self.start(label)
            self._go_on("@fail", dict.fromkeys(PINNED, "poison") | {PINNED[0]: address})
        head = f"define dso_local {CONVENTION} void @{self.function}({PARAMETERS}) strictfp nounwind optsize {{\n"
        self._functions.append(head + "\n".join(self.lines) + "\n}")

    def _go_on(self, function: str, pinned: dict[int, str] | None = None) -> None:
        """Tail-call; host registers that nobody looks at have nothing in particular in them."""
        budget, record = self.let("load i64, ptr %vb"), self.let("load ptr, ptr %vr")
        passed = arguments(budget, record, pinned or dict.fromkeys(PINNED, "poison"))
        self.say(f"musttail call {CONVENTION} void {function}({passed})")
        self.say("ret void")

    def _step(self) -> None:
        self._go_on("@next")

    def _block_head(self) -> None:
        budget = self.let("load i64, ptr %vb")
        spent = self.let(f"icmp slt i64 {budget}, 1")
        self.say(f"br i1 {spent}, label %outofbudget, label %counting, {RARELY}")
        self.start("counting")
        self._begin_block(budget, self._far("descriptor"))
        self._step()
        for label, reason in (("outofbudget", Exit.BUDGET), ("washot", Exit.HOT)):
            self.start(label)
            self._leave(self._field("pc"), reason)

    def _leave(self, pc: V, reason: Exit) -> None:
        self.state_store("pc", pc)
        self.state_store("reason", int(reason))
        self.state_store("budget", self.let("load i64, ptr %vb"))
        self.state_store("record", self.let("load ptr, ptr %vr"), "ptr")
        self.say("ret void")

    def _time_of_block(self) -> str:
        """The time (an i32) of the block's first instruction, from the budget that was left by `HEAD`."""
        return self.time_before(self.let(f"add i64 %budget, {_hole('length')}"))

    def _length(self, descriptor: str) -> V:
        return _hole("length")

    # --- from block to block
    def _block_end(self, pc: V) -> None:
        """Go on at ``pc``: with the template of the block there if it has one."""
        emit_commit(self, self._columns)
        pc, slot = _KNOWN.get(pc, (pc, ""))
        if not slot:
            bad = self.let(f"icmp ugt i64 {pc}, {ADDRESS_LIMIT}")
            good, wrong = self.fresh_label("good"), self.fresh_label("wrong")
            self.say(f"br i1 {bad}, label %{wrong}, label %{good}, {RARELY}")
            self.start(wrong)
            self._leave(pc, Exit.ILLEGAL_PC)
            self.start(good)
            slots = self.let(f"load ptr, ptr {self.state_pointer('slots')}, {INVARIANT}")
            slot = self.let(f"getelementptr i8, ptr {slots}, i64 {self.let(f'shl i64 {pc}, 2')}")
        else:
            slot = self._far(slot)
        function = self.let(f"load ptr, ptr {slot}")
        piece = self.let(f"lshr i64 {self.let(f'ptrtoint ptr {function} to i64')}, {PIECE_SHIFT}")
        inside = self.let(f"icmp eq i64 {piece}, {_hole('piece')}")
        near, far = self.fresh_label("near"), self.fresh_label("far")
        self.say(f"br i1 {inside}, label %{near}, label %{far}")
        self.start(near)
        # The two ways of a branch are to jump from two places, which the host predicts better.
        self.say(f'call void asm sideeffect "# {near}", ""()')
        self._go_on(self.let(f"getelementptr i8, ptr {function}, i64 {_hole('skipped')}"))
        self.start(far)
        self.state_store("pc", pc)  # another template has it in its code
        self._go_on("@depart")

    def _depart(self) -> None:
        """Go on at the pc in the state with what the table of entry points has."""
        slots = self.state_load("slots", "ptr")
        offset = self.let(f"shl i64 {self.state_load('pc')}, 2")
        function = self.let(f"load ptr, ptr {self.let(f'getelementptr i8, ptr {slots}, i64 {offset}')}")
        unknown = self.let(f"icmp eq ptr {function}, null")
        chosen = self.let(f"select i1 {unknown}, ptr {self.state_load('miss', 'ptr')}, ptr {function}")
        places = {n: self.let(f"getelementptr i8, ptr %st, i64 {8 * n}") for n in PINNED}
        self._go_on(chosen, {n: self.let(f"load i64, ptr {place}") for n, place in places.items()})

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
        """A host address in a register: the symbol is not near, as LLVM believes."""
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
        if self.selection.line_bits:
            self.say(f"store i32 {self._time_of_block()}, ptr %vt")
        super().record_access(address)

    # --- fields
    def _field(self, name: str) -> V:
        if name == "noted":  # LLVM takes it that no symbol is at 0
            return self.let(f'call i64 asm "", "=r,0"(i64 {_hole(name)})')
        if name in ("rd", "rs1", "rs2", "rs3"):
            return self.let(f"lshr i64 {_hole(name)}, 3")
        return _hole(name)

    def add(self, a: V, b: V) -> V:
        if (a, b) == (_hole("pc"), _hole("imm")):
            return _hole("far_goal")
        return super().add(a, b)

    def _register(self, field: str) -> str:
        return self.let(f"getelementptr i8, ptr %st, i64 {_hole(field)}")


def _hole(name: str) -> str:
    return f"ptrtoint (ptr @{name} to i64)"


# Addresses to go to that are known when a block is laid: in the address space, or there is no template of it.
_KNOWN = {
    _hole("next_pc"): (_hole("next_pc"), "next_slot"),
    _hole("far_goal"): (_hole("goal"), "goal_slot"),
}
