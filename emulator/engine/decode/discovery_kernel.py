"""The discovery kernel: decodes a block in guest memory as `emulator.engine.blocks` and `operations` do, but faster.

A program runs through tens of thousands of blocks as it starts; Python takes longer to decode most of them than they
ever run. So the kernel is what discovers blocks in the product, and Python (`BlockCache.get` and `operations_of`) is
the reference that the tests hold it against: both decode by the instruction table. The kernel gives up, and returns 0,
where it cannot go on (it cannot raise a fault, for instance) and where ``block_index`` holds `ASK_PYTHON`; then the
reference decodes the block.

The kernel is `discover`; the other functions are inlined into it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.engine.address_tables import GUEST_SPACE
from emulator.engine.decode.operations import (
    FALL_THROUGH,
    RESTORE_ROUNDING,
    SCRATCH_REGISTER,
    SET_ROUNDING,
    SLOW,
)
from emulator.engine.hart_state import CLASS_SHIFT, WORD_SHIFT
from emulator.events import MAX_BLOCK_INSTRUCTIONS, OpClass

# The words of the job: the block's pc, the host function that runs it, its hotness threshold, the host address of the
# operations, the permission bit of code, whether there are `Watches`, and the number of the program; the number of rows
# in each table, and the largest number of rows; whether there are `Interned` blocks.
JOB_DTYPE = np.dtype(
    [
        (name, "i8")
        for name in (
            "pc", "fallback", "threshold", "operations_at", "executable", "has_watches", "program", "n_blocks",
            "n_instructions", "n_operations", "n_descriptors", "max_blocks", "max_instructions", "max_operations",
            "max_descriptors", "has_interned",
        )
    ]
)  # fmt: skip
# A row of the instruction table. ``immediate``, ``jump``, ``csr``: one of the numbers below; ``kind_*``: `KIND_X` or
# `KIND_F`, 0 for an operand that is missing; ``rounds``: whether the host's rounding mode matters.
ROW_DTYPE = np.dtype(
    [
        (name, "i8")
        for name in (
            "has_rd", "immediate", "kind_rd", "kind_rs1", "kind_rs2", "kind_rs3", "access", "access_bytes", "op_class",
            "ends", "slow", "has_rounding", "rounds", "jump", "csr",
        )
    ]
)  # fmt: skip
N_VARIANTS = 8  # handlers of a row
IMM_NONE, IMM_12, IMM_STORE, IMM_BRANCH, IMM_20, IMM_JUMP, IMM_SHIFT_6, IMM_SHIFT_5, IMM_CSR = range(9)
NO_JUMP, JAL, JALR, AUIPC = range(4)
NO_CSR, CSR_SWAPS, CSR_CHANGES = range(3)
FFLAGS, FCSR, ONE_WAY = 1, 3, 4
KIND_X, KIND_F = 1, 2
DYNAMIC = 7  # the rounding mode in fcsr
KNOWN, AMBIGUOUS, NEW_PAGES = 0xFFFF, 1 << 19, 2 << 19  # of `CodeShadow`
ASK_PYTHON = 0xFFFFFFFF  # in ``block_index``: a dispatch miss at this address returns to Python

_BRANCH, _JUMP, _CALL, _RETURN = (int(one) for one in (OpClass.BRANCH, OpClass.JUMP, OpClass.CALL, OpClass.RETURN))
_INDIRECT_CALL, _INDIRECT_JUMP = int(OpClass.INDIRECT_CALL), int(OpClass.INDIRECT_JUMP)


class GuestCode(NamedTuple):
    """Guest memory, uint8, and the permissions of its pages, uint8."""

    memory: NDArray[np.uint8]
    permissions: NDArray[np.uint8]


class BlockTables(NamedTuple):
    """What the kernel writes: the arrays of `BlockFacts`; the interpreter's ``operations``, ``descriptors``,
    ``block_index`` and ``dispatch_table`` (both by pc / 2)."""

    blocks: NDArray[np.void]
    instructions: NDArray[np.void]
    operations: NDArray[np.void]
    descriptors: NDArray[np.void]
    block_index: NDArray[np.uint32]
    dispatch_table: NDArray[np.uint64]


class InstructionSet(NamedTuple):
    """The instruction table. ``expanded``: by 16-bit instruction, the 32-bit one, 0 for none; ``groups``: (1024, 2) by
    opcode and funct3, first and end of the ``candidates``: (n, 3) mask, match, row; ``rows``: `ROW_DTYPE`;
    ``handlers``: (n, `N_VARIANTS`) by row; ``rounding``: MXCSR bits by rounding mode."""

    expanded: NDArray[np.uint32]
    groups: NDArray[np.int32]
    candidates: NDArray[np.int64]
    rows: NDArray[np.void]
    handlers: NDArray[np.int64]
    rounding: NDArray[np.int64]


class Interned(NamedTuple):
    """The tables of `InternedBlocks`: a block found there gets its number."""

    latest: NDArray[np.uint32]
    older: NDArray[np.uint32]


class Shadow(NamedTuple):
    """The tables of `CodeShadow`."""

    code: NDArray[np.uint16]
    known: NDArray[np.uint16]
    flags: NDArray[np.uint8]


class Watches(NamedTuple):
    """Of the inline functions that select by class: ``by_class``, the bits of those that take a class; ``inline_map``,
    by pc / 2, as `InlineTables.add_blocks` fills it."""

    by_class: NDArray[np.uint64]
    inline_map: NDArray[np.uint64]


def discover(jobs, guest, tables, isa, interned, shadow, watches):  # type: ignore[no-untyped-def]
    """Decode the block at ``jobs[0].pc`` and let ``jobs[0].fallback`` run it; the number of its instructions, 0 for
    none. The other arguments: `GuestCode`, `BlockTables`, `InstructionSet`, `Interned`, `Shadow`, `Watches`."""
    job = jobs[0]
    start = job.pc
    if start < 0 or start >= GUEST_SPACE or start & 1 or tables.block_index[start >> 1] != 0:
        return 0
    if not has_room(job):
        return 0
    n, end, n_operations, n_accesses, kind, target = decode_block(job, guest, tables, isa)
    if n == 0:
        return 0
    first = job.n_instructions
    for place in range(n):
        fact = tables.instructions[first + place]
        note(fact.pc, fact.word & 0xFFFF, shadow)
        if fact.length_bytes == 4:
            note(fact.pc + 2, np.int64(fact.word) >> 16, shadow)
        if job.has_watches:
            word = np.uint64(fact.op_class) << CLASS_SHIFT | np.uint64(fact.word) << WORD_SHIFT
            watches.inline_map[fact.pc >> 1] = watches.by_class[fact.op_class] | word
    number: Any = np.int64(-1)
    if job.has_interned:
        number = interned_number(job, tables, interned, first, n)
    if number < 0:
        number = job.n_blocks
        block = tables.blocks[number]
        block.pc, block.end_pc, block.first_instruction, block.n_instructions = start, end, first, n
        block.n_accesses, block.terminator, block.program = n_accesses, kind, job.program
        block.target_known = 0 if target < 0 else 1
        block.target_pc = 0 if target < 0 else target
        job.n_blocks, job.n_instructions = number + 1, first + n
    enter(job, tables, number, n, n_operations, end)
    return n


def has_room(job):  # type: ignore[no-untyped-def]
    """Whether each table has room for the longest block."""
    return (
        job.n_blocks < job.max_blocks
        and job.n_descriptors < job.max_descriptors
        and job.n_instructions + MAX_BLOCK_INSTRUCTIONS <= job.max_instructions
        and job.n_operations + 3 * MAX_BLOCK_INSTRUCTIONS < job.max_operations
    )


def decode_block(job, guest, tables, isa):  # type: ignore[no-untyped-def]
    """Append the block's instruction facts and operations. Returns the number of its instructions, its end, the end of
    its operations, its accesses, the class of its last instruction, and its target, -1 for none."""
    pc: Any = job.pc
    n = 0
    n_operations: Any = job.n_operations
    first = job.n_instructions
    n_accesses = 0
    kind: Any = 0
    target: Any = -1
    is_open: Any = 1  # whether control goes on after the last instruction
    was_auipc: Any = -1  # the register that the previous instruction, an auipc, has written
    auipc_value: Any = 0
    last: Any = pc
    while n < MAX_BLOCK_INSTRUCTIONS:
        raw, length = fetch(job, guest, pc)
        if length == 0:
            break
        word: Any = raw
        if length == 2:
            word = np.int64(isa.expanded[raw])
        row = row_of(isa, word)
        if row < 0:
            break
        about = isa.rows[row]
        mode: Any = DYNAMIC
        if about.has_rounding:
            mode = word >> 12 & 7
            if mode == 5 or mode == 6:
                break
        imm = immediate(about.immediate, word)
        kind = class_of(about, word)
        put_fact(tables.instructions[first + n], about, kind, word, raw, pc, length)
        n_accesses += 1 if about.access else 0
        slow, ends, mode = ending(about, word, mode, imm)
        if slow:
            put(tables.operations[n_operations], SLOW, 0, 0, pc, 0)
            n_operations += 1
        else:
            at = n_operations
            n_operations += put_operations(tables, isa, at, row, word, mode, imm, pc, length)
            if about.access:
                tables.operations[at].moment = n
        kind, target = transfer(about, word, kind, imm, pc, was_auipc, auipc_value)
        was_auipc = -1
        if about.jump == AUIPC:
            was_auipc, auipc_value = (word >> 7 & 31) if about.has_rd else 0, pc + imm
        last = pc
        pc += length
        n += 1
        if slow or ends:
            is_open = 1 if not slow and about.slow else 0
            break
    if n != 0:
        if is_open:
            put(tables.operations[n_operations], FALL_THROUGH, 0, 0, last, pc)
            n_operations += 1
        tables.instructions[first + n - 1].op_class = kind
    return n, pc, n_operations, n_accesses, kind, target


def fetch(job, guest, pc):  # type: ignore[no-untyped-def]
    """The raw bits of the instruction at ``pc``, and its length in bytes: 0 where there is no code."""
    if pc + 2 > GUEST_SPACE or guest.permissions[pc >> 12] & job.executable == 0:
        return np.int64(0), 0
    raw: Any = np.int64(guest.memory[pc]) | np.int64(guest.memory[pc + 1]) << 8
    if raw & 3 != 3:
        return raw, 2
    if pc + 4 > GUEST_SPACE or guest.permissions[(pc + 2) >> 12] & job.executable == 0:
        return raw, 0
    return raw | np.int64(guest.memory[pc + 2]) << 16 | np.int64(guest.memory[pc + 3]) << 24, 4


def row_of(isa, word):  # type: ignore[no-untyped-def]
    """The row of the instruction table of a 32-bit instruction; -1 for an illegal one."""
    group = (word & 127) | ((word >> 12 & 7) << 7)
    for place in range(isa.groups[group, 0], isa.groups[group, 1]):
        if word & isa.candidates[place, 0] == isa.candidates[place, 1]:
            return isa.candidates[place, 2]
    return np.int64(-1)


def class_of(about, word):  # type: ignore[no-untyped-def]
    """The class of an instruction by itself: calls and returns by the registers that they link and use."""
    rd, rs1 = (word >> 7 & 31) if about.has_rd else 0, word >> 15 & 31
    links = rd == 1 or rd == 5
    if about.jump == JAL:
        return _CALL if links else _JUMP
    if about.jump == JALR:
        if links:
            return _INDIRECT_CALL
        return _RETURN if rs1 == 1 or rs1 == 5 else _INDIRECT_JUMP
    return about.op_class


def ending(about, word, mode, imm):  # type: ignore[no-untyped-def]
    """Whether the instruction is slow, whether it ends the block, and the variant of its handler: accesses to fcsr are
    neither, unless they may change the rounding mode."""
    slow, ends = 1 if about.slow or (mode == 4 and about.rounds) else 0, about.ends
    if about.csr and imm >= FFLAGS and imm <= FCSR:
        slow, ends = 0, 0
        rd, rs1 = (word >> 7 & 31) if about.has_rd else 0, word >> 15 & 31
        changed = rd if about.csr == CSR_SWAPS else rs1
        mode = imm if changed else imm + ONE_WAY
        if imm != FFLAGS and (about.csr == CSR_SWAPS or rs1 != 0):
            ends = 1
    return slow, ends, mode


def put_fact(fact, about, kind, word, raw, pc, length):  # type: ignore[no-untyped-def]
    """Fill an instruction's row of `BlockFacts`."""
    fact.pc, fact.length_bytes, fact.op_class = pc, length, kind
    fact.access, fact.access_bytes, fact.word = about.access, about.access_bytes, raw
    fact.rd = observed_register(about.kind_rd, word >> 7 & 31)
    fact.rs1 = observed_register(about.kind_rs1, word >> 15 & 31)
    fact.rs2 = observed_register(about.kind_rs2, word >> 20 & 31)
    fact.rs3 = observed_register(about.kind_rs3, word >> 27 & 31)


