"""Stencils: host code of the interpreter's operations with holes where an operation has its fields.

The same handlers, from the same table, are compiled once for a selection, each as a function of its own that goes on
with whatever comes behind it. Code of a block is made by laying copies of them one behind the other and filling in the
holes (`emulator.engine.templates`): no compiler runs, and what was worked out while interpreting - which operation
comes next, which registers it has - is in the code. ("Copy and patch": Xu and Kjolstad, OOPSLA 2021.)

A hole is the address of a symbol that nobody defines. Registers stay in the state buffer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.engine.abi import CONVENTION, PARAMETERS, PINNED, arguments
from emulator.engine.archive import sources_identity
from emulator.engine.emit import ADDRESS_LIMIT, DECLARATIONS, INVARIANT, METADATA, RARELY
from emulator.engine.interpreter import InterpreterEmitter
from emulator.engine.llvm import Compiler
from emulator.engine.operations import (
    DESCRIPTOR_DTYPE,
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
    "goal": (0, 1 << 31), "far_goal": (-1, -1),  # pc + imm
    "next_slot": (-1, -1), "goal_slot": (-1, -1), "descriptor": (-1, -1),  # host addresses
    "piece": (0, 1 << 31), "skipped": (0, 128),  # where code is, in pieces of `PIECE_SHIFT`; the size of `ARRIVE`
}  # fmt: skip
PIECE_SHIFT = 26  # all code of a tier's templates is in one aligned piece of memory
HOLES = {name: place for place, name in enumerate([*_RANGES, "next", "depart", "fail", "constants"])}
N_VALUES = 32

_R_64, _R_PC32, _R_PLT32, _R_32, _R_32S = 1, 2, 4, 10, 11
_SECTION = np.dtype(
    [
        ("name", "u4"), ("type", "u4"), ("flags", "u8"), ("address", "u8"), ("offset", "u8"), ("size", "u8"),
        ("link", "u4"), ("info", "u4"), ("align", "u8"), ("entry", "u8"),
    ]
)  # fmt: skip
_SYMBOL = np.dtype(
    [("name", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2"), ("value", "u8"), ("size", "u8")]
)
_RELOCATION = np.dtype([("offset", "u8"), ("type", "u4"), ("symbol", "u4"), ("addend", "i8")])
_SHT_SYMTAB, _SHT_RELA, _SHF_EXECINSTR, _SHF_ALLOC = 2, 4, 4, 2

STENCIL_DTYPE = np.dtype(
    [("offset", "u4"), ("size", "u4"), ("first_hole", "u4"), ("end_hole", "u4"), ("kind", "u8")]
)
# ``kind`` of a stencil; an absent one is of an operation that the host has no instructions for.
ABSENT, GOES_ON, ENDS = 0, 1, 2
HOLE_DTYPE = np.dtype(
    [("offset", "u4"), ("value", "u2"), ("wide", "u1"), ("relative", "u1"), ("addend", "i8")]
)


class StencilSet(NamedTuple):
    """``code``: of all, uint8; ``constants``: what they load, uint8; ``stencils``: rows of `STENCIL_DTYPE` by handler,
    and then `ARRIVE`, `HEAD`, `DEPART`; ``holes``: rows of `HOLE_DTYPE`."""

    code: NDArray[np.uint8]
    constants: NDArray[np.uint8]
    stencils: NDArray[np.void]
    holes: NDArray[np.void]


class StencilEmitter(InterpreterEmitter):
    """Emits the stencils for one selection as functions ``s0``, ``s1`` ..."""

    def __init__(self, selection: TraceSelection) -> None:
        super().__init__(selection, "s")
        self._functions: list[str] = []
        self._failures: list[tuple[str, V]] = []  # label, address

    def emit(self) -> str:
        """The IR text of the module."""
        for (index, rm), number in HANDLERS.items():
            self._begin(number)
            self.say(f"br label %h{number}")
            self._handler(TABLE[index], rm, number)
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
        self._leave(self._field("pc"), Exit.SLOW_VALUES if self._masks else Exit.SLOW)
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
        if self._masks:
            self.say(f"%vv = getelementptr i8, ptr {self.state_pointer('values_ahead')}, i64 0")
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
        if self._masks:
            self.say(f"store ptr {self.state_load('values', 'ptr')}, ptr %vv")
        self._step()
        for label, reason in (("outofbudget", Exit.BUDGET), ("washot", Exit.HOT)):
            self.start(label)
            self._return(self._field("pc"), reason)

    def _leave(self, pc: V, reason: Exit) -> None:
        super()._store_values()
        self._return(pc, reason)

    def _return(self, pc: V, reason: Exit) -> None:
        self.state_store("pc", pc)
        self.state_store("reason", int(reason))
        self.state_store("budget", self.let("load i64, ptr %vb"))
        self.state_store("record", self.let("load ptr, ptr %vr"), "ptr")
        self.say("ret void")

    def _store_values(self) -> None:
        """What a block has put down so far counts when it ends: a fault takes it back."""

    def _time_of_block(self) -> str:
        """The time (an i32) of the block's first instruction, from the budget that was left by `HEAD`."""
        fields = DESCRIPTOR_DTYPE.fields
        assert fields is not None
        pointer = self.let(
            f"getelementptr i8, ptr {self._far('descriptor')}, i64 {fields['n_instructions'][1]}"
        )
        length = self.let(f"zext i32 {self.let(f'load i32, ptr {pointer}')} to i64")
        return self.time_before(self.let(f"add i64 %budget, {length}"))

    # --- from block to block
    def _block_end(self, pc: V) -> None:
        """Go on at ``pc``: with the template of the block there if it has one."""
        super()._store_values()
        pc, slot = _KNOWN.get(pc, (pc, ""))
        self.state_store("pc", pc)
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
        if self._masks or self.selection.inline:
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


