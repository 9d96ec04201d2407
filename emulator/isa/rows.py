"""The row type of the instruction table, and the functions that add rows.

A row has an encoding, a class (functional unit and event), and semantics over an abstract machine ``m`` (see
`emulator.isa.algebra`). Encodings are written from bit 31 down to bit 0: groups of literal bits, and named fields. The
rows are in `base_rows`, `extension_rows` and `float_rows`; `table` is the complete table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emulator.events import ACCESS_NONE, OpClass
from emulator.isa.algebra import Machine

Semantics = Callable[[Machine], None]

# Width in bits of each named field of an encoding.
FIELD_BITS = {
    "rd": 5, "rs1": 5, "rs2": 5, "rs3": 5, "rm": 3, "aq": 1, "rl": 1,
    "imm12": 12, "shamt6": 6, "shamt5": 5, "simm7": 7, "simm5": 5, "bimm7": 7, "bimm5": 5,
    "imm20": 20, "jimm20": 20, "csr": 12, "fence": 12,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One instruction: encoding, class, operands, semantics."""

    index: int  # position in TABLE, the handler number of the interpreting tier
    mnemonic: str
    mask: int
    match: int
    fields: frozenset[str]
    op_class: OpClass
    semantics: Semantics
    register_kinds: str  # kinds of rd, rs1, rs2, rs3 in order: 'x', 'f', or '-' for none
    access: int  # ACCESS_* flags
    access_bytes: int
    ends_block: bool
    slow: bool  # the oracle executes it for every engine (ecall, fence.i, CSRs other than fcsr and its parts)


TABLE: list[Row] = []


def row(
    mnemonic: str,
    encoding: str,
    op_class: OpClass,
    semantics: Semantics,
    kinds: str,
    access: int = ACCESS_NONE,
    access_bytes: int = 0,
    slow: bool = False,
) -> None:
    """Add a row to `TABLE`; ``kinds``: `Row.register_kinds`. Raises ValueError for an encoding without 32 bits."""
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


ALU = OpClass.INT_ALU


def r_row(mnemonic: str, funct7: str, funct3: str, opcode: str, semantics: Semantics, c: OpClass = ALU) -> None:
    row(mnemonic, f"{funct7} rs2 rs1 {funct3} rd {opcode}", c, semantics, "xxx-")


def i_row(mnemonic: str, funct3: str, opcode: str, semantics: Semantics) -> None:
    row(mnemonic, f"imm12 rs1 {funct3} rd {opcode}", ALU, semantics, "xx--")


def unary_row(mnemonic: str, funct12: str, funct3: str, opcode: str, semantics: Semantics) -> None:
    row(mnemonic, f"{funct12} rs1 {funct3} rd {opcode}", ALU, semantics, "xx--")


OP, OP_32, OP_IMM, OP_IMM_32 = "0110011", "0111011", "0010011", "0011011"


def word(value: Callable[[Machine], Any]) -> Semantics:
    """Semantics of the ``*w`` forms: rd gets the low 32 bits of ``value``, sign-extended."""
    return lambda m: m.wx(m.sext(value(m), 32))


def shift_row(mnemonic: str, top: str, funct3: str, opcode: str, semantics: Semantics, shamt: str = "shamt6") -> None:
    row(mnemonic, f"{top} {shamt} rs1 {funct3} rd {opcode}", ALU, semantics, "xx--")


def amount(m: Machine) -> Any:
    return m.and_(m.rs2(), m.const(63))


def amount_32(m: Machine) -> Any:
    return m.and_(m.rs2(), m.const(31))
