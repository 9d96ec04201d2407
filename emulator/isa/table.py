"""The instruction table: RV64IMAFDC + Zicsr + Zifencei + Zba/Zbb/Zbs, one row an instruction.

A row says the encoding, the class (functional unit and event), and the semantics. Semantics are written once,
over an abstract machine ``m`` (see `emulator.isa.algebra`): the oracle computes them on Python integers, the
translator turns the same calls into LLVM IR. Compressed instructions have no rows: `decode` expands them.

Encodings read from bit 31 down to bit 0: groups of literal bits, and named fields. Sources: The RISC-V
Instruction Set Manual, Volume I (20240411), chapters 2, 7, 12-14, 20-21, 28 and the instruction listings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emulator.events import ACCESS_LOAD, ACCESS_NONE, ACCESS_STORE, OpClass
from emulator.isa.algebra import F32, F64, Machine

Semantics = Callable[[Machine], None]

# Width in bits of each named field of an encoding.
FIELD_BITS = {
    "rd": 5, "rs1": 5, "rs2": 5, "rs3": 5, "rm": 3, "aq": 1, "rl": 1,
    "imm12": 12, "shamt6": 6, "shamt5": 5, "simm7": 7, "simm5": 5, "bimm7": 7, "bimm5": 5,
    "imm20": 20, "jimm20": 20, "csr": 12, "fence": 12,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One instruction: how it is encoded, what it is, what it does."""

    index: int  # position in TABLE, the handler number of the interpreting tier
    mnemonic: str
    mask: int
    match: int
    fields: frozenset[str]
    op_class: OpClass
    semantics: Semantics
    register_kinds: str  # kinds of rd, rs1, rs2, rs3 in order: 'x', 'f', or '-' when there is none
    access: int  # ACCESS_* flags
    access_bytes: int
    ends_block: bool
    slow: bool  # executed by the oracle on behalf of every engine (CSRs, ecall, fence.i)


TABLE: list[Row] = []


def _row(
    mnemonic: str,
    encoding: str,
    op_class: OpClass,
    semantics: Semantics,
    kinds: str,
    access: int = ACCESS_NONE,
    access_bytes: int = 0,
    slow: bool = False,
) -> None:
    mask = match = 0
    position = 32
    fields = []
    for token in encoding.split():
        width = FIELD_BITS.get(token)
        if width is None:
            width = len(token)
            position -= width
            mask |= ((1 << width) - 1) << position
            match |= int(token, 2) << position
        else:
            position -= width
            fields.append(token)
    if position != 0:
        raise ValueError(f"{mnemonic}: encoding '{encoding}' has {32 - position} bits, expected 32")
    ends = slow or OpClass.BRANCH <= op_class <= OpClass.INDIRECT_CALL
    TABLE.append(
        Row(
            len(TABLE), mnemonic, mask, match, frozenset(fields), op_class, semantics,
            kinds, access, access_bytes, ends, slow,
        )
    )  # fmt: skip


# --- RV64I: integer registers and immediates ---------------------------------------------------------------
ALU = OpClass.INT_ALU


def _r(mnemonic: str, funct7: str, funct3: str, opcode: str, semantics: Semantics, c: OpClass = ALU) -> None:
    _row(mnemonic, f"{funct7} rs2 rs1 {funct3} rd {opcode}", c, semantics, "xxx-")


def _i(mnemonic: str, funct3: str, opcode: str, semantics: Semantics) -> None:
    _row(mnemonic, f"imm12 rs1 {funct3} rd {opcode}", ALU, semantics, "xx--")


def _unary(mnemonic: str, funct12: str, funct3: str, opcode: str, semantics: Semantics) -> None:
    _row(mnemonic, f"{funct12} rs1 {funct3} rd {opcode}", ALU, semantics, "xx--")


OP, OP_32, OP_IMM, OP_IMM_32 = "0110011", "0111011", "0010011", "0011011"


def _w(value: Callable[[Machine], Any]) -> Semantics:
    """The ``*w`` form: the low 32 bits of the result, sign-extended."""
    return lambda m: m.wx(m.sext(value(m), 32))


