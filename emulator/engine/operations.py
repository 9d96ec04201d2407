"""What the interpreter walks: blocks as pre-decoded operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.engine.blocks import Block
from emulator.engine.lines import noted
from emulator.engine.state import MXCSR_ROUNDING
from emulator.isa.decode import DYNAMIC_ROUNDING, Instruction
from emulator.isa.table import TABLE

OPERATION_DTYPE = np.dtype(
    [
        ("handler", "u2"), ("rd", "u1"), ("rs1", "u1"), ("rs2", "u1"), ("rs3", "u1"),
        ("noted", "u2"),  # 1 + the place in its block of an instruction whose access is noted, else 0
        ("imm", "i8"), ("pc", "u8"), ("next_pc", "u8"),
    ]
)  # fmt: skip
DESCRIPTOR_DTYPE = np.dtype(
    [
        ("operations", "u8"), ("count", "u4"), ("n_instructions", "u4"), ("number", "u4"),
        ("threshold", "u4"),  # executions at which the interpreter reports the block
        ("pc", "u4"), ("n_operations", "u4"),
    ]
)  # fmt: skip
SCRATCH_REGISTER = 64  # x0 as a destination

# Conversions to integers have one handler a rounding mode; other rows one each; then the pseudo operations.
_Key = tuple[int, int]
HANDLERS: dict[_Key, int] = {}
for _row in TABLE:
    _integer_result = "rm" in _row.fields and _row.register_kinds[0] == "x"
    for _rm in (0, 1, 2, 3, 4, DYNAMIC_ROUNDING) if _integer_result else (DYNAMIC_ROUNDING,):
        if not _row.slow:
            HANDLERS[(_row.index, _rm)] = len(HANDLERS)
FALL_THROUGH = len(HANDLERS)
SLOW = FALL_THROUGH + 1
SET_ROUNDING, RESTORE_ROUNDING = SLOW + 1, SLOW + 2  # around an instruction of fixed rounding


def operations_of(block: Block) -> np.ndarray[Any, np.dtype[np.void]]:
    """The block as interpreter operations; the last one transfers control."""
    rows = []
    instructions = block.instructions[:-1] if block.slow else block.instructions
    places = noted(instructions)
    for place, (instruction, pc) in enumerate(zip(instructions, block.pcs, strict=False)):
        operation = _operation(instruction, pc, 1 + place if places[place] else 0)
        if instruction.fixed:
            change = (SET_ROUNDING, 0, 0, 0, 0, 0, MXCSR_ROUNDING[instruction.rm], pc, 0)
            rows += [change, operation, (RESTORE_ROUNDING, 0, 0, 0, 0, 0, 0, pc, 0)]
        else:
            rows.append(operation)
    if block.slow:
        rows.append((SLOW, 0, 0, 0, 0, 0, 0, block.pcs[-1], 0))
    elif not block.transfers:
        rows.append((FALL_THROUGH, 0, 0, 0, 0, 0, 0, block.pcs[-1], block.end_pc))
    return np.array(rows, OPERATION_DTYPE)


def _operation(instruction: Instruction, pc: int, place: int) -> tuple[int, ...]:
    row = instruction.row
    handler = HANDLERS.get((row.index, instruction.rm))
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
    return (handler, rd, *rs, place, instruction.imm, pc, pc + instruction.length_bytes)
