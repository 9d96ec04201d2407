"""The interpreter's pre-decoded form of blocks: one operation per guest instruction."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.engine.blocks import Block
from emulator.engine.hart_state import MXCSR_ROUNDING
from emulator.isa.base_rows import FP_CSRS
from emulator.isa.decode import DYNAMIC_ROUNDING, ONE_WAY, Instruction, converts_with_rounding
from emulator.isa.table import TABLE, Row

OPERATION_DTYPE = np.dtype(
    [
        ("handler", "u2"), ("rd", "u1"), ("rs1", "u1"), ("rs2", "u1"), ("rs3", "u1"),
        ("moment", "u2"),  # of an access: the instruction's place in its block
        ("imm", "i8"), ("pc", "u8"), ("next_pc", "u8"),
    ]
)  # fmt: skip
DESCRIPTOR_DTYPE = np.dtype(
    [
        ("operations", "u8"), ("count", "u4"), ("n_instructions", "u4"), ("number", "u4"),
        ("threshold", "u4"),  # executions at which the interpreter reports the block
        ("pc", "u4"), ("n_operations", "u4"), ("end_pc", "u4"), ("pad", "u4"),
    ]
)  # fmt: skip
SCRATCH_REGISTER = 64  # x0 as a destination

# Handler numbers by row and `Instruction.variant`: conversions from and to integers have one handler for each rounding
# mode, accesses to fcsr one for each part and direction, other rows one; then come the pseudo operations.
_ROUNDING_MODES = (0, 1, 2, 3, 4, DYNAMIC_ROUNDING)
_FCSR_ACCESSES = tuple(direction | number for direction in (0, ONE_WAY) for number in FP_CSRS)


def _variants(row: Row) -> tuple[int, ...]:
    """The variants of a row that have handlers of their own."""
    if "csr" in row.fields:
        return _FCSR_ACCESSES
    if row.slow:
        return ()
    return _ROUNDING_MODES if converts_with_rounding(row) else (DYNAMIC_ROUNDING,)


HANDLERS: dict[tuple[int, int], int] = {}
for _row in TABLE:
    for _variant in _variants(_row):
        HANDLERS[(_row.index, _variant)] = len(HANDLERS)
FALL_THROUGH = len(HANDLERS)
SLOW = FALL_THROUGH + 1
SET_ROUNDING, RESTORE_ROUNDING = SLOW + 1, SLOW + 2  # around an instruction of fixed rounding


def operations_of(block: Block) -> np.ndarray[Any, np.dtype[np.void]]:
    """The block as rows of `OPERATION_DTYPE`; the last operation transfers control."""
    rows = []
    instructions = block.instructions[:-1] if block.slow else block.instructions
    for place, (instruction, pc) in enumerate(zip(instructions, block.pcs, strict=False)):
        operation = _operation(instruction, pc, place if instruction.row.access else 0)
        if instruction.static_rounding:
            change = (SET_ROUNDING, 0, 0, 0, 0, 0, MXCSR_ROUNDING[instruction.rm], pc, 0)
            rows += [change, operation, (RESTORE_ROUNDING, 0, 0, 0, 0, 0, 0, pc, 0)]
        else:
            rows.append(operation)
    if block.slow:
        rows.append((SLOW, 0, 0, 0, 0, 0, 0, block.pcs[-1], 0))
    elif not block.transfers:
        rows.append((FALL_THROUGH, 0, 0, 0, 0, 0, 0, block.pcs[-1], block.end_pc))
    return np.array(rows, OPERATION_DTYPE)


def _operation(instruction: Instruction, pc: int, moment: int) -> tuple[int, ...]:
    """The row of `OPERATION_DTYPE` of an instruction; ``moment``: its field."""
    row = instruction.row
    handler = HANDLERS.get((row.index, instruction.variant))
    if handler is None:  # the rounding mode does not matter to this instruction
        handler = HANDLERS[(row.index, DYNAMIC_ROUNDING)]
    kinds = row.register_kinds
    rd = instruction.rd
    if kinds[0] == "x" and rd == 0:
        rd = SCRATCH_REGISTER
    elif kinds[0] == "f":
        rd += 32
    rs = [
        number + (32 if kind == "f" else 0)
        for kind, number in zip(kinds[1:], (instruction.rs1, instruction.rs2, instruction.rs3), strict=True)
    ]
    return (handler, rd, *rs, moment, instruction.imm, pc, pc + instruction.length_bytes)
