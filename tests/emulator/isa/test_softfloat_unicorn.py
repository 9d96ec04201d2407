"""The soft-float oracle against unicorn: the same operands through real RISC-V floating-point instructions.

unicorn predates two corrections of the specification, which the hand-worked cases cover instead: minimum and
maximum of a signalling NaN and a number (minimumNumber here, the older minNum there), and the invalid flag of
a fused infinity times zero plus a quiet NaN. It does not NaN-box binary32 results either, so only the low
half of those is compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from emulator.isa import softfloat as sf
from emulator.isa.softfloat import F32, F64, RMM, RNE, Format

unicorn = pytest.importorskip("unicorn")
riscv_const = pytest.importorskip("unicorn.riscv_const")

CODE, DATA = 0x10000, 0x100000
ROW_WORDS = 5  # three operands, the result, the flags
A0, A3, T0, A4, A5 = 10, 13, 5, 14, 15
FIXED_RM = -1  # the funct3 field is part of the opcode


def i_type(opcode: int, funct3: int, rd: int, rs1: int, immediate: int) -> int:
    return (immediate & 0xFFF) << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode


def s_type(opcode: int, funct3: int, rs1: int, rs2: int, immediate: int) -> int:
    return immediate >> 5 << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | (immediate & 31) << 7 | opcode


def op_fp(funct7: int, rs2: int, rs1: int, funct3: int, rd: int) -> int:
    return funct7 << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | 0x53


def execute(instruction: int, rows: np.ndarray, integer_result: bool) -> np.ndarray:
    """Run ``instruction`` once a row on f0, f1, f2 (and a4 = first operand) and return (result, fflags)."""
    result = s_type(0x23, 3, A0, A5, 24) if integer_result else s_type(0x27, 3, A0, 3, 24)
    loop = [
        i_type(0x07, 3, 0, A0, 0),  # fld f0, 0(a0)
        i_type(0x07, 3, 1, A0, 8),
        i_type(0x07, 3, 2, A0, 16),
        i_type(0x03, 3, A4, A0, 0),  # ld a4, 0(a0)
        i_type(0x73, 1, 0, 0, 0x003),  # csrw fcsr, zero
        instruction,
        result,
        i_type(0x73, 2, T0, 0, 0x001),  # csrr t0, fflags
        s_type(0x23, 3, A0, T0, 32),
        i_type(0x13, 0, A0, A0, ROW_WORDS * 8),
    ]
    back = -4 * len(loop) & 0x1FFF
    loop.append(  # bne a0, a3, loop
        (back >> 12) << 31 | (back >> 5 & 63) << 25 | A3 << 20 | A0 << 15 | 1 << 12
        | (back >> 1 & 15) << 8 | (back >> 11 & 1) << 7 | 0x63
    )  # fmt: skip
    enable = [0x0000_62B7, i_type(0x73, 2, 0, T0, 0x300)]  # lui t0, 6; csrs mstatus, t0: the FS field
    program = np.array(enable + loop, np.uint32).tobytes()
    machine = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV64)
    machine.mem_map(CODE, 0x1000)
    machine.mem_map(DATA, (rows.nbytes + 0xFFF) & ~0xFFF)
    machine.mem_write(CODE, program)
    machine.mem_write(DATA, rows.tobytes())
    machine.reg_write(riscv_const.UC_RISCV_REG_A0, DATA)
    machine.reg_write(riscv_const.UC_RISCV_REG_A3, DATA + rows.nbytes)
    machine.emu_start(CODE, CODE + len(program))
    after = np.frombuffer(bytes(machine.mem_read(DATA, rows.nbytes)), np.uint64).reshape(rows.shape)
    return after[:, 3:]


def edge_operands(fmt: Format) -> list[int]:
    """Both signs of zero, one, infinity, NaNs, and the borders of the subnormal and normal ranges."""
    one, smallest_normal = fmt.bias << fmt.fraction_bits, 1 << fmt.fraction_bits
    magnitudes = [0, 1, 2, 3, smallest_normal - 1, smallest_normal, smallest_normal + 1, one // 2]
    magnitudes += [one - 1, one, one + 1, one + smallest_normal // 2, one + smallest_normal, one * 3 // 2]
    magnitudes += [one + (place << fmt.fraction_bits) for place in (fmt.fraction_bits, 30, 31, 32, 62, 63, 64)]
    magnitudes += [fmt.largest_finite - 1, fmt.largest_finite, fmt.infinity, fmt.infinity + 1]
    magnitudes += [fmt.canonical_nan, fmt.canonical_nan + 5]
    return [sign | magnitude for magnitude in magnitudes for sign in (0, fmt.sign_bit)]


def random_operand(fmt: Format, rng: random.Random) -> int:
    sign = rng.getrandbits(1) << (fmt.width - 1)
    exponent = rng.choice([rng.getrandbits(fmt.exponent_bits), fmt.bias + rng.randint(-3, 3), rng.randint(0, 2)])
    fraction = rng.choice(
        [
            rng.getrandbits(fmt.fraction_bits),
            rng.getrandbits(4),
            rng.getrandbits(4) << (fmt.fraction_bits - 4),
        ]
    )
    return sign | exponent << fmt.fraction_bits | fraction


def operand_rows(fmt: Format, count: int, arity: int, seed: str) -> list[tuple[int, ...]]:
    """All pairs of edge operands (with a random third one) and ``count`` random rows."""
    rng = random.Random(seed)
    edges = edge_operands(fmt)
    first = [(a,) for a in edges] if arity == 1 else [(a, b) for a in edges for b in edges]
    rows = [pair + (rng.choice(edges),) * (3 - len(pair)) for pair in first]
    return rows + [tuple(random_operand(fmt, rng) for _ in range(3)) for _ in range(count)]


def box(fmt: Format, bits: int) -> int:
    return bits | 0xFFFF_FFFF_0000_0000 if fmt is F32 else bits


def differences(
    instruction: int,
    source: Format,
    target: Format | None,
    rows: Sequence[tuple[int, ...]],
    model: Callable[[tuple[int, ...]], tuple[int, int]],
) -> list[str]:
    """Disagreements between ``model(row)`` and the instruction; no ``target`` means an integer register."""
    data = np.zeros((len(rows), ROW_WORDS), np.uint64)
    data[:, :3] = [[box(source, bits) for bits in row] for row in rows]
    theirs = execute(instruction, data, integer_result=target is None)
    mask = (1 << (target.width if target else 64)) - 1
    found = []
    for row, (result, flags) in zip(rows, theirs.tolist(), strict=True):
        expected = model(row)
        if expected != (result & mask, flags):
            operands = " ".join(f"{bits:#x}" for bits in row)
            found.append(f"{operands}: ours {expected[0]:#x} {expected[1]}, unicorn {result & mask:#x} {flags}")
    return found


def sign_extend(bits: int) -> int:
    return (bits ^ 0x8000_0000) - 0x8000_0000 & 0xFFFF_FFFF_FFFF_FFFF


FORMATS = [pytest.param(F32, id="f32"), pytest.param(F64, id="f64")]
MODES = [pytest.param(rm, id=name) for rm, name in enumerate(["rne", "rtz", "rdn", "rup", "rmm"])]


@pytest.mark.parametrize("rm", MODES)
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    ("funct5", "arity", "operation"),
    [(0, 2, sf.add), (1, 2, sf.sub), (2, 2, sf.mul), (3, 2, sf.div), (11, 1, sf.sqrt)],
    ids=["add", "sub", "mul", "div", "sqrt"],
)
def test_arithmetic(funct5: int, arity: int, operation: Callable[..., Any], fmt: Format, rm: int) -> None:
    instruction = op_fp(funct5 << 2 | (fmt is F64), 1 if arity == 2 else 0, 0, rm, 3)

    def model(row: tuple[int, ...]) -> tuple[int, int]:
        return operation(fmt, *row[:arity], rm)

    rows = operand_rows(fmt, 1000, arity, f"{operation.__name__}{rm}")
    assert differences(instruction, fmt, fmt, rows, model) == []


@pytest.mark.parametrize("rm", MODES)
@pytest.mark.parametrize("fmt", FORMATS)
def test_fused_multiply_add(fmt: Format, rm: int) -> None:
    def model(row: tuple[int, ...]) -> tuple[int, int]:
        a, b, c = row
        return sf.fma(fmt, a, b, c, rm)

    def older_rule(row: tuple[int, ...]) -> bool:
        zero_times_infinity = sf.mul(fmt, row[0], row[1], RNE) == (fmt.canonical_nan, sf.NV)
        return zero_times_infinity and sf.is_nan(fmt, row[2])

    instruction = 2 << 27 | (fmt is F64) << 25 | 1 << 20 | rm << 12 | 3 << 7 | 0x43
    rows = [row for row in operand_rows(fmt, 1500, 3, f"fma{rm}") if not older_rule(row)]
    assert differences(instruction, fmt, fmt, rows, model) == []


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    ("funct5", "funct3", "operation"),
    [(20, 2, sf.eq), (20, 1, sf.lt), (20, 0, sf.le), (5, 0, sf.minimum), (5, 1, sf.maximum)],
    ids=["eq", "lt", "le", "min", "max"],
)
def test_comparison(funct5: int, funct3: int, operation: Callable[..., Any], fmt: Format) -> None:
    truth = funct5 == 20
    instruction = op_fp(funct5 << 2 | (fmt is F64), 1, 0, funct3, A5 if truth else 3)

    def model(row: tuple[int, ...]) -> tuple[int, int]:
        return operation(fmt, *row[:2])

    rows = operand_rows(fmt, 1000, 2, operation.__name__)
    if not truth:
        rows = [row for row in rows if not any(sf.is_signalling_nan(fmt, bits) for bits in row[:2])]
    assert differences(instruction, fmt, None if truth else fmt, rows, model) == []


@pytest.mark.parametrize("fmt", FORMATS)
def test_classification(fmt: Format) -> None:
    instruction = op_fp(0x70 | (fmt is F64), 0, 0, 1, A5)
    rows = operand_rows(fmt, 500, 1, "class")
    assert differences(instruction, fmt, None, rows, lambda row: (sf.classify(fmt, row[0]), 0)) == []


@pytest.mark.parametrize("rm", MODES)
@pytest.mark.parametrize(("source", "target"), [(F64, F32), (F32, F64)], ids=["narrow", "widen"])
def test_conversion_between_formats(source: Format, target: Format, rm: int) -> None:
    instruction = op_fp(0x20 if target is F32 else 0x21, 1 if target is F32 else 0, 0, rm, 3)

    def model(row: tuple[int, ...]) -> tuple[int, int]:
        return sf.convert(source, target, row[0], rm)

    rng = random.Random(rm)
    rows = operand_rows(source, 800, 1, f"convert{rm}")
    if source is F64:  # close to the borders of binary32 and its ties
        rows += [(sf.convert(F32, F64, random_operand(F32, rng), RNE)[0] ^ rng.getrandbits(30), 0, 0)
                 for _ in range(800)]  # fmt: skip
    assert differences(instruction, source, target, rows, model) == []


INTEGERS = [(32, True), (32, False), (64, True), (64, False)]


@pytest.mark.parametrize("rm", MODES)
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(("width", "signed"), INTEGERS, ids=["w", "wu", "l", "lu"])
def test_conversion_to_integer(width: int, signed: bool, fmt: Format, rm: int) -> None:
    instruction = op_fp(0x60 | (fmt is F64), INTEGERS.index((width, signed)), 0, rm, A5)

    def model(row: tuple[int, ...]) -> tuple[int, int]:
        bits, flags = sf.to_int(fmt, row[0], rm, width, signed)
        return (sign_extend(bits) if width == 32 else bits), flags

    rng = random.Random(rm)
    rows = operand_rows(fmt, 300, 1, "toint")
    for _ in range(700):  # numbers of 0 to 66 integer bits, halves and the limits included
        value = rng.choice([-1, 1]) * (rng.getrandbits(rng.randint(1, 68)) + rng.choice([-1, 0, 0, 1]))
        value = rng.choice([value, 2**31, -(2**31) - 1, 2**32 - 1, 2**63, 2**64]) * 4 + rng.randint(-3, 3)
        bits = sf.from_int(fmt, value, RMM)[0]
        rows.append((bits - (2 << fmt.fraction_bits) if bits & ~fmt.sign_bit else bits, 0, 0))
    assert differences(instruction, fmt, None, rows, model) == []


@pytest.mark.parametrize("rm", MODES)
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(("width", "signed"), INTEGERS, ids=["w", "wu", "l", "lu"])
def test_conversion_from_integer(width: int, signed: bool, fmt: Format, rm: int) -> None:
    instruction = op_fp(0x68 | (fmt is F64), INTEGERS.index((width, signed)), A4, rm, 3)

    def model(row: tuple[int, ...]) -> tuple[int, int]:
        value = row[0] & ((1 << width) - 1)
        return sf.from_int(fmt, value - (value >> (width - 1) << width) if signed else value, rm)

    rng = random.Random(rm)
    edges = [0, 1, 2**24 + 1, 2**25 + 2, 2**31, 2**32 - 1, 2**53 + 1, 2**54 + 2, 2**63 - 1, 2**63, 2**64 - 1]
    rows = [(rng.getrandbits(64) >> rng.randint(0, 63), 0, 0) for _ in range(500)] + [(e, 0, 0) for e in edges]
    rows += [(-row[0] & 0xFFFF_FFFF_FFFF_FFFF, 0, 0) for row in rows]
    # the source is an integer register: no boxing of its bits
    assert differences(instruction, F64, fmt, rows, model) == []
