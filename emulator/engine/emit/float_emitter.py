"""Floating-point semantics as LLVM IR text.

It uses the host's own instructions: constrained intrinsics with dynamic rounding read the guest's rounding mode from
MXCSR and leave their flags in its sticky bits. Differences of the host are corrected here: NaN results become
canonical, minimum and maximum follow the 2019 standard, conversions to integers saturate, 0 x inf + quiet NaN raises
invalid.

An operation that raises flags, or rounds in the guest's mode, must stay between the accesses to fcsr around it. So it
is strict (LLVM keeps strict operations in order), except where it cannot raise a flag: on results of arithmetic, which
are no signalling NaNs, and on numbers for which it is exact.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from emulator.engine.emit.emitter import MASK, RARELY, Emitter
from emulator.engine.hart_state import MXCSR_ROUNDING, MXCSR_ROUNDING_BITS
from emulator.isa.decode import DYNAMIC_ROUNDING, TIES_AWAY
from emulator.isa.softfloat import F32, F64, Format

V = Any

_ALL_ONES = "0xFFFFFFFFE0000000"  # a float's bits
CANONICAL_NAN = "0x7FF8000000000000"  # LLVM writes floats with the bits of the double, too
_STRICT = 'metadata !"round.dynamic", metadata !"fpexcept.strict") strictfp'
_EXCEPT = 'metadata !"fpexcept.strict") strictfp'
_ROUND_TO_INTEGRAL = {0: "roundeven", 1: "trunc", 2: "floor", 3: "ceil"}
_STICKY = 63  # flags of MXCSR
# Rounding control of MXCSR, a byte for each frm, 0 for modes that the host does not have.
_PACKED_ROUNDING = sum(bits >> 8 << (8 * frm) for frm, bits in MXCSR_ROUNDING.items())
# Bits in MXCSR and in fflags: invalid, divide by zero, overflow, underflow, precision.
_FLAG_PLACES = ((0, 4), (2, 3), (3, 2), (4, 1), (5, 0))


def _double(value: float) -> str:
    """A double literal, exact: LLVM reads the hexadecimal bit pattern."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _fp_type(fmt: Format) -> tuple[str, str]:
    return ("double", "f64") if fmt is F64 else ("float", "f32")


