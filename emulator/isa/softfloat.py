"""IEEE 754 binary32 and binary64 arithmetic on Python integers, as RISC-V defines it.

It defines correct floating point for the oracle interpreter: every finite value is an exact
``(-1)**sign * mantissa * 2**exponent``, every operation is computed exactly (or to enough bits with a sticky
bit below them) and rounded once, by one function. It is written for clarity, not for speed. NaN boxing in registers
and the accumulation of flags are left to the machine.

Operands and results are bit patterns: unsigned integers of ``fmt.width`` bits. Every operation returns
``(result, flags)``, where ``flags`` is the set of exceptions raised by that operation alone in the layout of
``fflags``. A NaN result is always the canonical NaN; tininess is detected after rounding (RISC-V unprivileged
specification, "F" extension, sections on NaN generation and on subnormal arithmetic).
"""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

RNE, RTZ, RDN, RUP, RMM = range(5)
"""Rounding modes: nearest (ties to even), to zero, down, up, nearest (ties away from zero)."""

NX, UF, OF, DZ, NV = 1, 2, 4, 8, 16
"""Exception flags: inexact, underflow, overflow, division by zero, invalid operation."""


class Format(NamedTuple):
    """An interchange format of IEEE 754-2019, section 3.6; sizes in bits."""

    width: int
    exponent_bits: int
    fraction_bits: int

    @property
    def precision(self) -> int:
        """Bits of a normal significand, the implicit leading one included."""
        return self.fraction_bits + 1

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def minimum_exponent(self) -> int:
        """Exponent of the leading bit of the smallest normal number."""
        return 1 - self.bias

    @property
    def sign_bit(self) -> int:
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    @property
    def quiet_bit(self) -> int:
        return 1 << (self.fraction_bits - 1)

    @property
    def canonical_nan(self) -> int:
        return self.infinity | self.quiet_bit

    @property
    def largest_finite(self) -> int:
        return self.infinity - 1


F32 = Format(width=32, exponent_bits=8, fraction_bits=23)
F64 = Format(width=64, exponent_bits=11, fraction_bits=52)


# Classification of bit patterns


def _sign(fmt: Format, bits: int) -> int:
    return bits >> (fmt.width - 1)


def _magnitude(fmt: Format, bits: int) -> int:
    return bits & (fmt.sign_bit - 1)


def is_nan(fmt: Format, bits: int) -> bool:
    return _magnitude(fmt, bits) > fmt.infinity


def is_signalling_nan(fmt: Format, bits: int) -> bool:
    return is_nan(fmt, bits) and not bits & fmt.quiet_bit


def _is_infinite(fmt: Format, bits: int) -> bool:
    return _magnitude(fmt, bits) == fmt.infinity


def _is_zero(fmt: Format, bits: int) -> bool:
    return _magnitude(fmt, bits) == 0


def _finite(fmt: Format, bits: int) -> tuple[int, int]:
    """The exact ``(mantissa, exponent)`` of the magnitude of a finite number."""
    biased, fraction = divmod(_magnitude(fmt, bits), 1 << fmt.fraction_bits)
    if biased == 0:
        return fraction, fmt.minimum_exponent - fmt.fraction_bits
    return fraction | 1 << fmt.fraction_bits, biased - fmt.bias - fmt.fraction_bits


def _signed_finite(fmt: Format, bits: int) -> tuple[int, int]:
    mantissa, exponent = _finite(fmt, bits)
    return (-mantissa if _sign(fmt, bits) else mantissa), exponent


# Rounding


def _round_to_integer(negative: int, mantissa: int, exponent: int, rm: int) -> tuple[int, bool]:
    """Magnitude of ``mantissa * 2**exponent`` rounded to an integer, and whether it was inexact."""
    if exponent >= 0:
        return mantissa << exponent, False
    whole = mantissa >> -exponent
    rest = mantissa - (whole << -exponent)
    if rest == 0:
        return whole, False
    half = 1 << (-exponent - 1)
    if rm == RNE:
        up = rest > half or (rest == half and whole & 1 == 1)
    elif rm == RTZ:
        up = False
    elif rm == RDN:
        up = bool(negative)
    elif rm == RUP:
        up = not negative
    elif rm == RMM:
        up = rest >= half
    else:
        raise ValueError(f"rounding mode {rm}: expected 0 (RNE) to 4 (RMM); resolve DYN before the call")
    return whole + up, True


