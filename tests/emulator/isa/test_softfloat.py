"""The soft-float oracle against hand-worked cases, the host's own arithmetic, and unicorn's RISC-V."""

from __future__ import annotations

import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.isa import softfloat as sf
from emulator.isa.softfloat import DZ, F32, F64, NV, NX, OF, RDN, RMM, RNE, RTZ, RUP, UF, Format

ROUNDING_MODES = [RNE, RTZ, RDN, RUP, RMM]
FORMATS = [pytest.param(F32, id="f32"), pytest.param(F64, id="f64")]
NUMPY_TYPES: dict[int, tuple[Any, Any]] = {32: (np.uint32, np.float32), 64: (np.uint64, np.float64)}


def edge_operands(fmt: Format) -> list[int]:
    """Zeros, subnormals, borders of the normal range, ties in the making, infinities and NaNs."""
    one = fmt.bias << fmt.fraction_bits
    smallest_normal = 1 << fmt.fraction_bits
    magnitudes = [
        0,
        1,
        2,
        3,
        smallest_normal - 1,
        smallest_normal,
        smallest_normal + 1,
        one // 2,
        one - 1,
        one,
        one + 1,
        one + smallest_normal,
        one + (smallest_normal >> 1),
        one + (fmt.fraction_bits << fmt.fraction_bits) + 1,
        one + (31 << fmt.fraction_bits),
        one + (63 << fmt.fraction_bits),
        fmt.largest_finite - 1,
        fmt.largest_finite,
        fmt.infinity,
        fmt.infinity + 1,
        fmt.canonical_nan,
        fmt.canonical_nan + 5,
    ]
    return [sign | magnitude for magnitude in magnitudes for sign in (0, fmt.sign_bit)]


def operands(fmt: Format) -> st.SearchStrategy[int]:
    """Bit patterns where edges, close exponents and few-bit fractions are as common as plain noise."""
    fraction = st.one_of(
        st.integers(0, (1 << fmt.fraction_bits) - 1),
        st.sampled_from([0, 1, 1 << (fmt.fraction_bits - 1), (1 << fmt.fraction_bits) - 1]),
    )
    exponent = st.one_of(
        st.integers(0, (1 << fmt.exponent_bits) - 1),
        st.integers(fmt.bias - 4, fmt.bias + 4),
        st.sampled_from([0, 1, (1 << fmt.exponent_bits) - 2, (1 << fmt.exponent_bits) - 1]),
    )
    pattern = st.builds(
        lambda s, e, f: s << (fmt.width - 1) | e << fmt.fraction_bits | f,
        st.integers(0, 1),
        exponent,
        fraction,
    )
    return st.one_of(st.sampled_from(edge_operands(fmt)), pattern)


def f32(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def f64(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def exact(fmt: Format, bits: int) -> Fraction:
    """Value of a finite number, from numpy's own reading of the bits."""
    unsigned, real = NUMPY_TYPES[fmt.width]
    return Fraction(float(unsigned(bits).view(real)))


# Against the host


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(sf.add, np.add), (sf.sub, np.subtract), (sf.mul, np.multiply), (sf.div, np.divide)],
    ids=["add", "sub", "mul", "div"],
)
def test_binary_operation_equals_the_host(
    fmt: Format, ours: Callable[..., tuple[int, int]], theirs: Callable[..., Any]
) -> None:
    unsigned, real = NUMPY_TYPES[fmt.width]

    @settings(max_examples=250, deadline=None, derandomize=True)
    @given(operands(fmt), operands(fmt))
    def check(a: int, b: int) -> None:
        with np.errstate(all="ignore"):
            host = theirs(unsigned(a).view(real), unsigned(b).view(real))
        expected = fmt.canonical_nan if np.isnan(host) else int(host.view(unsigned))
        assert ours(fmt, a, b, RNE)[0] == expected

    check()


@pytest.mark.parametrize("fmt", FORMATS)
def test_square_root_equals_the_host(fmt: Format) -> None:
    unsigned, real = NUMPY_TYPES[fmt.width]

    @settings(max_examples=250, deadline=None, derandomize=True)
    @given(operands(fmt))
    def check(a: int) -> None:
        with np.errstate(all="ignore"):
            host = np.sqrt(unsigned(a).view(real))
        expected = fmt.canonical_nan if np.isnan(host) else int(host.view(unsigned))
        assert sf.sqrt(fmt, a, RNE)[0] == expected

    check()


