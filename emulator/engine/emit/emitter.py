"""Instruction semantics as LLVM IR text: the algebra of `emulator.isa.algebra` over LLVM values.

An integer value is a Python int (a constant, folded here) or the name of an i64; a truth value is a bool or the
name of an i1; a floating-point value is the name of a double or float. `Emitter` holds what every translation
shares; its subclasses define how operands are reached, what a memory access records, and how control leaves.
"""

from __future__ import annotations

from typing import Any

from emulator.engine.hart_state import OFFSETS, Place, followed_places
from emulator.events import HELD_WRITTEN, TraceSelection
from emulator.isa.decode import DYNAMIC_ROUNDING

MASK = (1 << 64) - 1
ADDRESS_LIMIT = (1 << 31) - 1  # the highest guest address
V = Any

RARELY = "!prof !0"
DECLARATIONS = """
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctpop.i64(i64)
declare i64 @llvm.bswap.i64(i64)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.sse.stmxcsr(ptr)
declare double @llvm.fabs.f64(double)
declare double @llvm.copysign.f64(double, double)
declare double @llvm.experimental.constrained.roundeven.f64(double, metadata)
declare double @llvm.experimental.constrained.trunc.f64(double, metadata)
declare double @llvm.experimental.constrained.floor.f64(double, metadata)
declare double @llvm.experimental.constrained.ceil.f64(double, metadata)
declare double @llvm.experimental.constrained.nearbyint.f64(double, metadata, metadata)
declare i64 @llvm.experimental.constrained.fptosi.i64.f64(double, metadata)
declare double @llvm.experimental.constrained.sitofp.f64.i64(i64, metadata, metadata)
declare float @llvm.experimental.constrained.sitofp.f32.i64(i64, metadata, metadata)
declare float @llvm.experimental.constrained.fptrunc.f32.f64(double, metadata, metadata)
declare double @llvm.experimental.constrained.fpext.f64.f32(float, metadata)
""" + "\n".join(
    f"""declare {t} @llvm.experimental.constrained.fadd.{s}({t}, {t}, metadata, metadata)
declare {t} @llvm.experimental.constrained.fsub.{s}({t}, {t}, metadata, metadata)
declare {t} @llvm.experimental.constrained.fmul.{s}({t}, {t}, metadata, metadata)
declare {t} @llvm.experimental.constrained.fdiv.{s}({t}, {t}, metadata, metadata)
declare {t} @llvm.experimental.constrained.sqrt.{s}({t}, metadata, metadata)
declare {t} @llvm.experimental.constrained.fma.{s}({t}, {t}, {t}, metadata, metadata)
declare i1 @llvm.experimental.constrained.fcmp.{s}({t}, {t}, metadata, metadata)
declare i1 @llvm.experimental.constrained.fcmps.{s}({t}, {t}, metadata, metadata)"""
    for t, s in (("double", "f64"), ("float", "f32"))
)
INVARIANT = "!invariant.load !{}"
METADATA = '\n!0 = !{!"branch_weights", i32 1, i32 1048576}\n'


