"""Instruction rows of M, A, Zba, Zbb and Zbs: Volume I (20240411), chapters 12, 13 and 28."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulator.events import ACCESS_LOAD, ACCESS_STORE, OpClass
from emulator.isa.algebra import Machine
from emulator.isa.rows import (
    OP,
    OP_32,
    OP_IMM,
    OP_IMM_32,
    Semantics,
    amount,
    amount_32,
    r_row,
    row,
    shift_row,
    unary_row,
    word,
)

# --- M: multiply and divide --------------------------------------------------------------------------------
MUL, DIV = OpClass.INT_MUL, OpClass.INT_DIV


def _divide(signed: bool, remainder: bool, bits: int) -> Semantics:
    """Division: x/0 is all ones (remainder x); the signed overflow gives the dividend (remainder 0): table 11."""

    def semantics(m: Machine) -> None:
        a, b = m.rs1(), m.rs2()
        if bits == 32:
            a, b = (m.sext(a, 32), m.sext(b, 32)) if signed else (m.zext(a, 32), m.zext(b, 32))
        by_zero = m.eq(b, m.const(0))
        unsafe = by_zero
        if signed:
            smallest = m.const(-(1 << (bits - 1)))
            overflow = m.both(m.eq(a, smallest), m.eq(b, m.const(-1)))
            unsafe = m.either(by_zero, overflow)
        divisor = m.select(unsafe, m.const(1), b)  # a/1 = a and a%1 = 0: right for the overflow
        if remainder:
            result = m.select(by_zero, a, (m.rem_s if signed else m.rem_u)(a, divisor))
        else:
            result = m.select(by_zero, m.const(-1), (m.div_s if signed else m.div_u)(a, divisor))
        m.wx(m.sext(result, 32) if bits == 32 else result)

    return semantics


r_row("mul", "0000001", "000", OP, lambda m: m.wx(m.mul(m.rs1(), m.rs2())), MUL)
r_row("mulh", "0000001", "001", OP, lambda m: m.wx(m.mul_high(m.rs1(), m.rs2(), True, True)), MUL)
r_row("mulhsu", "0000001", "010", OP, lambda m: m.wx(m.mul_high(m.rs1(), m.rs2(), True, False)), MUL)
r_row("mulhu", "0000001", "011", OP, lambda m: m.wx(m.mul_high(m.rs1(), m.rs2(), False, False)), MUL)
r_row("mulw", "0000001", "000", OP_32, word(lambda m: m.mul(m.rs1(), m.rs2())), MUL)
for _name, _funct3, _signed, _remainder in (
    ("div", "100", True, False), ("divu", "101", False, False),
    ("rem", "110", True, True), ("remu", "111", False, True),
):  # fmt: skip
    r_row(_name, "0000001", _funct3, OP, _divide(_signed, _remainder, 64), DIV)
    r_row(_name + "w", "0000001", _funct3, OP_32, _divide(_signed, _remainder, 32), DIV)

# --- A: atomics. One hart runs at a time, so a read-modify-write is a load and a store. They must be naturally
# aligned, sc even where it fails: no misaligned atomicity granule (chapter 13) ------------------------------
ATOMIC = OpClass.ATOMIC
LOAD_STORE = ACCESS_LOAD | ACCESS_STORE


def _amo(name: str, funct5: str, update: Callable[[Machine, Any, Any], Any]) -> None:
    for suffix, funct3, size in ((".w", "010", 4), (".d", "011", 8)):

        def semantics(m: Machine, size: int = size) -> None:
            address, operand = m.rs1(), m.rs2()
            m.require_aligned(address, size)
            old = m.load(address, m.const(0), size, size == 4)
            if size == 4:
                operand = m.sext(operand, 32)
            m.store(address, m.const(0), size, update(m, old, operand), same_access=True)
            m.wx(old)

        row(
            name + suffix, f"{funct5} aq rl rs2 rs1 {funct3} rd 0101111", ATOMIC, semantics,
            "xxx-", LOAD_STORE, size,
        )  # fmt: skip


def _lt_u(m: Machine, old: Any, operand: Any) -> Any:
    # Both are sign-extended from the same width, which keeps the unsigned order of that width.
    return m.lt_u(old, operand)


_amo("amoswap", "00001", lambda m, old, new: new)
_amo("amoadd", "00000", lambda m, old, new: m.add(old, new))
_amo("amoxor", "00100", lambda m, old, new: m.xor(old, new))
_amo("amoand", "01100", lambda m, old, new: m.and_(old, new))
_amo("amoor", "01000", lambda m, old, new: m.or_(old, new))
_amo("amomin", "10000", lambda m, old, new: m.select(m.lt_s(old, new), old, new))
_amo("amomax", "10100", lambda m, old, new: m.select(m.lt_s(old, new), new, old))
_amo("amominu", "11000", lambda m, old, new: m.select(_lt_u(m, old, new), old, new))
_amo("amomaxu", "11100", lambda m, old, new: m.select(_lt_u(m, old, new), new, old))


def _load_reserved(size: int) -> Semantics:
    def semantics(m: Machine) -> None:
        address = m.rs1()
        m.require_aligned(address, size)
        value = m.load(address, m.const(0), size, size == 4)
        m.set_reservation(address)
        m.wx(value)

    return semantics


def _store_conditional(size: int) -> Semantics:
    """Succeeds if the reservation is for this address; else it stores the old value, so that memory is unchanged.

    That reads the old value is how it is written here: the instruction is a store, and no load. One that fails is a
    store, too, for the static facts of an instruction do not know how it ends.
    """

    def semantics(m: Machine) -> None:
        address, new = m.rs1(), m.rs2()
        m.require_aligned(address, size)
        holds = m.eq(m.reservation(), address)
        old = m.load(address, m.const(0), size, False, same_access=True)
        m.store(address, m.const(0), size, m.select(holds, new, old))
        m.set_reservation(m.const(-1))
        m.wx(m.flag(m.not_(holds)))

    return semantics


for _suffix, _funct3, _size in ((".w", "010", 4), (".d", "011", 8)):
    row("lr" + _suffix, f"00010 aq rl 00000 rs1 {_funct3} rd 0101111", ATOMIC, _load_reserved(_size),
         "xx--", ACCESS_LOAD, _size)  # fmt: skip
    row("sc" + _suffix, f"00011 aq rl rs2 rs1 {_funct3} rd 0101111", ATOMIC, _store_conditional(_size),
         "xxx-", ACCESS_STORE, _size)  # fmt: skip

# --- Zba, Zbb, Zbs: bit manipulation -----------------------------------------------------------------------
for _k in (1, 2, 3):
    r_row(f"sh{_k}add", "0010000", f"{2 * _k:03b}", OP,
       lambda m, k=_k: m.wx(m.add(m.shl(m.rs1(), m.const(k)), m.rs2())))  # type: ignore[misc]  # fmt: skip
    r_row(f"sh{_k}add.uw", "0010000", f"{2 * _k:03b}", OP_32,
       lambda m, k=_k: m.wx(m.add(m.shl(m.zext(m.rs1(), 32), m.const(k)), m.rs2())))  # type: ignore[misc]  # fmt: skip
r_row("add.uw", "0000100", "000", OP_32, lambda m: m.wx(m.add(m.zext(m.rs1(), 32), m.rs2())))
shift_row("slli.uw", "000010", "001", OP_IMM_32, lambda m: m.wx(m.shl(m.zext(m.rs1(), 32), m.imm())))


def _inverted(m: Machine) -> Any:
    return m.xor(m.rs2(), m.const(-1))


r_row("andn", "0100000", "111", OP, lambda m: m.wx(m.and_(m.rs1(), _inverted(m))))
r_row("orn", "0100000", "110", OP, lambda m: m.wx(m.or_(m.rs1(), _inverted(m))))
r_row("xnor", "0100000", "100", OP, lambda m: m.wx(m.xor(m.rs1(), _inverted(m))))
unary_row("clz", "011000000000", "001", OP_IMM, lambda m: m.wx(m.count_leading_zeros(m.rs1(), 64)))
unary_row("ctz", "011000000001", "001", OP_IMM, lambda m: m.wx(m.count_trailing_zeros(m.rs1(), 64)))
unary_row("cpop", "011000000010", "001", OP_IMM, lambda m: m.wx(m.count_ones(m.rs1())))
unary_row("clzw", "011000000000", "001", OP_IMM_32, lambda m: m.wx(m.count_leading_zeros(m.rs1(), 32)))
unary_row("ctzw", "011000000001", "001", OP_IMM_32, lambda m: m.wx(m.count_trailing_zeros(m.rs1(), 32)))
unary_row("cpopw", "011000000010", "001", OP_IMM_32, lambda m: m.wx(m.count_ones(m.zext(m.rs1(), 32))))
unary_row("sext.b", "011000000100", "001", OP_IMM, lambda m: m.wx(m.sext(m.rs1(), 8)))
unary_row("sext.h", "011000000101", "001", OP_IMM, lambda m: m.wx(m.sext(m.rs1(), 16)))
unary_row("zext.h", "000010000000", "100", OP_32, lambda m: m.wx(m.zext(m.rs1(), 16)))
unary_row("rev8", "011010111000", "101", OP_IMM, lambda m: m.wx(m.byte_swap(m.rs1())))


def _orc_b(m: Machine) -> None:
    """Each byte that is not zero becomes 0xff: fold the bits of each byte into its lowest bit, then multiply."""
    value = m.rs1()
    for shift, keep in ((4, 0x0F0F0F0F0F0F0F0F), (2, 0x0303030303030303), (1, 0x0101010101010101)):
        value = m.and_(m.or_(value, m.shr_u(value, m.const(shift))), m.const(keep))
    m.wx(m.mul(value, m.const(0xFF)))


unary_row("orc.b", "001010000111", "101", OP_IMM, _orc_b)
r_row("min", "0000101", "100", OP, lambda m: m.wx(m.select(m.lt_s(m.rs1(), m.rs2()), m.rs1(), m.rs2())))
r_row("minu", "0000101", "101", OP, lambda m: m.wx(m.select(m.lt_u(m.rs1(), m.rs2()), m.rs1(), m.rs2())))
r_row("max", "0000101", "110", OP, lambda m: m.wx(m.select(m.lt_s(m.rs1(), m.rs2()), m.rs2(), m.rs1())))
r_row("maxu", "0000101", "111", OP, lambda m: m.wx(m.select(m.lt_u(m.rs1(), m.rs2()), m.rs2(), m.rs1())))


def _rotate(m: Machine, value: Any, amount: Any, bits: int) -> Any:
    """Rotate right within ``bits`` bits; ``amount`` is below ``bits``."""
    complement = m.and_(m.sub(m.const(bits), amount), m.const(bits - 1))
    if bits == 32:
        value = m.zext(value, 32)
    rotated = m.or_(m.shr_u(value, amount), m.shl(value, complement))
    return m.sext(rotated, 32) if bits == 32 else rotated


def _negated(m: Machine, amount: Any, bits: int) -> Any:
    return m.and_(m.sub(m.const(0), amount), m.const(bits - 1))


r_row("ror", "0110000", "101", OP, lambda m: m.wx(_rotate(m, m.rs1(), amount(m), 64)))
r_row("rol", "0110000", "001", OP, lambda m: m.wx(_rotate(m, m.rs1(), _negated(m, amount(m), 64), 64)))
r_row("rorw", "0110000", "101", OP_32, lambda m: m.wx(_rotate(m, m.rs1(), amount_32(m), 32)))
r_row("rolw", "0110000", "001", OP_32, lambda m: m.wx(_rotate(m, m.rs1(), _negated(m, amount_32(m), 32), 32)))
shift_row("rori", "011000", "101", OP_IMM, lambda m: m.wx(_rotate(m, m.rs1(), m.imm(), 64)))
shift_row("roriw", "0110000", "101", OP_IMM_32, lambda m: m.wx(_rotate(m, m.rs1(), m.imm(), 32)), "shamt5")


def _one_bit(name: str, top: str, funct3: str, update: Callable[[Machine, Any, Any], Any]) -> None:
    """Add a Zbs operation ``update(m, value, bit number)`` in its register and its immediate form."""
    r_row(name, top + "0", funct3, OP, lambda m: m.wx(update(m, m.rs1(), amount(m))))
    shift_row(name + "i", top, funct3, OP_IMM, lambda m: m.wx(update(m, m.rs1(), m.imm())))


def _bit(m: Machine, number: Any) -> Any:
    return m.shl(m.const(1), number)


_one_bit("bclr", "010010", "001", lambda m, v, n: m.and_(v, m.xor(_bit(m, n), m.const(-1))))
_one_bit("bext", "010010", "101", lambda m, v, n: m.and_(m.shr_u(v, n), m.const(1)))
_one_bit("binv", "011010", "001", lambda m, v, n: m.xor(v, _bit(m, n)))
_one_bit("bset", "001010", "001", lambda m, v, n: m.or_(v, _bit(m, n)))