def _round(fmt: Format, negative: int, mantissa: int, exponent: int, rm: int) -> tuple[int, int]:
    """``(-1)**negative * mantissa * 2**exponent`` rounded to ``fmt``, and flags; all results are rounded here."""
    sign = fmt.sign_bit if negative else 0
    if mantissa == 0:
        return sign, 0
    leading = mantissa.bit_length() - 1 + exponent
    # The last place of the result: below the leading bit, but never under the subnormals' last place.
    place = max(leading, fmt.minimum_exponent) - fmt.fraction_bits
    rounded, inexact = _round_to_integer(negative, mantissa, exponent - place, rm)
    flags = NX if inexact else 0
    if inexact and leading < fmt.minimum_exponent:
        # Tiny after rounding: still below the normal numbers when rounded as if exponents had no bound.
        free_place = leading - fmt.fraction_bits
        free, _ = _round_to_integer(negative, mantissa, exponent - free_place, rm)
        if free.bit_length() - 1 + free_place < fmt.minimum_exponent:
            flags |= UF
    # The implicit one of a normal significand adds itself to the biased exponent, and so does a carry out of
    # the significand; a subnormal (place at its minimum) has neither.
    bits = rounded + ((place + fmt.fraction_bits - fmt.minimum_exponent) << fmt.fraction_bits)
    if bits >= fmt.infinity:
        to_infinity = rm in (RNE, RMM) or rm == (RDN if negative else RUP)
        return sign | (fmt.infinity if to_infinity else fmt.largest_finite), OF | NX
    return sign | bits, flags


def _nan(fmt: Format, *operands: int) -> tuple[int, int]:
    """The result and flags of an operation with a NaN operand."""
    return fmt.canonical_nan, NV if any(is_signalling_nan(fmt, bits) for bits in operands) else 0


def _invalid(fmt: Format) -> tuple[int, int]:
    return fmt.canonical_nan, NV


def _exact_sum(fmt: Format, a: tuple[int, int], b: tuple[int, int], zero_sign: int, rm: int) -> tuple[int, int]:
    """Rounded sum of two signed ``(mantissa, exponent)``; ``zero_sign`` is the sign of an exact zero."""
    exponent = min(a[1], b[1])
    total = (a[0] << (a[1] - exponent)) + (b[0] << (b[1] - exponent))
    return _round(fmt, zero_sign if total == 0 else total < 0, abs(total), exponent, rm)


def _zero_sign(a_negative: int, b_negative: int, rm: int) -> int:
    """Sign of an exact zero sum (IEEE 754-2019, section 6.3)."""
    return a_negative if a_negative == b_negative else int(rm == RDN)


# Arithmetic


def add(fmt: Format, a: int, b: int, rm: int) -> tuple[int, int]:
    """``a + b``."""
    if is_nan(fmt, a) or is_nan(fmt, b):
        return _nan(fmt, a, b)
    if _is_infinite(fmt, a):
        return _invalid(fmt) if _is_infinite(fmt, b) and a != b else (a, 0)
    if _is_infinite(fmt, b):
        return b, 0
    zero_sign = _zero_sign(_sign(fmt, a), _sign(fmt, b), rm)
    return _exact_sum(fmt, _signed_finite(fmt, a), _signed_finite(fmt, b), zero_sign, rm)


def sub(fmt: Format, a: int, b: int, rm: int) -> tuple[int, int]:
    """``a - b``: the sum with the sign of ``b`` inverted, also for NaN operands (their sign does not matter)."""
    return add(fmt, a, b ^ fmt.sign_bit, rm)