_row("lui", "imm20 rd 0110111", ALU, lambda m: m.wx(m.imm()), "x---")
_row("auipc", "imm20 rd 0010111", ALU, lambda m: m.wx(m.add(m.pc(), m.imm())), "x---")

_i("addi", "000", OP_IMM, lambda m: m.wx(m.add(m.rs1(), m.imm())))
_i("slti", "010", OP_IMM, lambda m: m.wx(m.flag(m.lt_s(m.rs1(), m.imm()))))
_i("sltiu", "011", OP_IMM, lambda m: m.wx(m.flag(m.lt_u(m.rs1(), m.imm()))))
_i("xori", "100", OP_IMM, lambda m: m.wx(m.xor(m.rs1(), m.imm())))
_i("ori", "110", OP_IMM, lambda m: m.wx(m.or_(m.rs1(), m.imm())))
_i("andi", "111", OP_IMM, lambda m: m.wx(m.and_(m.rs1(), m.imm())))
_i("addiw", "000", OP_IMM_32, _w(lambda m: m.add(m.rs1(), m.imm())))


def _shift(
    mnemonic: str, top: str, funct3: str, opcode: str, semantics: Semantics, shamt: str = "shamt6"
) -> None:
    _row(mnemonic, f"{top} {shamt} rs1 {funct3} rd {opcode}", ALU, semantics, "xx--")


_shift("slli", "000000", "001", OP_IMM, lambda m: m.wx(m.shl(m.rs1(), m.imm())))
_shift("srli", "000000", "101", OP_IMM, lambda m: m.wx(m.shr_u(m.rs1(), m.imm())))
_shift("srai", "010000", "101", OP_IMM, lambda m: m.wx(m.shr_s(m.rs1(), m.imm())))
_shift("slliw", "0000000", "001", OP_IMM_32, _w(lambda m: m.shl(m.rs1(), m.imm())), "shamt5")
_shift("srliw", "0000000", "101", OP_IMM_32, _w(lambda m: m.shr_u(m.zext(m.rs1(), 32), m.imm())), "shamt5")
_shift("sraiw", "0100000", "101", OP_IMM_32, _w(lambda m: m.shr_s(m.sext(m.rs1(), 32), m.imm())), "shamt5")


def _sh(m: Machine) -> Any:
    return m.and_(m.rs2(), m.const(63))


def _sh32(m: Machine) -> Any:
    return m.and_(m.rs2(), m.const(31))


_r("add", "0000000", "000", OP, lambda m: m.wx(m.add(m.rs1(), m.rs2())))
_r("sub", "0100000", "000", OP, lambda m: m.wx(m.sub(m.rs1(), m.rs2())))
_r("sll", "0000000", "001", OP, lambda m: m.wx(m.shl(m.rs1(), _sh(m))))
_r("slt", "0000000", "010", OP, lambda m: m.wx(m.flag(m.lt_s(m.rs1(), m.rs2()))))
_r("sltu", "0000000", "011", OP, lambda m: m.wx(m.flag(m.lt_u(m.rs1(), m.rs2()))))
_r("xor", "0000000", "100", OP, lambda m: m.wx(m.xor(m.rs1(), m.rs2())))
_r("srl", "0000000", "101", OP, lambda m: m.wx(m.shr_u(m.rs1(), _sh(m))))
_r("sra", "0100000", "101", OP, lambda m: m.wx(m.shr_s(m.rs1(), _sh(m))))
_r("or", "0000000", "110", OP, lambda m: m.wx(m.or_(m.rs1(), m.rs2())))
_r("and", "0000000", "111", OP, lambda m: m.wx(m.and_(m.rs1(), m.rs2())))
_r("addw", "0000000", "000", OP_32, _w(lambda m: m.add(m.rs1(), m.rs2())))
_r("subw", "0100000", "000", OP_32, _w(lambda m: m.sub(m.rs1(), m.rs2())))
_r("sllw", "0000000", "001", OP_32, _w(lambda m: m.shl(m.rs1(), _sh32(m))))
_r("srlw", "0000000", "101", OP_32, _w(lambda m: m.shr_u(m.zext(m.rs1(), 32), _sh32(m))))
_r("sraw", "0100000", "101", OP_32, _w(lambda m: m.shr_s(m.sext(m.rs1(), 32), _sh32(m))))


