"""Inline functions: user functions called before and after instructions, inside translations; and what they share with
columns (`columns`): the selection of instructions and their fields.

A function is LLVM IR text (`emulator.analyzers.inline_kernel` gets it from numba). Optimised regions contain the text,
so that LLVM inlines it and folds constants; templates and the interpreter call it through the inline table; the oracle
calls it through ctypes. All pass the same arguments.

The function's state may alias guest memory as far as LLVM knows, so its stores are done before the guest's next access,
which may fault.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.engine.address_tables import GUEST_SPACE, Table
from emulator.engine.blocks import Block, observed_class
from emulator.engine.emit.emitter import DECLARATIONS, INVARIANT, Emitter
from emulator.engine.hart_state import CLASS_SHIFT, MAX_CALLS, OFFSETS, STATE_BYTES, WORD_SHIFT
from emulator.engine.instrument.columns import append
from emulator.engine.oracle import Oracle
from emulator.errors import EmulatorError
from emulator.events import BlockFacts, ColumnSet, InlineCall, OpClass
from emulator.isa.algebra import Machine
from emulator.isa.decode import Instruction, decode
from emulator.isa.table import Row
from emulator.native_code.compiler import Compiler

V = Any
POINTERS = ("registers", "memory")  # fields that are arrays
AFTER = ("value", "taken", "target", "rd")  # fields that are known only after the instruction
_OPERANDS = ("rs1", "rs2", "rs3")
Inline = InlineCall | ColumnSet
_TRANSFERS = range(OpClass.BRANCH, OpClass.INDIRECT_CALL + 1)


@dataclass
class InlineFunction:
    """A user's function. ``text`` defines ``@NAME(ptr state buffer, ptr memory, ptr state, i64 ...)`` and its internal
    helpers; ``n_fields``: number of i64 arguments. ``uses_floats``: it must not run with the guest's rounding mode and
    flags, so it is called and not inlined.
    """

    name: str
    text: str
    n_fields: int
    uses_floats: bool
    addresses: dict[str, int] = field(default_factory=dict)

    def address(self, compiler: Compiler, guarded: bool) -> int:
        """The address of its host code; ``guarded``: with the host's MXCSR, for calls from translations."""
        if not self.addresses:
            names = [f"{self.name}_bare", f"{self.name}_guarded"]
            text = f"{_MXCSR}{self.text}\n{self._thunk(names[0], False)}{self._thunk(names[1], self.uses_floats)}"
            self.addresses = compiler.compile(text, names)
        return self.addresses[f"{self.name}_{'guarded' if guarded else 'bare'}"]

    def _thunk(self, name: str, guard: bool) -> str:
        """IR of a function that calls this one; ``guard``: with the host's MXCSR in force."""
        arguments = ", ".join(["ptr %st", "ptr %mem", "ptr %state", *(f"i64 %f{n}" for n in range(self.n_fields))])
        lines = [f"define void @{name}({arguments}) nounwind {{"]
        if guard:
            for side in ("guest", "host"):
                lines.append(f"%{side} = getelementptr i8, ptr %st, i64 {OFFSETS[f'{side}_mxcsr']}")
            lines += [
                "call void @llvm.x86.sse.stmxcsr(ptr %guest)",
                "call void @llvm.x86.sse.ldmxcsr(ptr %host)",
            ]
        lines.append(f"call void @{self.name}({arguments})")
        if guard:
            lines.append("call void @llvm.x86.sse.ldmxcsr(ptr %guest)")
        return "\n".join([*lines, "ret void", "}\n"])


_MXCSR = "declare void @llvm.x86.sse.ldmxcsr(ptr)\ndeclare void @llvm.x86.sse.stmxcsr(ptr)\n"
FUNCTIONS: dict[str, InlineFunction] = {}  # by name; a function is registered here before it is selected


def select_by_class(calls: Iterable[Inline]) -> bool:
    """Whether the class of an instruction tells which of ``calls`` take it: then the discovery kernel can enter new
    blocks in their table, and else Python has to before they run."""
    return not any(call.mnemonics or call.ranges for call in calls)


class InlineTables:
    """The tables through which translations and the interpreter find the functions and columns of one selection.

    ``inline_map``: uint64 by pc / 2; ``by_class``: (classes,) uint64, the bits of the calls that take a class.
    """

    def __init__(self, calls: Sequence[Inline]) -> None:
        if len(calls) > MAX_CALLS:
            raise EmulatorError(
                f"{len(calls)} inline functions and selections of events at once, expected at most {MAX_CALLS}; "
                "watch with fewer analyzers"
            )
        self._calls = calls
        self._functions: NDArray[np.uint64] = np.zeros((MAX_CALLS, 2), np.uint64)
        self.inline_map = Table(GUEST_SPACE * 4)
        self.by_class: NDArray[np.uint64] = np.zeros(len(OpClass), np.uint64)
        for n, call in enumerate(calls):
            self.by_class[list(call.kinds)] |= np.uint64(1 << n)

    def set_states(self, calls: Sequence[Inline], compiler: Compiler) -> tuple[int, int]:
        """Fill in the current states of ``calls``; the host addresses of the function table and of ``inline_map``."""
        for n, call in enumerate(calls):
            address = 0
            if isinstance(call, InlineCall):
                address = FUNCTIONS[call.function].address(compiler, True)
            self._functions[n] = address, call.state
        return self._functions.ctypes.data, self.inline_map.address

    def add_blocks(self, facts: BlockFacts, numbers: Collection[int]) -> None:
        """Enter the instructions of these blocks in ``inline_map``, replacing those of another program."""
        rows = facts.instructions_of(np.fromiter(numbers, np.int64, len(numbers)))
        kinds, pcs = rows["op_class"], rows["pc"]
        found = self.by_class[kinds]
        if any(call.mnemonics for call in self._calls):
            words, inverse = np.unique(rows["word"], return_inverse=True)
            found |= np.array([self._of_word(int(word)) for word in words], np.uint64)[inverse]
        for n, call in enumerate(self._calls):
            if call.ranges:
                inside = np.any([(pcs >= low) & (pcs < high) for low, high in call.ranges], axis=0)
                found[~inside] &= np.uint64(~(1 << n) & (1 << 64) - 1)
        found |= kinds.astype(np.uint64) << np.uint64(CLASS_SHIFT)
        found |= rows["word"].astype(np.uint64) << np.uint64(WORD_SHIFT)
        self.inline_map.view("u8")[pcs >> 1] = found

    def _of_word(self, word: int) -> int:
        """The bits of the calls that take the instruction ``word`` for its mnemonic."""
        decoded = decode(word)
        name = decoded.row.mnemonic if decoded is not None else ""
        return sum(1 << n for n, call in enumerate(self._calls) if name in call.mnemonics)


