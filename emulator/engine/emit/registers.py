"""Guest registers in the emission of a region: the LLVM value of each, and its place between blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from emulator.engine.emit.float_emitter import FloatEmitter
from emulator.isa.decode import Instruction
from emulator.isa.softfloat import F64, Format

V = Any
BOX = 0xFFFFFFFF_00000000


class RegisterEmitter(FloatEmitter):
    """Emits accesses to guest registers. ``resident``: between blocks registers are in the state buffer, not in
    variables of the function."""

    def __init__(self, resident: bool) -> None:
        super().__init__()
        self._resident = resident
        self.instruction: Instruction
        self._pc = 0
        self._values: dict[int, V] = {}  # x registers: current value
        self._fp: dict[int, tuple[Format | None, V]] = {}  # f registers: (format or None for raw, value)
        self._dirty: set[int] = set()  # registers written in this block and not stored in their places yet
        self._unsynced: set[int] = set()  # registers written and not in the state buffer yet; for exact faults
        self._checked: set[V] = set()  # values that this block has checked to be addresses
        self._checked_registers: set[int] = set()  # registers checked to hold addresses before this block
        self._known_boxed: set[int] = set()  # f registers known to be NaN-boxed at the start of this block

    def _place(self, n: int) -> str:
        """A pointer to the place of register ``n`` between blocks."""
        return self.let(f"getelementptr i8, ptr %st, i64 {8 * n}") if self._resident else f"%r{n}"

    def _forget(self) -> None:
        """Drop all values: registers are in their places, where they may have been changed."""
        self._values.clear()
        self._fp.clear()
        self._dirty.clear()
        self._unsynced.clear()
        self._checked.clear()
        self._checked_registers.clear()
        self._known_boxed.clear()

    def _sync_state(self) -> None:
        """Make the state buffer exact before the current instruction, which may fault."""
        for n in sorted(self._unsynced):
            value = self._x(n) if n < 32 else self._raw(n)
            self.say(f"store volatile i64 {value}, ptr {self.let(f'getelementptr i8, ptr %st, i64 {8 * n}')}")
        if self._resident:
            self._dirty -= self._unsynced
        self._unsynced.clear()
        self.state_store_now("fault_pc", self._pc)

    def _flush(self) -> None:
        """Store dirty registers in their places."""
        for n in sorted(self._dirty):
            if n < 32:
                self.say(f"store i64 {self._values[n]}, ptr {self._place(n)}")
                continue
            fmt, value = self._fp[n]
            if fmt is None:
                value = self.let(f"bitcast i64 {value} to double")
            elif fmt is not F64:
                value = self.nan_box(value)
            self.say(f"store double {value}, ptr {self._place(n)}")

    def _store(self, registers: Iterable[int]) -> None:
        """Store these registers in the state buffer."""
        for n in sorted(registers):
            value = self._x(n) if n < 32 else self._raw(n)
            self.say(f"store i64 {value}, ptr {self.let(f'getelementptr i8, ptr %st, i64 {8 * n}')}")

    def _register_value(self, kind: str, number: int) -> V:
        """The 64-bit pattern of x or f register ``number``; ``kind``: "x" or "f"."""
        return self._raw(32 + number) if kind == "f" else self._x(number)

    # --- operands
    def _x(self, number: int) -> V:
        """The value of x register ``number``."""
        if number == 0:
            return 0
        value = self._values.get(number)
        if value is None:
            value = self._values[number] = self.let(f"load i64, ptr {self._place(number)}")
        return value

    def rs1(self) -> V:
        return self._x(self.instruction.rs1)

    def rs2(self) -> V:
        return self._x(self.instruction.rs2)

    def imm(self) -> int:
        return self.instruction.imm & ((1 << 64) - 1)

    def pc(self) -> int:
        return self._pc

    def next_pc(self) -> int:
        return self._pc + self.instruction.length_bytes

    def csr_number(self) -> int:
        return self.instruction.imm

    def csr_immediate(self) -> int:
        return self.instruction.rs1

    def rs1_field_is_0(self) -> bool:
        return self.instruction.rs1 == 0

    def rd_field_is_0(self) -> bool:
        return self.instruction.rd == 0

    def wx(self, value: V) -> None:
        if self.instruction.rd:
            self._values[self.instruction.rd] = value
            self._dirty.add(self.instruction.rd)
            self._unsynced.add(self.instruction.rd)
            self._checked_registers.discard(self.instruction.rd)

    def _raw(self, number: int) -> V:
        """The 64-bit pattern of an f register (numbered from 32)."""
        fmt, value = self._fp_register(number)
        if fmt is None:
            return value
        bits = self.to_bits(fmt, value)
        return bits if fmt is F64 else self.let(f"or i64 {bits}, {BOX}")

    def _fp_register(self, number: int) -> tuple[Format | None, V]:
        """Format (None for raw) and value of f register ``number`` (from 32 on)."""
        found = self._fp.get(number)
        if found is None:
            found = self._fp[number] = (F64, self.let(f"load double, ptr {self._place(number)}"))
        return found

    def _fp_value(self, fmt: Format, number: int) -> V:
        """The value of f register ``number`` (from 32 on) in format ``fmt``."""
        held, value = self._fp_register(number)
        if held is fmt:
            return value
        if fmt is not F64 and held is F64 and number in self._known_boxed:
            return self.unbox_known(value)
        raw = self._raw(number)
        return self.from_bits(F64, raw) if fmt is F64 else self.unbox(raw)

    def rf1(self, fmt: Format) -> V:
        return self._fp_value(fmt, 32 + self.instruction.rs1)

    def rf2(self, fmt: Format) -> V:
        return self._fp_value(fmt, 32 + self.instruction.rs2)

    def rf3(self, fmt: Format) -> V:
        return self._fp_value(fmt, 32 + self.instruction.rs3)

    def rf1_bits(self, fmt: Format) -> V:
        return self.to_bits(fmt, self.rf1(fmt))

    def rf2_bits(self, fmt: Format) -> V:
        return self.to_bits(fmt, self.rf2(fmt))

    def rf1_raw(self) -> V:
        return self._raw(32 + self.instruction.rs1)

    def rf2_raw(self) -> V:
        return self._raw(32 + self.instruction.rs2)

    def wf(self, fmt: Format, value: V) -> None:
        number = 32 + self.instruction.rd
        self._fp[number] = (fmt, value)
        self._dirty.add(number)
        self._unsynced.add(number)
        self._known_boxed.discard(number)

    def wf_bits(self, fmt: Format, bits: V) -> None:
        number = 32 + self.instruction.rd
        self._fp[number] = (None, bits) if fmt is F64 else (fmt, self.from_bits(fmt, bits))
        self._dirty.add(number)
        self._unsynced.add(number)
        self._known_boxed.discard(number)
