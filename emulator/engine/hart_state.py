"""The guest hart's state in one flat buffer that Python and translated code share.

`OFFSETS` is the layout, the only definition of it. Python sees registers as numpy views.
"""

from __future__ import annotations

import functools
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from emulator.engine.address_tables import Table
from emulator.engine.branch_counters import MAX_COUNTERS, BranchCounters
from emulator.errors import EmulatorError
from emulator.events import TOUCH_EPOCH

_GUEST, _HOST = "guest", "host"
_FIELDS = (
    # name, bytes, whose it is
    ("x", 256, _GUEST),
    ("f", 256, _GUEST),
    ("scratch", 8, _GUEST),  # register number 64: where the interpreter's writes to x0 go
    ("pc", 8, _GUEST),
    ("budget", 8, _GUEST),  # instructions that may still run; negative when a block ran past it
    ("record", 8, _HOST),  # where the next word of the dynamic record goes (host address)
    ("reason", 8, _GUEST),  # why execution came back: `Exit`
    ("fault_pc", 8, _GUEST),
    ("fault_address", 8, _GUEST),
    ("fault_function", 8, _GUEST),  # the region (host address) that found the fault itself; 0 for others
    ("fault_block", 8, _GUEST),  # pc of the block with the fault
    ("reservation", 8, _GUEST),
    ("fflags", 8, _GUEST),  # flags raised by other means than the host's sticky bits
    ("frm", 8, _GUEST),
    ("host_mxcsr", 4, _GUEST),  # saved while the guest's runs
    ("guest_mxcsr", 4, _GUEST),
    ("return_slot", 8, _GUEST),  # where the return address of `enter`'s call lies, for the fault handler
    ("frame_pointer", 8, _GUEST),
    ("dispatch_table", 8, _HOST),  # host address of the dispatch table: host functions by pc / 2
    ("block_index", 8, _HOST),  # table of interpreter block numbers, indexed by pc / 2
    ("blocks", 8, _HOST),  # interpreter block descriptors
    ("operation", 8, _GUEST),  # the interpreter's current operation, for faults
    ("memory", 8, _HOST),  # host address of guest address 0
    ("memory_end", 8, _HOST),  # host address after the guest address space
    ("memory_start", 8, _HOST),  # host address of the guard before it
    ("host_pc", 8, _GUEST),  # where the host faulted
    ("dispatch_miss", 8, _HOST),  # the host function for a pc without entry: returns to Python, or discovers the block
    ("fallback", 8, _HOST),  # the interpreter, for a block that a region's entry refuses to run
    ("access_missing", 8, _HOST),  # the function that is called for an access to a line that is not held
    ("access_argument", 8, _HOST),  # its argument
    ("fetch_missing", 8, _HOST),  # the same for fetches
    ("fetch_argument", 8, _HOST),
    ("access_gate", 8, _HOST),  # what translations call: it calls the function
    ("fetch_gate", 8, _HOST),
    ("missing", 24, _GUEST),  # what is missing: address and whether it is a store, or begin and end of code; the time
    ("discover", 8, _HOST),  # the discovery kernel, 0 while discovery is left to Python
    ("discovery", 8, _HOST),  # its argument
    ("inline", 8, _HOST),  # table of functions called by translations: addresses of their code and of their states
    ("inline_map", 8, _HOST),  # table of u64, by pc / 2: the inline functions of an instruction, and its static fields
    ("inline_failed", 8, _GUEST),  # not 0 when an inline function has raised an exception
    ("touch_time", 8, _GUEST),  # `TOUCH_EPOCH` + instructions that will have been executed when the budget is 0
)  # fmt: skip

HOST_FIELDS = tuple(_name for _name, _, _owner in _FIELDS if _owner == _HOST)
"""Fields with host addresses: they belong to this process, and restoring the guest leaves them as they are."""

OFFSETS: dict[str, int] = {}
_position = 0
for _name, _size, _ in _FIELDS:
    OFFSETS[_name] = _position
    _position += _size
STATE_BYTES = _position
_PC, _BUDGET, _FRM, _FFLAGS, _REASON, _TOUCH_TIME, _RESERVATION = (
    OFFSETS[name] >> 3 for name in ("pc", "budget", "frm", "fflags", "reason", "touch_time", "reservation")
)
_GUEST_MXCSR = OFFSETS["guest_mxcsr"] >> 2