@settings(max_examples=250, deadline=None, derandomize=True)
@given(operands(F64))
def test_narrowing_equals_the_host(a: int) -> None:
    with np.errstate(all="ignore"):
        host = np.uint64(a).view(np.float64).astype(np.float32)
    expected = F32.canonical_nan if np.isnan(host) else int(host.view(np.uint32))
    assert sf.convert(F64, F32, a, RNE)[0] == expected


@settings(max_examples=250, deadline=None, derandomize=True)
@given(operands(F32))
def test_widening_equals_the_host_and_is_exact(a: int) -> None:
    with np.errstate(all="ignore"):
        host = np.uint32(a).view(np.float32).astype(np.float64)
    expected = F64.canonical_nan if np.isnan(host) else int(host.view(np.uint64))
    for rm in ROUNDING_MODES:
        bits, flags = sf.convert(F32, F64, a, rm)
        assert bits == expected
        assert flags == (NV if sf.is_signalling_nan(F32, a) else 0)


@pytest.mark.parametrize("fmt", FORMATS)
def test_comparisons_equal_the_host(fmt: Format) -> None:
    unsigned, real = NUMPY_TYPES[fmt.width]

    @settings(max_examples=250, deadline=None, derandomize=True)
    @given(operands(fmt), operands(fmt))
    def check(a: int, b: int) -> None:
        x, y = unsigned(a).view(real), unsigned(b).view(real)
        assert (sf.eq(fmt, a, b)[0], sf.lt(fmt, a, b)[0], sf.le(fmt, a, b)[0]) == (x == y, x < y, x <= y)
        signalling = sf.is_signalling_nan(fmt, a) or sf.is_signalling_nan(fmt, b)
        unordered = bool(np.isnan(x) or np.isnan(y))
        assert sf.eq(fmt, a, b)[1] == NV * signalling
        assert sf.lt(fmt, a, b)[1] == sf.le(fmt, a, b)[1] == NV * unordered

    check()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.one_of(st.integers(-(2**63), 2**64 - 1), st.integers(-(2**54), 2**54), st.integers(-300, 300)))
def test_from_integer_equals_the_host(value: int) -> None:
    assert sf.from_int(F64, value, RNE)[0] == f64(float(value))
    numpy_integer = np.int64(value) if value < 2**63 else np.uint64(value)
    assert sf.from_int(F32, value, RNE)[0] == int(numpy_integer.astype(np.float32).view(np.uint32))


# The definition of each rounding mode, over exact rationals


@pytest.mark.parametrize("fmt", FORMATS)
def test_fma_is_a_neighbour_chosen_by_the_rounding_mode(fmt: Format) -> None:
    """One rounding of the exact rational a*b+c, judged without any of the module's own arithmetic."""

    @settings(max_examples=250, deadline=None, derandomize=True)
    @given(operands(fmt), operands(fmt), operands(fmt))
    def check(a: int, b: int, c: int) -> None:
        if any(bits & fmt.infinity == fmt.infinity for bits in (a, b, c)):
            return
        truth = exact(fmt, a) * exact(fmt, b) + exact(fmt, c)
        results = {rm: sf.fma(fmt, a, b, c, rm) for rm in ROUNDING_MODES}
        for bits, flags in results.values():
            finite = bits & fmt.infinity != fmt.infinity
            assert bool(flags & NX) == (not finite or exact(fmt, bits) != truth)
            if flags & OF:
                assert abs(truth) > exact(fmt, fmt.largest_finite)
            else:
                assert finite
        below, above = results[RDN][0], results[RUP][0]
        if any(bits & fmt.infinity == fmt.infinity for bits in (below, above)):
            return
        low, high = exact(fmt, below), exact(fmt, above)
        assert low <= truth <= high
        assert (low == high == truth) or sf._order(fmt, above) - sf._order(fmt, below) == 1
        toward_zero = low if truth > 0 else high
        assert exact(fmt, results[RTZ][0]) == toward_zero
        for rm in (RNE, RMM):
            nearest = exact(fmt, results[rm][0])
            assert nearest in (low, high)
            assert abs(nearest - truth) == min(high - truth, truth - low)
            if low != high and high - truth == truth - low:
                if rm == RMM:
                    assert nearest != toward_zero
                else:
                    assert results[rm][0] & 1 == 0

    check()


