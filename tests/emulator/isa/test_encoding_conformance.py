"""Words against the manual's listings: every row of the table, every 16-bit pattern, and what must be illegal."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from emulator.isa.decode import decode, decode_word, expand_compressed
from emulator.isa.table import ROWS
from emulator.linux.abi.numbers import Signal
from emulator.machine import Machine
from tests.emulator.isa import (
    test_float_conformance,
    test_integer_conformance,
    test_memory_conformance,
    test_system_conformance,
)
from tests.emulator.isa.kernels import ENGINE_NAMES, engine_named, machine_for
from tests.emulator.isa.reference_compressed import LISTING, expand
from tests.emulator.isa.reference_encoding import ENCODINGS, encode
from tests.fuzz.programs import elf

RESERVED_ROUNDING = (5, 6)


def test_every_row_is_encoded_as_the_manual_says() -> None:
    assert set(ROWS) == set(ENCODINGS)
    wrong = {
        name: (hex(row.match), hex(ENCODINGS[name].match))
        for name, row in ROWS.items()
        if (row.mask, row.match) != (ENCODINGS[name].mask, ENCODINGS[name].match)
    }
    assert not wrong


def test_every_row_has_cases() -> None:
    """Fails when a row is added to the table and no test of its behaviour."""
    groups = (
        test_integer_conformance.kernels, test_float_conformance.one_operand, test_float_conformance.two_operands,
        test_float_conformance.three_operands, test_memory_conformance.loads, test_memory_conformance.stores,
        test_memory_conformance.atomics, test_memory_conformance.reservations,
    )  # fmt: skip
    cases = Counter(test_system_conformance.TESTED)
    for group in groups:
        for kernel in group():
            cases[kernel.name.split()[0]] += len(kernel.cases)
    assert set(ROWS) == set(cases)


def test_words_are_decoded_by_the_listing_alone() -> None:
    """Random words, most of them near an instruction: decoded if and only if an encoding matches, to its fields."""
    rng = np.random.default_rng(5)
    bases = [code.match for code in ENCODINGS.values()]
    decoded = 0
    for _ in range(40_000):
        word = int(rng.integers(1 << 32)) | 3
        if rng.random() < 0.8:
            base = bases[rng.integers(len(bases))]
            keep = int(rng.choice([0x7F, 0x707F, 0xFE00707F, 0xFFF0707F]))
            word = base & keep | word & ~keep
        names = [name for name, code in ENCODINGS.items() if word & code.mask == code.match]
        assert len(names) < 2
        legal = bool(names) and not (ENCODINGS[names[0]].rounded and word >> 12 & 7 in RESERVED_ROUNDING)
        found = decode_word(word)
        assert (found is not None) == legal, f"{word:#010x} {names}"
        if found is not None:
            assert found.row.mnemonic == names[0]
            decoded += 1
    assert decoded > 8000


def test_immediates_are_where_the_formats_have_them() -> None:
    """Each bit of each immediate, and the sign."""
    bits = {
        "I": [1 << n for n in range(11)] + [-2048, -1], "S": [1 << n for n in range(11)] + [-2048, -1],
        "B": [2 << n for n in range(11)] + [-4096, -2], "J": [2 << n for n in range(19)] + [-(1 << 20), -2],
        "U": [1 << n for n in range(12, 31)] + [-(1 << 31), -4096], "shift": [1 << n for n in range(6)] + [63],
        "shiftw": [1 << n for n in range(5)] + [31], "csr": [1 << n for n in range(12)] + [0xFFF],
    }  # fmt: skip
    for name, code in ENCODINGS.items():
        for imm in bits.get(code.kind, ()):
            found = decode_word(encode(name, 1, 2, 3, imm))
            assert found is not None
            assert found.imm == imm, name


def test_every_16_bit_pattern() -> None:
    """Expanded as the listing says, or refused where it is reserved or not listed; all rows come up."""
    seen: Counter[str] = Counter()
    for half in range(1 << 16):
        if half & 3 == 3:
            continue
        expected = expand(half)
        word = None if expected is None else expected[1]
        assert expand_compressed(half) == word, f"{half:#06x} {expected}"
        found = decode(half)
        assert (found is None) == (word is None)
        if found is not None and expected is not None:
            assert found.length_bytes == 2
            seen[expected[0]] += 1
    assert set(seen) == {row.name for row in LISTING}


ILLEGAL = {
    "all zeros": 0x0000, "all ones": 0xFFFFFFFF, "c.addi4spn of 0": 0x0004, "c.addiw to x0": 0x2001,
    "c.addi16sp of 0": 0x6101, "c.lui of 0": 0x6081, "c.lwsp to x0": 0x4002, "c.ldsp to x0": 0x6002,
    "c.jr of x0": 0x8002,
    "reserved in quadrant 0": 0x8000, "c.subw and beyond": 0x9C41, "c.addw and beyond": 0x9C61,
    "rounding mode 5": encode("fadd.d", 1, 2, 3, rm=5), "rounding mode 6": encode("fcvt.w.s", 1, 2, rm=6),
    "rounding mode 5 where nothing is rounded": encode("fcvt.d.w", 1, 2, rm=5),
    "shift of 32 in 32 bits": encode("slliw", 1, 2, imm=31) + (1 << 25), "lr with rs2": encode("lr.w", 1, 2) | 1 << 20,
    "8-bit atomic": encode("amoadd.w", 1, 2, 3) & ~(7 << 12), "ecall with rd": 0x73 | 1 << 7, "mret": 0x30200073,
    "wfi": 0x10500073, "sfence.vma": 0x12000073, "load of 128 bits": 0x7003,
    "half precision": encode("fadd.s", 1, 2, 3) | 2 << 25,
    "fclass with rs2": encode("fclass.d", 1, 2) | 1 << 20, "48-bit instruction": 0x0000001F, "carry-less multiply":
    encode("mul", 1, 2, 3) | 5 << 25, "a CSR that does not exist": encode("csrrs", 1, 0, imm=0x123),
    "a machine CSR": encode("csrrs", 1, 0, imm=0x300), "a write to cycle": encode("csrrw", 0, 1, imm=0xC00),
    "a set bit in instret": encode("csrrsi", 0, 1, imm=0xC02),
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_illegal_instructions(engine: str) -> None:
    """Each ends the guest with SIGILL, at its address, and what stands before it is executed."""
    before = encode("addi", 20, 20, imm=7)
    for name, word in ILLEGAL.items():
        code = before.to_bytes(4, "little") + word.to_bytes(4 if word & 3 == 3 else 2, "little") + bytes(4)
        chosen = engine_named(engine)
        with Machine(
            elf(code, bytes(16)), engine=chosen.kind, background=False, templates=chosen.templates,
            optimise_executions=chosen.optimise_executions,
        ) as machine:  # fmt: skip
            ending = machine.run()
            assert ending.signal == Signal.SIGILL, (name, ending)
            assert "0x10004" in (ending.message or ""), (name, ending)
            assert machine.hart.x[20] == 7, name


def test_the_engines_are_what_they_are_called() -> None:
    """Loops over cases are executed by the tier whose name the engine has; else the tests here would say nothing."""
    kernels = test_integer_conformance.kernels()[:8]
    translated = {}
    for name in ENGINE_NAMES[1:]:
        with machine_for(kernels, engine_named(name)) as machine:
            assert machine.run().status == 0
            assert machine.translator is not None
            tier = machine.translator.tier
            laid = 0 if tier.templates is None else int((tier.templates.entries > 0).sum())
            translated[name] = laid, len(tier.states.entries)
    assert translated["interpreter"] == (0, 0)
    assert translated["templates"][0] >= len(kernels)
    assert translated["templates"][1] == 0
    assert translated["optimised"][1] >= len(kernels)