# Behind the state, where translated code reaches it without another pointer: executions of blocks, by number, and the
# counters of branches. Not at the beginning of a page: AMD Zen processors predict a line of their cache by a hash of
# address bits, and mispredict at every store if two lines in use collide.
COUNTS_OFFSET = 4096 + 2048 + 64
MAX_BLOCKS = 1 << 21
COUNTERS_OFFSET = COUNTS_OFFSET + 8 * MAX_BLOCKS
_COUNTERS_END = COUNTERS_OFFSET + 8 * MAX_COUNTERS
_RESERVED_END = _COUNTERS_END + (64 << 20)  # of what `Hart.reserve` gives
_LINES_OFFSET = _RESERVED_END + 4095 & -4096  # of the pages with tables of followed lines
_REACHED_BYTES = (1 << 31) - 4096  # from the state, as far as an x86 displacement reaches
SHORTEST_LINE_BITS, LONGEST_LINE_BITS = 4, 12

MAX_CALLS = 16  # inline functions and column sets of a selection
# An entry of ``inline_map``: a bit for each function and column set that takes the instruction, its class, its word.
CLASS_SHIFT, WORD_SHIFT = MAX_CALLS, 32

CANONICAL_EMPTY_RESERVATION = (1 << 64) - 1

# x86 MXCSR: all exceptions masked; rounding control in bits 13-14; sticky flags in bits 0-5.
MXCSR_MASKED = 0x1F80
# RISC-V frm 0..3 (RNE, RTZ, RDN, RUP) as MXCSR rounding control.
MXCSR_ROUNDING = {0: 0 << 13, 1: 3 << 13, 2: 1 << 13, 3: 2 << 13}
MXCSR_ROUNDING_BITS = 3 << 13


class Place(NamedTuple):
    """Where a table lies behind the state: ``offset`` and ``size``, both in bytes."""

    offset: int
    size: int


@functools.cache
def followed_places(line_bits: tuple[int, int]) -> dict[str, Place]:
    """The tables of `FollowedLines` for lines of data and of code of ``1 << line_bits`` bytes: "held_data" and
    "held_code", one byte a line, "data_times" and "code_times", four. Those of data cover 4 GiB, for an access that is
    about to fault may lie beyond the address space. Raises `ValueError` for a bad line size."""
    for bits in line_bits:
        if not SHORTEST_LINE_BITS <= bits <= LONGEST_LINE_BITS:
            raise ValueError(
                f"got lines of {1 << bits} bytes, expected a power of two from {1 << SHORTEST_LINE_BITS} to "
                f"{1 << LONGEST_LINE_BITS}"
            )
    places: dict[str, Place] = {}
    end = _LINES_OFFSET
    n_lines = {"data": 1 << 32 - line_bits[0], "code": 1 << 31 - line_bits[1]}
    names = ("held_data", 1, "data"), ("data_times", 4, "data"), ("held_code", 1, "code"), ("code_times", 4, "code")
    for name, entry_bytes, kind in names:
        offset = (end + 4095 & -4096) + 192 * (1 + len(places))  # see `COUNTS_OFFSET`
        places[name] = Place(offset, entry_bytes * n_lines[kind])
        end = offset + places[name].size
    assert end <= _REACHED_BYTES
    return places


def flags_from_mxcsr(mxcsr: int) -> int:
    """RISC-V fflags (NX=1 UF=2 OF=4 DZ=8 NV=16) from the host's sticky bits (IE DE ZE OE UE PE)."""
    if not mxcsr & 63:
        return 0
    return (
        (mxcsr >> 5 & 1)  # precision
        | (mxcsr >> 4 & 1) << 1  # underflow
        | (mxcsr >> 3 & 1) << 2  # overflow
        | (mxcsr >> 2 & 1) << 3  # divide by zero
        | (mxcsr & 1) << 4  # invalid
    )


class Exit(IntEnum):
    """Why translated or interpreted code returned to Python."""

    BUDGET = 0  # the instruction budget is used up
    MISS = 1  # dispatch miss: no host function for pc
    SLOW = 2  # the oracle must execute the instruction at pc (ecall, fence.i, a counter, a rounding mode)
    HOT = 3  # the block at pc has reached its hotness threshold
    FAULT = 4  # a guest access failed: fault_address, host_pc or fault_pc
    ILLEGAL_PC = 5  # control went to an odd address or beyond the address space
    HOOK = 6  # the block at pc has an instruction with a hook: Python executes the block
    ROUNDING = 7  # the guest has chosen a rounding mode that the host does not have


