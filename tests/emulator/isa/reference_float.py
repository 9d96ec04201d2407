"""IEEE 754 arithmetic as RISC-V defines it, a second time: on `fractions.Fraction`, by definition rather than by trick.

A finite operand is a fraction, an operation is exact, and rounding looks for the two neighbours of the exact value and
takes the one that the mode says (Volume I, chapters 20 and 21). Results are bit patterns and flags. Nothing here knows
the emulator's own soft-float.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import isqrt

RNE, RTZ, RDN, RUP, RMM = range(5)
NX, UF, OF, DZ, NV = 1, 2, 4, 8, 16


@dataclass(frozen=True)
class Kind:
    """A format: widths in bits of the whole, the exponent, the fraction."""

    width: int
    exponent: int
    fraction: int

    @property
    def sign(self) -> int:
        return 1 << self.width - 1

    @property
    def infinity(self) -> int:
        return (2**self.exponent - 1) << self.fraction

    @property
    def nan(self) -> int:
        """The canonical one."""
        return self.infinity | 1 << self.fraction - 1

    @property
    def least(self) -> int:
        """The exponent of the smallest normal number."""
        return 2 - 2 ** (self.exponent - 1)


S, D = Kind(32, 8, 23), Kind(64, 11, 52)
Result = tuple[int, int]


def unboxed(kind: Kind, register: int) -> int:
    """What an instruction of ``kind`` reads from a 64-bit register."""
    if kind is D:
        return register
    return register % (1 << 32) if register >> 32 == 0xFFFFFFFF else S.nan


def boxed(kind: Kind, bits: int) -> int:
    return bits if kind is D else 0xFFFFFFFF << 32 | bits


def is_nan(kind: Kind, a: int) -> bool:
    return a % kind.sign > kind.infinity


def is_signalling(kind: Kind, a: int) -> bool:
    return is_nan(kind, a) and not a >> (kind.fraction - 1) & 1


def is_infinite(kind: Kind, a: int) -> bool:
    return a % kind.sign == kind.infinity


def negative(kind: Kind, a: int) -> bool:
    return a >= kind.sign


@cache
def value(kind: Kind, a: int) -> Fraction:
    """The number that a finite pattern stands for."""
    exponent, fraction = divmod(a % kind.sign, 1 << kind.fraction)
    scaled = Fraction(fraction, 1 << kind.fraction) + (exponent > 0)
    number = scaled * Fraction(2) ** (max(exponent, 1) - 1 + kind.least)
    return -number if negative(kind, a) else number


def _exponent_of(number: Fraction) -> int:
    """The largest e with 2**e <= number."""
    e = number.numerator.bit_length() - number.denominator.bit_length()
    return e if Fraction(2) ** e <= number else e - 1


def _chosen(below: int, where: int, rm: int, minus: bool) -> int:
    """``below`` or the next integer; ``where`` says how far above it the value is: 0 on it, 1 less than half way, 2
    half way, 3 beyond."""
    if where == 0:
        return below
    up = {
        RNE: where == 3 or (where == 2 and below % 2 == 1), RTZ: False, RDN: minus, RUP: not minus, RMM: where >= 2,
    }[rm]  # fmt: skip
    return below + up


def _where(rest: Fraction) -> int:
    return 0 if rest == 0 else 1 if rest < Fraction(1, 2) else 2 if rest == Fraction(1, 2) else 3


def rounded_to(number: Fraction, unit: Fraction, rm: int) -> tuple[Fraction, bool]:
    """The multiple of ``unit`` that the mode chooses, and whether it is another number."""
    steps = abs(number) / unit
    below = steps.numerator // steps.denominator
    magnitude = _chosen(below, _where(steps - below), rm, number < 0) * unit
    return (-magnitude if number < 0 else magnitude), magnitude != abs(number)


def pattern(kind: Kind, number: Fraction, minus: bool) -> int:
    """The bits of a number that the format has; ``minus`` tells zeros apart."""
    magnitude = abs(number)
    sign = kind.sign if minus else 0
    if magnitude < Fraction(2) ** kind.least:
        units = magnitude / Fraction(2) ** (kind.least - kind.fraction)
        assert units.denominator == 1
        return sign | int(units)
    e = _exponent_of(magnitude)
    fraction = (magnitude / Fraction(2) ** e - 1) * (1 << kind.fraction)
    assert fraction.denominator == 1
    return sign | (e - kind.least + 1) << kind.fraction | int(fraction)


def rounded(kind: Kind, number: Fraction, rm: int, minus_zero: bool = False) -> Result:
    """``number`` in the format. ``minus_zero``: the sign of an exact zero."""
    if number == 0:
        return (kind.sign if minus_zero else 0), 0
    minus = number < 0
    e = _exponent_of(abs(number))
    free, _ = rounded_to(number, Fraction(2) ** (e - kind.fraction), rm)  # as if exponents had no bound
    found, inexact = rounded_to(number, Fraction(2) ** (max(e, kind.least) - kind.fraction), rm)
    bound = Fraction(2) ** (2 - kind.least)
    if abs(found) >= bound:
        away = rm in (RNE, RMM) or rm == (RDN if minus else RUP)
        return (kind.sign if minus else 0) | kind.infinity - (not away), OF | NX
    tiny = abs(free) < Fraction(2) ** kind.least
    return pattern(kind, found, minus), (NX if inexact else 0) | (UF if inexact and tiny else 0)


def _nan(kind: Kind, *operands: int) -> Result:
    return kind.nan, NV if any(is_signalling(kind, a) for a in operands) else 0


def add(kind: Kind, a: int, b: int, rm: int) -> Result:
    if is_nan(kind, a) or is_nan(kind, b):
        return _nan(kind, a, b)
    if is_infinite(kind, a) and is_infinite(kind, b):
        return (a, 0) if a == b else (kind.nan, NV)
    if is_infinite(kind, a) or is_infinite(kind, b):
        return (a if is_infinite(kind, a) else b), 0
    both = negative(kind, a) and negative(kind, b)
    either = negative(kind, a) or negative(kind, b)
    return rounded(kind, value(kind, a) + value(kind, b), rm, both or (either and rm == RDN))


def sub(kind: Kind, a: int, b: int, rm: int) -> Result:
    return add(kind, a, b ^ kind.sign, rm)


def mul(kind: Kind, a: int, b: int, rm: int) -> Result:
    if is_nan(kind, a) or is_nan(kind, b):
        return _nan(kind, a, b)
    minus = negative(kind, a) != negative(kind, b)
    if is_infinite(kind, a) or is_infinite(kind, b):
        if a % kind.sign == 0 or b % kind.sign == 0:
            return kind.nan, NV
        return (kind.sign if minus else 0) | kind.infinity, 0
    return rounded(kind, value(kind, a) * value(kind, b), rm, minus)


def div(kind: Kind, a: int, b: int, rm: int) -> Result:
    if is_nan(kind, a) or is_nan(kind, b):
        return _nan(kind, a, b)
    minus = kind.sign if negative(kind, a) != negative(kind, b) else 0
    zeros = (a % kind.sign == 0, b % kind.sign == 0)
    infinite = (is_infinite(kind, a), is_infinite(kind, b))
    if all(zeros) or all(infinite):
        return kind.nan, NV
    if infinite[0] or zeros[1]:
        return minus | kind.infinity, 0 if infinite[0] else DZ
    if infinite[1]:
        return minus, 0
    return rounded(kind, value(kind, a) / value(kind, b), rm, bool(minus))


def sqrt(kind: Kind, a: int, rm: int) -> Result:
    """The root is compared with its neighbours by their squares; it is never subnormal, nor does it overflow."""
    if is_nan(kind, a):
        return _nan(kind, a)
    if a % kind.sign == 0:
        return a, 0
    if negative(kind, a):
        return kind.nan, NV
    if is_infinite(kind, a):
        return a, 0
    number = value(kind, a)
    unit = Fraction(2) ** (_exponent_of(number) // 2 - kind.fraction)
    square = number / unit**2
    below = isqrt(square.numerator // square.denominator)
    middle = (below + Fraction(1, 2)) ** 2
    where = 0 if square == below**2 else 1 if square < middle else 2 if square == middle else 3
    return pattern(kind, _chosen(below, where, rm, False) * unit, False), NX if where else 0


def fma(kind: Kind, a: int, b: int, c: int, rm: int) -> Result:
    """a * b + c with one rounding; infinity times zero is invalid whatever ``c`` is."""
    infinite = is_infinite(kind, a) or is_infinite(kind, b)
    if infinite and (a % kind.sign == 0 or b % kind.sign == 0):
        return kind.nan, NV
    if is_nan(kind, a) or is_nan(kind, b) or is_nan(kind, c):
        return _nan(kind, a, b, c)
    minus = negative(kind, a) != negative(kind, b)
    if infinite:
        return add(kind, (kind.sign if minus else 0) | kind.infinity, c, rm)
    if is_infinite(kind, c):
        return c, 0
    signs = {minus, negative(kind, c)}
    total = value(kind, a) * value(kind, b) + value(kind, c)
    return rounded(kind, total, rm, signs == {True} or (True in signs and rm == RDN))


def fused(product: int, addend: int) -> Callable[[Kind, int, int, int, int], Result]:
    """fmadd (+, +), fmsub (+, -), fnmsub (-, +) and fnmadd (-, -): signs of the product and of the addend."""
    return lambda kind, a, b, c, rm: fma(
        kind, a ^ (kind.sign if product < 0 else 0), b, c ^ (kind.sign if addend < 0 else 0), rm
    )


def _ordered(kind: Kind, a: int) -> tuple[int, int]:
    """Sorts as numbers do, with -0 before +0."""
    return (-(a % kind.sign), 0) if negative(kind, a) else (a, 1)


def extreme(pick: Callable[..., int]) -> Callable[[Kind, int, int, int], Result]:
    """fmin and fmax: a number beats any NaN; signalling ones are invalid all the same."""

    def operation(kind: Kind, a: int, b: int, rm: int) -> Result:
        numbers = [one for one in (a, b) if not is_nan(kind, one)]
        flags = NV if is_signalling(kind, a) or is_signalling(kind, b) else 0
        return (pick(numbers, key=lambda one: _ordered(kind, one)) if numbers else kind.nan), flags

    return operation


def compare(holds: Callable[[Fraction, Fraction], bool], quiet: bool) -> Callable[[Kind, int, int, int], Result]:
    """feq is quiet: only signalling NaNs are invalid; flt and fle are not: any NaN is."""

    def number(kind: Kind, a: int) -> Fraction:
        beyond = Fraction(2) ** 2000
        return (-beyond if negative(kind, a) else beyond) if is_infinite(kind, a) else value(kind, a)

    def operation(kind: Kind, a: int, b: int, rm: int) -> Result:
        if is_nan(kind, a) or is_nan(kind, b):
            return 0, NV if not quiet or is_signalling(kind, a) or is_signalling(kind, b) else 0
        return int(holds(number(kind, a), number(kind, b))), 0

    return operation


def classify(kind: Kind, a: int, rm: int) -> Result:
    """fclass: the manual's table, from its first row to its last."""
    magnitude, minus = a % kind.sign, negative(kind, a)
    normal = 1 << kind.fraction
    rows = (
        minus and magnitude == kind.infinity, minus and normal <= magnitude < kind.infinity,
        minus and 0 < magnitude < normal, minus and magnitude == 0, not minus and magnitude == 0,
        not minus and 0 < magnitude < normal, not minus and normal <= magnitude < kind.infinity,
        not minus and magnitude == kind.infinity, is_signalling(kind, a),
        is_nan(kind, a) and not is_signalling(kind, a),
    )  # fmt: skip
    assert sum(rows) == 1
    return 1 << rows.index(True), 0