@pytest.mark.parametrize("fmt", FORMATS)
def test_addition_and_multiplication_are_fused_with_a_neutral_operand(fmt: Format) -> None:
    one = fmt.bias << fmt.fraction_bits

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(operands(fmt), operands(fmt), st.sampled_from(ROUNDING_MODES))
    def check(a: int, b: int, rm: int) -> None:
        assert sf.fma(fmt, a, one, b, rm) == sf.add(fmt, a, b, rm)
        product = sf.mul(fmt, a, b, rm)
        if product[0] & (fmt.sign_bit - 1):  # the sign of an exact zero depends on the zero added
            assert sf.fma(fmt, a, b, 0, rm) == product

    check()


# Hand-worked cases

F32_ONE, F32_TINY, F32_MIN_NORMAL, F32_MAX, F32_INF = 0x3F80_0000, 1, 0x0080_0000, 0x7F7F_FFFF, 0x7F80_0000
F32_NAN, F32_SNAN, F32_MINUS = 0x7FC0_0000, 0x7F80_0001, 0x8000_0000


@pytest.mark.parametrize(
    ("operation", "arguments", "rm", "expected"),
    [
        # 1 + 2**-24 is half way between 1 and its successor
        (sf.add, (F32_ONE, 0x3380_0000), RNE, (F32_ONE, NX)),
        (sf.add, (F32_ONE, 0x3380_0000), RTZ, (F32_ONE, NX)),
        (sf.add, (F32_ONE, 0x3380_0000), RDN, (F32_ONE, NX)),
        (sf.add, (F32_ONE, 0x3380_0000), RUP, (F32_ONE + 1, NX)),
        (sf.add, (F32_ONE, 0x3380_0000), RMM, (F32_ONE + 1, NX)),
        (sf.add, (F32_ONE + 1, 0x3380_0000), RNE, (F32_ONE + 2, NX)),
        # signs of exact zeros
        (sf.sub, (F32_ONE, F32_ONE), RNE, (0, 0)),
        (sf.sub, (F32_ONE, F32_ONE), RDN, (F32_MINUS, 0)),
        (sf.add, (F32_MINUS, F32_MINUS), RUP, (F32_MINUS, 0)),
        (sf.add, (F32_MINUS, 0), RDN, (F32_MINUS, 0)),
        (sf.fma, (F32_ONE, F32_ONE, F32_MINUS | F32_ONE), RDN, (F32_MINUS, 0)),
        (sf.fma, (F32_MINUS, F32_ONE, F32_MINUS), RNE, (F32_MINUS, 0)),
        # overflow by mode
        (sf.add, (F32_MAX, F32_MAX), RNE, (F32_INF, OF | NX)),
        (sf.add, (F32_MAX, F32_MAX), RTZ, (F32_MAX, OF | NX)),
        (sf.add, (F32_MAX, F32_MAX), RDN, (F32_MAX, OF | NX)),
        (sf.mul, (F32_MINUS | F32_MAX, F32_MAX), RDN, (F32_MINUS | F32_INF, OF | NX)),
        (sf.mul, (F32_MINUS | F32_MAX, F32_MAX), RUP, (F32_MINUS | F32_MAX, OF | NX)),
        (sf.mul, (F32_MINUS | F32_MAX, F32_MAX), RMM, (F32_MINUS | F32_INF, OF | NX)),
        # underflow: half of the smallest subnormal; exact subnormals raise nothing
        (sf.mul, (F32_TINY, 0x3F00_0000), RNE, (0, UF | NX)),
        (sf.mul, (F32_TINY, 0x3F00_0000), RUP, (F32_TINY, UF | NX)),
        (sf.mul, (F32_TINY, 0x3F00_0000), RMM, (F32_TINY, UF | NX)),
        (sf.mul, (F32_MIN_NORMAL, 0x3F00_0000), RNE, (F32_MIN_NORMAL >> 1, 0)),
        # (1 - 2**-24) * 2**-126 is a tie that becomes the smallest normal; with 24 bits it would have been
        # exact below the normals, so it is tiny
        (sf.mul, (F32_MIN_NORMAL, 0x3F7F_FFFF), RNE, (F32_MIN_NORMAL, UF | NX)),
        (sf.fma, (F32_MIN_NORMAL, 0x3F7F_FFFF, 0), RUP, (F32_MIN_NORMAL, UF | NX)),
        # (1 - 2**-24) * (1 + 2**-23) * 2**-126 is above the smallest normal: inexact, never tiny
        (sf.mul, (0x3F7F_FFFF, F32_MIN_NORMAL + 1), RNE, (F32_MIN_NORMAL, NX)),
        # (1 - 2**-23) * (1 + 2**-23) * 2**-126 = (1 - 2**-46) * 2**-126: below it, but 24 bits already round
        # to it, so it is not tiny after rounding; towards zero it is
        (sf.mul, (0x3F7F_FFFE, F32_MIN_NORMAL + 1), RNE, (F32_MIN_NORMAL, NX)),
        (sf.mul, (0x3F7F_FFFE, F32_MIN_NORMAL + 1), RTZ, (F32_MIN_NORMAL - 1, UF | NX)),
        # division
        (sf.div, (F32_ONE, 0), RNE, (F32_INF, DZ)),
        (sf.div, (F32_ONE, F32_MINUS), RNE, (F32_MINUS | F32_INF, DZ)),
        (sf.div, (0, 0), RNE, (F32_NAN, NV)),
        (sf.div, (F32_INF, F32_INF), RNE, (F32_NAN, NV)),
        (sf.div, (F32_INF, 0), RNE, (F32_INF, 0)),
        (sf.div, (F32_ONE, 0x4040_0000), RNE, (0x3EAA_AAAB, NX)),
        (sf.div, (F32_ONE, 0x4040_0000), RTZ, (0x3EAA_AAAA, NX)),
        # square roots
        (sf.sqrt, (0x4080_0000,), RNE, (0x4000_0000, 0)),
        (sf.sqrt, (0x4000_0000,), RNE, (0x3FB5_04F3, NX)),
        (sf.sqrt, (F32_MINUS,), RNE, (F32_MINUS, 0)),
        (sf.sqrt, (F32_MINUS | F32_ONE,), RNE, (F32_NAN, NV)),
        (sf.sqrt, (F32_MINUS | F32_INF,), RNE, (F32_NAN, NV)),
        # NaNs and infinities
        (sf.add, (F32_INF, F32_MINUS | F32_INF), RNE, (F32_NAN, NV)),
        (sf.sub, (F32_INF, F32_INF), RNE, (F32_NAN, NV)),
        (sf.mul, (F32_INF, F32_MINUS), RNE, (F32_NAN, NV)),
        (sf.add, (F32_NAN | 5, F32_ONE), RNE, (F32_NAN, 0)),
        (sf.add, (F32_MINUS | F32_NAN, F32_ONE), RNE, (F32_NAN, 0)),
        (sf.add, (F32_SNAN, F32_ONE), RNE, (F32_NAN, NV)),
        (sf.fma, (F32_INF, 0, F32_NAN), RNE, (F32_NAN, NV)),
        (sf.fma, (F32_INF, F32_ONE, F32_MINUS | F32_INF), RNE, (F32_NAN, NV)),
        (sf.fma, (F32_ONE, F32_ONE, F32_SNAN), RNE, (F32_NAN, NV)),
        # one rounding: (1 + 2**-23)**2 - (1 + 2**-22) = 2**-46
        (sf.fma, (F32_ONE + 1, F32_ONE + 1, F32_MINUS | (F32_ONE + 2)), RNE, (0x2880_0000, 0)),
    ],
)
def test_hand_worked_binary32(
    operation: Callable[..., Any], arguments: tuple[float, ...], rm: int, expected: tuple[Any, ...]
) -> None:
    assert operation(F32, *arguments, rm) == expected