class Hart:
    """The architectural state: ``x`` and ``f`` are uint64[32] views, ``f`` raw (NaN-boxed) patterns.

    ``registers``: x, then f, as a memory view, which gives single registers several times as fast as numpy.
    ``everything``: the whole buffer, uint8, with the counts at `COUNTS_OFFSET`, and tables of `followed_places`.
    ``counts``: (MAX_BLOCKS,) int64, how often each block was executed while a selection asked for it, without what
    ``branch_counters`` have counted since `add_up_counters`.
    """

    def __init__(self) -> None:
        self._table = Table(_REACHED_BYTES)
        self.everything = everything = self._table.view("u1")
        self.address = self._table.address
        self._reserved = _COUNTERS_END + 63 & -64  # where `reserve` goes on
        self.counts = everything[COUNTS_OFFSET:COUNTERS_OFFSET].view(np.int64)
        self.branch_counters = BranchCounters(everything[COUNTERS_OFFSET:_COUNTERS_END].view(np.int64))
        view = everything[:STATE_BYTES]
        self.words = view.view(np.uint64)
        # A memory view gives single words faster than numpy.
        state = self._table.bytes[:STATE_BYTES]
        self._words, self._signed_words, self._half_words = state.cast("Q"), state.cast("q"), state.cast("I")
        self.x = self.words[OFFSETS["x"] // 8 :][:32]
        self.f = self.words[OFFSETS["f"] // 8 :][:32]
        self.registers = self._words[:64]
        self.set("reservation", CANONICAL_EMPTY_RESERVATION)
        self.fcsr = 0

    def get(self, name: str) -> int:
        return self._words[OFFSETS[name] >> 3]

    def set(self, name: str, value: int) -> None:
        self._words[OFFSETS[name] >> 3] = value & 0xFFFF_FFFF_FFFF_FFFF

    @property
    def pc(self) -> int:
        return self._words[_PC]

    @pc.setter
    def pc(self, value: int) -> None:
        """Clears bit 0 (Volume II, "sepc"): the value may come from the guest."""
        self._words[_PC] = value & 0xFFFF_FFFF_FFFF_FFFE

    @property
    def budget(self) -> int:
        return self._signed_words[_BUDGET]

    @budget.setter
    def budget(self, value: int) -> None:
        self._signed_words[_BUDGET] = value

    @property
    def reason(self) -> int:
        """Why execution returned to Python: an `Exit`."""
        return self._words[_REASON]

    def empty_reservation(self) -> None:
        """Make the next store-conditional fail."""
        self._words[_RESERVATION] = CANONICAL_EMPTY_RESERVATION

    def enter_trap(self, pc: int) -> None:
        """Enter a system call or a trap that returns to ``pc``: the reservation is lost."""
        self._words[_PC] = pc & 0xFFFF_FFFF_FFFF_FFFE
        self._words[_RESERVATION] = CANONICAL_EMPTY_RESERVATION

    def reserve(self, size_bytes: int) -> Place:
        """Memory behind the state, zeros, that translations are to read and write: it stays as long as they do. Raises
        `EmulatorError` when there is not so much left."""
        if self._reserved + size_bytes > _RESERVED_END:
            raise EmulatorError(
                f"got inline functions with tables of more than {_RESERVED_END - _COUNTERS_END >> 20} MiB in one "
                "machine: give its branch predictor fewer entries"
            )
        place = Place(self._reserved, size_bytes)
        self._reserved += size_bytes + 127 & -64
        return place

    def forget_followed_lines(self) -> None:
        """Set all tables of `followed_places` to zeros."""
        self._table.clear(_LINES_OFFSET)

    def add_up_counters(self) -> None:
        """Complete ``counts``: the counters of branches are added to the blocks that they stand for."""
        self.branch_counters.add_up(self.counts)

    def begin_run(self, budget: int, instructions: int) -> None:
        """Set the budget of the next run, which begins after ``instructions`` executed so far."""
        self._signed_words[_BUDGET] = budget
        self._words[_TOUCH_TIME] = TOUCH_EPOCH + instructions + budget

    @property
    def frm(self) -> int:
        return self._words[_FRM]

    @property
    def fcsr(self) -> int:
        """Accrued flags in bits 0-4, rounding mode in bits 5-7."""
        words = self._words
        return words[_FRM] << 5 | words[_FFLAGS] | flags_from_mxcsr(self._half_words[_GUEST_MXCSR])

    @fcsr.setter
    def fcsr(self, value: int) -> None:
        frm = value >> 5 & 7
        self._words[_FRM] = frm
        self._words[_FFLAGS] = value & 31
        self._half_words[_GUEST_MXCSR] = MXCSR_MASKED | MXCSR_ROUNDING.get(frm, 0)

    @property
    def host_rounding(self) -> bool:
        """Whether the host's instructions have the current rounding mode."""
        return self._words[_FRM] in MXCSR_ROUNDING