def to_integer(bits: int, signed: bool) -> Callable[[Kind, int, int], Result]:
    """Results of 32 bits, unsigned ones too, are sign-extended to the register."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def register(number: int) -> int:
        number %= 1 << bits
        return (number - (1 << bits) if number >> bits - 1 else number) % (1 << 64)

    def operation(kind: Kind, a: int, rm: int) -> Result:
        if is_nan(kind, a):
            return register(high), NV
        if is_infinite(kind, a):
            return register(low if negative(kind, a) else high), NV
        found, inexact = rounded_to(value(kind, a), Fraction(1), rm)
        if not low <= found <= high:
            return register(low if found < low else high), NV
        return register(int(found)), NX if inexact else 0

    return operation


def from_integer(bits: int, signed: bool) -> Callable[[Kind, int, int], Result]:
    def operation(kind: Kind, register: int, rm: int) -> Result:
        number = register % (1 << bits)
        if signed and number >> bits - 1:
            number -= 1 << bits
        return rounded(kind, Fraction(number), rm)

    return operation


def convert(source: Kind, target: Kind, a: int, rm: int) -> Result:
    """fcvt.s.d and fcvt.d.s."""
    if is_nan(source, a):
        return target.nan, NV if is_signalling(source, a) else 0
    sign = target.sign if negative(source, a) else 0
    if is_infinite(source, a):
        return sign | target.infinity, 0
    return rounded(target, value(source, a), rm, bool(sign))


def sign_injection(sign_of: Callable[[bool, bool], bool]) -> Callable[[Kind, int, int, int], Result]:
    """fsgnj, fsgnjn, fsgnjx: NaNs are passed on as they are, no flags."""
    return lambda kind, a, b, rm: (
        a % kind.sign | (kind.sign if sign_of(negative(kind, a), negative(kind, b)) else 0),
        0,
    )


TWO: dict[str, Callable[[Kind, int, int, int], Result]] = {
    "fadd": add, "fsub": sub, "fmul": mul, "fdiv": div, "fmin": extreme(min), "fmax": extreme(max),
    "fsgnj": sign_injection(lambda a, b: b), "fsgnjn": sign_injection(lambda a, b: not b),
    "fsgnjx": sign_injection(lambda a, b: a != b),
}  # fmt: skip
COMPARISONS: dict[str, Callable[[Kind, int, int, int], Result]] = {
    "feq": compare(lambda a, b: a == b, True), "flt": compare(lambda a, b: a < b, False),
    "fle": compare(lambda a, b: a <= b, False),
}  # fmt: skip
THREE = {"fmadd": fused(1, 1), "fmsub": fused(1, -1), "fnmsub": fused(-1, 1), "fnmadd": fused(-1, -1)}
INTEGERS = {"w": (32, True), "wu": (32, False), "l": (64, True), "lu": (64, False)}