def observed_register(kind, number):  # type: ignore[no-untyped-def]
    """The number of a register in the facts."""
    if kind == 0:
        return 0
    return number + 32 if kind == KIND_F else number


def put_operations(tables, isa, at, row, word, mode, imm, pc, length):  # type: ignore[no-untyped-def]
    """Fill the operation of an instruction, between changes of the rounding mode if its own is fixed; their number."""
    about = isa.rows[row]
    n = 1
    fixed = about.has_rounding != 0 and mode != DYNAMIC and about.rounds != 0
    if fixed:
        put(tables.operations[at], SET_ROUNDING, 0, isa.rounding[mode], pc, 0)
        n = 3
        put(tables.operations[at + 2], RESTORE_ROUNDING, 0, 0, pc, 0)
        at += 1
    result: Any = (word >> 7 & 31) if about.has_rd else 0
    if about.kind_rd == KIND_X and result == 0:
        result = SCRATCH_REGISTER
    elif about.kind_rd == KIND_F:
        result += 32
    operation = tables.operations[at]
    put(operation, isa.handlers[row, mode], result, imm, pc, pc + length)
    operation.rs1 = (word >> 15 & 31) + 32 * (about.kind_rs1 == KIND_F)
    operation.rs2 = (word >> 20 & 31) + 32 * (about.kind_rs2 == KIND_F)
    operation.rs3 = (word >> 27 & 31) + 32 * (about.kind_rs3 == KIND_F)
    return n


