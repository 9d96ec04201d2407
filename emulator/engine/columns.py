"""Columns of events, written by translations themselves.

A `ColumnSet` has one piece of memory: how many events there are, how many there will be when the block that runs has
ended, and one column for each field, at places that follow from the fields alone. So translations can be kept, and an
event is no more than a few stores next to each other: Shade's trace buffer (Cmelik and Keppel 1994, section 3), by
columns instead of records, which lets what is static be written for a whole block at once.

The interpreter and templates append event by event and commit when their block ends. An optimised region knows which
instructions of a block are selected, so it writes at fixed distances from the number of events so far, and commits with
one store. An access that faults leaves its block uncommitted, wherever it happens. No compiler can do without a commit,
nor move it before an access: it is volatile, and may overlap guest memory for all that is known.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.engine.emit import INVARIANT, Emitter
from emulator.engine.tables import Table
from emulator.events import COLUMN_TYPES, MAX_BLOCK_INSTRUCTIONS, ColumnSet, InlineCall
from emulator.isa.decode import Instruction
from emulator.isa.table import Row

V = Any
ROOM = 1 << 20  # events at most before somebody has to take them; what is not written takes no memory
_OVERRUN = 512  # instructions that may run beyond a budget
_SLACK = MAX_BLOCK_INSTRUCTIONS + 32  # a block's vectors reach behind its last event
_EVENTS, _AHEAD, _HEADER_BYTES = 0, 8, 64
_VECTOR_BYTES = 32  # what one store of the host's writes
_BEFORE = ("address", "rs1", "rs2", "rs3")  # dynamic fields that are known before an instruction executes


def _size(name: str) -> int:
    return np.dtype(COLUMN_TYPES[name]).itemsize


@cache
def _layout(fields: tuple[str, ...]) -> tuple[dict[str, int], int]:
    """Where the column of each field begins, and the bytes of all of it."""
    places, end = {}, _HEADER_BYTES
    for number, name in enumerate(fields):
        # Columns that began at the same place of a page would compete for the same lines of the host's cache.
        places[name] = (end + 4095) // 4096 * 4096 + 384 * number % 4096
        end = places[name] + (ROOM + _OVERRUN + _SLACK) * _size(name)
    return places, end


class ColumnMemory:
    """The memory of one `ColumnSet`. ``columns``: views of all of each field's column, by its name."""

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
        """How many events there are; there are none from now on."""
        n = self._events.n
        self._events.clear()
        return n


class Events:
    """The number of events in the columns at ``address``, for who runs blocks one by one."""

    def __init__(self, address: int) -> None:
        self._words = (ctypes.c_uint64 * 2).from_address(address)

    @property
    def n(self) -> int:
        return self._words[0]

    def clear(self) -> None:
        """There are none."""
        self._words[0] = self._words[1] = 0

    def begin_block(self) -> None:
        """What the block before has not committed is lost."""
        self._words[1] = self._words[0]

    def commit(self) -> None:
        """What was appended counts."""
        self._words[0] = self._words[1]


def append(columns: ColumnSet, known: Mapping[str, int]) -> None:
    """Append an event as a translation would, with the fields that are ``known``, 0 for others."""
    n = ctypes.c_uint64.from_address(columns.state + _AHEAD)
    for name, place in _layout(columns.fields)[0].items():
        size = _size(name)
        kind = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}[size]
        kind.from_address(columns.state + place + size * n.value).value = known.get(name, 0)
    n.value += 1


# --- one event after the other: the interpreter, templates
def emit_append(emitter: Emitter, place: int, columns: ColumnSet, known: Mapping[str, V]) -> None:
    """Emit the same; ``place``: in the table that translations find things by."""
    base = _memory(emitter, place)
    ahead = emitter.let(f"getelementptr i8, ptr {base}, i64 {_AHEAD}")
    n = emitter.let(f"load i64, ptr {ahead}")
    for name, where in _layout(columns.fields)[0].items():
        column = emitter.let(f"getelementptr i8, ptr {base}, i64 {where}")
        pointer = emitter.let(f"getelementptr i{8 * _size(name)}, ptr {column}, i64 {n}")
        _store(emitter, name, known[name], pointer)
    emitter.say(f"store i64 {emitter.let(f'add i64 {n}, 1')}, ptr {ahead}")


def emit_begin(emitter: Emitter, places: Iterable[int]) -> None:
    """A block begins: what the one before has not committed is lost."""
    for place in places:
        base = _memory(emitter, place)
        ahead = emitter.let(f"getelementptr i8, ptr {base}, i64 {_AHEAD}")
        emitter.say(f"store i64 {emitter.let(f'load i64, ptr {base}')}, ptr {ahead}")


def emit_commit(emitter: Emitter, places: Iterable[int]) -> None:
    """A block has ended: what was appended counts."""
    for place in places:
        base = _memory(emitter, place)
        ahead = emitter.let(f"getelementptr i8, ptr {base}, i64 {_AHEAD}")
        emitter.say(f"store volatile i64 {emitter.let(f'load i64, ptr {ahead}')}, ptr {base}")


def column_places(calls: Sequence[InlineCall | ColumnSet]) -> list[int]:
    """The places of columns in the table that translations find things by."""
    return [place for place, one in enumerate(calls) if isinstance(one, ColumnSet)]