# --- control transfer --------------------------------------------------------------------------------------
def _jal(m: Machine) -> None:
    m.wx(m.next_pc())
    m.jump(m.add(m.pc(), m.imm()))


def _jalr(m: Machine) -> None:
    target = m.and_(m.add(m.rs1(), m.imm()), m.const(-2))  # before rd, which may be rs1
    m.wx(m.next_pc())
    m.jump(target)


_row("jal", "jimm20 rd 1101111", OpClass.JUMP, _jal, "x---")
_row("jalr", "imm12 rs1 000 rd 1100111", OpClass.INDIRECT_JUMP, _jalr, "xx--")


def _branch(mnemonic: str, funct3: str, condition: Callable[[Machine], Any]) -> None:
    _row(
        mnemonic, f"bimm7 rs2 rs1 {funct3} bimm5 1100011", OpClass.BRANCH,
        lambda m: m.branch(condition(m), m.add(m.pc(), m.imm())), "-xx-",
    )  # fmt: skip


_branch("beq", "000", lambda m: m.eq(m.rs1(), m.rs2()))
_branch("bne", "001", lambda m: m.ne(m.rs1(), m.rs2()))
_branch("blt", "100", lambda m: m.lt_s(m.rs1(), m.rs2()))
_branch("bge", "101", lambda m: m.not_(m.lt_s(m.rs1(), m.rs2())))
_branch("bltu", "110", lambda m: m.lt_u(m.rs1(), m.rs2()))
_branch("bgeu", "111", lambda m: m.not_(m.lt_u(m.rs1(), m.rs2())))


# --- loads and stores --------------------------------------------------------------------------------------
def _load(mnemonic: str, funct3: str, size: int, signed: bool) -> None:
    _row(
        mnemonic, f"imm12 rs1 {funct3} rd 0000011", OpClass.LOAD,
        lambda m: m.wx(m.load(m.rs1(), m.imm(), size, signed)), "xx--", ACCESS_LOAD, size,
    )  # fmt: skip


def _store(mnemonic: str, funct3: str, size: int) -> None:
    _row(
        mnemonic, f"simm7 rs2 rs1 {funct3} simm5 0100011", OpClass.STORE,
        lambda m: m.store(m.rs1(), m.imm(), size, m.rs2()), "-xx-", ACCESS_STORE, size,
    )  # fmt: skip


for _name, _funct3, _size, _signed in (
    ("lb", "000", 1, True), ("lh", "001", 2, True), ("lw", "010", 4, True), ("ld", "011", 8, False),
    ("lbu", "100", 1, False), ("lhu", "101", 2, False), ("lwu", "110", 4, False),
):  # fmt: skip
    _load(_name, _funct3, _size, _signed)
for _name, _funct3, _size in (("sb", "000", 1), ("sh", "001", 2), ("sw", "010", 4), ("sd", "011", 8)):
    _store(_name, _funct3, _size)


# --- fences, environment, CSRs: the oracle executes them for every engine, except the plain fence ----------
_row("fence", "fence rs1 000 rd 0001111", OpClass.FENCE, lambda m: None, "----")
_row(
    "fence.i", "imm12 rs1 001 rd 0001111", OpClass.FENCE,
    lambda m: m.instruction_fence(), "----", slow=True,
)  # fmt: skip
_row("ecall", "00000000000000000000000001110011", OpClass.SYSTEM, lambda m: m.ecall(), "----", slow=True)
_row("ebreak", "00000000000100000000000001110011", OpClass.SYSTEM, lambda m: m.ebreak(), "----", slow=True)


