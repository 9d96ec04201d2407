"""When each line of guest memory was touched last: enough to know what any cache with LRU replacement holds.

Translations and the interpreter write the time of an access - the instructions executed before it - into a table
with one word a line, and count how long the line had not been touched. (Barr, Pan, Zhang and Asanovic's memory
timestamp record, ISPASS 2005, which serves caches of every size and associativity at once.) Times are 32 bits: a
line not touched for 4.3 G instructions looks younger than it is.

Stores write their time into a second table, too, which lies behind the first: a line that has stayed in a cache since
it was written is dirty.

Accesses that all but surely touch what was touched a moment ago are left out (`noted`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.engine.state import REUSE_BINS, Hart
from emulator.engine.tables import Table
from emulator.events import ACCESS_STORE
from emulator.isa.decode import Instruction

_STACK_POINTER = 2
NEARBY_BYTES = 32
# Half a page and a cache line. The two times of a guest line must not lie a power of two apart: an AMD Zen finds a cache
# line by a hash of some address bits, takes one of the two for the other at every store, and runs a program of many
# stores three times slower. Any processor delays a load behind a store with the same place in its page.
_SKEW_BYTES = 2048 + 64


def noted(instructions: Sequence[Instruction]) -> list[bool]:
    """Which instructions of a block have their access noted.

    Not those of the stack pointer's frame, and not those within 32 bytes of one that the block made before
    through the same register with the same value; of a store, of one that was a store, too.
    """
    made: dict[int, list[tuple[int, bool]]] = {}
    found = []
    for instruction in instructions:
        base, offset = instruction.rs1, instruction.imm
        is_noted = bool(instruction.row.access) and base != _STACK_POINTER
        if is_noted:
            before, is_store = made.setdefault(base, []), bool(instruction.row.access & ACCESS_STORE)
            is_noted = all(
                abs(offset - other) >= NEARBY_BYTES or (is_store and not stored) for other, stored in before
            )
            before.append((offset, is_store))
        found.append(is_noted)
        if instruction.row.register_kinds[0] == "x":
            made.pop(instruction.rd, None)
    return found


def writes_offset(line_bits: int) -> int:
    """Where the times of writes begin in the table, in bytes."""
    return (4 << (32 - line_bits)) + _SKEW_BYTES


class LineTable:
    """The table of one hart, for lines of ``1 << line_bits`` bytes."""

    def __init__(self, hart: Hart, line_bits: int) -> None:
        if not 2 <= line_bits <= 12:
            raise ValueError(f"lines of {1 << line_bits} bytes, expected 4 to 4096")
        self.line_bits = line_bits
        self._hart = hart
        self._table = Table(2 * writes_offset(line_bits))
        touched = self._table.view("u4")[: 1 << (32 - line_bits)]
        self._times: NDArray[np.uint32] = np.lib.stride_tricks.as_strided(
            touched, (2, len(touched)), (writes_offset(line_bits), touched.itemsize)
        )
        hart.set("touches", self._table.address)

    def touch(self, address: int, time: int, is_store: bool, reuse_times: bool) -> None:
        """What a translated access does, for one that the oracle makes."""
        line = (address & 0xFFFFFFFF) >> self.line_bits
        age = (time - int(self._times[0, line])) & 0xFFFFFFFF
        self._times[: 1 + is_store, line] = time & 0xFFFFFFFF
        if reuse_times:
            self._hart.reuses[0, REUSE_BINS - 1 - age.bit_length()] += 1

    @property
    def times(self) -> NDArray[np.uint32]:
        """When each line was touched last, and when it was written last, ``(2, lines)``, by line number; 0 for
        never."""
        return self._times