def _memory(emitter: Emitter, place: int) -> str:
    table = emitter.let(f"load ptr, ptr {emitter.state_pointer('inline')}, {INVARIANT}")
    pointer = emitter.let(f"getelementptr i8, ptr {table}, i64 {16 * place + 8}")
    return emitter.let(f"load ptr, ptr {pointer}, {INVARIANT}")


def _store(emitter: Emitter, name: str, value: V, pointer: str) -> None:
    bits = 8 * _size(name)
    if isinstance(value, int):
        value &= (1 << bits) - 1
    elif bits < 64:
        value = emitter.let(f"trunc i64 {value} to i{bits}")
    emitter.say(f"store i{bits} {value}, ptr {pointer}, align {bits // 8}")


# --- whole blocks: optimised regions
class BlockColumns:
    """What a region writes for the blocks of one of the `ColumnSet`s. The number of events is in a host register."""

    def __init__(self, emitter: Emitter, place: int, columns: ColumnSet) -> None:
        self._emitter, self._place = emitter, place
        self._layout = _layout(columns.fields)[0]
        self._base = ""
        self._slots: dict[
            int, int
        ] = {}  # the block's selected instructions: which event of the block's each is
        self._missing: dict[str, set[int]] = {}  # events that are yet to get this field
        self._first: dict[
            int, str
        ] = {}  # by size of a field: where the first event's would be in a column at 0
        self._n = ""

    def prologue(self) -> None:
        """At the entry of the region."""
        emitter = self._emitter
        self._base = _memory(emitter, self._place)
        emitter.say(f"%vn{self._place} = alloca i64")
        emitter.say(f"store i64 {emitter.let(f'load i64, ptr {self._base}')}, ptr %vn{self._place}")

    def begin(self, selected: Mapping[int, tuple[Instruction, Mapping[str, int]]]) -> None:
        """A block begins. ``selected``: its instructions by their places in it, with their fields that never change."""
        self._slots = {place: slot for slot, place in enumerate(selected)}
        if not selected:
            return
        self._n = self._emitter.let(f"load i64, ptr %vn{self._place}")
        self._first = {}
        for name in self._layout:
            values = [_static(name, *one) for one in selected.values()]
            self._missing[name] = {slot for slot, value in enumerate(values) if value is None}
            self._write_static(name, values)

    def put(self, place: int, known: Mapping[str, V], after: bool) -> None:
        """Write what is known of an instruction of the block before, or only after, it executes."""
        slot = self._slots.get(place)
        if slot is None:
            return
        for name in self._layout:
            if slot in self._missing[name] and (name in _BEFORE) != after:
                _store(self._emitter, name, known[name], self._pointer(name, slot))

    def end(self) -> None:
        """The block has ended: commit its events."""
        if self._slots:
            n = self._emitter.let(f"add i64 {self._n}, {len(self._slots)}")
            self._emitter.say(f"store i64 {n}, ptr %vn{self._place}")
            self._emitter.say(f"store volatile i64 {n}, ptr {self._base}")

    def _pointer(self, name: str, slot: int) -> str:
        size = _size(name)
        if size not in self._first:
            self._first[size] = self._emitter.let(
                f"getelementptr i{8 * size}, ptr {self._base}, i64 {self._n}"
            )
        return self._emitter.let(
            f"getelementptr i8, ptr {self._first[size]}, i64 {self._layout[name] + size * slot}"
        )

    def _write_static(self, name: str, values: list[int | None]) -> None:
        """Write the events' fields that are known now, and anything where they are not and behind the last one."""
        static = [slot for slot, value in enumerate(values) if value is not None]
        if not static:
            return
        size = _size(name)
        first, n = static[0], static[-1] + 1 - static[0]
        if len(static) <= -(-n * size // _VECTOR_BYTES):
            for slot in static:
                _store(self._emitter, name, values[slot], self._pointer(name, slot))
            return
        constants = [value or 0 for value in values[first : static[-1] + 1]]
        if n * size <= 8:
            # As one integer, which needs no place in memory to be loaded from.
            n_bytes = next(width for width in (1, 2, 4, 8) if width >= n * size)
            number = sum(value << 8 * size * k for k, value in enumerate(constants))
            kind, text = f"i{8 * n_bytes}", f"{number}"
        else:
            constants += [0] * (-n % (16 // size))
            kind = f"<{len(constants)} x i{8 * size}>"
            text = "<" + ", ".join(f"i{8 * size} {value}" for value in constants) + ">"
            text = text if any(constants) else "zeroinitializer"
        self._emitter.say(f"store {kind} {text}, ptr {self._pointer(name, first)}, align {size}")


def _static(name: str, instruction: Instruction, told: Mapping[str, int]) -> int | None:
    """The field's value if it never changes."""
    if name in told:
        return told[name]
    return None if _has(name, instruction.row, instruction) else 0


def _has(name: str, row: Row, instruction: Instruction) -> bool:
    """Whether an instruction has a field that may change."""
    if name in ("address", "value"):
        return bool(row.access)
    if name in ("taken", "target"):
        return row.ends_block and not row.slow
    kind = row.register_kinds[("rd", "rs1", "rs2", "rs3").index(name)]
    return kind != "-" and not (kind == "x" and getattr(instruction, name) == 0)