def _csr(mnemonic: str, funct3: str, immediate: bool, update: Callable[[Machine, Any, Any], Any]) -> None:
    def semantics(m: Machine) -> None:
        operand = m.const(m.rs1_number()) if immediate else m.rs1()
        # csrrs/csrrc with a zero operand field do not write at all (Zicsr, table 7).
        writes = funct3 in ("001", "101") or m.rs1_number() != 0
        reads = funct3 not in ("001", "101") or m.rd_number() != 0
        old = m.csr_read() if reads else m.const(0)
        if writes:
            m.csr_write(update(m, old, operand))
        m.wx(old)

    kinds = "x---" if immediate else "xx--"
    _row(mnemonic, f"csr rs1 {funct3} rd 1110011", OpClass.CSR, semantics, kinds, slow=True)


_csr("csrrw", "001", False, lambda m, old, new: new)
_csr("csrrs", "010", False, lambda m, old, new: m.or_(old, new))
_csr("csrrc", "011", False, lambda m, old, new: m.and_(old, m.xor(new, m.const(-1))))
_csr("csrrwi", "101", True, lambda m, old, new: new)
_csr("csrrsi", "110", True, lambda m, old, new: m.or_(old, new))
_csr("csrrci", "111", True, lambda m, old, new: m.and_(old, m.xor(new, m.const(-1))))

# --- M: multiply and divide --------------------------------------------------------------------------------
MUL, DIV = OpClass.INT_MUL, OpClass.INT_DIV


def _divide(signed: bool, remainder: bool, bits: int) -> Semantics:
    """x/0 is all ones (remainder x); the one signed overflow is the dividend (remainder 0): table 11."""

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


_r("mul", "0000001", "000", OP, lambda m: m.wx(m.mul(m.rs1(), m.rs2())), MUL)
_r("mulh", "0000001", "001", OP, lambda m: m.wx(m.mul_high(m.rs1(), m.rs2(), True, True)), MUL)
_r("mulhsu", "0000001", "010", OP, lambda m: m.wx(m.mul_high(m.rs1(), m.rs2(), True, False)), MUL)
_r("mulhu", "0000001", "011", OP, lambda m: m.wx(m.mul_high(m.rs1(), m.rs2(), False, False)), MUL)
_r("mulw", "0000001", "000", OP_32, _w(lambda m: m.mul(m.rs1(), m.rs2())), MUL)
for _name, _funct3, _signed, _remainder in (
    ("div", "100", True, False), ("divu", "101", False, False),
    ("rem", "110", True, True), ("remu", "111", False, True),
):  # fmt: skip
    _r(_name, "0000001", _funct3, OP, _divide(_signed, _remainder, 64), DIV)
    _r(_name + "w", "0000001", _funct3, OP_32, _divide(_signed, _remainder, 32), DIV)

# --- A: atomics. One hart runs at a time, so a read-modify-write is a load and a store ----------------------
ATOMIC = OpClass.ATOMIC
LOAD_STORE = ACCESS_LOAD | ACCESS_STORE


def _amo(name: str, funct5: str, update: Callable[[Machine, Any, Any], Any]) -> None:
    for suffix, funct3, size in ((".w", "010", 4), (".d", "011", 8)):

        def semantics(m: Machine, size: int = size) -> None:
            address, operand = m.rs1(), m.rs2()
            old = m.load(address, m.const(0), size, size == 4)
            if size == 4:
                operand = m.sext(operand, 32)
            m.store(address, m.const(0), size, update(m, old, operand), same_access=True)
            m.wx(old)

        _row(
            name + suffix, f"{funct5} aq rl rs2 rs1 {funct3} rd 0101111", ATOMIC, semantics,
            "xxx-", LOAD_STORE, size,
        )  # fmt: skip


def _unsigned_pair(m: Machine, size_old: Any, operand: Any) -> Any:
    # Both are sign-extended from the same width, which keeps the unsigned order of that width.
    return m.lt_u(size_old, operand)


_amo("amoswap", "00001", lambda m, old, new: new)
_amo("amoadd", "00000", lambda m, old, new: m.add(old, new))
_amo("amoxor", "00100", lambda m, old, new: m.xor(old, new))
_amo("amoand", "01100", lambda m, old, new: m.and_(old, new))
_amo("amoor", "01000", lambda m, old, new: m.or_(old, new))
_amo("amomin", "10000", lambda m, old, new: m.select(m.lt_s(old, new), old, new))
_amo("amomax", "10100", lambda m, old, new: m.select(m.lt_s(old, new), new, old))
_amo("amominu", "11000", lambda m, old, new: m.select(_unsigned_pair(m, old, new), old, new))
_amo("amomaxu", "11100", lambda m, old, new: m.select(_unsigned_pair(m, old, new), new, old))


