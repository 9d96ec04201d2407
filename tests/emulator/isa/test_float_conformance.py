"""Floating-point instructions against IEEE 754 by definition (`reference_float`), on every engine.

Every rounding mode, named by the instruction and by frm; all flags, and that they stick; NaN boxes, canonical and
signalling NaNs; signed zeros, subnormals, overflow; conversions that saturate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any

import pytest

from tests.emulator.isa.kernels import ENGINE_NAMES, Kernel, engine_named, registers, wrong
from tests.emulator.isa.reference_encoding import encode
from tests.emulator.isa.reference_float import (
    COMPARISONS,
    INTEGERS,
    NV,
    NX,
    RNE,
    THREE,
    TWO,
    D,
    Kind,
    Result,
    S,
    boxed,
    classify,
    convert,
    from_integer,
    sqrt,
    to_integer,
    unboxed,
)

MODES = range(5)
DYNAMIC = 7
BEFORE = (0, 0, NV | NX, 0, 0x0C)  # flags that are set already, in turn
KINDS = ((S, ".s"), (D, ".d"))


def one(kind: Kind) -> int:
    return (2 ** (kind.exponent - 1) - 1) << kind.fraction


@cache
def specials(kind: Kind) -> list[int]:
    """Registers: zeros, subnormals, borders, ties in the making, infinities, NaNs; singles that are not boxed."""
    unit, least = one(kind), 1 << kind.fraction
    magnitudes = [
        0, 1, 3, least - 1, least, least + 1, unit - 1, unit, unit + 1, unit + least // 2, unit + least,
        unit - least, kind.infinity - 1, kind.infinity, kind.nan, kind.infinity + 1, kind.nan + 5,
    ]  # fmt: skip
    found = [boxed(kind, sign | bits) for bits in magnitudes for sign in (0, kind.sign)]
    return found if kind is D else [*found, unit, 0xFFFFFFFE << 32 | unit, 0]


@cache
def pairs(kind: Kind) -> list[tuple[int, int]]:
    """Operands whose sum, product or quotient is hard to round."""
    unit, least, last = one(kind), 1 << kind.fraction, kind.infinity - 1
    half = unit - kind.fraction * least - least  # half the last place of 1
    found = [
        (unit, half), (unit + 1, half), (unit, half + 1), (unit, half - 1), (unit + 1, unit + 1), (unit + 2, unit - 1),
        (last, half), (last, last), (last, unit + least), (last, unit + 1), (last, last - 24 * least),
        (least, unit - least),
        (least + 1, unit - least), (least - 1, unit - least), (least, unit - 1), (least + 1, unit - 2), (least, least),
        (1, 1), (1, unit - 1), (1, unit - least), (3, unit - least), (5, unit - 2 * least), (unit, unit + 1), (unit, 3),
        (unit, unit + 3 * least // 2), (unit + 2 * least, unit + least + least // 2), (least, last), (1, last),
        (last, 1),
        (least - 1, unit + 1), (least - 1, 1), (least, least - 1), (unit, unit), (unit + 7, unit + 7), (0, unit),
        (0, 0),
    ]  # fmt: skip
    signed = [(a | p, b | q) for a, b in found for p, q in product((0, kind.sign), repeat=2)]
    return [(boxed(kind, a), boxed(kind, b)) for a, b in signed]


@cache
def triples(kind: Kind) -> list[tuple[int, int, int]]:
    """Products that an addend cancels, decides a tie of, or drowns."""
    unit, least, last = one(kind), 1 << kind.fraction, kind.infinity - 1
    half = unit - kind.fraction * least - least
    found = [
        (unit + 1, unit + 1, unit), (unit + 1, unit - 1, unit), (unit, unit, half), (unit, half, unit + 1),
        (unit, half, unit), (half, half, unit), (unit + 1, unit + 1, unit + 2), (last, last, last), (last, unit, half),
        (last, unit, last - 24 * least), (least, unit - 1, 1), (least, half, least), (least, unit - least, least // 2),
        (1, 1, 1), (1, unit - least, 1), (1, unit - least, least - 1), (0, unit, 0), (unit, unit, unit),
    ]  # fmt: skip
    signs = product((0, kind.sign), repeat=2)
    signed = [(a | p, b, c | q) for p, q in signs for a, b, c in found]
    return [(boxed(kind, a), boxed(kind, b), boxed(kind, c)) for a, b, c in signed]


INTEGER_VALUES = [
    0, 1, (1 << 24) + 1, (1 << 24) + 3, (1 << 53) + 1, (1 << 53) + 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFF80,
    0x7FFFFFC0, (1 << 63) - 1, 1 << 63, (1 << 63) + 1024, (1 << 63) + 1025, (1 << 64) - 1, (1 << 64) - 2,
    (1 << 64) - 512, 0xFFFFFFFF80000000, 0xFFFFFFFF7FFFFFFF, 0x123456789ABCDEF0,
]  # fmt: skip


@cache
def near_integers(kind: Kind) -> list[int]:
    """Halves, and what lies just inside and outside the ranges of the four integers."""
    least = 1 << kind.fraction
    found = []
    for power in (-2, -1, 0, 1, 22, 23, 30, 31, 32, 51, 52, 62, 63, 64, 65):
        base = one(kind) + power * least
        found += [base - 1, base, base + 1, base + least // 2]
        if 0 <= power < kind.fraction - 1:  # base + 1/2, 1/4, 3/4
            step = 1 << kind.fraction - power - 2
            found += [
                base + 2 * step,
                base + step,
                base + 3 * step,
                base + (1 << kind.fraction - power) + 2 * step,
            ]
        if 1 < power < kind.fraction - 1:  # 2**power - 1/2, and + 1/4
            found += [base - (1 << kind.fraction - power), base - (1 << kind.fraction - power) + 1]
    return [boxed(kind, bits | sign) for bits in found for sign in (0, kind.sign)]


class Group:
    """Kernels in the making."""

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []

    def rounding(
        self, name: str, kinds: str, cases: Sequence[tuple[int, ...]], more: Sequence[tuple[int, ...]],
        result: Callable[..., Result],
    ) -> None:  # fmt: skip
        """An instruction with a rounding mode. ``cases``: in every mode, by frm and by the instruction; ``more``: in
        one
        mode each. ``result``: of the operands and the mode."""
        kernel = self._new(name, kinds, DYNAMIC)
        for n, operands in enumerate(more):
            self._case(kernel, operands, n % 5, n, result)
        for frm in MODES:
            for n, operands in enumerate(cases):
                self._case(kernel, operands, frm, n, result)
        for rm in MODES:
            kernel = self._new(name, kinds, rm)
            for n, operands in enumerate(cases[rm::3]):
                self._case(kernel, operands, rm, n, result, frm=(rm + 1 + n % 4) % 5)

    def plain(self, name: str, kinds: str, cases: Sequence[tuple[int, ...]], result: Callable[..., Result]) -> None:
        """An instruction that does not round: frm does not matter."""
        kernel = self._new(name, kinds, None)
        for n, operands in enumerate(cases):
            self._case(kernel, operands, RNE, n, result, frm=n % 5)

    def _new(self, name: str, kinds: str, rm: int | None) -> Kernel:
        rd, rs1, rs2, rs3 = registers(len(self.kernels))
        word = encode(name, rd, rs1, rs2, rs3=rs3) if rm is None else encode(name, rd, rs1, rs2, rs3=rs3, rm=rm)
        self.kernels.append(Kernel(f"{name} rm={rm}", [word], kinds, len(self.kernels)))
        return self.kernels[-1]

    @staticmethod
    def _case(
        kernel: Kernel, operands: tuple[int, ...], rm: int, n: int, result: Callable[..., Result],
        frm: int | None = None,
    ) -> None:  # fmt: skip
        fcsr = (rm if frm is None else frm) << 5 | BEFORE[n % len(BEFORE)]
        bits, flags = result(*operands, rm)
        kernel.add(operands, bits, fcsr, fcsr | flags)


def _of(kind: Kind, operation: Callable[..., Result], to: Kind | None = None) -> Callable[..., Result]:
    """The operation on registers: operands unboxed, the result boxed if it is of a format."""

    def registers_(*arguments: int) -> Result:
        *operands, rm = arguments
        bits, flags = operation(kind, *(unboxed(kind, a) for a in operands), rm)
        return (bits if to is None else boxed(to, bits)), flags

    return registers_


def _boxing(kind: Kind, operation: Callable[[Kind, int, int], Result]) -> Callable[[int, int], Result]:
    """The same for an operand from an integer register."""

    def from_register(a: int, rm: int) -> Result:
        bits, flags = operation(kind, a, rm)
        return boxed(kind, bits), flags

    return from_register


@cache
def two_operands() -> list[Kernel]:
    group = Group()
    for kind, suffix in KINDS:
        everything = list(product(specials(kind), repeat=2))
        for name, operation in TWO.items():
            if name in ("fadd", "fsub", "fmul", "fdiv"):
                group.rounding(name + suffix, "fff", pairs(kind), everything, _of(kind, operation, kind))
            else:
                group.plain(name + suffix, "fff", everything, _of(kind, operation, kind))
        for name, operation in COMPARISONS.items():
            group.plain(name + suffix, "xff", everything, _of(kind, operation))
    return group.kernels


@cache
def three_operands() -> list[Kernel]:
    group = Group()
    for kind, suffix in KINDS:
        some = specials(kind)[::5] + specials(kind)[-8:]
        everything = list(product(some, some[::2], some[1::2]))
        for name, operation in THREE.items():
            group.rounding(name + suffix, "ffff", triples(kind), everything, _of(kind, operation, kind))
    return group.kernels


@cache
def one_operand() -> list[Kernel]:
    group = Group()
    for kind, suffix in KINDS:
        everything = [(a,) for a in specials(kind) + [b for _, b in pairs(kind)] + near_integers(kind)]
        group.rounding("fsqrt" + suffix, "ff-", everything, [], _of(kind, sqrt, kind))
        group.plain("fclass" + suffix, "xf-", everything, _of(kind, classify))
        for name, (bits, signed) in INTEGERS.items():
            group.rounding(f"fcvt.{name}{suffix}", "xf-", everything, [], _of(kind, to_integer(bits, signed)))
            integers = [(a,) for a in INTEGER_VALUES]
            group.rounding(f"fcvt{suffix}.{name}", "fx-", integers, [], _boxing(kind, from_integer(bits, signed)))
    narrow = [(a,) for a in specials(D) + near_integers(D) + narrowing()]
    group.rounding("fcvt.s.d", "ff-", narrow, [], _of(D, lambda kind, a, rm: convert(D, S, a, rm), S))
    wide = [(a,) for a in specials(S) + near_integers(S)]
    group.rounding("fcvt.d.s", "ff-", wide, [], _of(S, lambda kind, a, rm: convert(S, D, a, rm), D))
    values = [(a,) for a in specials(S) + specials(D)[1::3]]
    group.plain("fmv.x.w", "xf-", values, lambda a, rm: ((a % 2**32 - (a >> 31 & 1) * 2**32) % 2**64, 0))
    group.plain("fmv.w.x", "fx-", values, lambda a, rm: (boxed(S, a % 2**32), 0))
    group.plain("fmv.x.d", "xf-", values, lambda a, rm: (a, 0))
    group.plain("fmv.d.x", "fx-", values, lambda a, rm: (a, 0))
    return group.kernels


def narrowing() -> list[int]:
    """Doubles around what a single can hold: ties, the least normal and subnormal ones, the largest."""
    tie = 1 << 28
    found = []
    for exponent in (
        1023,
        1023 - 126,
        1023 - 127,
        1023 - 149,
        1023 - 150,
        1023 - 151,
        1023 + 127,
        1023 + 128,
    ):
        base = exponent << 52
        found += [
            base,
            base + tie,
            base + tie - 1,
            base + tie + 1,
            base + 3 * tie,
            base - 1,
            base - tie,
            base - tie - 1,
        ]
    return [bits | sign for bits in found for sign in (0, 1 << 63)]


@pytest.mark.parametrize("engine", ENGINE_NAMES)
@pytest.mark.parametrize(
    "group", [one_operand, two_operands, three_operands], ids=lambda group: group.__wrapped__.__name__
)
def test_results(group: Callable[..., Any], engine: str) -> None:
    assert wrong(group(), engine_named(engine)) == []


def test_the_reference_itself() -> None:
    """Numbers that can be seen: what the manual says in words."""
    add, mul, div = (TWO[name] for name in ("fadd", "fmul", "fdiv"))
    unit, half = 0x3F800000, 0x33800000  # 1, and half its last place
    assert [add(S, unit, half, rm) for rm in MODES] == [
        (unit, 1),
        (unit, 1),
        (unit, 1),
        (unit + 1, 1),
        (unit + 1, 1),
    ]
    assert [add(S, unit, unit | S.sign, rm)[0] for rm in MODES] == [0, 0, S.sign, 0, 0]
    assert div(S, unit, 0, 0) == (S.infinity, 8)
    assert div(S, 0, 0, 0) == mul(S, 0, S.infinity, 0) == (S.nan, 16)
    assert mul(S, 0x7F7FFFFF, 0x7F7FFFFF, 1) == (0x7F7FFFFF, 5)
    assert mul(S, 0x7F7FFFFF, 0xFF7FFFFF, 2) == (0xFF800000, 5)
    assert mul(S, 0x00800000, 0x3F7FFFFF, 0) == (
        0x00800000,
        3,
    )  # tiny after rounding as if exponents had no bound
    assert mul(S, 0x00800001, 0x3F7FFFFE, 0) == (0x00800000, 1)  # not tiny
    assert mul(S, 1, 0x3F000000, 0) == (0, 3)
    assert sqrt(D, 0x4000000000000000, 0) == (0x3FF6A09E667F3BCD, 1)
    assert TWO["fmin"](S, 0, S.sign, 0) == (S.sign, 0)
    assert TWO["fmax"](S, 0x7F800001, unit, 0) == (unit, 16)
    assert TWO["fmin"](S, 0x7FC00000, 0x7FC00001, 0) == (S.nan, 0)
    assert THREE["fmadd"](S, S.infinity, 0, S.nan, 0) == (S.nan, 16)
    assert COMPARISONS["feq"](S, S.nan, unit, 0) == (0, 0)
    assert COMPARISONS["flt"](S, S.nan, unit, 0) == (0, 16)
    assert to_integer(32, False)(S, unit | S.sign, 0) == (0, 16)
    assert to_integer(32, False)(D, 0x41EFFFFFFFE00000, 0) == ((1 << 64) - 1, 0)  # 2**32 - 1, sign-extended
    assert to_integer(32, True)(S, 0x40200000, 4) == (3, 1)  # 2.5