def mul(fmt: Format, a: int, b: int, rm: int) -> tuple[int, int]:
    """``a * b``."""
    if is_nan(fmt, a) or is_nan(fmt, b):
        return _nan(fmt, a, b)
    negative = _sign(fmt, a) ^ _sign(fmt, b)
    if _is_infinite(fmt, a) or _is_infinite(fmt, b):
        if _is_zero(fmt, a) or _is_zero(fmt, b):
            return _invalid(fmt)
        return negative * fmt.sign_bit | fmt.infinity, 0
    (a_mantissa, a_exponent), (b_mantissa, b_exponent) = _finite(fmt, a), _finite(fmt, b)
    return _round(fmt, negative, a_mantissa * b_mantissa, a_exponent + b_exponent, rm)


def div(fmt: Format, a: int, b: int, rm: int) -> tuple[int, int]:
    """``a / b``."""
    if is_nan(fmt, a) or is_nan(fmt, b):
        return _nan(fmt, a, b)
    negative = _sign(fmt, a) ^ _sign(fmt, b)
    if _is_infinite(fmt, a):
        return _invalid(fmt) if _is_infinite(fmt, b) else (negative * fmt.sign_bit | fmt.infinity, 0)
    if _is_infinite(fmt, b):
        return negative * fmt.sign_bit, 0
    if _is_zero(fmt, b):
        return _invalid(fmt) if _is_zero(fmt, a) else (negative * fmt.sign_bit | fmt.infinity, DZ)
    (a_mantissa, a_exponent), (b_mantissa, b_exponent) = _finite(fmt, a), _finite(fmt, b)
    # A non-zero quotient of more than precision + 2 bits; the remainder only matters as "not zero".
    shift = 2 * fmt.precision + 3
    quotient, remainder = divmod(a_mantissa << shift, b_mantissa)
    sticky = quotient << 1 | (remainder != 0)
    return _round(fmt, negative, sticky, a_exponent - b_exponent - shift - 1, rm)