def calls_of(calls: Sequence[Inline], block: Block) -> list[tuple[int, list[tuple[int, Inline]]]]:
    """For each instruction of the block: its class, and the calls that take it, with their places in the table."""
    found = []
    for instruction, pc in zip(block.instructions, block.pcs, strict=True):
        kind = observed_class(block) if instruction is block.last else instruction.op_class
        mine = [(n, c) for n, c in enumerate(calls) if c.takes(instruction.row.mnemonic, kind, pc)]
        found.append((int(kind), mine))
    return found


def may_take(call: Inline, row: Row) -> bool:
    """Whether ``call`` may take an instruction of ``row``."""
    return row.op_class in call.kinds or row.op_class in _TRANSFERS or row.mnemonic in call.mnemonics


def address_of(machine: Machine, row: Row) -> V:
    """The effective address of the current instruction, an access, in any algebra."""
    return machine.rs1() if row.op_class == OpClass.ATOMIC else machine.add(machine.rs1(), machine.imm())


def emit_call(emitter: Emitter, place: int, call: InlineCall, known: Mapping[str, V], direct: bool) -> None:
    """Emit one call with the fields ``known``. ``direct``: the module contains the function's text."""
    function = FUNCTIONS[call.function]

    def entry(column: int) -> str:
        table = emitter.let(f"load ptr, ptr {emitter.state_pointer('inline')}, {INVARIANT}")
        pointer = emitter.let(f"getelementptr i8, ptr {table}, i64 {16 * place + 8 * column}")
        return emitter.let(f"load ptr, ptr {pointer}, {INVARIANT}")

    fields = ", ".join(f"i64 {known[name]}" for name in call.fields if name not in POINTERS)
    state = emitter.let(f"getelementptr i8, ptr %st, i64 {call.offset}") if call.offset else entry(1)
    arguments = f"ptr %st, ptr %mem, ptr {state}{', ' if fields else ''}{fields}"
    inlined = direct and not function.uses_floats
    callee = f"@{function.name}" if inlined else entry(0)
    emitter.say(f"call void {callee}({arguments})")


def texts_of(calls: Iterable[Inline]) -> str:
    """The definitions and declarations that a module with direct calls needs beside `DECLARATIONS`."""
    declared = set(DECLARATIONS.splitlines())
    lines = []
    for name in sorted({call.function for call in calls if isinstance(call, InlineCall)}):
        for line in () if FUNCTIONS[name].uses_floats else FUNCTIONS[name].text.splitlines():
            if line.startswith("declare"):
                if line.partition(" #")[0] in declared:
                    continue
                declared.add(line)
            lines.append(line)
    return "\n".join(lines)


def execute(oracle: Oracle, instruction: Instruction, op_class: int, word: int, calls: Sequence[Inline],
            compiler: Compiler, memory: int) -> None:  # fmt: skip
    """Let ``oracle`` execute the instruction at the hart's pc, with the inline calls before and after it.

    A slow instruction that faults appends its event to columns, too: its block counts as executed.
    """
    hart, row, pc = oracle.hart, instruction.row, oracle.hart.pc
    mine = [call for call in calls if call.takes(row.mnemonic, op_class, pc)]
    known = {"pc": pc, "word": word, "opcode": row.index, "class": op_class}

    def write() -> None:
        for one in mine:
            if isinstance(one, ColumnSet):
                append(one, known)

    def operands() -> None:
        for name, kind, number in zip(
            _OPERANDS,
            row.register_kinds[1:],
            (instruction.rs1, instruction.rs2, instruction.rs3),
            strict=True,
        ):
            known[name] = 0 if kind == "-" else int((hart.f if kind == "f" else hart.x)[number])
        oracle.instruction = instruction
        known["address"] = address_of(oracle, row) if row.access else 0

    def make(after: bool) -> None:
        for call in mine:
            if isinstance(call, InlineCall) and call.after == after:
                arguments = [known.get(name, 0) for name in call.fields if name not in POINTERS]
                function = FUNCTIONS[call.function]
                prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_uint64] * len(arguments))
                address = function.address(compiler, False)
                prototype(address)(hart.address, memory, call.state, *arguments)

    operands()
    make(after=False)
    operands()  # a function may have changed them
    try:
        oracle.execute(instruction)
    except BaseException:
        if row.slow:
            write()
        raise
    target = hart.pc if row.ends_block and not row.slow else 0
    rd = (hart.f if row.register_kinds[0] == "f" else hart.x)[instruction.rd]
    known.update(
        value=oracle.memory_value if row.access else 0,
        rd=0 if row.register_kinds[0] == "-" else int(rd),
        target=target,
        taken=int(bool(target) and target != pc + instruction.length_bytes),
    )
    write()
    make(after=True)


assert STATE_BYTES <= 2048
