"""Which loads an optimising compiler could lose, or move to where their value is used at last.

A load that faults must fault where it stands, whether its value is used or not. LLVM leaves out a load of which nothing
comes, sinks it to the one successor that uses it, or makes one load of two that meet. It can do so unless something
that must happen in the same block depends on the value: a store, an address, the branch at the end, a floating-point
operation (it raises flags). All other loads are to be emitted volatile.
"""

from __future__ import annotations

from collections.abc import Sequence

from emulator.events import ACCESS_STORE
from emulator.isa.decode import Instruction


def loose_loads(instructions: Sequence[Instruction]) -> list[bool]:
    """For each instruction of a block, whether it is a load that nothing else in the block holds in its place."""
    needed: set[int] = set()
    found = [False] * len(instructions)
    for place in reversed(range(len(instructions))):
        instruction = instructions[place]
        row = instruction.row
        numbers = (instruction.rd, instruction.rs1, instruction.rs2, instruction.rs3)
        registers = [
            number + 32 * (kind == "f") if kind != "-" else 0
            for kind, number in zip(row.register_kinds, numbers, strict=True)
        ]
        happens = row.ends_block or row.access & ACCESS_STORE or "rm" in row.fields
        has_rd = registers[0] in needed
        needed.discard(registers[0])
        found[place] = bool(row.access) and not happens and not has_rd
        if happens or has_rd or row.access:
            needed.update(registers[1:])
        needed.discard(0)
    return found
