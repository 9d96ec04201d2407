"""Line timestamps: when each line of guest memory was touched last. They tell what any LRU cache holds.

Translations and the interpreter write the time of an access - the instructions executed before it - into a table
with one word per line, and count how long the line had not been touched, unless it is a few instructions. (Barr, Pan,
Zhang and Asanovic's memory timestamp record, ISPASS 2005, which serves caches of every size and associativity at once.)
Times have 32 bits: a line not touched for 4.3 G instructions looks younger than it is.

Stores write their time into a second table, too, which lies behind the first: a line that has stayed in a cache since
it was written is dirty.

Accesses that are counted, but for those to the page of the one before, timestamp their page in a third table, and count
how long none such had been made to it: page walks follow from that, as misses of caches do from the times of lines. A
fourth table, behind that of writes, has the turns of a line's cache set at its last counted access. What is counted:
`emulator.engine.reuse_counts`.

Accesses to lines that other accesses of their block timestamp get none themselves (`timestamped_accesses`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emulator.engine.address_tables import Table
from emulator.engine.hart_state import Hart
from emulator.engine.reuse_counts import (
    CLASS_SHIFT,
    FIRST_TURN,
    LINE_SET_FIELDS,
    LINE_SETS,
    NEAR_BITS,
    PAGE_BITS,
    PAGE_FIELDS,
    PAGE_SET_FIELDS,
    PAGE_SETS,
    REUSE_FIELDS,
    TURN_FIELDS,
    bin_of,
    turn_bin_of,
)
from emulator.events import ACCESS_STORE
from emulator.isa.decode import Instruction

FAR = 1 << 20  # beyond all offsets
COVERED_BYTES = 32
"""Two accesses at most so far apart touch all lines between them, of so many bytes or more."""
# Half a page and a cache line. The two timestamps of a guest line must not lie a power of two apart: AMD Zen processors
# predict a line of their cache by a hash of address bits, mispredict at every store if the two collide, and run a
# program of many stores three times slower. Any processor delays a load behind a store with the same page offset.
_SKEW_BYTES = 2048 + 64


def timestamped_accesses(instructions: Sequence[Instruction]) -> list[bool]:
    """For each instruction of a block, whether its access gets a line timestamp.

    One gets none that lies between two others of the block, through the same value of the same register, that get one
    and are at most `COVERED_BYTES` apart: whatever that value is, it touches the line of one of them. For the
    timestamps of writes, a store is left out for such stores only.
    """
    found = [False] * len(instructions)
    made: dict[int, list[int]] = {}  # by register, the accesses through the value that it has
    for place, instruction in enumerate(instructions):
        if instruction.row.access:
            made.setdefault(instruction.rs1, []).append(place)
        if instruction.row.register_kinds[0] == "x":
            _choose(instructions, made.pop(instruction.rd, []), found)
    for places in made.values():
        _choose(instructions, places, found)
    return found


def _choose(instructions: Sequence[Instruction], places: Sequence[int], found: list[bool]) -> None:
    """Mark in ``found`` the accesses of ``places``, through one value of a register, that get a timestamp."""
    stores = {instructions[one].imm: one for one in reversed(places) if instructions[one].row.access & ACCESS_STORE}
    others = {instructions[one].imm: one for one in reversed(places) if not instructions[one].row.access & ACCESS_STORE}
    of_stores = _ends(sorted(stores))
    of_others = _ends(sorted(offset for offset in others if not _is_between(offset, of_stores)))
    for place in (*map(stores.__getitem__, of_stores), *map(others.__getitem__, of_others)):
        found[place] = True


def _ends(offsets: Sequence[int]) -> list[int]:
    """The fewest of the sorted ``offsets`` between which, in steps of at most `COVERED_BYTES`, all others lie."""
    chosen: list[int] = []
    for offset, following in zip(offsets, [*offsets[1:], FAR][: len(offsets)], strict=True):
        if not chosen or offset - chosen[-1] > COVERED_BYTES or following - chosen[-1] > COVERED_BYTES:
            chosen.append(offset)
    return chosen


def _is_between(offset: int, chosen: Sequence[int]) -> bool:
    """Whether ``offset`` is one of the sorted ``chosen`` or lies between two that are near each other."""
    above = bisect_left(chosen, offset)
    if above < len(chosen) and chosen[above] == offset:
        return True
    return 0 < above < len(chosen) and chosen[above] - chosen[above - 1] <= COVERED_BYTES


def writes_offset(line_bits: int) -> int:
    """The offset of the timestamps of writes in the table [bytes]."""
    return (4 << (32 - line_bits)) + _SKEW_BYTES


def turns_offset(line_bits: int) -> int:
    """The offset of the turns of lines' sets in the table [bytes]."""
    return 2 * writes_offset(line_bits)


