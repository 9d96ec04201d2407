"""The decoder: no two rows match the same word, and what is assembled decodes to itself."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from emulator.isa.decode import assemble, decode, decode_word, expand_compressed
from emulator.isa.disassemble import disassemble
from emulator.isa.table import TABLE
from tests.emulator.isa.rig import encode


def test_no_word_matches_two_rows() -> None:
    for a, b in combinations(TABLE, 2):
        both = a.mask & b.mask
        assert a.match & both != b.match & both, f"{a.mnemonic} and {b.mnemonic} overlap"


def test_assembled_instructions_decode_to_themselves() -> None:
    rng = np.random.default_rng(2)
    for row in TABLE:
        for _ in range(20):
            word = encode(row, rng)
            found = decode_word(word)
            assert found is not None, row.mnemonic
            assert found.row is row
            if not ({"rm", "rs3", "aq", "fence", "csr"} & row.fields):
                assert assemble(row.mnemonic, found.rd, found.rs1, found.rs2, found.imm) == word, row.mnemonic


def test_every_compressed_pattern_is_an_instruction_or_refused() -> None:
    legal = 0
    for half in range(1 << 16):
        if half & 3 == 3:
            continue
        word = expand_compressed(half)
        if word is None:
            assert decode(half) is None
            continue
        found = decode(half)
        assert found is not None, hex(half)
        assert found.length_bytes == 2
        legal += 1
    assert legal > 45_000
    assert decode(0) is None  # defined to be illegal


def test_hand_assembled_words() -> None:
    # As GNU as 2.40 encodes them.
    for raw, text in (
        (0x00000013, "addi zero, zero, 0"), (0xFF010113, "addi sp, sp, -16"), (0x00813423, "sd s0, 8(sp)"),
        (0x4501, "addi a0, zero, 0"), (0x8082, "jalr zero, 0(ra)"), (0x9002, "ebreak"),
        (0x02A58533, "mul a0, a1, a0"), (0x00B50633, "add a2, a0, a1"), (0x0005B787, "fld fa5, 0(a1)"),
        (0x02F77753, "fadd.d fa4, fa4, fa5"), (0xC0002573, "csrrs a0, cycle, zero"), (0x00C5862F, None),
        (0x60051513, "clz a0, a0"), (0x20A5A533, "sh1add a0, a1, a0"), (0x00000073, "ecall"),
        (0xFE0518E3, "bne a0, zero, 0xff0"),
    ):  # fmt: skip
        shown = disassemble(raw, 0x1000)
        if text is None:
            assert shown.startswith(".word")
        else:
            assert shown == text, hex(raw)