def _load_reserved(size: int) -> Semantics:
    def semantics(m: Machine) -> None:
        address = m.rs1()
        value = m.load(address, m.const(0), size, size == 4)
        m.set_reservation(address)
        m.wx(value)

    return semantics


def _store_conditional(size: int) -> Semantics:
    """Succeeds when the reservation is for this address; on failure memory keeps its value."""

    def semantics(m: Machine) -> None:
        address, new = m.rs1(), m.rs2()
        holds = m.eq(m.reservation(), address)
        old = m.load(address, m.const(0), size, False)
        m.store(address, m.const(0), size, m.select(holds, new, old), same_access=True)
        m.set_reservation(m.const(-1))
        m.wx(m.flag(m.not_(holds)))

    return semantics


for _suffix, _funct3, _size in ((".w", "010", 4), (".d", "011", 8)):
    _row("lr" + _suffix, f"00010 aq rl 00000 rs1 {_funct3} rd 0101111", ATOMIC, _load_reserved(_size),
         "xx--", ACCESS_LOAD, _size)  # fmt: skip
    _row("sc" + _suffix, f"00011 aq rl rs2 rs1 {_funct3} rd 0101111", ATOMIC, _store_conditional(_size),
         "xxx-", LOAD_STORE, _size)  # fmt: skip

# --- Zba, Zbb, Zbs: bit manipulation -----------------------------------------------------------------------
for _k in (1, 2, 3):
    _r(f"sh{_k}add", "0010000", f"{2 * _k:03b}", OP,
       lambda m, k=_k: m.wx(m.add(m.shl(m.rs1(), m.const(k)), m.rs2())))  # type: ignore[misc]  # fmt: skip
    _r(f"sh{_k}add.uw", "0010000", f"{2 * _k:03b}", OP_32,
       lambda m, k=_k: m.wx(m.add(m.shl(m.zext(m.rs1(), 32), m.const(k)), m.rs2())))  # type: ignore[misc]  # fmt: skip
_r("add.uw", "0000100", "000", OP_32, lambda m: m.wx(m.add(m.zext(m.rs1(), 32), m.rs2())))
_shift("slli.uw", "000010", "001", OP_IMM_32, lambda m: m.wx(m.shl(m.zext(m.rs1(), 32), m.imm())))


def _inverted(m: Machine) -> Any:
    return m.xor(m.rs2(), m.const(-1))


_r("andn", "0100000", "111", OP, lambda m: m.wx(m.and_(m.rs1(), _inverted(m))))
_r("orn", "0100000", "110", OP, lambda m: m.wx(m.or_(m.rs1(), _inverted(m))))
_r("xnor", "0100000", "100", OP, lambda m: m.wx(m.xor(m.rs1(), _inverted(m))))
_unary("clz", "011000000000", "001", OP_IMM, lambda m: m.wx(m.count_leading_zeros(m.rs1(), 64)))
_unary("ctz", "011000000001", "001", OP_IMM, lambda m: m.wx(m.count_trailing_zeros(m.rs1(), 64)))
_unary("cpop", "011000000010", "001", OP_IMM, lambda m: m.wx(m.count_ones(m.rs1())))
_unary("clzw", "011000000000", "001", OP_IMM_32, lambda m: m.wx(m.count_leading_zeros(m.rs1(), 32)))
_unary("ctzw", "011000000001", "001", OP_IMM_32, lambda m: m.wx(m.count_trailing_zeros(m.rs1(), 32)))
_unary("cpopw", "011000000010", "001", OP_IMM_32, lambda m: m.wx(m.count_ones(m.zext(m.rs1(), 32))))
_unary("sext.b", "011000000100", "001", OP_IMM, lambda m: m.wx(m.sext(m.rs1(), 8)))
_unary("sext.h", "011000000101", "001", OP_IMM, lambda m: m.wx(m.sext(m.rs1(), 16)))
_unary("zext.h", "000010000000", "100", OP_32, lambda m: m.wx(m.zext(m.rs1(), 16)))
_unary("rev8", "011010111000", "101", OP_IMM, lambda m: m.wx(m.byte_swap(m.rs1())))


