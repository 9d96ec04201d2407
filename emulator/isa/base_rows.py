"""Instruction rows of RV64I, Zicsr and Zifencei: Volume I (20240411), chapters 2, 4, 6 and 7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emulator.events import ACCESS_LOAD, ACCESS_STORE, OpClass
from emulator.isa.algebra import Machine
from emulator.isa.rows import (
    ALU,
    OP,
    OP_32,
    OP_IMM,
    OP_IMM_32,
    amount,
    amount_32,
    i_row,
    r_row,
    row,
    shift_row,
    word,
)

# --- RV64I: integer registers and immediates ---------------------------------------------------------------
row("lui", "imm20 rd 0110111", ALU, lambda m: m.wx(m.imm()), "x---")
row("auipc", "imm20 rd 0010111", ALU, lambda m: m.wx(m.add(m.pc(), m.imm())), "x---")

i_row("addi", "000", OP_IMM, lambda m: m.wx(m.add(m.rs1(), m.imm())))
i_row("slti", "010", OP_IMM, lambda m: m.wx(m.flag(m.lt_s(m.rs1(), m.imm()))))
i_row("sltiu", "011", OP_IMM, lambda m: m.wx(m.flag(m.lt_u(m.rs1(), m.imm()))))
i_row("xori", "100", OP_IMM, lambda m: m.wx(m.xor(m.rs1(), m.imm())))
i_row("ori", "110", OP_IMM, lambda m: m.wx(m.or_(m.rs1(), m.imm())))
i_row("andi", "111", OP_IMM, lambda m: m.wx(m.and_(m.rs1(), m.imm())))
i_row("addiw", "000", OP_IMM_32, word(lambda m: m.add(m.rs1(), m.imm())))


shift_row("slli", "000000", "001", OP_IMM, lambda m: m.wx(m.shl(m.rs1(), m.imm())))
shift_row("srli", "000000", "101", OP_IMM, lambda m: m.wx(m.shr_u(m.rs1(), m.imm())))
shift_row("srai", "010000", "101", OP_IMM, lambda m: m.wx(m.shr_s(m.rs1(), m.imm())))
shift_row("slliw", "0000000", "001", OP_IMM_32, word(lambda m: m.shl(m.rs1(), m.imm())), "shamt5")
shift_row("srliw", "0000000", "101", OP_IMM_32, word(lambda m: m.shr_u(m.zext(m.rs1(), 32), m.imm())), "shamt5")
shift_row("sraiw", "0100000", "101", OP_IMM_32, word(lambda m: m.shr_s(m.sext(m.rs1(), 32), m.imm())), "shamt5")


r_row("add", "0000000", "000", OP, lambda m: m.wx(m.add(m.rs1(), m.rs2())))
r_row("sub", "0100000", "000", OP, lambda m: m.wx(m.sub(m.rs1(), m.rs2())))
r_row("sll", "0000000", "001", OP, lambda m: m.wx(m.shl(m.rs1(), amount(m))))
r_row("slt", "0000000", "010", OP, lambda m: m.wx(m.flag(m.lt_s(m.rs1(), m.rs2()))))
r_row("sltu", "0000000", "011", OP, lambda m: m.wx(m.flag(m.lt_u(m.rs1(), m.rs2()))))
r_row("xor", "0000000", "100", OP, lambda m: m.wx(m.xor(m.rs1(), m.rs2())))
r_row("srl", "0000000", "101", OP, lambda m: m.wx(m.shr_u(m.rs1(), amount(m))))
r_row("sra", "0100000", "101", OP, lambda m: m.wx(m.shr_s(m.rs1(), amount(m))))
r_row("or", "0000000", "110", OP, lambda m: m.wx(m.or_(m.rs1(), m.rs2())))
r_row("and", "0000000", "111", OP, lambda m: m.wx(m.and_(m.rs1(), m.rs2())))
r_row("addw", "0000000", "000", OP_32, word(lambda m: m.add(m.rs1(), m.rs2())))
r_row("subw", "0100000", "000", OP_32, word(lambda m: m.sub(m.rs1(), m.rs2())))
r_row("sllw", "0000000", "001", OP_32, word(lambda m: m.shl(m.rs1(), amount_32(m))))
r_row("srlw", "0000000", "101", OP_32, word(lambda m: m.shr_u(m.zext(m.rs1(), 32), amount_32(m))))
r_row("sraw", "0100000", "101", OP_32, word(lambda m: m.shr_s(m.sext(m.rs1(), 32), amount_32(m))))


# --- control transfer --------------------------------------------------------------------------------------
def _jal(m: Machine) -> None:
    m.wx(m.next_pc())
    m.jump(m.add(m.pc(), m.imm()))


def _jalr(m: Machine) -> None:
    target = m.and_(m.add(m.rs1(), m.imm()), m.const(-2))  # before rd, which may be rs1
    m.wx(m.next_pc())
    m.jump(target)


row("jal", "jimm20 rd 1101111", OpClass.JUMP, _jal, "x---")
row("jalr", "imm12 rs1 000 rd 1100111", OpClass.INDIRECT_JUMP, _jalr, "xx--")


def _branch(mnemonic: str, funct3: str, condition: Callable[[Machine], Any]) -> None:
    row(
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
    row(
        mnemonic, f"imm12 rs1 {funct3} rd 0000011", OpClass.LOAD,
        lambda m: m.wx(m.load(m.rs1(), m.imm(), size, signed)), "xx--", ACCESS_LOAD, size,
    )  # fmt: skip


def _store(mnemonic: str, funct3: str, size: int) -> None:
    row(
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


# --- fences, environment, CSRs: the oracle executes them for every engine, except the plain fence and fcsr ---
row("fence", "fence rs1 000 rd 0001111", OpClass.FENCE, lambda m: None, "----")
row(
    "fence.i", "imm12 rs1 001 rd 0001111", OpClass.FENCE,
    lambda m: m.instruction_fence(), "----", slow=True,
)  # fmt: skip
row("ecall", "00000000000000000000000001110011", OpClass.SYSTEM, lambda m: m.ecall(), "----", slow=True)
row("ebreak", "00000000000100000000000001110011", OpClass.SYSTEM, lambda m: m.ebreak(), "----", slow=True)


FFLAGS, FRM, FCSR = FP_CSRS = 1, 2, 3


def _read_csr(m: Machine) -> Any:
    number = m.csr_number()
    if number == FFLAGS:
        return m.fflags()
    if number == FRM:
        return m.frm()
    return m.or_(m.fflags(), m.shl(m.frm(), m.const(5))) if number == FCSR else m.csr_read()


def _write_csr(m: Machine, value: Any) -> None:
    number = m.csr_number()
    if number == FFLAGS:
        m.set_fcsr(m.and_(value, m.const(31)), None)
    elif number == FRM:
        m.set_fcsr(None, m.and_(value, m.const(7)))
    elif number == FCSR:
        m.set_fcsr(m.and_(value, m.const(31)), m.and_(m.shr_u(value, m.const(5)), m.const(7)))
    else:
        m.csr_write(value)


def _csr(mnemonic: str, funct3: str, immediate: bool, update: Callable[[Machine, Any, Any], Any]) -> None:
    swaps = writes_whole_csr(mnemonic)

    def semantics(m: Machine) -> None:
        operand = m.csr_immediate() if immediate else m.rs1()
        # csrrs/csrrc with a zero operand field do not write at all, csrrw to x0 does not read (Zicsr, table 7).
        reads, writes = not (swaps and m.rd_field_is_0()), swaps or not m.rs1_field_is_0()
        old = _read_csr(m) if reads else m.const(0)
        if writes:
            _write_csr(m, update(m, old, operand))
        if reads:
            m.wx(old)

    kinds = "x---" if immediate else "xx--"
    row(mnemonic, f"csr rs1 {funct3} rd 1110011", OpClass.CSR, semantics, kinds, slow=True)


def writes_whole_csr(mnemonic: str) -> bool:
    """Whether the CSR instruction writes its whole operand (csrrw, csrrwi), instead of setting or clearing bits."""
    return mnemonic.startswith("csrrw")


_csr("csrrw", "001", False, lambda m, old, new: new)
_csr("csrrs", "010", False, lambda m, old, new: m.or_(old, new))
_csr("csrrc", "011", False, lambda m, old, new: m.and_(old, m.xor(new, m.const(-1))))
_csr("csrrwi", "101", True, lambda m, old, new: new)
_csr("csrrsi", "110", True, lambda m, old, new: m.or_(old, new))
_csr("csrrci", "111", True, lambda m, old, new: m.and_(old, m.xor(new, m.const(-1))))
