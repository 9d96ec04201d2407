"""The interface between engines and observers: block facts, the dynamic record, columns, the consumer protocol.

A *block* is a dynamic basic block: it starts wherever control enters and ends with the first control
transfer, system instruction, or after ``MAX_BLOCK_INSTRUCTIONS`` instructions. Blocks may overlap (a jump
into the middle of one starts another), so the sequence of blocks depends only on what the program does and
never on how the engine translated it.

Static facts are written once per block, in `BlockFacts`. The dynamic record is one flat ``uint32`` stream in
execution order; for each executed block::

    block_id, address, address, ...      one effective address per memory access, in program order

An atomic read-modify-write is one access (flags LOAD|STORE); a store-conditional is a store, also when it fails. The
outcome of a branch and the target of an
indirect jump are given by the block that follows. The guest address space is 2 GiB, so an address fits a word.

A block in which an access of the guest faults, and the guest catches that, is cut short there: in the record, in counts
of executions and in columns is another block, of the instructions before (`BlockFacts.begin_of`), and nothing if there
are none. A fault that ends the process takes its block out of the record and out of columns; its execution counts.

Fields of single instructions can be selected with or without the record: each `ColumnSet` has its own columns in
memory, one for each field, to which an event is appended for each instruction that it selects.

Every observer - performance counters, timing models, phase signatures, probes - consumes this record, and
the instruction set, the translator and the timing models never mention one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

MAX_BLOCK_INSTRUCTIONS = 64
# The number of the program that the guest begins with. Programs that it executes lie at the same addresses, so an
# address that somebody gives is meant in this program's processes only, unless it is said otherwise.
FIRST_PROGRAM = 0
LAST_PROGRAM = (1 << 16) - 1  # this and all later ones


class OpClass(IntEnum):
    """Instruction class: the functional unit and the event of an instruction."""

    INT_ALU = 0
    INT_MUL = 1
    INT_DIV = 2
    LOAD = 3
    STORE = 4
    FP_LOAD = 5
    FP_STORE = 6
    ATOMIC = 7
    BRANCH = 8  # conditional branch
    JUMP = 9  # direct unconditional jump (jal with rd = x0)
    CALL = 10  # direct call: jal with rd = ra or t0, or auipc and jalr, which is how compilers write most
    RETURN = 11  # jalr x0 through ra or t0
    INDIRECT_JUMP = 12  # any other jalr with rd = x0
    INDIRECT_CALL = 13  # any other jalr that links
    FP_ADD = 14  # add, subtract, compare, min/max, sign injection, classify
    FP_MUL = 15
    FP_FMA = 16
    FP_DIV = 17
    FP_SQRT = 18
    FP_CVT = 19  # conversions between formats
    FP_MOVE = 20  # moves between register files
    CSR = 21
    FENCE = 22
    SYSTEM = 23  # ecall, ebreak


# The bytes of a table of held lines (`emulator.engine.instrument.followed_lines`): a line that a cache holds, and one
# that was written since it came in; beside either, that the TLB does not hold the line's page. Accesses to such a line
# are passed on, and those to a line that the cache does not hold, 0.
HELD, HELD_WRITTEN, PAGE_OUT = 1, 3, 128

# The time of the first instruction: a line that was never accessed, 0 in a table of times, looks half of all time old.
TOUCH_EPOCH = 1 << 31

# Memory access flags of an instruction.
ACCESS_NONE, ACCESS_LOAD, ACCESS_STORE = 0, 1, 2
# Beside another flag, for a core in a counterfactual run: the access touches no cache or TLB, and its address is not in
# the record that the core gets (`emulator.counterfactual`).
ACCESS_HIDDEN = 4
# Beside another flag: the access goes through caches and TLBs, and its instruction issues and counts nothing.
ACCESS_ALONE = 8

BLOCK_DTYPE = np.dtype(
    [
        ("pc", "u4"),  # address of the first instruction
        ("end_pc", "u4"),  # address after the last instruction, or that of the block that a fault has cut short
        ("first_instruction", "u4"),  # index of the first row in the instruction table
        ("n_instructions", "u4"),
        ("n_accesses", "u4"),  # words that follow the block id in the stream
        ("terminator", "u1"),  # OpClass of the last instruction
        ("target_known", "u1"),  # 1 when the taken target below is static
        ("program", "u2"),  # the program that its process executes, numbered in the order of their beginnings
        ("target_pc", "u4"),  # static taken target of a branch, jump or call
    ]
)

# Registers are numbered 0-31 for x0-x31 and 32-63 for f0-f31; 0 also means "no register".
INSTRUCTION_DTYPE = np.dtype(
    [
        ("pc", "u4"),
        ("length_bytes", "u1"),  # 2 or 4
        ("op_class", "u1"),
        ("access", "u1"),  # ACCESS_* flags
        ("access_bytes", "u1"),
        ("rd", "u1"),
        ("rs1", "u1"),
        ("rs2", "u1"),
        ("rs3", "u1"),
        ("word", "u4"),  # as it is in memory: 16 bits of a compressed instruction; 0 when unknown
    ]
)

# The fields of an event and the types of their columns; a field that an instruction does not have is 0.
COLUMN_TYPES = {
    "pc": "u4",
    "word": "u4",  # as it is in memory
    "opcode": "u2",  # row of the instruction table
    "class": "u1",  # `OpClass`, as in the facts
    "address": "u4",
    "value": "u8",  # the value loaded or, for a store, stored: access_bytes bytes, zero-extended
    "taken": "u1",  # whether a control transfer goes elsewhere than to the next instruction
    "target": "u8",  # the address that a control transfer goes to
    "rs1": "u8",  # source registers, raw patterns, before it executes
    "rs2": "u8",
    "rs3": "u8",
    "rd": "u8",  # the destination register, after it has executed
}
# Half-open ranges of guest addresses, ascending. Where they select code, it is code of the first program's processes.
Ranges = tuple[tuple[int, int], ...]


class BlockFacts:
    """Append-only tables of static facts; block ids are row numbers of ``blocks``.

    ``blocks``: ``(n_blocks,)`` of BLOCK_DTYPE; ``instructions``: ``(n,)`` of INSTRUCTION_DTYPE. Both are views
    of larger buffers that are replaced when they grow: read them anew on each use, never keep them.
    """

    def __init__(self) -> None:
        self._blocks = np.zeros(1 << 14, BLOCK_DTYPE)  # only touched pages take memory
        self._instructions = np.zeros(1 << 17, INSTRUCTION_DTYPE)
        self._begins: dict[tuple[int, int], int] = {}  # ids, by what `begin_of` got
        self.n_blocks = 0
        self.n_instructions = 0

    @property
    def blocks(self) -> NDArray[np.void]:
        return self._blocks[: self.n_blocks]

    @property
    def instructions(self) -> NDArray[np.void]:
        return self._instructions[: self.n_instructions]

    def append(
        self,
        instructions: list[tuple[int, int, int, int, int, int, int, int, int]],
        target_pc: int | None,
        words: Sequence[int] = (),
        program: int = FIRST_PROGRAM,
    ) -> int:
        """Add a block of ``program`` from its instruction rows (fields of INSTRUCTION_DTYPE in order) and return its
        id."""
        count = len(instructions)
        self.reserve(count)
        first = self.n_instructions
        self._instructions[first : first + count] = [
            (*row, word) for row, word in zip(instructions, words or (0,) * count, strict=True)
        ]
        last = instructions[-1]
        self._blocks[self.n_blocks] = (
            instructions[0][0],
            last[0] + last[1],
            first,
            count,
            sum(1 for row in instructions if row[3]),
            last[2],
            target_pc is not None,
            program,
            target_pc or 0,
        )
        return self.add(1, count)

    def begin_of(self, block: int, n_instructions: int) -> int:
        """The id of a block of the first ``n_instructions``, 1 or more, of ``block``, which a fault has cut short. It
        is fetched as that is."""
        known = self._begins.get((block, n_instructions))
        if known is not None:
            return known
        self.reserve(n_instructions)
        whole = self._blocks[block]
        first, to = int(whole["first_instruction"]), self.n_instructions
        rows = self._instructions[to : to + n_instructions]
        rows[:] = self._instructions[first : first + n_instructions]
        self._blocks[self.n_blocks] = (
            whole["pc"], whole["end_pc"], to, n_instructions, np.count_nonzero(rows["access"]), rows["op_class"][-1], 0,
            whole["program"], 0,
        )  # fmt: skip
        number = self._begins[block, n_instructions] = self.add(1, n_instructions)
        return number

    @property
    def tables(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """The whole buffers of blocks and instructions: the discovery kernel writes rows in place, then calls `add`."""
        return self._blocks, self._instructions

    def reserve(self, n_instructions: int) -> None:
        """Make room for a block of ``n_instructions``."""
        if self.n_instructions + n_instructions > len(self._instructions):
            self._instructions = _grown(self._instructions)
        if self.n_blocks == len(self._blocks):
            self._blocks = _grown(self._blocks)

    def add(self, n_blocks: int, n_instructions: int) -> int:
        """Count new blocks and instructions that were written to `tables`; the id of the first block."""
        self.n_instructions += n_instructions
        self.n_blocks += n_blocks
        return self.n_blocks - n_blocks

    def extend(self, blocks: NDArray[np.void], instructions: NDArray[np.void]) -> None:
        """Add rows of BLOCK_DTYPE, (n,), and the rows of INSTRUCTION_DTYPE that their ``first_instruction`` means."""
        while self.n_blocks + len(blocks) > len(self._blocks):
            self._blocks = _grown(self._blocks)
        while self.n_instructions + len(instructions) > len(self._instructions):
            self._instructions = _grown(self._instructions)
        self._blocks[self.n_blocks : self.n_blocks + len(blocks)] = blocks
        self._instructions[self.n_instructions : self.n_instructions + len(instructions)] = instructions
        self.add(len(blocks), len(instructions))

    def instructions_of(self, numbers: NDArray[np.int64]) -> NDArray[np.void]:
        """The rows of ``instructions`` of the blocks with these ids, concatenated."""
        firsts = self.blocks["first_instruction"][numbers].astype(np.int64)
        counts = self.blocks["n_instructions"][numbers].astype(np.int64)
        begins = np.cumsum(counts) - counts
        return self.instructions[np.repeat(firsts - begins, counts) + np.arange(counts.sum())]


def _grown(rows: NDArray[np.void]) -> NDArray[np.void]:
    """The rows followed by as many rows of zeros."""
    whole = np.zeros(2 * len(rows), rows.dtype)
    whole.view(np.uint8)[: rows.nbytes] = rows.view(np.uint8)  # numpy would copy field by field
    return whole


@dataclass(frozen=True, kw_only=True)
class Watch:
    """A function or column set that gets ``fields`` of selected instructions inside translations.

    ``place``: identifies its owner; ``state``: host address of the memory that it writes; ``kinds`` (values of
    `OpClass`), ``mnemonics``: the instructions, selected by either; ``ranges``: guest addresses, () for everywhere;
    ``first_program``: whether only instructions of the first program's processes are selected, as with ``ranges``.
    """

    place: int
    fields: tuple[str, ...]
    kinds: tuple[int, ...]
    mnemonics: tuple[str, ...]
    ranges: Ranges
    first_program: bool = False
    state: int = field(compare=False, repr=False)

    @property
    def is_everywhere(self) -> bool:
        """Whether it selects instructions of all programs."""
        return not self.ranges and not self.first_program

    def takes(self, mnemonic: str, op_class: int, pc: int) -> bool:
        """Whether it selects an instruction with that mnemonic and class at ``pc``."""
        return (op_class in self.kinds or mnemonic in self.mnemonics) and (
            not self.ranges or any(low <= pc < high for low, high in self.ranges)
        )


@dataclass(frozen=True, kw_only=True)
class InlineCall(Watch):
    """A user's function, called before or after instructions. ``function``: its name, which follows from its code;
    ``state``: its first argument; ``offset``: where that is behind the state of the hart [bytes], 0 if elsewhere."""

    function: str
    after: bool
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class ColumnSet(Watch):
    """Columns, one per field; each selected instruction appends an event (`emulator.engine.instrument.columns`)."""

    after: ClassVar[bool] = True


@dataclass(frozen=True)
class TraceSelection:
    """The dynamic information that translations emit; what is not selected costs nothing."""

    blocks: bool = False  # the block ids
    addresses: bool = False  # effective addresses (needs blocks)
    exact_stop: bool = False  # honour the instruction budget at every block boundary
    counts: bool = False  # executions of each block, in a table and not in the record
    hooks: tuple[str, ...] = ()  # mnemonics before and after which Python is called, ascending
    hook_ranges: Ranges = ()  # guest addresses with hooks; () for everywhere
    inline: tuple[InlineCall | ColumnSet, ...] = ()  # inline functions and column sets
    exact_faults: bool = False  # registers are exact at each access that may fault: for guests that catch faults
    # Follow the first-level caches: log2 of the line size [bytes] of the data cache and of the instruction cache, from
    # which accesses that miss are passed on; 0 for none.
    followed_lines: tuple[int, int] = (0, 0)
    follows_stores: bool = False  # with followed lines: all stores are passed on, also those that hit

    @cached_property
    def columns(self) -> tuple[ColumnSet, ...]:
        """The columns among ``inline``."""
        return tuple(one for one in self.inline if isinstance(one, ColumnSet))

    @cached_property
    def elsewhere(self) -> TraceSelection:
        """What is selected of processes that execute another program than the first: not what is selected by
        address."""
        hooks = () if self.hook_ranges else self.hooks
        inline = tuple(one for one in self.inline if one.is_everywhere)
        if hooks == self.hooks and inline == self.inline:
            return self
        return replace(self, hooks=hooks, hook_ranges=(), inline=inline)

    def in_program(self, program: int) -> TraceSelection:
        """What is selected of processes that execute ``program``."""
        return self if program == FIRST_PROGRAM else self.elsewhere

    @property
    def delivers(self) -> bool:
        """Whether translations write data that has to be passed on from time to time: a record or columns."""
        return self.blocks or bool(self.columns)

    def __or__(self, other: TraceSelection) -> TraceSelection:
        if any(self.followed_lines) and any(other.followed_lines) and self.followed_lines != other.followed_lines:
            raise ValueError(
                f"observers follow lines of {self.followed_lines} and {other.followed_lines} bits, expected one core's"
            )
        return TraceSelection(
            self.blocks or other.blocks,
            self.addresses or other.addresses,
            self.exact_stop or other.exact_stop,
            self.counts or other.counts,
            tuple(sorted({*self.hooks, *other.hooks})),
            _union(self.hook_ranges, other.hook_ranges, bool(self.hooks), bool(other.hooks)),
            (*self.inline, *(call for call in other.inline if call not in self.inline)),
            self.exact_faults or other.exact_faults,
            self.followed_lines if any(self.followed_lines) else other.followed_lines,
            self.follows_stores or other.follows_stores,
        )


def _union(ours: Ranges, theirs: Ranges, we_ask: bool, they_ask: bool) -> Ranges:
    """The union of the hook ranges of two selections; a selection with hooks and without ranges means everywhere."""
    if not (we_ask and they_ask):
        return ours if we_ask else theirs
    return merged((*ours, *theirs)) if ours and theirs else ()


def merged(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """The same addresses as ranges that neither overlap nor touch, ascending."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        elif low < high:
            found.append((low, high))
    return tuple(found)


NOTHING = TraceSelection()
FULL_RECORD = TraceSelection(blocks=True, addresses=True, exact_stop=True)


class Consumer(Protocol):
    """An observer of the record."""

    selection: TraceSelection

    def consume(self, facts: BlockFacts, stream: NDArray[np.uint32]) -> None:
        """Take the next part of the record: whole blocks, in execution order."""


@runtime_checkable
class FollowsTasks(Protocol):
    """An observer that, while it ``follows_tasks``, is told where the guest goes on otherwise than by its
    instructions."""

    @property
    def follows_tasks(self) -> bool: ...

    def interrupted(self, pc: int) -> None:
        """What was executed so far has been consumed, and went to ``pc``; a signal handler or another task is next."""


class ColumnConsumer(Consumer, Protocol):
    """An observer with its own columns."""

    def consume_columns(self) -> None:
        """Take the events in the columns, which are emptied afterwards."""