def _orc_b(m: Machine) -> None:
    """Every byte that has a bit set becomes 0xff: fold the bits of each byte into its lowest, then spread."""
    value = m.rs1()
    for shift, keep in ((4, 0x0F0F0F0F0F0F0F0F), (2, 0x0303030303030303), (1, 0x0101010101010101)):
        value = m.and_(m.or_(value, m.shr_u(value, m.const(shift))), m.const(keep))
    m.wx(m.mul(value, m.const(0xFF)))


_unary("orc.b", "001010000111", "101", OP_IMM, _orc_b)
_r("min", "0000101", "100", OP, lambda m: m.wx(m.select(m.lt_s(m.rs1(), m.rs2()), m.rs1(), m.rs2())))
_r("minu", "0000101", "101", OP, lambda m: m.wx(m.select(m.lt_u(m.rs1(), m.rs2()), m.rs1(), m.rs2())))
_r("max", "0000101", "110", OP, lambda m: m.wx(m.select(m.lt_s(m.rs1(), m.rs2()), m.rs2(), m.rs1())))
_r("maxu", "0000101", "111", OP, lambda m: m.wx(m.select(m.lt_u(m.rs1(), m.rs2()), m.rs2(), m.rs1())))


def _rotate(m: Machine, value: Any, amount: Any, bits: int) -> Any:
    """Rotate right within ``bits``; the amount is already below ``bits``."""
    complement = m.and_(m.sub(m.const(bits), amount), m.const(bits - 1))
    if bits == 32:
        value = m.zext(value, 32)
    rotated = m.or_(m.shr_u(value, amount), m.shl(value, complement))
    return m.sext(rotated, 32) if bits == 32 else rotated


def _negated(m: Machine, amount: Any, bits: int) -> Any:
    return m.and_(m.sub(m.const(0), amount), m.const(bits - 1))


_r("ror", "0110000", "101", OP, lambda m: m.wx(_rotate(m, m.rs1(), _sh(m), 64)))
_r("rol", "0110000", "001", OP, lambda m: m.wx(_rotate(m, m.rs1(), _negated(m, _sh(m), 64), 64)))
_r("rorw", "0110000", "101", OP_32, lambda m: m.wx(_rotate(m, m.rs1(), _sh32(m), 32)))
_r("rolw", "0110000", "001", OP_32, lambda m: m.wx(_rotate(m, m.rs1(), _negated(m, _sh32(m), 32), 32)))
_shift("rori", "011000", "101", OP_IMM, lambda m: m.wx(_rotate(m, m.rs1(), m.imm(), 64)))
_shift("roriw", "0110000", "101", OP_IMM_32, lambda m: m.wx(_rotate(m, m.rs1(), m.imm(), 32)), "shamt5")


def _one_bit(name: str, top: str, funct3: str, update: Callable[[Machine, Any, Any], Any]) -> None:
    """The four Zbs operations; ``update(m, value, bit number)``, by register and by immediate."""
    _r(name, top + "0", funct3, OP, lambda m: m.wx(update(m, m.rs1(), _sh(m))))
    _shift(name + "i", top, funct3, OP_IMM, lambda m: m.wx(update(m, m.rs1(), m.imm())))


def _bit(m: Machine, number: Any) -> Any:
    return m.shl(m.const(1), number)


_one_bit("bclr", "010010", "001", lambda m, v, n: m.and_(v, m.xor(_bit(m, n), m.const(-1))))
_one_bit("bext", "010010", "101", lambda m, v, n: m.and_(m.shr_u(v, n), m.const(1)))
_one_bit("binv", "011010", "001", lambda m, v, n: m.xor(v, _bit(m, n)))
_one_bit("bset", "001010", "001", lambda m, v, n: m.or_(v, _bit(m, n)))