class Emitter:
    """Emits into ``lines``; the current instruction's rounding field is in ``rm``."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0
        self.rm = DYNAMIC_ROUNDING
        self.label = "entry"  # of the LLVM block being filled
        self.keeps_memory = False  # whether the current instruction's memory value is to be put in `memory_value`
        self.memory_value: V = 0
        self.volatile = ""  # "volatile " when accesses must stay between the stores around them

    # --- text
    def let(self, text: str) -> str:
        """Emit an instruction with a result; the name of the result."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"{name} = {text}")
        return name

    def say(self, text: str) -> None:
        """Emit a line."""
        self.lines.append(text)

    def start(self, label: str) -> None:
        """Begin an LLVM block."""
        self.lines.append(f"{label}:")
        self.label = label

    def fresh_label(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def state_pointer(self, field: str) -> str:
        return self.let(f"getelementptr i8, ptr %st, i64 {OFFSETS[field]}")

    def state_load(self, field: str, llvm_type: str = "i64") -> str:
        return self.let(f"load {llvm_type}, ptr {self.state_pointer(field)}")

    def state_store(self, field: str, value: V, llvm_type: str = "i64") -> None:
        self.say(f"store {llvm_type} {value}, ptr {self.state_pointer(field)}")

    def state_store_now(self, field: str, value: V, llvm_type: str = "i64") -> None:
        """A volatile store: it stays in its place between other volatile accesses."""
        self.say(f"store volatile {llvm_type} {value}, ptr {self.state_pointer(field)}")

    # --- integers
    def const(self, value: int) -> int:
        return value & MASK

    def add(self, a: V, b: V) -> V:
        if isinstance(b, int):
            if isinstance(a, int):
                return (a + b) & MASK
            if b == 0:
                return a
        elif a == 0 and isinstance(a, int):
            return b
        return self.let(f"add i64 {a}, {b}")

    def sub(self, a: V, b: V) -> V:
        if b == 0 and isinstance(b, int):
            return a
        return self.let(f"sub i64 {a}, {b}")

    def mul(self, a: V, b: V) -> V:
        return self.let(f"mul i64 {a}, {b}")

    def mul_high(self, a: V, b: V, a_signed: bool, b_signed: bool) -> V:
        wide_a = self.let(f"{'sext' if a_signed else 'zext'} i64 {a} to i128")
        wide_b = self.let(f"{'sext' if b_signed else 'zext'} i64 {b} to i128")
        product = self.let(f"mul i128 {wide_a}, {wide_b}")
        high = self.let(f"lshr i128 {product}, 64")
        return self.let(f"trunc i128 {high} to i64")

    def div_s(self, a: V, b: V) -> V:
        return self.let(f"sdiv i64 {a}, {b}")

    def div_u(self, a: V, b: V) -> V:
        return self.let(f"udiv i64 {a}, {b}")

    def rem_s(self, a: V, b: V) -> V:
        return self.let(f"srem i64 {a}, {b}")

    def rem_u(self, a: V, b: V) -> V:
        return self.let(f"urem i64 {a}, {b}")

    def and_(self, a: V, b: V) -> V:
        if isinstance(a, int) and isinstance(b, int):
            return a & b
        return self.let(f"and i64 {a}, {b}")

    def or_(self, a: V, b: V) -> V:
        if b == 0 and isinstance(b, int):
            return a
        return self.let(f"or i64 {a}, {b}")

    def xor(self, a: V, b: V) -> V:
        return self.let(f"xor i64 {a}, {b}")

    def shl(self, a: V, amount: V) -> V:
        return self.let(f"shl i64 {a}, {amount}")

    def shr_u(self, a: V, amount: V) -> V:
        return self.let(f"lshr i64 {a}, {amount}")

    def shr_s(self, a: V, amount: V) -> V:
        return self.let(f"ashr i64 {a}, {amount}")

    def sext(self, a: V, bits: int) -> V:
        if isinstance(a, int):
            a &= (1 << bits) - 1
            return (a - (1 << bits) if a >> (bits - 1) else a) & MASK
        low = self.let(f"trunc i64 {a} to i{bits}")
        return self.let(f"sext i{bits} {low} to i64")

    def zext(self, a: V, bits: int) -> V:
        if isinstance(a, int):
            return a & ((1 << bits) - 1)
        return self.let(f"and i64 {a}, {(1 << bits) - 1}")

    def count_leading_zeros(self, a: V, bits: int) -> V:
        if bits == 64:
            return self.let(f"call i64 @llvm.ctlz.i64(i64 {a}, i1 false)")
        low = self.zext(a, bits)
        count = self.let(f"call i64 @llvm.ctlz.i64(i64 {low}, i1 false)")
        return self.sub(count, 64 - bits)

    def count_trailing_zeros(self, a: V, bits: int) -> V:
        if bits < 64:
            a = self.let(f"or i64 {a}, {1 << bits}")
        return self.let(f"call i64 @llvm.cttz.i64(i64 {a}, i1 false)")

    def count_ones(self, a: V) -> V:
        return self.let(f"call i64 @llvm.ctpop.i64(i64 {a})")

    def byte_swap(self, a: V) -> V:
        return self.let(f"call i64 @llvm.bswap.i64(i64 {a})")

    # --- truth values
    def eq(self, a: V, b: V) -> V:
        return self.let(f"icmp eq i64 {a}, {b}")

    def ne(self, a: V, b: V) -> V:
        return self.let(f"icmp ne i64 {a}, {b}")

    def lt_s(self, a: V, b: V) -> V:
        return self.let(f"icmp slt i64 {a}, {b}")

    def lt_u(self, a: V, b: V) -> V:
        return self.let(f"icmp ult i64 {a}, {b}")

    def not_(self, a: V) -> V:
        return self.let(f"xor i1 {a}, true")

    def both(self, a: V, b: V) -> V:
        return self.let(f"and i1 {a}, {b}")

    def either(self, a: V, b: V) -> V:
        return self.let(f"or i1 {a}, {b}")

    def flag(self, a: V) -> V:
        return self.let(f"zext i1 {a} to i64")

    def select(self, condition: V, a: V, b: V) -> V:
        return self.let(f"select i1 {condition}, i64 {a}, i64 {b}")

    def count_at(self, pointer: V) -> None:
        """Add one to the 64-bit counter at ``pointer``, a host address."""
        before = self.let(f"load i64, ptr {pointer}")
        self.say(f"store i64 {self.let(f'add i64 {before}, 1')}, ptr {pointer}")

    def follow_access(self, address: V, time: V, is_store: bool, selection: TraceSelection) -> None:
        """Call the function for missing data if the data cache does not hold the line at ``address``, and for all
        stores if they are selected; else mark the line as written if ``is_store``. Store ``time`` (an i32) as the time
        of its last access.

        The address may lie in a guard when the access is about to fault: the tables cover all of 32 bits.
        """
        places = followed_places(selection.followed_lines)
        low = address & 0xFFFFFFFF if isinstance(address, int) else self.let(f"trunc i64 {address} to i32")
        line = self.let(f"zext i32 {self.let(f'lshr i32 {low}, {selection.followed_lines[0]}')} to i64")
        self._note_time(places["data_times"], line, time)
        if is_store and selection.follows_stores:
            self.call_missing("access", self.let(f"zext i32 {low} to i64"), 1, time)
            return
        place, absent = self._held(places["held_data"], line)
        missing, held, on = (self.fresh_label(stem) for stem in ("missing", "held", "on"))
        self.say(f"br i1 {absent}, label %{missing}, label %{held if is_store else on}, {RARELY}")
        self.start(missing)
        self.call_missing("access", self.let(f"zext i32 {low} to i64"), int(is_store), time)
        self.say(f"br label %{on}")
        if is_store:
            self.start(held)
            self.say(f"store i8 {HELD_WRITTEN}, ptr {place}")
            self.say(f"br label %{on}")
        self.start(on)

    def follow_fetch(self, begin: int, end: int, time: V, selection: TraceSelection) -> None:
        """Store ``time`` (an i32) as that of the last fetch of each line from ``begin`` to before ``end``, later ones a
        little later, and call the function for missing code for those that the instruction cache does not hold."""
        bits, places = selection.followed_lines[1], followed_places(selection.followed_lines)
        first = begin >> bits
        for line in range(first, (end - 1 >> bits) + 1):
            time = time if line == first else self.let(f"add i32 {time}, 1")
            self._note_time(places["code_times"], line, time)
            _, absent = self._held(places["held_code"], line)
            missing, on = self.fresh_label("missing"), self.fresh_label("on")
            self.say(f"br i1 {absent}, label %{missing}, label %{on}, {RARELY}")
            self.start(missing)
            self.call_missing("fetch", line << bits, (line << bits) + 1, time)
            self.say(f"br label %{on}")
            self.start(on)

    def _note_time(self, table: Place, line: V, time: V) -> None:
        """Store ``time`` in the table of times at ``line``."""
        base = self.let(f"getelementptr i8, ptr %st, i64 {table.offset}")
        self.say(f"store i32 {time}, ptr {self.let(f'getelementptr i32, ptr {base}, i64 {line}')}")

    def _held(self, table: Place, line: V) -> tuple[V, V]:
        """The place of ``line`` in a table of held lines, and whether the line is not held, or its page is not."""
        base = self.let(f"getelementptr i8, ptr %st, i64 {table.offset}")
        place = self.let(f"getelementptr i8, ptr {base}, i64 {line}")
        return place, self.let(f"icmp slt i8 {self.let(f'load i8, ptr {place}')}, 1")

    def call_missing(self, what: str, first: V, second: V, time: V) -> None:
        """Call the function for missing data ("access") or code ("fetch"), at ``time`` (an i32)."""
        place = self.state_pointer("missing")
        self.say(f"store i64 {first}, ptr {place}")
        for offset, value in ((8, second), (16, self.let(f"zext i32 {time} to i64"))):
            self.say(f"store i64 {value}, ptr {self.let(f'getelementptr i8, ptr {place}, i64 {offset}')}")
        self.say(f"call preserve_mostcc void {self.state_load(f'{what}_gate', 'ptr')}(ptr %st)")

    def time_before(self, budget: V) -> str:
        """The time (an i32) of the instruction at which ``budget`` instructions may still run."""
        end = self.let(f"load i64, ptr {self.state_pointer('touch_time')}, {INVARIANT}")
        return self.let(f"trunc i64 {self.let(f'sub i64 {end}, {budget}')} to i32")

    # --- memory
    def check_address(self, base: V, address: V) -> None:
        """Raise a fault unless ``base`` lies in the guest address space (the guards cover offsets)."""
        raise NotImplementedError

    def fault_if(self, condition: V, address: V) -> None:
        """Raise a fault at ``address`` if ``condition`` holds."""
        raise NotImplementedError

    def require_aligned(self, address: V, size_bytes: int) -> None:
        low = self.and_(address, size_bytes - 1)
        if low != 0:
            self.fault_if(self.let(f"icmp ne i64 {low}, 0"), address)

    def record_access(self, address: V) -> None:
        """Put the effective address in the dynamic record, and pass on an access to a line that is not held, as far as
        they are selected."""
        raise NotImplementedError

    def load(self, base: V, offset: V, size_bytes: int, signed: bool, same_access: bool = False) -> V:
        address = self.add(base, offset)
        self.check_address(base, address)
        pointer = self.let(f"getelementptr i8, ptr %mem, i64 {address}")
        bits = 8 * size_bytes
        value: V = self.let(f"load {self.volatile}i{bits}, ptr {pointer}, align 1")
        if not same_access:  # after it: an access that faults is not made
            self.record_access(address)
        if size_bytes == 8:
            if not same_access:
                self.memory_value = value
            return value
        if self.keeps_memory and not same_access:
            self.memory_value = self.let(f"zext i{bits} {value} to i64")
        return self.let(f"{'sext' if signed else 'zext'} i{bits} {value} to i64")

    def store(self, base: V, offset: V, size_bytes: int, value: V, same_access: bool = False) -> None:
        address = self.add(base, offset)
        self.check_address(base, address)
        if self.keeps_memory and not same_access:
            self.memory_value = self.zext(value, 8 * size_bytes) if size_bytes < 8 else value
        pointer = self.let(f"getelementptr i8, ptr %mem, i64 {address}")
        bits = 8 * size_bytes
        if size_bytes < 8:
            value = value & ((1 << bits) - 1) if isinstance(value, int) else self.let(f"trunc i64 {value} to i{bits}")
        self.say(f"store {self.volatile}i{bits} {value}, ptr {pointer}, align 1")
        if not same_access:
            self.record_access(address)

    def reservation(self) -> V:
        return self.state_load("reservation")

    def set_reservation(self, address: V) -> None:
        self.state_store("reservation", address)

    # --- slow instructions: the oracle executes them for every engine, and a translation ends before them
    def _slow(self) -> Any:
        raise AssertionError("slow instructions are never translated")

    def ecall(self) -> None:
        self._slow()

    def ebreak(self) -> None:
        self._slow()

    def instruction_fence(self) -> None:
        self._slow()

    def csr_read(self) -> V:
        return self._slow()

    def csr_write(self, value: V) -> None:
        self._slow()
