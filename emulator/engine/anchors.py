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

# By word: the register that is written, those that are read (0 for none, f registers from 32 on), whether it happens
# whatever becomes of what it writes, and whether it accesses memory.
_told: dict[int, tuple[int, tuple[int, ...], bool, bool]] = {}


def loose_loads(instructions: Sequence[Instruction]) -> list[bool]:
    """For each instruction of a block, whether it is a load that nothing else in the block holds in its place."""
    needed: set[int] = set()
    found = [False] * len(instructions)
    for place in range(len(instructions) - 1, -1, -1):
        instruction = instructions[place]
        target, sources, happens, accesses = _told.get(instruction.word) or _tell(instruction)
        has_target = target in needed
        needed.discard(target)
        found[place] = accesses and not happens and not has_target
        if happens or has_target or accesses:
            needed.update(sources)
        needed.discard(0)
    return found


def _tell(instruction: Instruction) -> tuple[int, tuple[int, ...], bool, bool]:
    row = instruction.row
    numbers = (instruction.rd, instruction.rs1, instruction.rs2, instruction.rs3)
    target, *sources = (
        number + 32 * (kind == "f") if kind != "-" else 0
        for kind, number in zip(row.register_kinds, numbers, strict=True)
    )
    happens = bool(row.ends_block or row.access & ACCESS_STORE or "rm" in row.fields)
    found = _told[instruction.word] = target, tuple(sources), happens, bool(row.access)
    return found
