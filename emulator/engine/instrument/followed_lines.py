"""Followed lines: which lines the first-level caches hold, so that fast execution passes on the accesses they miss.

Translations and the interpreter look each access and each fetched line up in a table with one byte per line of guest
memory, and call a function where the line is not held; stores mark the byte of a held line. What the function does is
its owner's business, `emulator.timing.followed_caches`; it keeps the tables right. Beside the table this costs a load
and a branch that is hardly ever taken.

A hit may change a cache all the same: the order in which its lines were used. So translations also write the time of
an access, the instructions executed before it, into a table with one word per line (as in Barr, Pan, Zhang and
Asanovic's memory timestamp record, ISPASS 2005). Times have 32 bits: a line not touched for 4.3 G instructions looks
younger than it is.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from emulator.engine.entry.entry import Entry
from emulator.engine.hart_state import OFFSETS, Hart, followed_places
from emulator.events import HELD_WRITTEN, PAGE_OUT
from emulator.kernels.jit import call_address


class Call(Protocol):
    """A host function with its argument (`emulator.kernels.jit.BoundKernel`)."""

    function: int
    argument: int


class FollowedLines:
    """The tables of one hart, which has one set of them, for lines of data and of code of ``1 << line_bits`` bytes. At
    the beginning no line is held. Raises `ValueError` for a bad line size.

    ``data``, ``code``: uint8 by line number: 0 for a line that is not held, else what `emulator.events` says;
    ``data_times``, ``code_times``: uint32 by line number, when each was accessed last, 0 for never. ``missing``: (3,)
    int64, what the functions are called for: address, 1 for a store, and the time; or begin and end of code, and the
    time.
    """

    def __init__(self, hart: Hart, line_bits: tuple[int, int]) -> None:
        places = followed_places(line_bits)
        hart.forget_followed_lines()
        self.line_bits = line_bits
        self._hart = hart
        self._calls: tuple[Call, ...] = ()
        tables = {name: hart.everything[one.offset : one.offset + one.size] for name, one in places.items()}
        self.data, self.code = tables["held_data"], tables["held_code"]
        self.data_times, self.code_times = (tables[name].view("u4") for name in ("data_times", "code_times"))
        first = OFFSETS["missing"] >> 3
        self.missing: NDArray[np.int64] = hart.words[first : first + 3].view(np.int64)
        hart.set("access_gate", Entry.get().access_gate)
        hart.set("fetch_gate", Entry.get().fetch_gate)

    def connect(self, access: Call, fetch: Call) -> None:
        """Call ``access`` for missing data and ``fetch`` for missing code."""
        self._calls = access, fetch  # translations have their addresses
        for name, call in (("access", access), ("fetch", fetch)):
            self._hart.set(f"{name}_missing", call.function)
            self._hart.set(f"{name}_argument", call.argument)

    def access(self, address: int, is_store: bool, time: int, follows_stores: bool) -> None:
        """Look an access of the oracle up as a translation does; ``follows_stores``: see `TraceSelection`."""
        address &= 0xFFFFFFFF
        line = address >> self.line_bits[0]
        self.data_times[line] = time & 0xFFFFFFFF
        if (is_store and follows_stores) or not 0 < self.data[line] < PAGE_OUT:
            self.missing[:] = address, is_store, time & 0xFFFFFFFF
            self._call("access")
        elif is_store:
            self.data[line] = HELD_WRITTEN

    def fetch(self, pc: int, end_pc: int, time: int) -> None:
        """Pass on the fetch of a block by the oracle."""
        self.missing[:] = pc, end_pc, time & 0xFFFFFFFF
        self._call("fetch")

    def _call(self, name: str) -> None:
        call_address(self._hart.get(f"{name}_missing"), self._hart.get(f"{name}_argument"))