def put(operation, handler, rd, imm, pc, next_pc):  # type: ignore[no-untyped-def]
    """Fill an operation without sources and moment."""
    operation.handler, operation.rd, operation.rs1, operation.rs2 = handler, rd, 0, 0
    operation.rs3, operation.moment, operation.imm, operation.pc = 0, 0, imm, pc
    operation.next_pc = next_pc


def transfer(about, word, kind, imm, pc, was_auipc, auipc_value):  # type: ignore[no-untyped-def]
    """The observed class and the static target (-1 for none) of the instruction, if it is the block's last. An auipc,
    which has written the register ``was_auipc``, makes a jalr after it a direct transfer."""
    target: Any = np.int64(-1)
    observed = kind
    if kind in (_BRANCH, _JUMP, _CALL):
        target = pc + imm
    elif about.jump == JALR and kind != _RETURN and was_auipc == (word >> 15 & 31):
        target = (auipc_value + imm) & ~1
        observed = _CALL if kind == _INDIRECT_CALL else _JUMP
    if target < 0 or target >= GUEST_SPACE:
        return kind, np.int64(-1)
    return observed, target


def interned_number(job, tables, interned, first, n):  # type: ignore[no-untyped-def]
    """The number of the interned block of the job's program at its pc with the instructions of the ``n`` facts from
    ``first`` on; -1 for none."""
    number = np.int64(interned.latest[job.pc >> 1]) - 1
    while number >= 0:
        other = tables.blocks[number]
        unlike = n - other.n_instructions
        if other.program != job.program:
            unlike = 1
        if unlike == 0:
            for place in range(n):
                one = tables.instructions[other.first_instruction + place].word
                if one != tables.instructions[first + place].word:
                    unlike = 1
                    break
        if unlike == 0:
            break
        number = np.int64(interned.older[number]) - 1
    return number


