"""Arrays, records and what is in them, as LLVM's instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from emulator.engine.kernel_numbers import Numbers
from emulator.engine.kernel_types import ArrayType, Kind, NotUnderstood, RecordType, Value, name_of


class Element(NamedTuple):
    """A number in memory."""

    pointer: str
    dtype: np.dtype[Any]


class Text(Numbers):
    """The lines of a function."""

    def __init__(self, flags: str = "") -> None:
        super().__init__(flags)
        self._own: list[str] = []  # where addresses are of what was allocated

    def scratch(self, size: str, n_bytes: int, is_zero: bool) -> str:
        """The address of memory for so many elements."""
        place = self.room("ptr")
        if is_zero:
            pointer = self.call("noalias ptr", "calloc", f"i64 {size}, i64 {n_bytes}")
        else:
            pointer = self.call("noalias ptr", "malloc", f"i64 {self.let(f'mul i64 {size}, {n_bytes}')}")
        self.say(f"store ptr {pointer}, ptr {place}")
        self._own.append(place)
        return pointer

    def free(self) -> None:
        """Give the memory back."""
        for place in self._own:
            self.declared.add("declare void @free(ptr)")
            self.say(f"call void @free(ptr {self.let(f'load ptr, ptr {place}')})")

    def element(self, array: Value, starts: Sequence[str], length: str | None = None) -> Element | Value:
        """What is at an index; ``length``: the last one is the first of so many."""
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
        """The number, the record or the row with an index."""
        found = self.element(array, [index])
        return self.get(found) if isinstance(found, Element) else found

    def product(self, lengths: Sequence[str]) -> str:
        product = "1"
        for length in lengths:
            if product.isdigit() and length.isdigit():
                product = str(int(product) * int(length))
            else:
                product = length if product == "1" else self.let(f"mul nsw i64 {product}, {length}")
        return product

    def field(self, record: Value, name: str) -> Element:
        fields = record.type.dtype.fields
        if fields is None or name not in fields:
            raise NotUnderstood(f"field {name} of {name_of(record.type)}")
        dtype, offset = fields[name][:2]
        pointer = self.let(f"getelementptr inbounds i8, ptr {record.parts[0]}, i64 {offset}")
        return Element(pointer, np.dtype(dtype))

    def get(self, element: Element) -> Value:
        """The number that is there."""
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
        """Make it the number that is there, as much of it as there is room for."""
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
    if dtype.names:
        return f"[{dtype.itemsize} x i8]"
    if dtype.kind == "f" and dtype.itemsize in (4, 8):
        return "float" if dtype.itemsize == 4 else "double"
    if dtype.kind == "b":
        return "i8"
    if dtype.kind not in "iu" or not dtype.isnative:
        raise NotUnderstood(f"an element of {dtype}")
    return f"i{8 * dtype.itemsize}"
