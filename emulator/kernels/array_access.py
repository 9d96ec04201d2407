"""Accesses of kernels to arrays, records and their elements, as LLVM instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from emulator.kernels.arithmetic import ArithmeticEmitter
from emulator.kernels.value_types import ArrayType, Kind, NotUnderstood, RecordType, Value, name_of


class Element(NamedTuple):
    """A number in memory."""

    pointer: str
    dtype: np.dtype[Any]


class MemoryEmitter(ArithmeticEmitter):
    """Emits the lines of a function, with accesses to memory."""

    def __init__(self, flags: str = "") -> None:
        super().__init__(flags)
        self._own: list[str] = []  # variables with the addresses of allocated memory

    def scratch(self, size: str, n_bytes: int, is_zero: bool) -> str:
        """Allocate ``size`` elements of ``n_bytes`` each, zeroed if ``is_zero``; the address."""
        place = self.variable("ptr")
        if is_zero:
            pointer = self.call("noalias ptr", "calloc", f"i64 {size}, i64 {n_bytes}")
        else:
            pointer = self.call("noalias ptr", "malloc", f"i64 {self.let(f'mul i64 {size}, {n_bytes}')}")
        self.say(f"store ptr {pointer}, ptr {place}")
        self._own.append(place)
        return pointer

    def free(self) -> None:
        """Free all memory from `scratch`."""
        for place in self._own:
            self.declared.add("declare void @free(ptr)")
            self.say(f"call void @free(ptr {self.let(f'load ptr, ptr {place}')})")

    def element(self, array: Value, starts: Sequence[str], length: str | None = None) -> Element | Value:
        """The element, record or subarray at the index ``starts``; ``length``: the last index begins a slice of that
        length."""
        dtype, lengths = array.type.dtype, array.parts[1:]
        offset = "0"
        for place, start in enumerate(starts):
            step = self.product(lengths[place + 1 :])
            more = start if step == "1" else self.let(f"mul nsw i64 {start}, {step}")
            offset = more if offset == "0" else self.let(f"add nsw i64 {offset}, {more}")
        kind = _in_memory(dtype)
        pointer = self.let(f"getelementptr inbounds {kind}, ptr {array.parts[0]}, i64 {offset}")
        left = (*(() if length is None else (length,)), *lengths[len(starts) :])
        if left:
            return Value(ArrayType(dtype, len(left)), (pointer, *left))
        return Value(RecordType(dtype), (pointer,)) if dtype.names else Element(pointer, dtype)

    def item(self, array: Value, index: str) -> Value:
        """The number, record or row at ``index`` of the first dimension."""
        found = self.element(array, [index])
        return self.get(found) if isinstance(found, Element) else found

    def product(self, lengths: Sequence[str]) -> str:
        """The product of lengths, as text."""
        product = "1"
        for length in lengths:
            if product.isdigit() and length.isdigit():
                product = str(int(product) * int(length))
            else:
                product = length if product == "1" else self.let(f"mul nsw i64 {product}, {length}")
        return product

    def field(self, record: Value, name: str) -> Element:
        """The place of a record's field."""
        fields = record.type.dtype.fields
        if fields is None or name not in fields:
            raise NotUnderstood(f"field {name} of {name_of(record.type)}")
        dtype, offset = fields[name][:2]
        pointer = self.let(f"getelementptr inbounds i8, ptr {record.parts[0]}, i64 {offset}")
        return Element(pointer, np.dtype(dtype))

    def get(self, element: Element) -> Value:
        """Load a number."""
        dtype, kind = element.dtype, _in_memory(element.dtype)
        loaded = self.let(f"load {kind}, ptr {element.pointer}, align 1")
        if dtype.kind == "f":
            return Value(Kind.SINGLE if kind == "float" else Kind.DOUBLE, (loaded,))
        if dtype.kind == "b":
            return Value(Kind.BOOL, (self.let(f"icmp ne i8 {loaded}, 0"),))
        if kind == "i64":
            return Value(Kind.SIGNED if dtype.kind == "i" else Kind.UNSIGNED, (loaded,))
        act, made = ("sext", Kind.SIGNED) if dtype.kind == "i" else ("zext", Kind.SMALL)
        return Value(made, (self.let(f"{act} {kind} {loaded} to i64"),))

    def put(self, element: Element, value: Value) -> None:
        """Store a number, cut to the element's width."""
        dtype, kind = element.dtype, _in_memory(element.dtype)
        if dtype.kind == "f":
            part = self.floating(value, Kind.SINGLE if kind == "float" else Kind.DOUBLE).text
        elif dtype.kind == "b":
            part = self.let(f"zext i1 {self.truth(value).text} to i8")
        else:
            part = self.integer(value).text
            if kind != "i64":
                part = self.let(f"trunc i64 {part} to {kind}")
        self.say(f"store {kind} {part}, ptr {element.pointer}, align 1")


def _in_memory(dtype: np.dtype[Any]) -> str:
    """The LLVM type of an array's element."""
    if dtype.names:
        return f"[{dtype.itemsize} x i8]"
    if dtype.kind == "f" and dtype.itemsize in (4, 8):
        return "float" if dtype.itemsize == 4 else "double"
    if dtype.kind == "b":
        return "i8"
    if dtype.kind not in "iu" or not dtype.isnative:
        raise NotUnderstood(f"an element of {dtype}")
    return f"i{8 * dtype.itemsize}"