# --- F and D: floating point -------------------------------------------------------------------------------
# `m.rf*` unbox a single (a value that is not NaN-boxed reads as the canonical NaN), `m.wf` boxes it.
FP_ADD, FP_MUL, FP_FMA = OpClass.FP_ADD, OpClass.FP_MUL, OpClass.FP_FMA

_row("flw", "imm12 rs1 010 rd 0000111", OpClass.FP_LOAD,
     lambda m: m.wf_bits(F32, m.load(m.rs1(), m.imm(), 4, False)), "fx--", ACCESS_LOAD, 4)  # fmt: skip
_row("fld", "imm12 rs1 011 rd 0000111", OpClass.FP_LOAD,
     lambda m: m.wf_bits(F64, m.load(m.rs1(), m.imm(), 8, False)), "fx--", ACCESS_LOAD, 8)  # fmt: skip
_row("fsw", "simm7 rs2 rs1 010 simm5 0100111", OpClass.FP_STORE,
     lambda m: m.store(m.rs1(), m.imm(), 4, m.rf2_raw()), "-xf-", ACCESS_STORE, 4)  # fmt: skip
_row("fsd", "simm7 rs2 rs1 011 simm5 0100111", OpClass.FP_STORE,
     lambda m: m.store(m.rs1(), m.imm(), 8, m.rf2_raw()), "-xf-", ACCESS_STORE, 8)  # fmt: skip


def _sign_injection(fmt: Any, mode: int) -> Semantics:
    sign = 1 << (fmt.width - 1)

    def semantics(m: Machine) -> None:
        a, b = m.rf1_bits(fmt), m.rf2_bits(fmt)
        if mode == 1:
            b = m.xor(b, m.const(sign))
        elif mode == 2:
            b = m.xor(b, a)
        magnitude = m.and_(a, m.const(sign - 1))
        m.wf_bits(fmt, m.or_(magnitude, m.and_(b, m.const(sign))))

    return semantics


