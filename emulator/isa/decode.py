"""The decoder: from instruction words, including compressed ones, to table rows and operands.

A compressed instruction is expanded to the 32-bit instruction by which the manual defines it
(Volume I, chapter 26, "C" extension, tables 34-36); only its length is kept.
"""

from __future__ import annotations

from typing import NamedTuple

from emulator.events import OpClass
from emulator.isa.base_rows import FFLAGS, FP_CSRS, writes_whole_csr
from emulator.isa.table import ROWS, TABLE, Row

DYNAMIC_ROUNDING = 7
TIES_AWAY = 4
ONE_WAY = 4  # flag in the variant of a CSR instruction that only reads or only writes fcsr


class Instruction(NamedTuple):
    """A decoded instruction: its row and operand fields. ``imm`` is signed; ``rm`` is the rounding field.

    ``slow``: the oracle executes it for every engine; ``ends``: it ends its block; ``static_rounding``: it has a
    rounding mode ``rm``, for which engines must set the host's rounding mode. ``variant``: the number of the
    translation among those of the row: the rounding field, or for an access to fcsr, frm or fflags the CSR number,
    plus `ONE_WAY` if it only reads or only writes.
    """

    row: Row
    word: int  # the 32-bit form
    length_bytes: int
    rd: int
    rs1: int
    rs2: int
    rs3: int
    imm: int
    rm: int
    op_class: OpClass
    slow: bool
    ends: bool
    static_rounding: bool
    variant: int


