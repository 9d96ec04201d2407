"""Line timestamps: when each line of guest memory was touched last. They tell what any LRU cache holds.

Translations and the interpreter write the time of an access - the instructions executed before it - into a table
with one word per line, and count how long the line had not been touched. (Barr, Pan, Zhang and Asanovic's memory
timestamp record, ISPASS 2005, which serves caches of every size and associativity at once.) Times have 32 bits: a
line not touched for 4.3 G instructions looks younger than it is.

Stores write their time into a second table, too, which lies behind the first: a line that has stayed in a cache since
it was written is dirty.

Accesses that almost certainly touch a line touched a moment ago get no timestamp (`timestamped_accesses`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.engine.address_tables import Table
from emulator.engine.hart_state import REUSE_BINS, Hart
from emulator.events import ACCESS_STORE
from emulator.isa.decode import Instruction

_STACK_POINTER = 2
NEARBY_BYTES = 32
# Half a page and a cache line. The two timestamps of a guest line must not lie a power of two apart: AMD Zen processors
# predict a line of their cache by a hash of address bits, mispredict at every store if the two collide, and run a
# program of many stores three times slower. Any processor delays a load behind a store with the same page offset.
_SKEW_BYTES = 2048 + 64


def timestamped_accesses(instructions: Sequence[Instruction]) -> list[bool]:
    """For each instruction of a block, whether its access gets a line timestamp.

    An access through the stack pointer gets none, nor one within 32 bytes of an earlier timestamped access of the block
    through the same, unchanged register; a store is left out only for an earlier store.
    """
    made: dict[int, list[tuple[int, bool]]] = {}
    found = []
    for instruction in instructions:
        base, offset = instruction.rs1, instruction.imm
        is_timestamped = bool(instruction.row.access) and base != _STACK_POINTER
        if is_timestamped:
            before, is_store = made.setdefault(base, []), bool(instruction.row.access & ACCESS_STORE)
            is_timestamped = all(
                abs(offset - other) >= NEARBY_BYTES or (is_store and not stored) for other, stored in before
            )
            before.append((offset, is_store))
        found.append(is_timestamped)
        if instruction.row.register_kinds[0] == "x":
            made.pop(instruction.rd, None)
    return found


def writes_offset(line_bits: int) -> int:
    """The offset of the timestamps of writes in the table [bytes]."""
    return (4 << (32 - line_bits)) + _SKEW_BYTES


class LineTimestamps:
    """The timestamps of one hart, for lines of ``1 << line_bits`` bytes. Raises `ValueError` for a bad line size."""

    def __init__(self, hart: Hart, line_bits: int) -> None:
        if not 2 <= line_bits <= 12:
            raise ValueError(f"got lines of {1 << line_bits} bytes, expected a power of two from 4 to 4096")
        self.line_bits = line_bits
        self._hart = hart
        self._table = Table(2 * writes_offset(line_bits))
        touched = self._table.view("u4")[: 1 << (32 - line_bits)]
        self._times: NDArray[np.uint32] = np.lib.stride_tricks.as_strided(
            touched, (2, len(touched)), (writes_offset(line_bits), touched.itemsize)
        )
        hart.set("line_timestamps", self._table.address)

    def touch(self, address: int, time: int, is_store: bool, reuse_times: bool) -> None:
        """Timestamp an access of the oracle as a translation does."""
        line = (address & 0xFFFFFFFF) >> self.line_bits
        age = (time - int(self._times[0, line])) & 0xFFFFFFFF
        self._times[: 1 + is_store, line] = time & 0xFFFFFFFF
        if reuse_times:
            self._hart.reuses[0, REUSE_BINS - 1 - age.bit_length()] += 1

    @property
    def times(self) -> NDArray[np.uint32]:
        """When each line was touched last, and when it was written last, ``(2, lines)`` by line number; 0 for
        never."""
        return self._times
