"""Arithmetic of kernels as LLVM instructions: Python's operators, on 64-bit integers that wrap and on floating-point
numbers.

``//`` and ``%`` round down; division of an integer by 0 gives 0, as in numpy without warnings. ``>>`` of a signed
number keeps its sign. Shift amounts have to be from 0 to 63.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from emulator.kernels.value_types import (
    FLOATS,
    Kind,
    NotUnderstood,
    Value,
    float_text,
    joined,
    literal,
    llvm_types,
    name_of,
)

_PLAIN = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.LShift: "shl", ast.BitAnd: "and", ast.BitOr: "or",
    ast.BitXor: "xor",
}  # fmt: skip
_FLOATING: dict[type[ast.operator], str] = {
    ast.Add: "fadd",
    ast.Sub: "fsub",
    ast.Mult: "fmul",
    ast.Div: "fdiv",
}
_FOLDED: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_COMPARISONS = {
    ast.Eq: ("eq", "eq", "oeq"), ast.NotEq: ("ne", "ne", "une"), ast.Lt: ("slt", "ult", "olt"),
    ast.LtE: ("sle", "ule", "ole"), ast.Gt: ("sgt", "ugt", "ogt"), ast.GtE: ("sge", "uge", "oge"),
}  # fmt: skip
_BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor)
_SHIFTS = (ast.LShift, ast.RShift)
_LARGEST_POWER = 8  # the largest constant exponent of an integer; the power becomes multiplications


class ArithmeticEmitter:
    """Builds the text of one LLVM function: each method emits instructions for one operation on numbers. ``flags``:
    LLVM's flags for floating-point instructions."""

    def __init__(self, flags: str = "") -> None:
        self.head: list[str] = []  # allocations
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self._flags = f" {flags}" if flags else ""
        self._count = 0

    # --- lines
    def let(self, text: str) -> str:
        """Emit an instruction; the name of its result."""
        self._count += 1
        self.lines.append(f"%k{self._count} = {text}")
        return f"%k{self._count}"

    def say(self, text: str) -> None:
        self.lines.append(text)

    def label(self) -> str:
        self._count += 1
        return f"l{self._count}"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def go(self, label: str) -> None:
        self.lines.append(f"br label %{label}")

    def jump(self, label: str) -> None:
        """Emit a jump; the lines emitted behind it are unreachable."""
        self.go(label)
        self.start(self.label())

    def split(self, holds: str, yes: str, no: str) -> None:
        self.lines.append(f"br i1 {holds}, label %{yes}, label %{no}")

    def variable(self, llvm_type: str) -> str:
        """Allocate a stack variable, zero at first, which LLVM makes a register; its pointer."""
        self._count += 1
        place = f"%m{self._count}"
        self.head += [f"{place} = alloca {llvm_type}", f"store {llvm_type} zeroinitializer, ptr {place}"]
        return place

    def call(self, signature: str, name: str, arguments: str) -> str:
        """Emit a call of a function of LLVM or of the C library; the name of its result."""
        self.declared.add(f"declare {signature} @{name}({', '.join(one.split()[0] for one in arguments.split(', '))})")
        return self.let(f"call {signature} @{name}({arguments})")

    # --- conversions
    def number(self, value: Value) -> Kind:
        if not isinstance(value.type, Kind):
            raise NotUnderstood(f"{name_of(value.type)} as a number")
        return value.type

    def converted(self, value: Value, type_: Any) -> Value:
        """``value`` as a type to which it converts implicitly (see `joined`)."""
        if value.type == type_:
            return value
        if not isinstance(type_, Kind):
            items = value.items
            parts = [self.converted(item, kind).parts for item, kind in zip(items, type_.items, strict=True)]
            return Value(type_, tuple(part for item in parts for part in item))
        kind = self.number(value)
        if type_ in FLOATS:
            return self.floating(value, type_)
        if type_ is Kind.BOOL:
            return self.truth(value)
        if kind is Kind.BOOL:
            return Value(type_, (self.let(f"zext i1 {value.text} to i64"),), value.constant)
        return Value(type_, value.parts, value.constant)

    def floating(self, value: Value, kind: Kind) -> Value:
        """``value`` as a floating-point number of ``kind``."""
        source, (target,) = self.number(value), llvm_types(kind)
        if source is kind:
            return value
        if value.constant is not None:
            number = float(value.constant)
            rounded = float(np.float32(number)) if kind is Kind.SINGLE else number
            return Value(kind, (float_text(rounded),), rounded)
        if source in FLOATS:
            act = "fpext" if kind is Kind.DOUBLE else "fptrunc"
        else:
            act = "sitofp" if source is Kind.SIGNED else "uitofp"
        (own,) = llvm_types(source)
        return Value(kind, (self.let(f"{act} {own} {value.text} to {target}"),))

    def integer(self, value: Value) -> Value:
        """``value``, an integer or truth value, as 64 bits. Raises `NotUnderstood` for a floating-point number."""
        kind = self.number(value)
        if kind in FLOATS:
            raise NotUnderstood(f"{kind.value} as an integer (convert it: int)")
        return self.converted(value, Kind.SIGNED) if kind is Kind.BOOL else value

    def cast(self, value: Value, dtype: np.dtype[Any]) -> Value:
        """``dtype.type(value)``: an integer wraps, a fraction is cut off."""
        if dtype.kind == "f":
            return self.floating(value, Kind.SINGLE if dtype.itemsize == 4 else Kind.DOUBLE)
        if dtype.kind == "b":
            return self.truth(value)
        if dtype.kind not in "iu" or dtype.itemsize > 8:
            raise NotUnderstood(f"a number of type {dtype}")
        bits, signed = 8 * dtype.itemsize, dtype.kind == "i"
        kind = Kind.SIGNED if signed else Kind.UNSIGNED if bits == 64 else Kind.SMALL
        if value.constant is not None and isinstance(value.constant, int):
            number = value.constant & (1 << bits) - 1
            if signed and number >> (bits - 1):
                number -= 1 << bits
            made = literal(number)
            return Value(kind, made.parts, number)
        if self.number(value) in FLOATS:
            (own,) = llvm_types(value.type)
            act = "fptoui" if kind is Kind.UNSIGNED else "fptosi"
            value = Value(kind, (self.let(f"{act} {own} {value.text} to i64"),))
        text = self.integer(value).text
        if bits < 64 and value.type is not Kind.BOOL:
            narrow = self.let(f"trunc i64 {text} to i{bits}")
            text = self.let(f"{'sext' if signed else 'zext'} i{bits} {narrow} to i64")
        return Value(kind, (text,))

    def truth(self, value: Value) -> Value:
        """Whether ``value`` is not 0, an i1."""
        kind = self.number(value)
        if kind is Kind.BOOL:
            return value
        if kind in FLOATS:
            (own,) = llvm_types(kind)
            return Value(Kind.BOOL, (self.let(f"fcmp une {own} {value.text}, {float_text(0.0)}"),))
        return Value(Kind.BOOL, (self.let(f"icmp ne i64 {value.text}, 0"),))

    # --- operators
    def arithmetic(self, op: ast.operator, left: Value, right: Value) -> Value:
        """The result of a binary operator. Raises `NotUnderstood`."""
        kinds = self.number(left), self.number(right)
        if type(op) is ast.Pow:
            return self._power(left, right)
        if type(op) is ast.Div or kinds[0] in FLOATS or kinds[1] in FLOATS:
            return self._floating_operation(op, left, right)
        folded = self._folded(op, left, right)
        if folded is not None:
            return folded
        kind = _kind_of_result(op, left, right)
        if kind is Kind.BOOL:
            return Value(kind, (self.let(f"{_PLAIN[type(op)]} i1 {left.text}, {right.text}"),))
        a, b = self.integer(left).text, self.integer(right)
        if isinstance(op, ast.FloorDiv | ast.Mod):
            return Value(kind, (self._divided(op, kind, a, b),))
        if isinstance(op, ast.RShift):
            return Value(kind, (self.let(f"{'ashr' if kind is Kind.SIGNED else 'lshr'} i64 {a}, {b.text}"),))
        if type(op) not in _PLAIN:
            raise NotUnderstood(f"the operator {type(op).__name__}")
        return Value(kind, (self.let(f"{_PLAIN[type(op)]} i64 {a}, {b.text}"),))

    def _folded(self, op: ast.operator, left: Value, right: Value) -> Value | None:
        """The constant result of an operation on constants; None if it is not folded."""
        one, other = left.constant, right.constant
        if not isinstance(one, int) or not isinstance(other, int) or type(op) not in _FOLDED:
            return None
        is_plain = left.type is right.type is Kind.SIGNED
        if not is_plain or (isinstance(op, _SHIFTS) and not 0 <= other < 64):
            return None
        number = _FOLDED[type(op)](one, other)
        return literal(number) if -(1 << 63) <= number < 1 << 63 else None

    def _floating_operation(self, op: ast.operator, left: Value, right: Value) -> Value:
        """A floating-point operation; float32 only if both operands are."""
        if type(op) not in _FLOATING:
            raise NotUnderstood(f"the operator {type(op).__name__} for floating-point numbers")
        kind = Kind.SINGLE if left.type is right.type is Kind.SINGLE else Kind.DOUBLE
        (own,) = llvm_types(kind)
        a, b = self.floating(left, kind), self.floating(right, kind)
        return Value(kind, (self.let(f"{_FLOATING[type(op)]}{self._flags} {own} {a.text}, {b.text}"),))

    def _power(self, base: Value, exponent: Value) -> Value:
        """``base ** exponent``, as multiplications for a small constant exponent."""
        # Higher powers of a float: the C library's pow rounds once, multiplications round at each step.
        largest = 2 if base.type in FLOATS else _LARGEST_POWER
        if isinstance(exponent.constant, int) and 1 <= exponent.constant <= largest:
            if isinstance(base.constant, int):
                return literal(base.constant**exponent.constant)
            result = base
            for _ in range(exponent.constant - 1):
                result = self.arithmetic(ast.Mult(), result, base)
            return result
        if base.type not in FLOATS:
            raise NotUnderstood("a power of an integer whose exponent is not a small constant")
        a, b = self.floating(base, Kind.DOUBLE), self.floating(exponent, Kind.DOUBLE)
        return Value(Kind.DOUBLE, (self.call("double", "pow", f"double {a.text}, double {b.text}"),))

    def _divided(self, op: ast.operator, kind: Kind, a: str, divisor: Value) -> str:
        """``a // divisor`` or ``a % divisor``, 0 for a divisor of 0."""
        b, known = divisor.text, divisor.constant
        wants_quotient = isinstance(op, ast.FloorDiv)
        if isinstance(known, int) and known > 0 and known & (known - 1) == 0:
            if not wants_quotient:
                return self.let(f"and i64 {a}, {known - 1}")
            return self.let(f"{'ashr' if kind is Kind.SIGNED else 'lshr'} i64 {a}, {known.bit_length() - 1}")
        if not known:
            is_zero = self.let(f"icmp eq i64 {b}, 0")
            b = self.let(f"select i1 {is_zero}, i64 1, i64 {b}")
        if kind is not Kind.SIGNED:
            result = self.let(f"{'udiv' if wants_quotient else 'urem'} i64 {a}, {b}")
        else:
            result = self._floored(wants_quotient, a, b, known is not None and known > 0)
        if not known:
            result = self.let(f"select i1 {is_zero}, i64 0, i64 {result}")
        return result

    def _floored(self, wants_quotient: bool, a: str, b: str, is_positive: bool) -> str:
        """Signed quotient or remainder, rounded down: LLVM rounds towards 0, and does not define -2**63 // -1."""
        divisor = b
        if not is_positive:
            is_minus_one = self.let(f"icmp eq i64 {b}, -1")
            divisor = self.let(f"select i1 {is_minus_one}, i64 1, i64 {b}")
        rest = self.let(f"srem i64 {a}, {divisor}")
        signs = rest if is_positive else self.let(f"xor i64 {rest}, {divisor}")
        is_off = self.let(f"and i1 {self.let(f'icmp slt i64 {signs}, 0')}, {self.let(f'icmp ne i64 {rest}, 0')}")
        if not wants_quotient:  # of 1 and -1 it is 0
            return self.let(f"add i64 {rest}, {self.let(f'select i1 {is_off}, i64 {divisor}, i64 0')}")
        quotient = self.let(f"sdiv i64 {a}, {divisor}")
        result = self.let(f"sub i64 {quotient}, {self.let(f'zext i1 {is_off} to i64')}")
        if is_positive:
            return result
        return self.let(f"select i1 {is_minus_one}, i64 {self.let(f'sub i64 0, {a}')}, i64 {result}")

    def compared(self, op: ast.cmpop, left: Value, right: Value) -> str:
        """The result of a comparison, an i1."""
        if type(op) not in _COMPARISONS:
            raise NotUnderstood(f"the comparison {type(op).__name__}")
        self.number(left), self.number(right)
        signed, unsigned, ordered = _COMPARISONS[type(op)]
        kind = joined(left, right)
        if isinstance(kind, Kind) and kind in FLOATS:
            a, b = self.floating(left, kind), self.floating(right, kind)
            (own,) = llvm_types(kind)
            return self.let(f"fcmp{self._flags} {ordered} {own} {a.text}, {b.text}")
        a, b = self.integer(left), self.integer(right)
        is_signed = kind in (Kind.SIGNED, Kind.BOOL)
        return self.let(f"icmp {signed if is_signed else unsigned} i64 {a.text}, {b.text}")

    def negative(self, value: Value) -> Value:
        """``-value``."""
        if isinstance(value.constant, int | float):
            return literal(-value.constant)
        kind = self.number(value)
        if kind in FLOATS:
            (own,) = llvm_types(kind)
            return Value(kind, (self.let(f"fneg{self._flags} {own} {value.text}"),))
        result = Kind.UNSIGNED if kind is Kind.UNSIGNED else Kind.SIGNED
        return Value(result, (self.let(f"sub i64 0, {self.integer(value).text}"),))

    def inverted(self, value: Value) -> Value:
        """``~value``."""
        if isinstance(value.constant, int) and value.type is Kind.SIGNED:
            return literal(~value.constant)
        if value.type not in (Kind.SIGNED, Kind.UNSIGNED):
            raise NotUnderstood(f"~ of {name_of(value.type)} (convert it: np.int64, np.uint64)")
        return Value(value.type, (self.let(f"xor i64 {value.text}, -1"),))

    def absolute(self, value: Value) -> Value:
        """``abs(value)``."""
        kind = self.number(value)
        (own,) = llvm_types(kind)
        if kind in FLOATS:
            name = "llvm.fabs.f32" if kind is Kind.SINGLE else "llvm.fabs.f64"
            return Value(kind, (self.call(own, name, f"{own} {value.text}"),))
        if kind is not Kind.SIGNED:
            return self.integer(value)
        return Value(kind, (self.call("i64", "llvm.abs.i64", f"i64 {value.text}, i1 false"),))

    def root(self, value: Value) -> Value:
        """The square root."""
        value = value if value.type in FLOATS else self.floating(value, Kind.DOUBLE)
        (own,) = llvm_types(value.type)
        name = "llvm.sqrt.f32" if value.type is Kind.SINGLE else "llvm.sqrt.f64"
        return Value(value.type, (self.call(own, name, f"{own} {value.text}"),))

    def by_library(self, name: str, value: Value) -> Value:
        """Emit a call of the C library's function ``name`` of a double."""
        argument = self.floating(value, Kind.DOUBLE)
        return Value(Kind.DOUBLE, (self.call("double", name, f"double {argument.text}"),))

    def extreme(self, op: ast.cmpop, values: list[Value]) -> Value:
        """The least of ``values`` for ``<``, the greatest for ``>``; the first of equal ones, as in Python."""
        best = values[0]
        for value in values[1:]:
            kind = joined(best, value)
            best, value = self.converted(best, kind), self.converted(value, kind)
            is_better = self.compared(op, value, best)
            (own,) = llvm_types(kind)
            best = Value(kind, (self.let(f"select i1 {is_better}, {own} {value.text}, {own} {best.text}"),))
        return best


def _kind_of_result(op: ast.operator, left: Value, right: Value) -> Kind:
    """The kind of an integer operation's result."""
    one, other = left.type, right.type
    if isinstance(op, _SHIFTS):
        if one is Kind.BOOL:
            return Kind.SIGNED
        if one is Kind.SMALL and isinstance(op, ast.LShift):
            return Kind.SIGNED if other in (Kind.SIGNED, Kind.BOOL) else Kind.UNSIGNED
        return one
    if one is other is Kind.BOOL:
        return Kind.BOOL if isinstance(op, _BITWISE) else Kind.SIGNED
    stays_small = isinstance(op, (*_BITWISE, ast.FloorDiv, ast.Mod))
    if one is other is Kind.SMALL:
        return Kind.SMALL if stays_small else Kind.UNSIGNED
    is_natural = right.type is Kind.SIGNED and right.constant is not None and right.constant >= 0
    if one is Kind.SMALL and is_natural and isinstance(op, ast.BitAnd | ast.FloorDiv | ast.Mod):
        return Kind.SMALL
    kind = joined(left, right)
    return Kind.SIGNED if kind is Kind.SMALL and not stays_small else kind  # type: ignore[return-value]
