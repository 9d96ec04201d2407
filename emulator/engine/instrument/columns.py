"""Columns of events: fields of selected instructions, written to memory by translations themselves.

The memory of a `ColumnSet` holds the number of events, the number of events when the current block will have ended, and
one column for each field, at offsets that follow from the fields alone. So translations can be stored, and an event
takes only a few stores: Shade's trace buffer (Cmelik and Keppel 1994, section 3), but by columns instead of records, so
that static fields are written for a whole block at once.

The interpreter and templates append event by event and commit when their block ends. An optimised region knows which
instructions of a block are selected: it writes at constant distances from the number of events so far, and commits with
one store. A faulting access leaves its block uncommitted. LLVM can neither drop a commit nor move it before an access:
the commit is volatile and may alias guest memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.engine.address_tables import Table
from emulator.engine.emit.emitter import INVARIANT, Emitter
from emulator.events import COLUMN_TYPES, MAX_BLOCK_INSTRUCTIONS, ColumnSet, InlineCall
from emulator.isa.decode import Instruction
from emulator.isa.table import Row

V = Any
ROOM = 1 << 20  # the most events before they have to be taken; pages that are not written take no memory
_OVERRUN = 512  # instructions that may run beyond a budget
_SLACK = MAX_BLOCK_INSTRUCTIONS + 32  # vector stores of a block reach beyond its last event
_EVENTS, _AHEAD, _HEADER_BYTES = 0, 8, 64
_VECTOR_BYTES = 32  # of one store of the host
_BEFORE = ("address", "rs1", "rs2", "rs3")  # dynamic fields that are known before an instruction executes


def _size(name: str) -> int:
    return np.dtype(COLUMN_TYPES[name]).itemsize


@cache
def _layout(fields: tuple[str, ...]) -> tuple[dict[str, int], int]:
    """The offset of each field's column, and the bytes in all."""
    places, end = {}, _HEADER_BYTES
    for number, name in enumerate(fields):
        # Columns with the same offset in their pages would compete for the same sets of the host's cache.
        places[name] = (end + 4095) // 4096 * 4096 + 384 * number % 4096
        end = places[name] + (ROOM + _OVERRUN + _SLACK) * _size(name)
    return places, end