def stencils_for(compiler: Compiler, selection: TraceSelection) -> StencilSet:
    """The stencils for ``selection``, compiled if no earlier process has done it."""
    image = compiler.compile_object(lambda: StencilEmitter(selection).emit(), 2, _key(selection), near=True)
    return _read(image)


def _key(selection: TraceSelection) -> str:
    return f"stencils {selection} {sources_identity()}"


def _read(image: bytes) -> StencilSet:
    """Take the object apart (ELF for x86-64, as LLVM has just written it)."""
    raw = np.frombuffer(image, np.uint8)
    (table_offset,) = np.frombuffer(image, "<u8", 1, 40)
    (n_sections,) = np.frombuffer(image, "<u2", 1, 60)
    sections = np.frombuffer(image, _SECTION, int(n_sections), int(table_offset))

    def rows(section: np.void, dtype: np.dtype[np.void]) -> NDArray[np.void]:
        return np.frombuffer(image, dtype, int(section["size"]) // dtype.itemsize, int(section["offset"]))

    symbols_at = int(np.flatnonzero(sections["type"] == _SHT_SYMTAB)[0])
    symbols = rows(sections[symbols_at], _SYMBOL)
    strings = image[int(sections[sections[symbols_at]["link"]]["offset"]) :]
    names = [strings[at : strings.index(b"\0", at)].decode() for at in symbols["name"].tolist()]
    text = int(np.flatnonzero(sections["flags"] & _SHF_EXECINSTR)[0])
    constants, base_of = _constants(raw, sections, text)
    meaning = np.full(len(symbols), -1, np.int64)  # which value fills a hole for the symbol
    added = np.zeros(len(symbols), np.int64)
    for place, (name, section) in enumerate(zip(names, symbols["section"].tolist(), strict=True)):
        if name in HOLES and section == 0:
            meaning[place] = HOLES[name]
        elif section in base_of:
            meaning[place] = HOLES["constants"]
            added[place] = base_of[section] + int(symbols["value"][place])
    stencils = np.zeros(N_STENCILS, STENCIL_DTYPE)
    holes: list[NDArray[np.void]] = []
    n_holes = 0
    of_text = (sections["type"] == _SHT_RELA) & (sections["info"] == text)
    relocations = np.concatenate([rows(section, _RELOCATION) for section in sections[of_text]])
    relocations = relocations[np.argsort(relocations["offset"], kind="stable")]
    code = raw[int(sections[text]["offset"]) :][: int(sections[text]["size"])]
    for name, symbol in zip(names, symbols, strict=True):
        if int(symbol["section"]) != text or not name.startswith("s"):
            continue
        start, size = int(symbol["value"]), int(symbol["size"])
        low, high = np.searchsorted(relocations["offset"], [start, start + size])
        mine = relocations[low:high]
        if (
            not np.isin(mine["type"], (_R_64, _R_PC32, _R_PLT32, _R_32, _R_32S)).all()
            or (meaning[mine["symbol"]] < 0).any()
        ):
            continue  # it calls a function that is somewhere else
        goes_on = meaning[mine["symbol"]] == HOLES["next"]
        last = size - 4
        if (
            len(mine)
            and goes_on[-1]
            and int(mine[-1]["offset"]) - start == last
            and code[start + last - 1] == 0xE9
        ):
            mine, size = mine[:-1], last - 1  # what is laid behind it comes next without a jump
        made = np.zeros(len(mine), HOLE_DTYPE)
        made["offset"] = mine["offset"] - start
        made["value"] = meaning[mine["symbol"]]
        made["wide"] = mine["type"] == _R_64
        made["relative"] = np.isin(mine["type"], (_R_PC32, _R_PLT32))
        made["addend"] = mine["addend"] + added[mine["symbol"]]
        holes.append(made)
        stencils[int(name[1:])] = (
            start,
            size,
            n_holes,
            n_holes + len(made),
            GOES_ON if goes_on.any() else ENDS,
        )
        n_holes += len(made)
    return StencilSet(code, constants, stencils, np.concatenate(holes))


def _constants(
    raw: NDArray[np.uint8], sections: NDArray[np.void], text: int
) -> tuple[NDArray[np.uint8], dict[int, int]]:
    """All that is loaded and is no code, in one piece, and where in it each section begins."""
    parts: list[NDArray[np.uint8]] = []
    base_of: dict[int, int] = {}
    size = 0
    for place, section in enumerate(sections):
        if place == text or not section["flags"] & _SHF_ALLOC or section["type"] != 1:
            continue
        padding = -size % 64
        part = raw[int(section["offset"]) :][: int(section["size"])]
        base_of[place] = size + padding
        parts += [np.zeros(padding, np.uint8), part]
        size += padding + len(part)
    return np.concatenate([np.zeros(0, np.uint8), *parts]), base_of