@pytest.mark.parametrize(
    ("a", "b", "smaller", "larger", "flags"),
    [
        (0, F32_MINUS, F32_MINUS, 0, 0),
        (F32_MINUS, 0, F32_MINUS, 0, 0),
        (F32_ONE, F32_NAN, F32_ONE, F32_ONE, 0),
        (F32_SNAN, F32_ONE, F32_ONE, F32_ONE, NV),
        (F32_SNAN, F32_NAN, F32_NAN, F32_NAN, NV),
        (F32_NAN | 7, F32_MINUS | F32_NAN, F32_NAN, F32_NAN, 0),
        (F32_MINUS | F32_INF, F32_MINUS | F32_MAX, F32_MINUS | F32_INF, F32_MINUS | F32_MAX, 0),
        (F32_ONE, F32_INF, F32_ONE, F32_INF, 0),
    ],
)
def test_minimum_and_maximum(a: int, b: int, smaller: int, larger: int, flags: int) -> None:
    assert sf.minimum(F32, a, b) == (smaller, flags)
    assert sf.maximum(F32, a, b) == (larger, flags)


@pytest.mark.parametrize("fmt", FORMATS)
def test_classify_names_each_of_the_ten_classes(fmt: Format) -> None:
    normal, subnormal = fmt.bias << fmt.fraction_bits, 1
    ordered = [fmt.infinity, normal, subnormal, 0]
    patterns = [fmt.sign_bit | bits for bits in ordered] + ordered[::-1]
    patterns += [fmt.infinity + 1, fmt.canonical_nan]
    assert [sf.classify(fmt, bits) for bits in patterns] == [1 << k for k in range(10)]


