"""The numbers of stencils that belong to no instruction, and the holes of stencils: what their compiler and the kernel
that copies them agree on."""

from __future__ import annotations

from emulator.engine.decode.operations import RESTORE_ROUNDING

# The prologue and the block head come before the operations of a block; the stubs are emitted once for all templates.
PROLOGUE, HEAD, EXIT_STUB, FAULT_STUB = range(RESTORE_ROUNDING + 1, RESTORE_ROUNDING + 5)
N_STENCILS = FAULT_STUB + 1

# Holes, by their place among the values that fill them: of an operation, of a block, of all code.
HOLE_RANGES = {
    "rd": (0, 1024), "rs1": (0, 1024), "rs2": (0, 1024), "rs3": (0, 1024),  # offsets of registers in the state
    "moment": (0, 1 << 16), "imm": (-(1 << 31), 1 << 31), "pc": (0, 1 << 31), "next_pc": (0, 1 << 31),
    "length": (0, 1 << 16),  # instructions of the block
    "branch_target": (0, 1 << 31), "far_branch_target": (-1, -1),  # pc + imm
    "next_entry": (-1, -1), "branch_target_entry": (-1, -1), "descriptor": (-1, -1),  # host addresses
    "code_area": (0, 1 << 31),  # host address of the code area >> `CODE_AREA_SHIFT`
    "prologue_bytes": (0, 128),  # the size of `PROLOGUE`
}  # fmt: skip
CODE_AREA_SHIFT = 26  # all templates of a tier are in one code area, aligned to its size
HOLES = {name: place for place, name in enumerate([*HOLE_RANGES, "next", "exit_stub", "fault_stub", "constants"])}
N_VALUES = 32
