"""Compressed instructions, a second time: the listing of the manual (Volume I, section 28.8, RV64) as it is printed.

A row is the 16 bits from 15 down to 0: digits, registers (``rd'`` and the like have 3 bits and mean x8-x15), and
immediates as the manual scatters them: ``imm[5:3]`` are 3 bits of which the first is bit 5, ``imm[4|9:6]`` are 5.
Behind it stands the instruction it expands to, and when it is reserved.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.emulator.isa.reference_encoding import encode

# name, encoding, expansion (operands: rd rs1 rs2 imm), bits of a signed immediate (0: unsigned), reserved when
_LISTING = """
c.addi4spn | 000 imm[5:4|9:6|2|3] rd' 00           | addi rd' x2 - imm     | 0  | imm == 0
c.fld      | 001 imm[5:3] rs1' imm[7:6] rd' 00     | fld rd' rs1' - imm    | 0  |
c.lw       | 010 imm[5:3] rs1' imm[2|6] rd' 00     | lw rd' rs1' - imm     | 0  |
c.ld       | 011 imm[5:3] rs1' imm[7:6] rd' 00     | ld rd' rs1' - imm     | 0  |
c.fsd      | 101 imm[5:3] rs1' imm[7:6] rs2' 00    | fsd - rs1' rs2' imm   | 0  |
c.sw       | 110 imm[5:3] rs1' imm[2|6] rs2' 00    | sw - rs1' rs2' imm    | 0  |
c.sd       | 111 imm[5:3] rs1' imm[7:6] rs2' 00    | sd - rs1' rs2' imm    | 0  |
c.addi     | 000 imm[5] rd imm[4:0] 01             | addi rd rd - imm      | 6  |
c.addiw    | 001 imm[5] rd imm[4:0] 01             | addiw rd rd - imm     | 6  | rd == 0
c.li       | 010 imm[5] rd imm[4:0] 01             | addi rd x0 - imm      | 6  |
c.addi16sp | 011 imm[9] 00010 imm[4|6|8:7|5] 01    | addi x2 x2 - imm      | 10 | imm == 0
c.lui      | 011 imm[17] rd imm[16:12] 01          | lui rd - - imm        | 18 | imm == 0
c.srli     | 100 imm[5] 00 rd' imm[4:0] 01         | srli rd' rd' - imm    | 0  |
c.srai     | 100 imm[5] 01 rd' imm[4:0] 01         | srai rd' rd' - imm    | 0  |
c.andi     | 100 imm[5] 10 rd' imm[4:0] 01         | andi rd' rd' - imm    | 6  |
c.sub      | 100011 rd' 00 rs2' 01                 | sub rd' rd' rs2' -    | 0  |
c.xor      | 100011 rd' 01 rs2' 01                 | xor rd' rd' rs2' -    | 0  |
c.or       | 100011 rd' 10 rs2' 01                 | or rd' rd' rs2' -     | 0  |
c.and      | 100011 rd' 11 rs2' 01                 | and rd' rd' rs2' -    | 0  |
c.subw     | 100111 rd' 00 rs2' 01                 | subw rd' rd' rs2' -   | 0  |
c.addw     | 100111 rd' 01 rs2' 01                 | addw rd' rd' rs2' -   | 0  |
c.j        | 101 imm[11|4|9:8|10|6|7|3:1|5] 01     | jal x0 - - imm        | 12 |
c.beqz     | 110 imm[8|4:3] rs1' imm[7:6|2:1|5] 01 | beq - rs1' x0 imm     | 9  |
c.bnez     | 111 imm[8|4:3] rs1' imm[7:6|2:1|5] 01 | bne - rs1' x0 imm     | 9  |
c.slli     | 000 imm[5] rd imm[4:0] 10             | slli rd rd - imm      | 0  |
c.fldsp    | 001 imm[5] rd imm[4:3|8:6] 10         | fld rd x2 - imm       | 0  |
c.lwsp     | 010 imm[5] rd imm[4:2|7:6] 10         | lw rd x2 - imm        | 0  | rd == 0
c.ldsp     | 011 imm[5] rd imm[4:3|8:6] 10         | ld rd x2 - imm        | 0  | rd == 0
c.ebreak   | 100 1 00000 00000 10                  | ebreak - - - -        | 0  |
c.jr       | 100 0 rs1 00000 10                    | jalr x0 rs1 - -       | 0  | rs1 == 0
c.jalr     | 100 1 rs1 00000 10                    | jalr x1 rs1 - -       | 0  |
c.mv       | 100 0 rd rs2 10                       | add rd x0 rs2 -       | 0  |
c.add      | 100 1 rd rs2 10                       | add rd rd rs2 -       | 0  |
c.fsdsp    | 101 imm[5:3|8:6] rs2 10               | fsd - x2 rs2 imm      | 0  |
c.swsp     | 110 imm[5:2|7:6] rs2 10               | sw - x2 rs2 imm       | 0  |
c.sdsp     | 111 imm[5:3|8:6] rs2 10               | sd - x2 rs2 imm       | 0  |
"""


@dataclass(frozen=True)
class Compressed:
    """``bits``: for each of the 16 bits, from the highest: "0", "1", or (field, bit of it)."""

    name: str
    bits: tuple[str | tuple[str, int], ...]
    expansion: tuple[str, ...]
    signed_bits: int
    reserved: str

    def fields(self, half: int) -> dict[str, int] | None:
        """Fields by name; None when it is another instruction."""
        found: dict[str, int] = {"imm": 0}
        for place, bit in enumerate(self.bits):
            value = half >> 15 - place & 1
            if isinstance(bit, str):
                if value != int(bit):
                    return None
            else:
                found[bit[0]] = found.get(bit[0], 0) | value << bit[1]
        if self.signed_bits and found["imm"] >> self.signed_bits - 1:
            found["imm"] -= 1 << self.signed_bits
        return found

    def word(self, fields: dict[str, int]) -> int | None:
        """The 32-bit instruction; None when the encoding is reserved."""
        name, operand = self.reserved.split(" == ") if self.reserved else ("", "0")
        if name and fields[name] == int(operand):
            return None
        mnemonic, *operands = self.expansion
        values = []
        for text in operands:
            if text == "-":
                values.append(0)
            elif text.startswith("x"):
                values.append(int(text[1:]))
            else:
                values.append(fields[text.rstrip("'")] + (8 if text.endswith("'") else 0))
        return encode(mnemonic, *values)


def _parsed(line: str) -> Compressed:
    name, encoding, expansion, signed_bits, reserved = (part.strip() for part in line.split("|||"))
    bits: list[str | tuple[str, int]] = []
    for token in encoding.split():
        immediate = re.fullmatch(r"imm\[(.*)\]", token)
        if immediate:
            for part in immediate[1].split("|"):
                high, _, low = part.partition(":")
                bits += [("imm", n) for n in range(int(high), int(low or high) - 1, -1)]
        elif token[0] in "01":
            bits += list(token)
        else:
            bits += [(token.rstrip("'"), n) for n in range(2 if token.endswith("'") else 4, -1, -1)]
    assert len(bits) == 16, line
    return Compressed(name, tuple(bits), tuple(expansion.split()), int(signed_bits), reserved)


# Bars with spaces around them part the columns; those in immediates have none.
LISTING = [_parsed(re.sub(r"\s+\|(\s+|$)", "|||", line)) for line in _LISTING.strip().splitlines()]


def expand(half: int) -> tuple[str, int | None] | None:
    """Name and 32-bit instruction (None: reserved) of a 16-bit one; None when the listing has nothing like it.

    Where two rows match, the one with more fixed bits is meant: c.addi16sp before c.lui, c.ebreak before c.jalr, c.jr
    and c.jalr before c.mv and c.add.
    """
    found = [(row, fields) for row in LISTING if (fields := row.fields(half)) is not None]
    if not found:
        return None
    row, fields = max(found, key=lambda match: sum(isinstance(bit, str) for bit in match[0].bits))
    return row.name, row.word(fields)
