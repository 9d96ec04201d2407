"""Held lines: which lines a core's L1 caches hold, so that fast execution passes on the accesses that change them.

A hit changes nothing in a cache whose replacement does not look at hits (FIFO, random). So translations look each
access and each fetched line up in a table of one byte per line of guest memory, and call a function only for a line
that is not held; stores mark the byte of a held line. What the function does is its owner's business; it keeps the
tables right. Beside the table this costs a load and a branch that is hardly ever taken.

A selection's ``fills`` are the sizes of the lines. Accesses that are about to fault are passed on, too.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.engine.address_tables import Table
from emulator.engine.codegen.entry import Entry
from emulator.engine.hart_state import OFFSETS, Hart
from emulator.events import HELD_WRITTEN
from emulator.kernels.jit import call_address


class Call(Protocol):
    """A host function with its argument (`emulator.kernels.jit.BoundKernel`)."""

    function: int
    argument: int


class HeldLines:
    """The tables of one hart: ``data``, ``code``: uint8 by line number, one of no length for a cache that is not
    followed. ``missing``: (2,) int64, what the functions are called for: address and 1 for a store; begin and end of
    code, both in one line or not."""

    def __init__(self, hart: Hart, line_bits: tuple[int, int]) -> None:
        self.line_bits = line_bits
        self._hart = hart
        self._tables = [Table(1 << (32 - bits) if bits else 8) for bits in line_bits]
        self.data, self.code = (
            table.view("u1")[: 1 << (32 - bits) if bits else 0]
            for table, bits in zip(self._tables, line_bits, strict=True)
        )
        first = OFFSETS["missing"] >> 3
        self.missing: NDArray[np.int64] = hart.words[first : first + 2].view(np.int64)
        for name, table in zip(("held_data", "held_code"), self._tables, strict=True):
            hart.set(name, table.address)
        hart.set("access_gate", Entry.get().access_gate)
        hart.set("fetch_gate", Entry.get().fetch_gate)

    def connect(self, access: Call, fetch: Call) -> None:
        """Call ``access`` for missing data and ``fetch`` for missing code; the caller keeps both alive."""
        for name, call in (("access", access), ("fetch", fetch)):
            self._hart.set(f"{name}_missing", call.function)
            self._hart.set(f"{name}_argument", call.argument)

    def access(self, address: int, is_store: bool) -> None:
        """Look an access of the oracle up as a translation does."""
        if not self.line_bits[0]:
            return
        address &= 0xFFFFFFFF
        line = address >> self.line_bits[0]
        if not self.data[line]:
            self.missing[:] = address, is_store
            self._call("access")
        elif is_store:
            self.data[line] = HELD_WRITTEN

    def fetch(self, pc: int, end_pc: int) -> None:
        """Pass on the fetch of a block by the oracle."""
        if self.line_bits[1]:
            self.missing[:] = pc, end_pc
            self._call("fetch")

    def _call(self, name: str) -> None:
        call_address(self._hart.get(f"{name}_missing"), self._hart.get(f"{name}_argument"))