class FloatEmitter(Emitter):
    """Emits the floating-point part of the algebra, too."""

    def __init__(self) -> None:
        super().__init__()
        self.unsuitable: V = False
        """Whether the current instruction has chosen a rounding mode that translations cannot run in, an i1."""

    # --- fcsr
    def fflags(self) -> V:
        return self.or_(self._raised(self._host_state()), self.state_load("fflags"))

    def frm(self) -> V:
        return self.state_load("frm")

    def set_fcsr(self, flags: V | None, frm: V | None) -> None:
        before = after = self._host_state()
        if flags is not None:
            # MXCSR is written only if it holds flags other than ``flags``, which is rare: ldmxcsr takes longer than
            # all the rest.
            others = self.ne(self.and_(self._raised(before), self.xor(flags, 31)), 0)
            clear = self.let(f"and i32 {after}, {~_STICKY & 0xFFFFFFFF}")
            after = self.let(f"select i1 {others}, i32 {clear}, i32 {after}")
            self.state_store("fflags", flags)
        if frm is not None:
            rest = self.let(f"and i32 {after}, {~MXCSR_ROUNDING_BITS & 0xFFFFFFFF}")
            after = self.let(f"or i32 {rest}, {self._host_rounding(frm)}")
            self.state_store("frm", frm)
            self.unsuitable = self.lt_u(3, frm)
        change, done = self.fresh_label("change"), self.fresh_label("on")
        same = self.let(f"icmp eq i32 {before}, {after}")
        self.say(f"br i1 {same}, label %{done}, label %{change}")
        self.start(change)
        place = self.state_pointer("guest_mxcsr")
        self.say(f"store i32 {after}, ptr {place}")
        self.say(f"call void @llvm.x86.sse.ldmxcsr(ptr {place})")
        self.say(f"br label %{done}")
        self.start(done)

    def _host_state(self) -> V:
        """MXCSR, an i32."""
        place = self.state_pointer("guest_mxcsr")
        self.say(f"call void @llvm.x86.sse.stmxcsr(ptr {place})")
        return self.let(f"load i32, ptr {place}")

    def _raised(self, host_state: V) -> V:
        """The flags that are set in MXCSR, as fflags."""
        wide = self.let(f"zext i32 {host_state} to i64")
        found: V = 0
        for host, guest in _FLAG_PLACES:
            moved = self.shl(wide, guest - host) if guest > host else self.shr_u(wide, host - guest)
            found = self.or_(self.and_(moved, 1 << guest), found)
        return found

    def _host_rounding(self, frm: V) -> V:
        """The bits of MXCSR (an i32) for a rounding mode; those of RNE for a mode that the host does not have."""
        byte = self.and_(self.shr_u(_PACKED_ROUNDING, self.shl(frm, 3)), 255)
        return self.let(f"trunc i64 {self.shl(byte, 8)} to i32")

    # --- floating point
    def set_host_rounding(self, bits: V) -> None:
        """Let the host round as ``bits`` of MXCSR (an i32) say; its sticky flags stay."""
        rest = self.let(f"and i32 {self._host_state()}, {~MXCSR_ROUNDING_BITS & 0xFFFFFFFF}")
        place = self.state_pointer("guest_mxcsr")
        self.say(f"store i32 {self.let(f'or i32 {rest}, {bits}')}, ptr {place}")
        self.say(f"call void @llvm.x86.sse.ldmxcsr(ptr {place})")

    def host_rounding_of_guest(self) -> V:
        """The bits of MXCSR (an i32) for the guest's rounding mode, which the host must have."""
        return self._host_rounding(self.frm())

    def with_rounding_mode(self, rm: int, operation: Callable[[], None]) -> None:
        """Emit ``operation`` in the static rounding mode ``rm``, which is usually the guest's current mode anyway."""
        same = self.eq(self.state_load("frm"), rm)
        change, go = self.fresh_label("change"), self.fresh_label("rounded")
        back, done = self.fresh_label("back"), self.fresh_label("on")
        self.say(f"br i1 {same}, label %{go}, label %{change}")
        self.start(change)
        self.set_host_rounding(MXCSR_ROUNDING[rm])
        self.say(f"br label %{go}")
        self.start(go)
        operation()
        self.say(f"br i1 {same}, label %{done}, label %{back}")
        self.start(back)
        self.set_host_rounding(self.host_rounding_of_guest())
        self.say(f"br label %{done}")
        self.start(done)

    def raise_flags(self, flags: V) -> None:
        pointer = self.state_pointer("fflags")
        old = self.let(f"load i64, ptr {pointer}")
        self.say(f"store i64 {self.let(f'or i64 {old}, {flags}')}, ptr {pointer}")

    def to_bits(self, fmt: Format, value: V) -> V:
        """The i64 (f32: zero-extended) pattern of a floating-point value."""
        if fmt is F64:
            return self.let(f"bitcast double {value} to i64")
        low = self.let(f"bitcast float {value} to i32")
        return self.let(f"zext i32 {low} to i64")

    def from_bits(self, fmt: Format, bits: V) -> V:
        if fmt is F64:
            return self.let(f"bitcast i64 {bits} to double")
        low = self.let(f"trunc i64 {bits} to i32")
        return self.let(f"bitcast i32 {low} to float")

    def unbox(self, raw: V) -> V:
        """The single in a raw register: the canonical NaN unless the upper half is all ones."""
        high = self.let(f"lshr i64 {raw}, 32")
        nan_box = self.let(f"icmp eq i64 {high}, {0xFFFFFFFF}")
        value = self.from_bits(F32, raw)
        return self.let(f"select i1 {nan_box}, float {value}, float {CANONICAL_NAN}")

    def nan_box(self, value: V) -> V:
        """The NaN-boxed register value, a double, of a single; by vector instructions, in whose registers it is."""
        pair = self.let(f"insertelement <2 x float> <float 0.0, float {_ALL_ONES}>, float {value}, i32 0")
        return self.let(f"bitcast <2 x float> {pair} to double")

    def unbox_known(self, register: V) -> V:
        """The single in a register value, a double, that is known to be NaN-boxed."""
        pair = self.let(f"bitcast double {register} to <2 x float>")
        return self.let(f"extractelement <2 x float> {pair}, i32 0")

    def canonical(self, fmt: Format, value: V, invalid: V = None) -> V:
        """``value``, or the canonical NaN for any NaN. A branch: NaNs are rare and latency is not.

        ``invalid`` is called to emit code for the NaN path.
        """
        kind, _ = _fp_type(fmt)
        nan, done, before = self.fresh_label("nan"), self.fresh_label("fp"), self.label
        is_nan = self.let(f"fcmp uno {kind} {value}, {value}")
        self.say(f"br i1 {is_nan}, label %{nan}, label %{done}, {RARELY}")
        self.start(nan)
        if invalid is not None:
            invalid()
        self.say(f"br label %{done}")
        self.start(done)
        return self.let(f"phi {kind} [ {value}, %{before} ], [ {CANONICAL_NAN}, %{nan} ]")

    def _arithmetic(self, operation: str, fmt: Format, *operands: V) -> V:
        kind, suffix = _fp_type(fmt)
        arguments = ", ".join(f"{kind} {operand}" for operand in operands)
        return self.let(f"call {kind} @llvm.experimental.constrained.{operation}.{suffix}({arguments}, {_STRICT}")

    def fadd(self, fmt: Format, a: V, b: V) -> V:
        return self.canonical(fmt, self._arithmetic("fadd", fmt, a, b))

    def fsub(self, fmt: Format, a: V, b: V) -> V:
        return self.canonical(fmt, self._arithmetic("fsub", fmt, a, b))

    def fmul(self, fmt: Format, a: V, b: V) -> V:
        return self.canonical(fmt, self._arithmetic("fmul", fmt, a, b))

    def fdiv(self, fmt: Format, a: V, b: V) -> V:
        return self.canonical(fmt, self._arithmetic("fdiv", fmt, a, b))

    def fsqrt(self, fmt: Format, a: V) -> V:
        return self.canonical(fmt, self._arithmetic("sqrt", fmt, a))

    def _negate(self, fmt: Format, value: V) -> V:
        return self.let(f"fneg {_fp_type(fmt)[0]} {value}")

    def ffma(self, fmt: Format, a: V, b: V, c: V, negate_product: bool, negate_addend: bool) -> V:
        if negate_product:
            a = self._negate(fmt, a)
        if negate_addend:
            c = self._negate(fmt, c)

        def zero_times_infinity() -> None:
            # The host stays silent when the addend is a quiet NaN; RISC-V raises invalid (section 20.6).
            mantissa_bits = fmt.fraction_bits
            sign = 1 << (fmt.width - 1)
            infinity = (sign - 1) >> mantissa_bits << mantissa_bits
            x = self.and_(self.to_bits(fmt, a), sign - 1)
            y = self.and_(self.to_bits(fmt, b), sign - 1)
            one = self.both(self.eq(x, infinity), self.eq(y, 0))
            other = self.both(self.eq(x, 0), self.eq(y, infinity))
            self.raise_flags(self.select(self.either(one, other), 16, 0))

        return self.canonical(fmt, self._arithmetic("fma", fmt, a, b, c), zero_times_infinity)

    def _compare(self, signalling: bool, fmt: Format, condition: str, a: V, b: V) -> V:
        kind, suffix = _fp_type(fmt)
        which = "fcmps" if signalling else "fcmp"
        return self.let(
            f"call i1 @llvm.experimental.constrained.{which}.{suffix}"
            f'({kind} {a}, {kind} {b}, metadata !"{condition}", {_EXCEPT}'
        )

    def feq(self, fmt: Format, a: V, b: V) -> V:
        return self._compare(False, fmt, "oeq", a, b)

    def flt(self, fmt: Format, a: V, b: V) -> V:
        return self._compare(True, fmt, "olt", a, b)

    def fle(self, fmt: Format, a: V, b: V) -> V:
        return self._compare(True, fmt, "ole", a, b)

    def _extremum(self, fmt: Format, a: V, b: V, minimum: bool) -> V:
        kind, _ = _fp_type(fmt)
        less = self._compare(False, fmt, "olt" if minimum else "ogt", a, b)
        equal = self._compare(False, fmt, "oeq", a, b)
        a_nan = self._compare(False, fmt, "uno", a, a)
        b_nan = self._compare(False, fmt, "uno", b, b)
        # Equal operands differ at most in the sign of zero: or-ing the patterns gives -0, and-ing +0.
        merge = self.or_ if minimum else self.and_
        merged = self.from_bits(fmt, merge(self.to_bits(fmt, a), self.to_bits(fmt, b)))
        value = self.let(f"select i1 {less}, {kind} {a}, {kind} {b}")
        value = self.let(f"select i1 {equal}, {kind} {merged}, {kind} {value}")
        value = self.let(f"select i1 {b_nan}, {kind} {a}, {kind} {value}")
        value = self.let(f"select i1 {a_nan}, {kind} {b}, {kind} {value}")
        both = self.both(a_nan, b_nan)
        return self.let(f"select i1 {both}, {kind} {CANONICAL_NAN}, {kind} {value}")

    def fmin(self, fmt: Format, a: V, b: V) -> V:
        return self._extremum(fmt, a, b, True)

    def fmax(self, fmt: Format, a: V, b: V) -> V:
        return self._extremum(fmt, a, b, False)

    def fclass(self, fmt: Format, bits: V) -> V:
        mantissa_bits = fmt.fraction_bits
        sign_bit = 1 << (fmt.width - 1)
        infinity = (sign_bit - 1) >> mantissa_bits << mantissa_bits
        magnitude = self.and_(bits, sign_bit - 1)
        negative = self.ne(self.and_(bits, sign_bit), 0)
        # Bit numbers from -inf (0) up to +inf (7), symmetric about zero; then signalling (8) and quiet NaN (9).
        number = self.select(negative, 1, 6)  # normal
        number = self.select(self.lt_u(magnitude, 1 << mantissa_bits), self.select(negative, 2, 5), number)  # subnormal
        number = self.select(self.eq(magnitude, 0), self.select(negative, 3, 4), number)
        number = self.select(self.eq(magnitude, infinity), self.select(negative, 0, 7), number)
        number = self.select(self.lt_u(infinity, magnitude), 8, number)
        quiet = infinity | 1 << (mantissa_bits - 1)
        number = self.select(self.not_(self.lt_u(magnitude, quiet)), 9, number)
        return self.shl(1, number)

    def fp_convert(self, source: Format, target: Format, a: V) -> V:
        if target is F64:
            wide = self.let(f"call double @llvm.experimental.constrained.fpext.f64.f32(float {a}, {_EXCEPT}")
            return self.canonical(target, wide)
        narrow = self.let(f"call float @llvm.experimental.constrained.fptrunc.f32.f64(double {a}, {_STRICT}")
        return self.canonical(target, narrow)

    def _round_to_integral(self, a: V) -> V:
        if self.rm == DYNAMIC_ROUNDING:
            return self._arithmetic("nearbyint", F64, a)
        if self.rm != TIES_AWAY:
            return self._rounded(_ROUND_TO_INTEGRAL[self.rm], a)
        # The host has no instruction that rounds ties away. Both the fraction and the corrected sum are exact.
        whole = self._rounded("trunc", a)
        fraction = self._arithmetic("fsub", F64, a, whole)
        size = self.let(f"call double @llvm.fabs.f64(double {fraction})")
        away = self.let(f"fcmp oge double {size}, {_double(0.5)}")
        one = self.let(f"call double @llvm.copysign.f64(double {_double(1.0)}, double {a})")
        return self.let(f"fadd double {whole}, {self.let(f'select i1 {away}, double {one}, double 0.0')}")

    def _rounded(self, function: str, a: V) -> V:
        return self.let(f"call double @llvm.experimental.constrained.{function}.f64(double {a}, {_EXCEPT}")

    def fp_to_int(self, fmt: Format, a: V, bits: int, signed: bool) -> V:
        if fmt is not F64:
            a = self.let(f"call double @llvm.experimental.constrained.fpext.f64.f32(float {a}, {_EXCEPT}")
        # The rounding instructions raise no flags, so that out of range raises invalid only.
        rounded = self._round_to_integral(a)
        low = -(2.0 ** (bits - 1)) if signed else 0.0
        high = 2.0 ** (bits - 1 if signed else bits)
        above = self.let(f"fcmp oge double {rounded}, {_double(low)}")
        below = self.let(f"fcmp olt double {rounded}, {_double(high)}")
        fits = self.both(above, below)
        # Out-of-range values must not reach the conversion, which would set sticky bits of its own.
        safe = self.let(f"select i1 {fits}, double {rounded}, double 0.0")
        if bits == 64 and not signed:
            upper = self.let(f"fcmp oge double {safe}, {_double(2.0**63)}")
            offset = self.let(f"select i1 {upper}, double {_double(2.0**63)}, double 0.0")
            safe = self.let(f"fsub double {safe}, {offset}")
            value = self._truncated(safe)
            value = self.xor(value, self.select(upper, 1 << 63, 0))
        else:
            value = self._truncated(safe)
        exact = self._compare(False, F64, "oeq", rounded, a)
        self.raise_flags(self.select(fits, self.select(exact, 0, 1), 16))
        top = (1 << (bits - 1 if signed else bits)) - 1
        bottom = -(1 << (bits - 1)) & MASK if signed else 0
        negative = self.let(f"fcmp olt double {rounded}, 0.0")  # false for a NaN, which saturates upwards
        result = self.select(fits, value, self.select(negative, bottom, top))
        return self.sext(result, 32) if bits == 32 else result

    def _truncated(self, a: V) -> V:
        # Strict, for otherwise LLVM would convert values that do not fit, too, and discard the result.
        return self.let(f"call i64 @llvm.experimental.constrained.fptosi.i64.f64(double {a}, {_EXCEPT}")

    def int_to_fp(self, fmt: Format, value: V, bits: int, signed: bool) -> V:
        if bits == 32:
            value = self.sext(value, 32) if signed else self.zext(value, 32)
        if self.rm == DYNAMIC_ROUNDING or (fmt is F64 and bits == 32):
            return self._int_to_fp_dynamic_rounding(fmt, value, bits, signed)
        return self._int_to_fp_static_rounding(fmt, value, signed)

    def _int_to_fp_static_rounding(self, fmt: Format, value: V, signed: bool) -> V:
        """Convert in the instruction's static rounding mode: most values are exact; others are rounded as integers."""
        kind, _ = _fp_type(fmt)
        precision = fmt.precision
        small, large, join = (self.fresh_label(stem) for stem in ("small", "large", "converted"))
        lowest = 1 << precision if signed else 0
        is_exact = self.lt_u(self.add(value, lowest), lowest + (1 << precision) + 1)
        self.say(f"br i1 {is_exact}, label %{small}, label %{large}")
        self.start(small)
        plain = self._converted(fmt, value)
        self.say(f"br label %{join}")
        self.start(large)
        negative: V = self.lt_s(value, 0) if signed else "false"
        magnitude = self.select(negative, self.sub(0, value), value)
        shift = self.sub(64 - precision, self.count_leading_zeros(magnitude, 64))
        kept = self.shr_u(magnitude, shift)
        rest = self.sub(magnitude, self.shl(kept, shift))
        half = self.shl(1, self.sub(shift, 1))
        inexact = self.ne(rest, 0)
        up: V = {
            0: lambda: self.lt_u(half, self.add(rest, self.and_(kept, 1))),
            1: lambda: "false",
            2: lambda: self.both(negative, inexact),
            3: lambda: self.both(self.not_(negative), inexact),
            TIES_AWAY: lambda: self.not_(self.lt_u(rest, half)),
        }[self.rm]()
        whole = self._converted(fmt, self.add(kept, self.flag(up)))
        unit = self.from_bits(fmt, self.shl(self.add(shift, fmt.bias), fmt.fraction_bits))
        product = self._arithmetic("fmul", fmt, whole, unit)
        signed_product = self.let(f"select i1 {negative}, {kind} {self._negate(fmt, product)}, {kind} {product}")
        self.raise_flags(self.flag(inexact))
        self.say(f"br label %{join}")
        self.start(join)
        return self.let(f"phi {kind} [ {plain}, %{small} ], [ {signed_product}, %{large} ]")

    def _converted(self, fmt: Format, value: V) -> V:
        kind, suffix = _fp_type(fmt)
        return self.let(f"call {kind} @llvm.experimental.constrained.sitofp.{suffix}.i64(i64 {value}, {_STRICT}")

    def _int_to_fp_dynamic_rounding(self, fmt: Format, value: V, bits: int, signed: bool) -> V:
        if signed or bits == 32:
            return self._converted(fmt, value)
        # Halve values of 2^63 and above, keeping the last bit sticky; doubling the result is exact.
        large = self.lt_s(value, 0)
        half = self.or_(self.shr_u(value, 1), self.and_(value, 1))
        small = self._converted(fmt, self.select(large, half, value))
        double = self._arithmetic("fadd", fmt, small, small)
        kind, _ = _fp_type(fmt)
        return self.let(f"select i1 {large}, {kind} {double}, {kind} {small}")