def enter(job, tables, number, n, n_operations, end):  # type: ignore[no-untyped-def]
    """Add the descriptor of a block, which ends before ``end``, and enter the fallback in the dispatch table where that
    is empty."""
    start = job.pc
    descriptor = tables.descriptors[job.n_descriptors]
    descriptor.operations = job.operations_at + job.n_operations * tables.operations.itemsize
    descriptor.count, descriptor.n_instructions, descriptor.number = 0, n, number
    descriptor.threshold, descriptor.pc = job.threshold, start
    descriptor.n_operations, descriptor.end_pc = n_operations - job.n_operations, end
    tables.block_index[start >> 1] = job.n_descriptors
    if tables.dispatch_table[start >> 1] == 0:
        tables.dispatch_table[start >> 1] = job.fallback
    job.n_operations = n_operations
    job.n_descriptors += 1


def note(pc, half, shadow):  # type: ignore[no-untyped-def]
    """As `CodeShadow.note`."""
    place, page = pc >> 1, pc >> 12
    if shadow.known[place] != 0 and shadow.code[place] != half:
        shadow.flags[AMBIGUOUS + page] = 1
    if shadow.flags[page] == 0:
        shadow.flags[page] = 1
        shadow.flags[NEW_PAGES] = 1
    shadow.code[place] = half
    shadow.known[place] = KNOWN


def immediate(kind, word):  # type: ignore[no-untyped-def]
    """The immediate of a 32-bit instruction, signed."""
    if kind == IMM_12:
        return signed(word >> 20, 12)
    if kind == IMM_STORE:
        return signed((word >> 25 << 5) | (word >> 7 & 31), 12)
    if kind == IMM_BRANCH:
        low = (word >> 25 & 63) << 5 | (word >> 8 & 15) << 1
        return signed(word >> 31 << 12 | (word >> 7 & 1) << 11 | low, 13)
    if kind == IMM_20:
        return signed(word & 0xFFFFF000, 32)
    if kind == IMM_JUMP:
        low = (word >> 20 & 1) << 11 | (word >> 21 & 1023) << 1
        return signed(word >> 31 << 20 | (word >> 12 & 255) << 12 | low, 21)
    if kind == IMM_SHIFT_6:
        return word >> 20 & 63
    if kind == IMM_SHIFT_5:
        return word >> 20 & 31
    if kind == IMM_CSR:
        return word >> 20
    return 0


def signed(value, bits):  # type: ignore[no-untyped-def]
    """The two's-complement reading of ``bits`` bits."""
    return value - (value >> (bits - 1) << bits)


HELPERS = (
    has_room, decode_block, fetch, row_of, class_of, ending, put_fact, observed_register, put_operations,
    put, transfer, interned_number, enter, note, immediate, signed,
)  # fmt: skip
