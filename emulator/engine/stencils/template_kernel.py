"""The template kernel: copies the stencils of blocks one behind the other, and fills in their holes.

The kernel is `emit`; the other functions are inlined into it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.engine.stencils.stencil_layout import HEAD, HOLES, PROLOGUE
from emulator.engine.stencils.stencil_set import ABSENT, ENDS
from emulator.kernels.function import array_at

# The words of the job: the host address behind the last code, and the one from which no block begins; the descriptors
# to emit, from ``first`` to before ``end``; the host function that runs blocks without a template; host addresses of
# the stencils' code, of the descriptors and of the dispatch table; a stencil to place alone, `NO_STUB` for none.
JOB_DTYPE = np.dtype(
    [
        (name, "i8")
        for name in (
            "out", "limit", "first", "end", "fallback", "code_at", "descriptors_at", "dispatch_table_at", "stub",
        )
    ]
)  # fmt: skip
NO_STUB = -1
_LONG_BYTES = 8
_HIGHEST = (1 << 31) - 1  # guest address
_ENTRY_SHIFT = 2  # an entry of the dispatch table has 8 bytes for 2 bytes of code
_REGISTER_SHIFT = 3  # a register has 8 bytes

_RD, _RS1, _RS2, _RS3, _MOMENT = (HOLES[name] for name in ("rd", "rs1", "rs2", "rs3", "moment"))
_IMM, _PC, _NEXT_PC, _LENGTH = (HOLES[name] for name in ("imm", "pc", "next_pc", "length"))
_BRANCH_TARGET, _FAR_BRANCH_TARGET = HOLES["branch_target"], HOLES["far_branch_target"]
_NEXT_ENTRY, _BRANCH_TARGET_ENTRY = HOLES["next_entry"], HOLES["branch_target_entry"]
_DESCRIPTOR, _NEXT = HOLES["descriptor"], HOLES["next"]


class Stencils(NamedTuple):
    """Stencils and holes of a `StencilSet`, and ``values``, int64: the value of each of `HOLES`."""

    stencils: NDArray[np.void]
    holes: NDArray[np.void]
    values: NDArray[np.int64]


class TemplateTables(NamedTuple):
    """``descriptors``, ``operations`` (for their type alone), ``block_index`` and ``dispatch_table`` (both by pc / 2)
    of the interpreter; ``entries``: of the templates, by descriptor."""

    descriptors: NDArray[np.void]
    operations: NDArray[np.void]
    block_index: NDArray[np.uint32]
    dispatch_table: NDArray[np.int64]
    entries: NDArray[np.int64]


class Words(NamedTuple):
    """Arrays for their types alone: what the kernel copies and stores at host addresses."""

    longs: NDArray[np.int64]
    ints: NDArray[np.int32]


def emit(jobs, stencils, tables, words):  # type: ignore[no-untyped-def]
    """Emit the blocks of the descriptors as long as there is room, or place ``jobs[0].stub`` alone. Returns the first
    descriptor that is not emitted, or the kind of the stub, `ABSENT` if a value does not fit."""
    job = jobs[0]
    if job.stub != NO_STUB:
        return place(job, stencils, words, job.stub)
    number: Any = job.first
    while job.out < job.limit and number < job.end:
        emit_block(job, stencils, tables, words, number)
        number += 1
    return number


def emit_block(job, stencils, tables, words, number):  # type: ignore[no-untyped-def]
    """Emit the block of a descriptor and enter its template; a block that cannot be emitted keeps the fallback."""
    begin = job.out
    descriptor = tables.descriptors[number]
    at: Any = np.int64(descriptor.operations)
    start = np.int64(array_at(at, tables.operations)[0].pc)
    values = stencils.values
    values[_DESCRIPTOR] = job.descriptors_at + number * tables.descriptors.itemsize
    values[_PC], values[_LENGTH] = start, descriptor.n_instructions
    place(job, stencils, words, PROLOGUE)
    kind: Any = place(job, stencils, words, HEAD)
    while kind not in (ABSENT, ENDS):
        operation = array_at(at, tables.operations)[0]
        put_values(job, values, operation)
        kind = place(job, stencils, words, np.int64(operation.handler))
        at += tables.operations.itemsize
    if kind == ABSENT:
        job.out = begin
        return
    tables.entries[number] = begin
    # Publish unless the guest has changed the code meanwhile, or a region runs the block.
    if tables.block_index[start >> 1] == number and tables.dispatch_table[start >> 1] == job.fallback:
        tables.dispatch_table[start >> 1] = begin


def put_values(job, values, operation):  # type: ignore[no-untyped-def]
    """Set the values of an operation."""
    imm, pc, next_pc = operation.imm, np.int64(operation.pc), np.int64(operation.next_pc)
    target = pc + imm
    values[_RD], values[_RS1] = operation.rd << _REGISTER_SHIFT, operation.rs1 << _REGISTER_SHIFT
    values[_RS2], values[_RS3] = operation.rs2 << _REGISTER_SHIFT, operation.rs3 << _REGISTER_SHIFT
    values[_MOMENT] = operation.moment
    values[_IMM], values[_PC], values[_NEXT_PC] = imm, pc, next_pc
    values[_BRANCH_TARGET], values[_FAR_BRANCH_TARGET] = target, target
    values[_NEXT_ENTRY] = job.dispatch_table_at + (next_pc << _ENTRY_SHIFT)
    values[_BRANCH_TARGET_ENTRY] = job.dispatch_table_at + (target << _ENTRY_SHIFT)


def place(job, stencils, words, number):  # type: ignore[no-untyped-def]
    """Copy a stencil to ``job.out`` and fill in its holes. Returns its kind, `ABSENT` if a value does not fit."""
    stencil, out, values = stencils.stencils[number], job.out, stencils.values
    # By eight bytes: up to seven too many, which the next stencil overwrites.
    for n in range(0, stencil.size, _LONG_BYTES):
        array_at(out + n, words.longs)[0] = array_at(job.code_at + stencil.offset + n, words.longs)[0]
    values[_NEXT] = out + stencil.size
    if stencil.kind == ABSENT:
        return np.int64(ABSENT)
    for n in range(stencil.first_hole, stencil.end_hole):
        hole = stencils.holes[n]
        where = out + hole.offset
        value: Any = values[hole.value] + hole.addend
        if hole.relative:
            value -= where
        # A block that branches outside of the address space is left to the interpreter.
        if hole.value == _BRANCH_TARGET and (value < 0 or value > _HIGHEST):
            return np.int64(ABSENT)
        if hole.wide:
            array_at(where, words.longs)[0] = value
        elif np.int32(value) == value:
            array_at(where, words.ints)[0] = value
        else:
            return np.int64(ABSENT)
    job.out = out + stencil.size
    return np.int64(stencil.kind)


HELPERS = (emit_block, put_values, place)