for _fmt, _s, _f in ((F32, ".s", "00"), (F64, ".d", "01")):

    def _fp_r(
        name: str,
        funct5: str,
        op_class: OpClass,
        semantics: Callable[[Machine, Any], None],
        middle: str = "rs2",
        funct3: str = "rm",
        kinds: str = "fff-",
        fmt: Any = _fmt,
        suffix: str = _s,
        code: str = _f,
    ) -> None:
        _row(
            name.replace(".fmt", suffix), f"{funct5}{code} {middle} rs1 {funct3} rd 1010011", op_class,
            lambda m: semantics(m, fmt), kinds,
        )  # fmt: skip

    _fp_r("fadd.fmt", "00000", FP_ADD, lambda m, f: m.wf(f, m.fadd(f, m.rf1(f), m.rf2(f))))
    _fp_r("fsub.fmt", "00001", FP_ADD, lambda m, f: m.wf(f, m.fsub(f, m.rf1(f), m.rf2(f))))
    _fp_r("fmul.fmt", "00010", FP_MUL, lambda m, f: m.wf(f, m.fmul(f, m.rf1(f), m.rf2(f))))
    _fp_r("fdiv.fmt", "00011", OpClass.FP_DIV, lambda m, f: m.wf(f, m.fdiv(f, m.rf1(f), m.rf2(f))))
    _fp_r("fsqrt.fmt", "01011", OpClass.FP_SQRT, lambda m, f: m.wf(f, m.fsqrt(f, m.rf1(f))), "00000",
          kinds="ff--")  # fmt: skip
    for _name, _mode in (("fsgnj", 0), ("fsgnjn", 1), ("fsgnjx", 2)):
        _row(_name + _s, f"00100{_f} rs2 rs1 {_mode:03b} rd 1010011", FP_ADD, _sign_injection(_fmt, _mode),
             "fff-")  # fmt: skip
    _fp_r("fmin.fmt", "00101", FP_ADD, lambda m, f: m.wf(f, m.fmin(f, m.rf1(f), m.rf2(f))), funct3="000")
    _fp_r("fmax.fmt", "00101", FP_ADD, lambda m, f: m.wf(f, m.fmax(f, m.rf1(f), m.rf2(f))), funct3="001")
    _fp_r("feq.fmt", "10100", FP_ADD, lambda m, f: m.wx(m.flag(m.feq(f, m.rf1(f), m.rf2(f)))),
          funct3="010", kinds="xff-")  # fmt: skip
    _fp_r("flt.fmt", "10100", FP_ADD, lambda m, f: m.wx(m.flag(m.flt(f, m.rf1(f), m.rf2(f)))),
          funct3="001", kinds="xff-")  # fmt: skip
    _fp_r("fle.fmt", "10100", FP_ADD, lambda m, f: m.wx(m.flag(m.fle(f, m.rf1(f), m.rf2(f)))),
          funct3="000", kinds="xff-")  # fmt: skip
    _fp_r("fclass.fmt", "11100", FP_ADD, lambda m, f: m.wx(m.fclass(f, m.rf1_bits(f))), "00000", "001",
          "xf--")  # fmt: skip
    # d = +-(a*b) +- c with one rounding
    for _name, _opcode, _product, _addend in (
        ("fmadd", "1000011", False, False), ("fmsub", "1000111", False, True),
        ("fnmsub", "1001011", True, False), ("fnmadd", "1001111", True, True),
    ):  # fmt: skip
        _row(
            _name + _s, f"rs3 {_f} rs2 rs1 rm rd {_opcode}", FP_FMA,
            lambda m, f=_fmt, p=_product, c=_addend: m.wf(  # type: ignore[misc]
                f, m.ffma(f, m.rf1(f), m.rf2(f), m.rf3(f), p, c)
            ),
            "ffff",
        )  # fmt: skip
    for _name, _rs2, _width, _signed in (
        ("w", "00000", 32, True), ("wu", "00001", 32, False),
        ("l", "00010", 64, True), ("lu", "00011", 64, False),
    ):  # fmt: skip
        _row(
            f"fcvt.{_name}{_s}", f"11000{_f} {_rs2} rs1 rm rd 1010011", OpClass.FP_CVT,
            lambda m, f=_fmt, w=_width, s=_signed: m.wx(m.fp_to_int(f, m.rf1(f), w, s)),  # type: ignore[misc]
            "xf--",
        )  # fmt: skip
        _row(
            f"fcvt{_s}.{_name}", f"11010{_f} {_rs2} rs1 rm rd 1010011", OpClass.FP_CVT,
            lambda m, f=_fmt, w=_width, s=_signed: m.wf(f, m.int_to_fp(f, m.rs1(), w, s)),  # type: ignore[misc]
            "fx--",
        )  # fmt: skip

_row("fcvt.s.d", "0100000 00001 rs1 rm rd 1010011", OpClass.FP_CVT,
     lambda m: m.wf(F32, m.fp_convert(F64, F32, m.rf1(F64))), "ff--")  # fmt: skip
_row("fcvt.d.s", "0100001 00000 rs1 rm rd 1010011", OpClass.FP_CVT,
     lambda m: m.wf(F64, m.fp_convert(F32, F64, m.rf1(F32))), "ff--")  # fmt: skip
_row("fmv.x.w", "1110000 00000 rs1 000 rd 1010011", OpClass.FP_MOVE,
     lambda m: m.wx(m.sext(m.rf1_raw(), 32)), "xf--")  # fmt: skip
_row("fmv.w.x", "1111000 00000 rs1 000 rd 1010011", OpClass.FP_MOVE,
     lambda m: m.wf_bits(F32, m.zext(m.rs1(), 32)), "fx--")  # fmt: skip
_row("fmv.x.d", "1110001 00000 rs1 000 rd 1010011", OpClass.FP_MOVE,
     lambda m: m.wx(m.rf1_raw()), "xf--")  # fmt: skip
_row("fmv.d.x", "1111001 00000 rs1 000 rd 1010011", OpClass.FP_MOVE,
     lambda m: m.wf_bits(F64, m.rs1()), "fx--")  # fmt: skip

ROWS: dict[str, Row] = {row.mnemonic: row for row in TABLE}
