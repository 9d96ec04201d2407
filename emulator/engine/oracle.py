"""The oracle: executes guest instructions one at a time on Python integers. It defines what is correct.

It is slow and plain on purpose. Every other engine is tested against it, and leaves to it the slow instructions
(environment calls, counters) and rounding modes that the host does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from emulator.engine.blocks import Block
from emulator.engine.hart_state import Hart
from emulator.errors import GuestFault, misaligned_text
from emulator.isa import softfloat
from emulator.isa.decode import DYNAMIC_ROUNDING, Instruction
from emulator.isa.softfloat import F32, Format

MASK = (1 << 64) - 1
ECALL, ECALL_BYTES = (0x73).to_bytes(4, "little"), 4
SIGILL, SIGTRAP, SIGBUS = 4, 5, 7
BOX = 0xFFFFFFFF_00000000


def signed(value: int, bits: int = 64) -> int:
    """The two's-complement reading of the low ``bits``."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


class OracleMemory(Protocol):
    """The part of guest memory that instructions use; raises `MemoryFault`-like errors on bad access."""

    def read_int(self, address: int, size_bytes: int) -> int: ...
    def write_int(self, address: int, size_bytes: int, value: int) -> None: ...


class Environment(Protocol):
    """The hart's surroundings: system calls, counters, the instruction cache."""

    def ecall(self) -> None: ...
    def read_csr(self, number: int) -> int | None: ...
    def write_csr(self, number: int, value: int) -> bool: ...
    def instruction_fence(self) -> None: ...


class Hooks(Protocol):
    """Callbacks for the instructions of a block; they may change registers and memory, not the pc.

    ``enter`` is called before the block, when the record ends with the previous block: the selection may change there.
    """

    def enter(self, block: Block) -> None: ...
    def before(self, pc: int, instruction: Instruction) -> None: ...
    def after(self, pc: int, instruction: Instruction) -> None: ...


