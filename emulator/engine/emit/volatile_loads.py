"""Volatile loads: loads that LLVM must not remove or move, because they may fault.

A load that faults must fault in its place, whether its value is used or not. LLVM removes a load whose value is unused,
sinks it to the one successor that uses it, or merges two loads. It cannot do so if an effect in the same block depends
on the value: a store, an address, the branch at the end, a floating-point operation (it raises flags). All other loads
are emitted volatile.
"""

from __future__ import annotations

from collections.abc import Sequence

from emulator.events import ACCESS_STORE
from emulator.isa.decode import Instruction

# By instruction word: the register written, the registers read (0 for none, f registers from 32 on), whether it has an
# effect beside writing the register, and whether it accesses memory.
_summaries: dict[int, tuple[int, tuple[int, ...], bool, bool]] = {}


def volatile_loads(instructions: Sequence[Instruction]) -> list[bool]:
    """For each instruction of a block, whether it is a load on whose value no effect in the block depends."""
    needed: set[int] = set()
    found = [False] * len(instructions)
    for place in range(len(instructions) - 1, -1, -1):
        instruction = instructions[place]
        target, sources, happens, accesses = _summaries.get(instruction.word) or _summarise(instruction)
        has_target = target in needed
        needed.discard(target)
        found[place] = accesses and not happens and not has_target
        if happens or has_target or accesses:
            needed.update(sources)
        needed.discard(0)
    return found


def _summarise(instruction: Instruction) -> tuple[int, tuple[int, ...], bool, bool]:
    """Compute and cache the entry of `_summaries` for an instruction."""
    row = instruction.row
    numbers = (instruction.rd, instruction.rs1, instruction.rs2, instruction.rs3)
    target, *sources = (
        number + 32 * (kind == "f") if kind != "-" else 0
        for kind, number in zip(row.register_kinds, numbers, strict=True)
    )
    happens = bool(row.ends_block or row.access & ACCESS_STORE or "rm" in row.fields)
    found = _summaries[instruction.word] = target, tuple(sources), happens, bool(row.access)
    return found