def pages_offset(line_bits: int) -> int:
    """The offset of the timestamps of pages in the table [bytes]."""
    return 3 * writes_offset(line_bits)


class LineTimestamps:
    """The timestamps of one hart, for lines of ``1 << line_bits`` bytes. Raises `ValueError` for a bad line size.

    ``of_lines``, (3, lines) by line number: when each was touched last, when it was written, and the turns of its set
    when an access to it was counted last. ``page_times``: when such an access was made to each page. 0 is for never.
    """

    def __init__(self, hart: Hart, line_bits: int) -> None:
        if not 2 <= line_bits <= 12:
            raise ValueError(f"got lines of {1 << line_bits} bytes, expected a power of two from 4 to 4096")
        self.line_bits = line_bits
        self._hart = hart
        self._table = Table(pages_offset(line_bits) + (4 << (32 - PAGE_BITS)))
        words: NDArray[np.uint32] = self._table.view("u4")
        self.of_lines = np.lib.stride_tricks.as_strided(
            words, (3, 1 << (32 - line_bits)), (writes_offset(line_bits), words.itemsize)
        )
        self.page_times = words[pages_offset(line_bits) // 4 :]
        hart.set("line_timestamps", self._table.address)
        hart.sets[:] = FIRST_TURN << 32

    def touch(self, address: int, time: int, is_store: bool, reuse_times: bool) -> None:
        """Timestamp an access of the oracle as a translation does."""
        line = (address & 0xFFFFFFFF) >> self.line_bits
        age = (time - int(self.of_lines[0, line])) & 0xFFFFFFFF
        self.of_lines[: 1 + is_store, line] = time & 0xFFFFFFFF
        if reuse_times and age.bit_length() > NEAR_BITS:
            fields = self._hart.reuses[-REUSE_FIELDS:]
            line_bin = bin_of(age)
            fields[line_bin] += 1
            fields[LINE_SET_FIELDS + (line_bin >> CLASS_SHIFT) * LINE_SETS + line % LINE_SETS] += 1
            fields[TURN_FIELDS + turn_bin_of(self._take_turn(line))] += 1
            page = (address & 0xFFFFFFFF) >> PAGE_BITS
            if page != self._hart.get("last_page"):
                self._hart.set("last_page", page)
                page_bin = bin_of((time - int(self.page_times[page])) & 0xFFFFFFFF)
                self.page_times[page] = time & 0xFFFFFFFF
                fields[PAGE_FIELDS + page_bin] += 1
                fields[PAGE_SET_FIELDS + (page_bin >> CLASS_SHIFT) * PAGE_SETS + page % PAGE_SETS] += 1

    def _take_turn(self, line: int) -> int:
        """Take a turn of the set of ``line``; how many have passed since its last."""
        one = line & self._hart.get("set_mask")
        word = int(self._hart.sets[one])
        now = ((word >> 32) + (word & 0xFFFFFFFF != line)) & 0xFFFFFFFF
        passed = (now - int(self.of_lines[2, line])) & 0xFFFFFFFF
        self._hart.sets[one] = now << 32 | line
        self.of_lines[2, line] = now
        return passed

    @property
    def times(self) -> NDArray[np.uint32]:
        """When each line was touched last, and when it was written last, ``(2, lines)`` by line number; 0 for
        never."""
        return self.of_lines[:2]