def sqrt(fmt: Format, a: int, rm: int) -> tuple[int, int]:
    """The square root of ``a``."""
    if is_nan(fmt, a):
        return _nan(fmt, a)
    if _is_zero(fmt, a):
        return a, 0
    if _sign(fmt, a):
        return _invalid(fmt)
    if _is_infinite(fmt, a):
        return a, 0
    mantissa, exponent = _finite(fmt, a)
    shift = 2 * fmt.precision + 4
    shift += (exponent - shift) & 1  # the exponent under the root must be even
    mantissa <<= shift
    root = isqrt(mantissa)
    sticky = root << 1 | (root * root != mantissa)
    return _round(fmt, 0, sticky, (exponent - shift) // 2 - 1, rm)


def fma(fmt: Format, a: int, b: int, c: int, rm: int) -> tuple[int, int]:
    """``a * b + c`` rounded once; infinity times zero is invalid even when ``c`` is a quiet NaN."""
    a_infinite, b_infinite = _is_infinite(fmt, a), _is_infinite(fmt, b)
    if (a_infinite and _is_zero(fmt, b)) or (b_infinite and _is_zero(fmt, a)):
        return _invalid(fmt)
    if is_nan(fmt, a) or is_nan(fmt, b) or is_nan(fmt, c):
        return _nan(fmt, a, b, c)
    negative = _sign(fmt, a) ^ _sign(fmt, b)
    if a_infinite or b_infinite:
        product = negative * fmt.sign_bit | fmt.infinity
        return _invalid(fmt) if _is_infinite(fmt, c) and c != product else (product, 0)
    if _is_infinite(fmt, c):
        return c, 0
    (a_mantissa, a_exponent), (b_mantissa, b_exponent) = _finite(fmt, a), _finite(fmt, b)
    mantissa = a_mantissa * b_mantissa
    exact_product = (-mantissa if negative else mantissa, a_exponent + b_exponent)
    zero_sign = _zero_sign(negative, _sign(fmt, c), rm)
    return _exact_sum(fmt, exact_product, _signed_finite(fmt, c), zero_sign, rm)


# Comparison


def _order(fmt: Format, bits: int) -> int:
    """An integer with the same order as the numbers; 0 for both zeros."""
    magnitude = _magnitude(fmt, bits)
    return -magnitude if _sign(fmt, bits) else magnitude


def _unordered(fmt: Format, a: int, b: int) -> bool:
    return is_nan(fmt, a) or is_nan(fmt, b)


def minimum(fmt: Format, a: int, b: int) -> tuple[int, int]:
    """FMIN: minimumNumber of IEEE 754-2019 with -0 below +0; of a NaN and a number, the number."""
    return _select(fmt, a, b, smaller=True)


def maximum(fmt: Format, a: int, b: int) -> tuple[int, int]:
    """FMAX: maximumNumber of IEEE 754-2019 with -0 below +0; of a NaN and a number, the number."""
    return _select(fmt, a, b, smaller=False)


def _select(fmt: Format, a: int, b: int, smaller: bool) -> tuple[int, int]:
    _, flags = _nan(fmt, a, b)
    if is_nan(fmt, a):
        return (fmt.canonical_nan if is_nan(fmt, b) else b), flags
    if is_nan(fmt, b):
        return a, flags
    # Equal numbers differ only if they are zeros of different sign.
    a_first = (_order(fmt, a), -_sign(fmt, a)) <= (_order(fmt, b), -_sign(fmt, b))
    return (a if a_first == smaller else b), flags


def eq(fmt: Format, a: int, b: int) -> tuple[int, int]:
    """FEQ: quiet; 1 or 0, and NV only for a signalling NaN."""
    if _unordered(fmt, a, b):
        return 0, _nan(fmt, a, b)[1]
    return int(_order(fmt, a) == _order(fmt, b)), 0


def lt(fmt: Format, a: int, b: int) -> tuple[int, int]:
    """FLT: signalling; 1 or 0, and NV for any NaN."""
    if _unordered(fmt, a, b):
        return 0, NV
    return int(_order(fmt, a) < _order(fmt, b)), 0


def le(fmt: Format, a: int, b: int) -> tuple[int, int]:
    """FLE: signalling; 1 or 0, and NV for any NaN."""
    if _unordered(fmt, a, b):
        return 0, NV
    return int(_order(fmt, a) <= _order(fmt, b)), 0


def classify(fmt: Format, a: int) -> int:
    """FCLASS: the ten-bit mask with one bit set; raises no flag."""
    if is_nan(fmt, a):
        return 1 << (8 if is_signalling_nan(fmt, a) else 9)
    magnitude = _magnitude(fmt, a)
    if magnitude == fmt.infinity:
        rank = 3
    elif magnitude >> fmt.fraction_bits:
        rank = 2
    elif magnitude:
        rank = 1
    else:
        rank = 0
    # Bits 0-3: negative from infinity to zero; bits 4-7: positive from zero to infinity.
    return 1 << (3 - rank if _sign(fmt, a) else 4 + rank)


# Conversion


def convert(source: Format, target: Format, a: int, rm: int) -> tuple[int, int]:
    """Convert a number from ``source`` to ``target`` (FCVT.S.D, FCVT.D.S)."""
    if is_nan(source, a):
        return target.canonical_nan, NV if is_signalling_nan(source, a) else 0
    negative = _sign(source, a)
    if _is_infinite(source, a):
        return negative * target.sign_bit | target.infinity, 0
    return _round(target, negative, *_finite(source, a), rm)


def to_int(fmt: Format, a: int, rm: int, width: int, signed: bool) -> tuple[int, int]:
    """Convert a number to an integer of ``width`` bits (FCVT.{W,L}[U]), returned as an unsigned bit pattern.

    A rounded value out of range saturates and raises NV and not NX; a NaN is converted as plus infinity.
    """
    lowest = -(1 << (width - 1)) if signed else 0
    highest = (1 << (width - signed)) - 1
    mask = (1 << width) - 1
    if is_nan(fmt, a):
        return highest & mask, NV
    negative = _sign(fmt, a)
    if _is_infinite(fmt, a):
        return (lowest if negative else highest) & mask, NV
    magnitude, inexact = _round_to_integer(negative, *_finite(fmt, a), rm)
    value = -magnitude if negative else magnitude
    if not lowest <= value <= highest:
        return (lowest if negative else highest) & mask, NV
    return value & mask, NX if inexact else 0


def from_int(fmt: Format, value: int, rm: int) -> tuple[int, int]:
    """Convert the integer ``value``, negative or not, to ``fmt`` (FCVT.S/D.{W,L}[U])."""
    return _round(fmt, value < 0, abs(value), 0, rm)