class ColumnMemory:
    """The memory of one `ColumnSet`. ``columns``: a view of each column, whole, by field."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        places, n_bytes = _layout(fields)
        self._table = Table(n_bytes)
        self.address = self._table.address
        raw = self._table.view("u1")
        self.columns: dict[str, NDArray[Any]] = {
            name: raw[place : place + (ROOM + _OVERRUN) * _size(name)].view(COLUMN_TYPES[name])
            for name, place in places.items()
        }
        self._events = Events(self.address)

    def take(self) -> int:
        """The number of events, which is set to 0."""
        n = self._events.n
        self._events.clear()
        return n


class Events:
    """The number of events in the columns at ``address``, for the oracle, which runs blocks one by one."""

    def __init__(self, address: int) -> None:
        self._words = (ctypes.c_uint64 * 2).from_address(address)

    @property
    def n(self) -> int:
        return self._words[0]

    def clear(self) -> None:
        """Set it to 0."""
        self._words[0] = self._words[1] = 0

    def begin_block(self) -> None:
        """Begin a block: events that the block before has not committed are lost."""
        self._words[1] = self._words[0]

    def commit(self) -> None:
        """Make the appended events count."""
        self._words[0] = self._words[1]

    def keep(self, n: int) -> None:
        """Make the first ``n`` events of the block count, which a fault has cut short."""
        self._words[0] += n


def append(columns: ColumnSet, known: Mapping[str, int]) -> None:
    """Append an event as a translation does, with the fields ``known``, 0 for others; for the oracle."""
    n = ctypes.c_uint64.from_address(columns.state + _AHEAD)
    for name, place in _layout(columns.fields)[0].items():
        size = _size(name)
        kind = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}[size]
        kind.from_address(columns.state + place + size * n.value).value = known.get(name, 0)
    n.value += 1


# --- event by event: the interpreter, templates
def emit_append(emitter: Emitter, place: int, columns: ColumnSet, known: Mapping[str, V]) -> None:
    """Emit code that appends an event with the fields ``known``. ``place``: of the columns in the inline table."""
    base = _memory(emitter, place)
    ahead = emitter.let(f"getelementptr i8, ptr {base}, i64 {_AHEAD}")
    n = emitter.let(f"load i64, ptr {ahead}")
    for name, where in _layout(columns.fields)[0].items():
        column = emitter.let(f"getelementptr i8, ptr {base}, i64 {where}")
        pointer = emitter.let(f"getelementptr i{8 * _size(name)}, ptr {column}, i64 {n}")
        _store(emitter, name, known[name], pointer)
    emitter.say(f"store i64 {emitter.let(f'add i64 {n}, 1')}, ptr {ahead}")


def emit_begin(emitter: Emitter, places: Iterable[int]) -> None:
    """Emit the begin of a block: events that the block before has not committed are lost."""
    for place in places:
        base = _memory(emitter, place)
        ahead = emitter.let(f"getelementptr i8, ptr {base}, i64 {_AHEAD}")
        emitter.say(f"store i64 {emitter.let(f'load i64, ptr {base}')}, ptr {ahead}")


def emit_commit(emitter: Emitter, places: Iterable[int]) -> None:
    """Emit the end of a block: the appended events count."""
    for place in places:
        base = _memory(emitter, place)
        ahead = emitter.let(f"getelementptr i8, ptr {base}, i64 {_AHEAD}")
        emitter.say(f"store volatile i64 {emitter.let(f'load i64, ptr {ahead}')}, ptr {base}")


def column_places(calls: Sequence[InlineCall | ColumnSet]) -> list[int]:
    """The places of column sets in the inline table."""
    return [place for place, one in enumerate(calls) if isinstance(one, ColumnSet)]


def _memory(emitter: Emitter, place: int) -> str:
    """The host address of the column memory at ``place`` of the inline table."""
    table = emitter.let(f"load ptr, ptr {emitter.state_pointer('inline')}, {INVARIANT}")
    pointer = emitter.let(f"getelementptr i8, ptr {table}, i64 {16 * place + 8}")
    return emitter.let(f"load ptr, ptr {pointer}, {INVARIANT}")


def _store(emitter: Emitter, name: str, value: V, pointer: str, kept: str = "") -> None:
    """Emit a store of the low bits of ``value`` as field ``name``; ``kept``: "volatile ", if it has to stay before
    later accesses."""
    bits = 8 * _size(name)
    if isinstance(value, int):
        value &= (1 << bits) - 1
    elif bits < 64:
        value = emitter.let(f"trunc i64 {value} to i{bits}")
    emitter.say(f"store {kept}i{bits} {value}, ptr {pointer}, align {bits // 8}")


# --- whole blocks: optimised regions
class BlockColumns:
    """Emits what a region writes for one `ColumnSet`. The number of events is in a host register. ``exact_faults``: as
    of the selection, and events before a fault have to be there."""

    def __init__(self, emitter: Emitter, place: int, columns: ColumnSet, exact_faults: bool) -> None:
        self._emitter, self._place = emitter, place
        self._kept = "volatile " if exact_faults else ""
        self._layout = _layout(columns.fields)[0]
        self._base = ""
        self._event_numbers: dict[int, int] = {}  # event number in the block, by the instruction's place in it
        self._missing: dict[str, set[int]] = {}  # by field: events of the block without it so far
        self._first: dict[int, str] = {}  # by bytes of a field: pointer to the first event in a column at offset 0
        self._n = ""

    def prologue(self) -> None:
        """Emit the entry of the region."""
        emitter = self._emitter
        self._base = _memory(emitter, self._place)
        emitter.say(f"%vn{self._place} = alloca i64")
        emitter.say(f"store i64 {emitter.let(f'load i64, ptr {self._base}')}, ptr %vn{self._place}")

    def begin(self, selected: Mapping[int, tuple[Instruction, Mapping[str, int]]]) -> None:
        """Begin a block. ``selected``: its selected instructions by place, with their static fields."""
        self._event_numbers = {place: event for event, place in enumerate(selected)}
        if not selected:
            return
        self._n = self._emitter.let(f"load i64, ptr %vn{self._place}")
        self._first = {}
        for name in self._layout:
            values = [_static(name, *one) for one in selected.values()]
            self._missing[name] = {event for event, value in enumerate(values) if value is None}
            self._write_static(name, values)

    def put(self, place: int, known: Mapping[str, V], after: bool) -> None:
        """Write the dynamic fields of an instruction that are known before, or only after, it executes."""
        event = self._event_numbers.get(place)
        if event is None:
            return
        for name in self._layout:
            if event in self._missing[name] and (name in _BEFORE) != after:
                _store(self._emitter, name, known[name], self._pointer(name, event), self._kept)

    def end(self) -> None:
        """End the block: commit its events."""
        if self._event_numbers:
            n = self._emitter.let(f"add i64 {self._n}, {len(self._event_numbers)}")
            self._emitter.say(f"store i64 {n}, ptr %vn{self._place}")
            self._emitter.say(f"store volatile i64 {n}, ptr {self._base}")

    def _pointer(self, name: str, event: int) -> str:
        """A pointer to field ``name`` of the block's event number ``event``."""
        size = _size(name)
        if size not in self._first:
            self._first[size] = self._emitter.let(f"getelementptr i{8 * size}, ptr {self._base}, i64 {self._n}")
        return self._emitter.let(f"getelementptr i8, ptr {self._first[size]}, i64 {self._layout[name] + size * event}")

    def _write_static(self, name: str, values: list[int | None]) -> None:
        """Write the static values of a field; a vector store puts 0 at events without one and beyond the last one."""
        static = [event for event, value in enumerate(values) if value is not None]
        if not static:
            return
        size = _size(name)
        first, n = static[0], static[-1] + 1 - static[0]
        if len(static) <= -(-n * size // _VECTOR_BYTES):
            for event in static:
                _store(self._emitter, name, values[event], self._pointer(name, event), self._kept)
            return
        constants = [value or 0 for value in values[first : static[-1] + 1]]
        if n * size <= 8:
            # As one integer: an immediate, which is not loaded from memory.
            n_bytes = next(width for width in (1, 2, 4, 8) if width >= n * size)
            number = sum(value << 8 * size * k for k, value in enumerate(constants))
            kind, text = f"i{8 * n_bytes}", f"{number}"
        else:
            constants += [0] * (-n % (16 // size))
            kind = f"<{len(constants)} x i{8 * size}>"
            text = "<" + ", ".join(f"i{8 * size} {value}" for value in constants) + ">"
            text = text if any(constants) else "zeroinitializer"
        self._emitter.say(f"store {self._kept}{kind} {text}, ptr {self._pointer(name, first)}, align {size}")


def _static(name: str, instruction: Instruction, static: Mapping[str, int]) -> int | None:
    """The field's value if it is static, else None."""
    if name in static:
        return static[name]
    return None if _has(name, instruction.row, instruction) else 0


def _has(name: str, row: Row, instruction: Instruction) -> bool:
    """Whether the instruction has the dynamic field."""
    if name in ("address", "value"):
        return bool(row.access)
    if name in ("taken", "target"):
        return row.ends_block and not row.slow
    kind = row.register_kinds[("rd", "rs1", "rs2", "rs3").index(name)]
    return kind != "-" and not (kind == "x" and getattr(instruction, name) == 0)
