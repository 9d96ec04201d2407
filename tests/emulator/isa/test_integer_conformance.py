"""Integer instructions against the manual's prose, on every engine: arithmetic, shifts, division, bits, branches."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

from tests.emulator.isa.kernels import ENGINE_NAMES, SCRATCH, Kernel, engine_named, registers, wrong
from tests.emulator.isa.reference_encoding import encode
from tests.emulator.isa.reference_integer import BINARY, BRANCHES, IMMEDIATE, M64, UNARY, s64, u32

VALUES = [0, 1, 2, 5, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 32,
          0x0123456789ABCDEF, 0x00FF00000100FF80, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, M64, M64 - 1, M64 - 6,
          0xFFFFFFFF80000000, 0xFFFFFFFF7FFFFFFF]  # fmt: skip
IMMEDIATES = [0, 1, -1, 5, 2047, -2048, 0x555]
UPPER = [0, 0x1000, 0x7FFFF000, 0x80000000, 0xFFFFF000]
LEAST = 1 << 63


@cache
def kernels() -> list[Kernel]:
    found: list[Kernel] = []

    def new(name: str, kinds: str, imm: int = 0) -> Kernel:
        rd, rs1, rs2, _ = registers(len(found))
        return sequence(f"{name} {imm}", kinds, [encode(name, rd, rs1, rs2, imm)])

    def sequence(name: str, kinds: str, words: list[int]) -> Kernel:
        found.append(Kernel(name, words, kinds, len(found)))
        return found[-1]

    for name, two in BINARY.items():
        kernel = new(name, "xxx")
        for a, b in product(VALUES, VALUES):
            kernel.add((a, b), two(a, b))
    for name, one in UNARY.items():
        kernel = new(name, "xx-")
        for a in VALUES:
            kernel.add((a,), one(a))
    for name, two in IMMEDIATE.items():
        kind = encode(name) & 0x7F, encode(name) >> 12 & 7
        shift = kind[1] in (1, 5)
        bits = (31, 15, 1) if name.endswith("w") else (63, 32, 31, 1)
        for imm in (0, *bits) if shift else IMMEDIATES:
            kernel = new(name, "xx-", imm)
            for a in VALUES:
                kernel.add((a,), two(a, imm % (1 << 64)))
    for imm in UPPER:
        new("lui", "x--", imm).add((), imm - (imm >> 31 << 32))
        rd, *_ = registers(len(found))
        words = [encode("auipc", rd, imm=imm), encode("auipc", SCRATCH), encode("sub", rd, rd, SCRATCH)]
        sequence("auipc", "x--", words).add((), imm - (imm >> 31 << 32) - 4)
    for name, holds in BRANCHES.items():  # taken: over what sets the result to 1
        rd, rs1, rs2, _ = registers(len(found))
        words = [encode("addi", rd), encode(name, 0, rs1, rs2, 8), encode("addi", rd, imm=1)]
        kernel = sequence(name, "xxx", words)
        for a, b in product(VALUES, VALUES):
            kernel.add((a, b), not holds(a, b))
    rd, rs1, rs2, _ = registers(len(found))
    here, link = encode("auipc", SCRATCH), encode("sub", rd, rd, SCRATCH)
    sequence("jal", "x--", [here, encode("jal", rd, imm=8), encode("addi", rd), link]).add((), 8)
    for imm, odd in ((0, 0), (0, 1), (2047, 0), (-2045, 1), (-2045, 0)):
        for same in (
            True,
            False,
        ):  # a target in the register that takes the link, too; bit 0 of the sum is dropped
            rd, rs1, *_ = registers(len(found))
            register = rd if same else rs1
            words = [
                encode("auipc", SCRATCH), encode("addi", register, SCRATCH, imm=24 + odd - imm % 2),
                encode("addi", register, register, imm=-(imm - imm % 2)), encode("jalr", rd, register, imm=imm),
                encode("addi", rd), encode("addi", rd), encode("sub", rd, rd, SCRATCH),
            ]  # fmt: skip
            sequence(f"jalr {imm}", "x--", words).add((), 16)
    return found


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_results(engine: str) -> None:
    assert wrong(kernels(), engine_named(engine)) == []


def test_the_reference_itself() -> None:
    """Where the manual names numbers: division by zero and overflow (table 11), the fill of shifts, and the counts."""
    two = {name: lambda a, b, f=f: f(a, b) % (1 << 64) for name, f in BINARY.items()}
    assert two["div"](7, 0) == two["divu"](7, 0) == M64
    assert two["divw"](7, 0) == two["divuw"](7, 0) == M64
    assert two["rem"](7, 0) == two["remu"](7, 0) == 7
    assert two["remw"](0xFFFFFFFF80000001, 0) == two["remuw"](0x80000001, 0) == 0xFFFFFFFF80000001
    assert two["div"](LEAST, M64) == LEAST
    assert two["rem"](LEAST, M64) == two["remw"](0x80000000, M64) == 0
    assert two["divw"](0x80000000, 0xFFFFFFFF) == 0xFFFFFFFF80000000
    assert two["div"](M64 - 6, 2) == M64 - 2  # -7 / 2 is -3, and the rest has the dividend's sign
    assert two["rem"](M64 - 6, 2) == M64
    assert two["mulh"](LEAST, LEAST) == 1 << 62
    assert two["mulhsu"](M64, M64) == M64
    assert two["mulhu"](M64, M64) == M64 - 1
    assert two["srlw"](0xFFFFFFFF, 32) == M64
    assert two["sraw"](0x80000000, 31) == M64
    assert two["sll"](1, 64) == 1
    assert UNARY["clz"](0) == UNARY["ctz"](0) == 64
    assert UNARY["clzw"](0) == UNARY["ctzw"](1 << 32) == 32
    assert UNARY["orc.b"](0x0100000000008000) == 0xFF0000000000FF00
    assert (two["rorw"](1, 1), two["rol"](LEAST, 1)) == (0xFFFFFFFF80000000, 1)
    assert (s64(M64), u32(M64)) == (-1, 0xFFFFFFFF)