@pytest.mark.parametrize(
    ("value", "rm", "width", "signed", "expected"),
    [
        (2.5, RNE, 32, True, (2, NX)),
        (3.5, RNE, 32, True, (4, NX)),
        (2.5, RMM, 32, True, (3, NX)),
        (-2.5, RTZ, 32, True, (0xFFFF_FFFE, NX)),
        (-2.5, RDN, 32, True, (0xFFFF_FFFD, NX)),
        (-2.5, RMM, 32, True, (0xFFFF_FFFD, NX)),
        (2.25, RUP, 64, False, (3, NX)),
        (7.0, RUP, 64, False, (7, 0)),
        # negative to unsigned: inexact when it rounds to zero, else invalid and never inexact
        (-0.75, RTZ, 32, False, (0, NX)),
        (-0.75, RDN, 32, False, (0, NV)),
        (-0.75, RNE, 64, False, (0, NV)),
        (-0.0, RDN, 64, False, (0, 0)),
        # saturation
        (2147483647.5, RTZ, 32, True, (0x7FFF_FFFF, NX)),
        (2147483647.5, RNE, 32, True, (0x7FFF_FFFF, NV)),
        (-2147483648.5, RTZ, 32, True, (0x8000_0000, NX)),
        (-2147483649.0, RTZ, 32, True, (0x8000_0000, NV)),
        (4294967295.0, RTZ, 32, False, (0xFFFF_FFFF, 0)),
        (4294967296.0, RTZ, 32, False, (0xFFFF_FFFF, NV)),
        (9.3e18, RNE, 64, True, (2**63 - 1, NV)),
        (-(2.0**63), RNE, 64, True, (2**63, 0)),
        (2.0**64, RNE, 64, False, (2**64 - 1, NV)),
        (float("inf"), RNE, 32, True, (0x7FFF_FFFF, NV)),
        (float("-inf"), RNE, 32, True, (0x8000_0000, NV)),
        (float("-inf"), RNE, 64, False, (0, NV)),
        (float("nan"), RNE, 32, True, (0x7FFF_FFFF, NV)),
        (float("nan"), RNE, 64, False, (2**64 - 1, NV)),
    ],
)
def test_to_integer(value: int, rm: int, width: int, signed: bool, expected: int) -> None:
    assert sf.to_int(F64, f64(value), rm, width, signed) == expected


@pytest.mark.parametrize(
    ("value", "rm", "expected"),
    [
        (0, RDN, (0, 0)),
        (2**24 + 1, RNE, (0x4B80_0000, NX)),
        (2**24 + 1, RUP, (0x4B80_0001, NX)),
        (-(2**24) - 1, RUP, (0xCB80_0000, NX)),
        (-(2**24) - 1, RMM, (0xCB80_0001, NX)),
        (2**64 - 1, RTZ, (0x5F7F_FFFF, NX)),
        (2**64 - 1, RNE, (0x5F80_0000, NX)),
        (-(2**63), RNE, (0xDF00_0000, 0)),
    ],
)
def test_from_integer(value: int, rm: int, expected: int) -> None:
    assert sf.from_int(F32, value, rm) == expected


def test_an_unresolved_rounding_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="rounding mode 7: expected 0"):
        sf.add(F32, F32_ONE, F32_TINY, 7)


def test_formats_are_the_interchange_formats() -> None:
    assert (F32.precision, F32.bias, F32.minimum_exponent) == (24, 127, -126)
    assert (F64.precision, F64.bias, F64.minimum_exponent) == (53, 1023, -1022)
    assert (F32.canonical_nan, F64.canonical_nan) == (0x7FC0_0000, 0x7FF8_0000_0000_0000)
    assert exact(F32, f32(1.5)) == Fraction(3, 2)