class Oracle:
    """Implements `emulator.isa.algebra.Machine` concretely.

    ``on_access(address)`` is called for each memory access; ``hooks`` are called before and after instructions.
    ``memory_value``: the value that the last access loaded or, for a store, stored.
    """

    def __init__(
        self,
        hart: Hart,
        memory: OracleMemory,
        environment: Environment,
        on_access: Callable[[int], None] | None = None,
    ) -> None:
        self.hart = hart
        self.memory = memory
        self.environment = environment
        self.on_access = on_access
        self.hooks: Hooks | None = None
        self.memory_value = 0
        self.instruction: Instruction
        self._pc = 0
        self._next = 0

    def execute(self, instruction: Instruction) -> None:
        """Execute ``instruction`` at the hart's pc and advance the pc. Raises `GuestFault` and the memory's faults."""
        self.instruction = instruction
        self._pc = self.hart.pc
        self._next = self._pc + instruction.length_bytes
        if instruction.rm != DYNAMIC_ROUNDING:
            self._rm = instruction.rm
        else:
            self._rm = self.hart.frm
            if self._rm > 4 and "rm" in instruction.row.fields:
                self._illegal("the dynamic rounding mode is reserved")
        if self.hooks is not None:
            self.hooks.before(self._pc, instruction)
        instruction.row.semantics(self)
        self.hart.pc = self._next & MASK
        if self.hooks is not None:
            self.hooks.after(self._pc, instruction)

    def _illegal(self, why: str) -> NoReturn:
        raise GuestFault(f"illegal instruction: {why}", SIGILL, self._pc)

    # --- operands
    def rs1(self) -> int:
        return int(self.hart.x[self.instruction.rs1])

    def rs2(self) -> int:
        return int(self.hart.x[self.instruction.rs2])

    def imm(self) -> int:
        return self.instruction.imm & MASK

    def pc(self) -> int:
        return self._pc

    def next_pc(self) -> int:
        return self._pc + self.instruction.length_bytes

    def wx(self, value: int) -> None:
        if self.instruction.rd:
            self.hart.x[self.instruction.rd] = value & MASK

    # --- integers
    def const(self, value: int) -> int:
        return value & MASK

    def add(self, a: int, b: int) -> int:
        return (a + b) & MASK

    def sub(self, a: int, b: int) -> int:
        return (a - b) & MASK

    def mul(self, a: int, b: int) -> int:
        return (a * b) & MASK

    def mul_high(self, a: int, b: int, a_signed: bool, b_signed: bool) -> int:
        return ((signed(a) if a_signed else a) * (signed(b) if b_signed else b) >> 64) & MASK

    def div_s(self, a: int, b: int) -> int:
        x, y = signed(a), signed(b)
        magnitude = abs(x) // abs(y)
        return (magnitude if (x < 0) == (y < 0) else -magnitude) & MASK

    def div_u(self, a: int, b: int) -> int:
        return a // b

    def rem_s(self, a: int, b: int) -> int:
        x, y = signed(a), signed(b)
        magnitude = abs(x) % abs(y)
        return (-magnitude if x < 0 else magnitude) & MASK

    def rem_u(self, a: int, b: int) -> int:
        return a % b

    def and_(self, a: int, b: int) -> int:
        return a & b

    def or_(self, a: int, b: int) -> int:
        return a | b

    def xor(self, a: int, b: int) -> int:
        return a ^ b

    def shl(self, a: int, amount: int) -> int:
        return (a << amount) & MASK

    def shr_u(self, a: int, amount: int) -> int:
        return a >> amount

    def shr_s(self, a: int, amount: int) -> int:
        return (signed(a) >> amount) & MASK

    def sext(self, a: int, bits: int) -> int:
        return signed(a, bits) & MASK

    def zext(self, a: int, bits: int) -> int:
        return a & ((1 << bits) - 1)

    def count_leading_zeros(self, a: int, bits: int) -> int:
        return bits - (a & ((1 << bits) - 1)).bit_length()

    def count_trailing_zeros(self, a: int, bits: int) -> int:
        a &= (1 << bits) - 1
        return (a & -a).bit_length() - 1 if a else bits

    def count_ones(self, a: int) -> int:
        return a.bit_count()

    def byte_swap(self, a: int) -> int:
        return int.from_bytes(a.to_bytes(8, "little"), "big")

    # --- truth values
    def eq(self, a: int, b: int) -> bool:
        return a == b

    def ne(self, a: int, b: int) -> bool:
        return a != b

    def lt_s(self, a: int, b: int) -> bool:
        return signed(a) < signed(b)

    def lt_u(self, a: int, b: int) -> bool:
        return a < b

    def not_(self, a: bool) -> bool:
        return not a

    def both(self, a: bool, b: bool) -> bool:
        return a and b

    def either(self, a: bool, b: bool) -> bool:
        return a or b

    def flag(self, a: bool) -> int:
        return int(a)

    def select(self, condition: bool, a: int, b: int) -> int:
        return a if condition else b

    # --- memory
    def load(self, base: int, offset: int, size_bytes: int, is_signed: bool, same_access: bool = False) -> int:
        address = (base + offset) & MASK
        if self.on_access is not None and not same_access:
            self.on_access(address)
        value = self.memory.read_int(address, size_bytes)
        if not same_access:
            self.memory_value = value
        return signed(value, 8 * size_bytes) & MASK if is_signed else value

    def store(self, base: int, offset: int, size_bytes: int, value: int, same_access: bool = False) -> None:
        address = (base + offset) & MASK
        if self.on_access is not None and not same_access:
            self.on_access(address)
        value &= (1 << 8 * size_bytes) - 1
        if not same_access:
            self.memory_value = value
        self.memory.write_int(address, size_bytes, value)

    def require_aligned(self, address: int, size_bytes: int) -> None:
        if address % size_bytes:
            raise GuestFault(misaligned_text(address, size_bytes), SIGBUS, self._pc, address)

    def reservation(self) -> int:
        return self.hart.get("reservation")

    def set_reservation(self, address: int) -> None:
        self.hart.set("reservation", address)

    # --- control
    def jump(self, target: int) -> None:
        self._next = target

    def branch(self, condition: bool, target: int) -> None:
        if condition:
            self._next = target

    def ecall(self) -> None:
        self.execute_ecall(self._pc)
        self._next = self.hart.pc

    def execute_ecall(self, pc: int) -> None:
        """`execute` for an ecall at the hart's ``pc``, the most frequent slow instruction."""
        # The kernel sees, and signal handlers and sigreturn may change, the pc after the call.
        self.hart.enter_trap(pc + ECALL_BYTES)
        self.environment.ecall()

    def ebreak(self) -> None:
        raise GuestFault("breakpoint (ebreak)", SIGTRAP, self._pc)

    def instruction_fence(self) -> None:
        self.environment.instruction_fence()

    # --- control and status registers
    def csr_number(self) -> int:
        return self.instruction.imm & 0xFFF

    def csr_immediate(self) -> int:
        return self.instruction.rs1

    def rs1_field_is_0(self) -> bool:
        return self.instruction.rs1 == 0

    def rd_field_is_0(self) -> bool:
        return self.instruction.rd == 0

    def csr_read(self) -> int:
        number = self.csr_number()
        value = self.environment.read_csr(number)
        if value is None:
            self._illegal(f"CSR {number:#05x} does not exist or is not readable in user mode")
        return value & MASK

    def csr_write(self, value: int) -> None:
        number = self.csr_number()
        if not self.environment.write_csr(number, value):
            self._illegal(f"CSR {number:#05x} does not exist or is not writable in user mode")

    def fflags(self) -> int:
        return self.hart.fcsr & 31

    def frm(self) -> int:
        return self.hart.frm

    def set_fcsr(self, flags: int | None, frm: int | None) -> None:
        self.hart.fcsr = (self.frm() if frm is None else frm) << 5 | (self.fflags() if flags is None else flags)

    # --- floating-point registers
    def _unboxed(self, fmt: Format, number: int) -> int:
        raw = int(self.hart.f[number])
        if fmt.width == 64:
            return raw
        return raw & 0xFFFFFFFF if raw >> 32 == 0xFFFFFFFF else fmt.canonical_nan

    def rf1(self, fmt: Format) -> int:
        return self._unboxed(fmt, self.instruction.rs1)

    def rf2(self, fmt: Format) -> int:
        return self._unboxed(fmt, self.instruction.rs2)

    def rf3(self, fmt: Format) -> int:
        return self._unboxed(fmt, self.instruction.rs3)

    rf1_bits, rf2_bits = rf1, rf2

    def rf1_raw(self) -> int:
        return int(self.hart.f[self.instruction.rs1])

    def rf2_raw(self) -> int:
        return int(self.hart.f[self.instruction.rs2])

    def wf(self, fmt: Format, value: int) -> None:
        self.hart.f[self.instruction.rd] = value if fmt is not F32 else value | BOX

    wf_bits = wf

    # --- floating-point operations
    def _raise(self, result: tuple[int, int]) -> int:
        value, flags = result
        if flags:
            self.hart.set("fflags", self.hart.get("fflags") | flags)
        return value

    def fadd(self, fmt: Format, a: int, b: int) -> int:
        return self._raise(softfloat.add(fmt, a, b, self._rm))

    def fsub(self, fmt: Format, a: int, b: int) -> int:
        return self._raise(softfloat.sub(fmt, a, b, self._rm))

    def fmul(self, fmt: Format, a: int, b: int) -> int:
        return self._raise(softfloat.mul(fmt, a, b, self._rm))

    def fdiv(self, fmt: Format, a: int, b: int) -> int:
        return self._raise(softfloat.div(fmt, a, b, self._rm))

    def fsqrt(self, fmt: Format, a: int) -> int:
        return self._raise(softfloat.sqrt(fmt, a, self._rm))

    def ffma(self, fmt: Format, a: int, b: int, c: int, negate_product: bool, negate_addend: bool) -> int:
        sign = 1 << (fmt.width - 1)
        if negate_product:
            a ^= sign
        if negate_addend:
            c ^= sign
        return self._raise(softfloat.fma(fmt, a, b, c, self._rm))

    def fmin(self, fmt: Format, a: int, b: int) -> int:
        return self._raise(softfloat.minimum(fmt, a, b))

    def fmax(self, fmt: Format, a: int, b: int) -> int:
        return self._raise(softfloat.maximum(fmt, a, b))

    def feq(self, fmt: Format, a: int, b: int) -> bool:
        return bool(self._raise(softfloat.eq(fmt, a, b)))

    def flt(self, fmt: Format, a: int, b: int) -> bool:
        return bool(self._raise(softfloat.lt(fmt, a, b)))

    def fle(self, fmt: Format, a: int, b: int) -> bool:
        return bool(self._raise(softfloat.le(fmt, a, b)))

    def fclass(self, fmt: Format, bits: int) -> int:
        return softfloat.classify(fmt, bits)

    def fp_convert(self, source: Format, target: Format, a: int) -> int:
        return self._raise(softfloat.convert(source, target, a, self._rm))

    def fp_to_int(self, fmt: Format, a: int, bits: int, is_signed: bool) -> int:
        """Results of 32 bits are sign-extended, the unsigned ones too (Volume I, section 20.7)."""
        value = self._raise(softfloat.to_int(fmt, a, self._rm, bits, is_signed))
        return signed(value, bits) & MASK

    def int_to_fp(self, fmt: Format, value: int, bits: int, is_signed: bool) -> int:
        number: Any = signed(value, bits) if is_signed else value & ((1 << bits) - 1)
        return self._raise(softfloat.from_int(fmt, number, self._rm))
