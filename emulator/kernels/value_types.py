"""The types of values in kernels, and their representation as LLVM values.

Integers have 64 bits, as in numba: an operation is unsigned if both operands are, else signed. An unsigned operand of
fewer bits goes with either, and a constant takes the other operand's kind.
"""

from __future__ import annotations

import enum
import struct
from typing import Any, NamedTuple

import numpy as np

_BITS_64 = (1 << 64) - 1


class Kind(enum.Enum):
    """The kind of a number; the value is its name in messages."""

    BOOL = "bool"
    SMALL = "uint32"  # unsigned, of at most 32 bits: as an int64 it has the same value
    SIGNED = "int64"
    UNSIGNED = "uint64"
    SINGLE = "float32"
    DOUBLE = "float64"


class ArrayType(NamedTuple):
    """A C-contiguous array. ``sized``: its first length is known."""

    dtype: np.dtype[Any]
    ndim: int
    sized: bool = True


class RecordType(NamedTuple):
    """A row of a structured array, by reference."""

    dtype: np.dtype[Any]


class TupleType(NamedTuple):
    """A tuple. ``names``: the fields of a NamedTuple."""

    items: tuple[Any, ...]
    names: tuple[str, ...] = ()


Type = Kind | ArrayType | RecordType | TupleType
FLOATS = (Kind.SINGLE, Kind.DOUBLE)
_LLVM = {Kind.BOOL: "i1", Kind.SINGLE: "float", Kind.DOUBLE: "double"}
_ORDER = (Kind.BOOL, Kind.SMALL, Kind.SIGNED)


class NotUnderstood(Exception):  # becomes a TypeError with the place in the source
    """Something outside of the subset of Python; the message has no place in the source."""


class Value(NamedTuple):
    """A value. ``parts``: LLVM names or literals, one for each of `llvm_types`; ``constant``: its number if it is a
    constant of the source."""

    type: Any
    parts: tuple[str, ...]
    constant: int | float | None = None

    @property
    def text(self) -> str:
        """The part of a value that has only one."""
        (part,) = self.parts
        return part

    @property
    def items(self) -> tuple[Value, ...]:
        """The items of a tuple."""
        found, at = [], 0
        for type_ in self.type.items:
            size = len(llvm_types(type_))
            found.append(Value(type_, self.parts[at : at + size]))
            at += size
        return tuple(found)


def name_of(type_: Type | None) -> str:
    """A type as text, for messages."""
    match type_:
        case None:
            return "nothing"
        case Kind():
            return type_.value
        case ArrayType(dtype, ndim):
            return f"an array of {ndim} dimensions of {dtype}"
        case RecordType(dtype):
            return f"a record of {dtype}"
        case TupleType():
            return "a tuple"


def llvm_types(type_: Type | None) -> tuple[str, ...]:
    """The LLVM types of a value's parts: an array has a pointer and its lengths, a record a pointer."""
    match type_:
        case None:
            return ()
        case Kind():
            return (_LLVM.get(type_, "i64"),)
        case ArrayType(_, ndim):
            return "ptr", *["i64"] * ndim
        case RecordType():
            return ("ptr",)
        case TupleType(items):
            return tuple(part for item in items for part in llvm_types(item))


def literal(number: bool | int | float) -> Value:
    """A constant as a value."""
    if isinstance(number, bool):
        return Value(Kind.BOOL, ("true" if number else "false",), int(number))
    if isinstance(number, float):
        return Value(Kind.DOUBLE, (float_text(number),), number)
    if not -(1 << 63) <= number <= _BITS_64:
        raise NotUnderstood(f"the number {number}, which has more than 64 bits,")
    kind = Kind.SIGNED if number < 1 << 63 else Kind.UNSIGNED
    return Value(kind, (str((number + (1 << 63) & _BITS_64) - (1 << 63)),), number)


def float_text(number: float) -> str:
    """A double as a hexadecimal literal, which LLVM reads without rounding."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


def tuple_of(values: tuple[Value, ...]) -> Value:
    """A tuple of ``values``."""
    types = tuple(value.type for value in values)
    return Value(TupleType(types), tuple(part for value in values for part in value.parts))


def joined(one: Value, other: Value) -> Type:
    """The common type of two values assigned to one name, or compared. Raises `NotUnderstood` if they have none."""
    left, right = one.type, other.type
    if left == right:
        return left
    if isinstance(left, Kind) and isinstance(right, Kind):
        if left in FLOATS or right in FLOATS:
            return Kind.DOUBLE
        if Kind.UNSIGNED not in (left, right):
            return max(left, right, key=_ORDER.index)
        other_side = other if left is Kind.UNSIGNED else one
        is_natural = other_side.constant is not None and other_side.constant >= 0
        if other_side.type is not Kind.SIGNED or is_natural:
            return Kind.UNSIGNED
    elif isinstance(left, TupleType) and isinstance(right, TupleType) and len(left.items) == len(right.items):
        return TupleType(tuple(joined(a, b) for a, b in zip(one.items, other.items, strict=True)), left.names)
    raise NotUnderstood(f"{name_of(left)} together with {name_of(right)} (convert one: np.int64, np.uint64)")