def _sext(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _immediate(row: Row, word: int) -> int:
    fields = row.fields
    if "imm12" in fields:
        return _sext(word >> 20, 12)
    if "simm7" in fields:
        return _sext((word >> 25 << 5) | (word >> 7 & 31), 12)
    if "bimm7" in fields:
        return _sext(
            (word >> 31 << 12) | ((word >> 7 & 1) << 11) | ((word >> 25 & 63) << 5) | ((word >> 8 & 15) << 1),
            13,
        )
    if "imm20" in fields:
        return _sext(word & 0xFFFFF000, 32)
    if "jimm20" in fields:
        return _sext(
            (word >> 31 << 20) | ((word >> 12 & 255) << 12) | ((word >> 20 & 1) << 11) | ((word >> 21 & 1023) << 1),
            21,
        )
    if "shamt6" in fields:
        return word >> 20 & 63
    if "shamt5" in fields:
        return word >> 20 & 31
    if "csr" in fields:
        return word >> 20
    return 0


# Rows by (opcode, funct3): every row fixes the opcode; rows with a free funct3 appear under all eight.
CANDIDATES: dict[tuple[int, int], list[Row]] = {}
for _row in TABLE:
    _fixed = _row.mask >> 12 & 7
    for _funct3 in range(8):
        if _funct3 & _fixed == _row.match >> 12 & _fixed:
            CANDIDATES.setdefault((_row.match & 127, _funct3), []).append(_row)

_LINK_REGISTERS = (1, 5)
# Rounding modes 5 and 6 are reserved: an instruction with one of them is illegal.
_RESERVED_ROUNDING = (5, 6)


def _transfer_class(row: Row, rd: int, rs1: int) -> OpClass:
    """The class of a row; calls and returns are recognised by their registers (Volume I, table 3, return-address
    stack hints)."""
    if row.mnemonic == "jal":
        return OpClass.CALL if rd in _LINK_REGISTERS else OpClass.JUMP
    if row.mnemonic == "jalr":
        if rd in _LINK_REGISTERS:
            return OpClass.INDIRECT_CALL
        return OpClass.RETURN if rs1 in _LINK_REGISTERS else OpClass.INDIRECT_JUMP
    return row.op_class


def decode_word(word: int, length_bytes: int = 4) -> Instruction | None:
    """Decode a 32-bit instruction; None if no row matches."""
    for row in CANDIDATES.get((word & 127, word >> 12 & 7), ()):
        if word & row.mask == row.match:
            break
    else:
        return None
    fields = row.fields
    rm = word >> 12 & 7 if "rm" in fields else DYNAMIC_ROUNDING
    if rm in _RESERVED_ROUNDING:
        return None
    rd = word >> 7 & 31 if "rd" in fields else 0
    rs1 = word >> 15 & 31
    # Conversions from and to integers do not use the host's rounding mode. Of the other instructions, the oracle
    # executes those with ties away from zero, a mode that the host's control register does not have.
    static_rounding = rm != DYNAMIC_ROUNDING and needs_host_rounding(row)
    slow = row.slow or (static_rounding and rm == TIES_AWAY)
    ends = slow or row.ends_block
    variant = rm
    if "csr" in fields and word >> 20 in FP_CSRS:
        slow = False
        swaps = writes_whole_csr(row.mnemonic)
        ends = word >> 20 != FFLAGS and (swaps or rs1 != 0)  # it writes frm
        variant = word >> 20 | ONE_WAY * ((rd if swaps else rs1) == 0)
    return Instruction(
        row, word, length_bytes, rd, rs1, word >> 20 & 31, word >> 27, _immediate(row, word), rm,
        _transfer_class(row, rd, rs1), slow, ends, static_rounding and not slow, variant,
    )  # fmt: skip


_EXACT = {"fcvt.d.s", "fcvt.d.w", "fcvt.d.wu"}


def converts_with_rounding(row: Row) -> bool:
    """Whether the instruction converts from or to integers with rounding; hosts have instructions for each mode."""
    return "rm" in row.fields and row.mnemonic not in _EXACT and row.register_kinds[:2] in ("xf", "fx")


def needs_host_rounding(row: Row) -> bool:
    """Whether the result depends on a rounding mode that hosts only take from their control register."""
    return "rm" in row.fields and row.mnemonic not in _EXACT and not converts_with_rounding(row)


def _c(mnemonic: str, rd: int = 0, rs1: int = 0, rs2: int = 0, imm: int = 0) -> int:
    """Assemble ``mnemonic`` into its 32-bit word."""
    row = ROWS[mnemonic]
    fields = row.fields
    word = row.match
    if "rd" in fields:
        word |= rd << 7
    if "rs1" in fields:
        word |= rs1 << 15
    if "rs2" in fields:
        word |= rs2 << 20
    if "imm12" in fields:
        word |= (imm & 0xFFF) << 20
    elif "shamt6" in fields or "shamt5" in fields:
        word |= imm << 20
    elif "simm7" in fields:
        word |= (imm >> 5 & 127) << 25 | (imm & 31) << 7
    elif "bimm7" in fields:
        word |= (imm >> 12 & 1) << 31 | (imm >> 5 & 63) << 25 | (imm >> 1 & 15) << 8 | (imm >> 11 & 1) << 7
    elif "imm20" in fields:
        word |= imm & 0xFFFFF000
    elif "jimm20" in fields:
        word |= (imm >> 20 & 1) << 31 | (imm >> 1 & 1023) << 21 | (imm >> 11 & 1) << 20 | (imm >> 12 & 255) << 12
    return word


def expand_compressed(half: int) -> int | None:
    """The 32-bit instruction of a compressed one; None if it is reserved or illegal."""
    quadrant, funct3 = half & 3, half >> 13
    if quadrant == 0:
        return _quadrant0(half, funct3)
    if quadrant == 1:
        return _quadrant1(half, funct3)
    return _quadrant2(half, funct3)


def _quadrant0(half: int, funct3: int) -> int | None:
    rd, rs1 = (half >> 2 & 7) + 8, (half >> 7 & 7) + 8
    word_offset = (half >> 10 & 7) << 3 | (half >> 6 & 1) << 2 | (half >> 5 & 1) << 6
    double_offset = (half >> 10 & 7) << 3 | (half >> 5 & 3) << 6
    if funct3 == 0:  # c.addi4spn; the all-zero word is illegal by design
        imm = (half >> 11 & 3) << 4 | (half >> 7 & 15) << 6 | (half >> 6 & 1) << 2 | (half >> 5 & 1) << 3
        return _c("addi", rd, 2, imm=imm) if imm else None
    if funct3 == 1:
        return _c("fld", rd, rs1, imm=double_offset)
    if funct3 == 2:
        return _c("lw", rd, rs1, imm=word_offset)
    if funct3 == 3:
        return _c("ld", rd, rs1, imm=double_offset)
    if funct3 == 5:
        return _c("fsd", rs1=rs1, rs2=rd, imm=double_offset)
    if funct3 == 6:
        return _c("sw", rs1=rs1, rs2=rd, imm=word_offset)
    if funct3 == 7:
        return _c("sd", rs1=rs1, rs2=rd, imm=double_offset)
    return None


def _quadrant1(half: int, funct3: int) -> int | None:
    rd = half >> 7 & 31
    imm = _sext((half >> 12 & 1) << 5 | (half >> 2 & 31), 6)
    if funct3 == 0:
        return _c("addi", rd, rd, imm=imm)
    if funct3 == 1:
        return _c("addiw", rd, rd, imm=imm) if rd else None
    if funct3 == 2:
        return _c("addi", rd, 0, imm=imm)
    if funct3 == 3:
        if rd == 2:
            stack = _sext(
                (half >> 12 & 1) << 9 | (half >> 6 & 1) << 4 | (half >> 5 & 1) << 6 | (half >> 3 & 3) << 7
                | (half >> 2 & 1) << 5,
                10,
            )  # fmt: skip
            return _c("addi", 2, 2, imm=stack) if stack else None
        return _c("lui", rd, imm=imm << 12) if imm else None
    if funct3 == 4:
        return _arithmetic(half, imm)
    if funct3 == 5:
        jump = _sext(
            (half >> 12 & 1) << 11 | (half >> 11 & 1) << 4 | (half >> 9 & 3) << 8 | (half >> 8 & 1) << 10
            | (half >> 7 & 1) << 6 | (half >> 6 & 1) << 7 | (half >> 3 & 7) << 1 | (half >> 2 & 1) << 5,
            12,
        )  # fmt: skip
        return _c("jal", 0, imm=jump)
    branch = _sext(
        (half >> 12 & 1) << 8 | (half >> 10 & 3) << 3 | (half >> 5 & 3) << 6 | (half >> 3 & 3) << 1
        | (half >> 2 & 1) << 5,
        9,
    )  # fmt: skip
    return _c("beq" if funct3 == 6 else "bne", rs1=(half >> 7 & 7) + 8, imm=branch)


def _arithmetic(half: int, imm: int) -> int | None:
    rd, rs2, kind = (half >> 7 & 7) + 8, (half >> 2 & 7) + 8, half >> 10 & 3
    if kind == 0:
        return _c("srli", rd, rd, imm=imm & 63)
    if kind == 1:
        return _c("srai", rd, rd, imm=imm & 63)
    if kind == 2:
        return _c("andi", rd, rd, imm=imm)
    names = ("sub", "xor", "or", "and", "subw", "addw")
    which = (half >> 12 & 1) << 2 | (half >> 5 & 3)
    return _c(names[which], rd, rd, rs2) if which < len(names) else None


def _quadrant2(half: int, funct3: int) -> int | None:
    rd, rs2 = half >> 7 & 31, half >> 2 & 31
    double_offset = (half >> 12 & 1) << 5 | (half >> 5 & 3) << 3 | (half >> 2 & 7) << 6
    double_store = (half >> 10 & 7) << 3 | (half >> 7 & 7) << 6
    if funct3 == 0:
        return _c("slli", rd, rd, imm=(half >> 12 & 1) << 5 | rs2)
    if funct3 == 1:
        return _c("fld", rd, 2, imm=double_offset)
    if funct3 == 2:
        word_offset = (half >> 12 & 1) << 5 | (half >> 4 & 7) << 2 | (half >> 2 & 3) << 6
        return _c("lw", rd, 2, imm=word_offset) if rd else None
    if funct3 == 3:
        return _c("ld", rd, 2, imm=double_offset) if rd else None
    if funct3 == 4:
        if half >> 12 & 1 == 0:
            if rs2:
                return _c("add", rd, 0, rs2)
            return _c("jalr", 0, rd) if rd else None
        if rs2:
            return _c("add", rd, rd, rs2)
        return _c("jalr", 1, rd) if rd else _c("ebreak")
    if funct3 == 5:
        return _c("fsd", rs1=2, rs2=rs2, imm=double_store)
    if funct3 == 6:
        return _c("sw", rs1=2, rs2=rs2, imm=(half >> 9 & 15) << 2 | (half >> 7 & 3) << 6)
    return _c("sd", rs1=2, rs2=rs2, imm=double_store)


_cache: dict[int, Instruction | None] = {}


def decode(raw: int) -> Instruction | None:
    """Decode the instruction in the low 16 or 32 bits of ``raw``; None if it is illegal."""
    raw &= 0xFFFFFFFF if raw & 3 == 3 else 0xFFFF
    try:
        return _cache[raw]
    except KeyError:
        pass
    if raw & 3 == 3:
        found = decode_word(raw)
    else:
        word = expand_compressed(raw)
        found = None if word is None else decode_word(word, 2)
    _cache[raw] = found
    return found


assemble = _c
