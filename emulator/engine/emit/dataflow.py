"""Dataflow analysis of a region: liveness and definitions of registers at block borders, before code is emitted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from emulator.engine.blocks import Block
from emulator.engine.emit.indirect_targets import IndirectTargets
from emulator.engine.entry.calling_convention import PINNED
from emulator.events import TraceSelection
from emulator.isa.decode import Instruction

MAX_UNCHECKED_INSTRUCTIONS = 256
MAX_LOOP_INSTRUCTIONS = 150  # the longest loop whose registers stay in host registers
_PASSED = frozenset(PINNED)
_FIRST_F = 32  # f registers are numbered from here


_registers: dict[int, tuple[tuple[int, ...], int | None]] = {}  # cache of `registers_of`, by instruction word


def registers_of(instruction: Instruction) -> tuple[tuple[int, ...], int | None]:
    """All registers that an instruction names (f registers from 32 on), and the register that it writes, or None."""
    found = _registers.get(instruction.word)
    if found is not None:
        return found
    kinds = instruction.row.register_kinds
    numbers = (instruction.rd, instruction.rs1, instruction.rs2, instruction.rs3)
    named = tuple(
        number + (_FIRST_F if kind == "f" else 0)
        for kind, number in zip(kinds, numbers, strict=True)
        if kind != "-" and not (kind == "x" and number == 0)
    )
    written = None
    if kinds[0] == "f":
        written = instruction.rd + _FIRST_F
    elif kinds[0] == "x" and instruction.rd:
        written = instruction.rd
    _registers[instruction.word] = named, written
    return named, written


def writes_nan_boxed(instruction: Instruction) -> bool:
    """Whether the instruction's result is a single, which is NaN-boxed in its register."""
    name = instruction.row.mnemonic
    return name in ("flw", "fmv.w.x") or (instruction.row.register_kinds[0] == "f" and name.split(".")[1:2] == ["s"])


def nan_boxed_read(instruction: Instruction) -> list[int]:
    """f registers (from 32 on) that the instruction reads as singles: a value that is not NaN-boxed reads as a NaN."""
    row = instruction.row
    if not row.mnemonic.endswith(".s"):
        return []
    numbers = (instruction.rs1, instruction.rs2, instruction.rs3)
    return [n + _FIRST_F for kind, n in zip(row.register_kinds[1:], numbers, strict=True) if kind == "f"]


def accesses(block: Block) -> bool:
    """Whether the block accesses memory."""
    return any(instruction.row.access for instruction in block.instructions)


class Dataflow:
    """The facts that `RegionEmitter` needs, by pc of the block where they are about blocks.

    Input: ``indirect_targets``: targets of computed jumps inside the region; ``resident``: registers are in the state
    buffer between blocks; ``registers_change``: inline functions may write registers.

    ``used``: registers that the region names, ascending.
    ``successors``: pcs of the blocks of the region that a block branches to.
    ``dirty_in``, ``dirty_out``: registers that may differ from the state buffer before and after a block.
    ``stored``: registers that a block writes to the state buffer at its end. Blocks of short innermost loops store
    none, so each exit from the loop has to; elsewhere, with many exits and few iterations, blocks store what they
    write, which halves LLVM's work.
    ``checked_bases_in``: registers that were checked as bases of accesses on every path to the block and not written
    since.
    ``nan_boxed_in``: f registers that hold a NaN-boxed single on every path to the block inside the region and are
    read as singles later; an entry of the region has to check them.
    ``checks``: blocks that check the budget. ``loop_heads``: targets of backward branches.
    """

    def __init__(
        self,
        blocks: dict[int, Block],
        entries: list[int],
        indirect_targets: IndirectTargets,
        selection: TraceSelection,
        resident: bool,
        registers_change: bool,
    ) -> None:
        self._blocks, self._entries, self._indirect_targets = blocks, entries, indirect_targets
        self._selection, self._resident = selection, resident
        used: set[int] = set(PINNED)
        self._written: dict[int, set[int]] = {}
        self._unsynced: dict[int, set[int]] = {}  # registers written by the block's last access or later
        for block in blocks.values():
            written: set[int] = set()
            unsynced: set[int] = set()
            for instruction in block.instructions:
                named, target = registers_of(instruction)
                used.update(named)
                if instruction.row.access:
                    unsynced.clear()
                if target is not None:
                    written.add(target)
                    unsynced.add(target)
            self._written[block.pc], self._unsynced[block.pc] = written, unsynced
        self.used = sorted(used)
        self.successors = {pc: self._successors(block) for pc, block in blocks.items()}
        self._loops = self._small_loops()
        self._find_dirty_registers()
        self.checked_bases_in = {pc: set() for pc in blocks} if registers_change else self._find_checked_bases()
        # A register that is not NaN-boxed at an entry sends control to the fallback. If inline functions may change
        # registers, nothing is assumed of them.
        self.nan_boxed_in = {pc: set() for pc in blocks} if registers_change else self._find_nan_boxed()
        # An endless loop passes a loop head of the region or an entry; entries are checked in the prologue.
        self.checks = set(blocks) if selection.exact_stop else self.loop_heads
        if not selection.exact_stop:
            self._check_long_paths()

    def _successors(self, block: Block) -> list[int]:
        """The pcs of the blocks of the region to which control goes after ``block`` without leaving the region."""
        if block.slow:
            return []
        found = []
        if not block.transfers:
            found.append(block.end_pc)
        else:
            if block.target_pc is not None:
                found.append(block.target_pc)
            found += self._indirect_targets.get(block.pc, ())
            if block.last.row.mnemonic.startswith("b"):
                found.append(block.end_pc)
        return [pc for pc in found if pc in self._blocks]

    def _small_loops(self) -> set[int]:
        """The blocks of short innermost loops: those between the target of a backward branch and the branch."""
        ends: dict[int, int] = {}  # last block, by head
        for pc, successors in self.successors.items():
            for head in successors:
                if head <= pc:
                    ends[head] = max(pc, ends.get(head, 0))
        found: set[int] = set()
        heads = sorted(ends)
        pcs = sorted(self._blocks)
        for head, after in zip(heads, [*heads[1:], 1 << 62], strict=False):
            if after <= ends[head]:
                continue  # not innermost
            inside = pcs[bisect_left(pcs, head) : bisect_right(pcs, ends[head])]
            if sum(len(self._blocks[pc].instructions) for pc in inside) <= MAX_LOOP_INSTRUCTIONS:
                found.update(inside)
        return found

    def _find_dirty_registers(self) -> None:
        """Find ``dirty_in``, ``dirty_out``, ``stored`` and ``loop_heads``, by iteration to a fixed point."""
        into: dict[int, set[int]] = {pc: set() for pc in self._blocks}
        work = list(self._blocks)
        synced: set[int] = set()
        if self._selection.exact_faults:
            synced = {pc for pc, block in self._blocks.items() if accesses(block)}
            if not self._resident:
                for pc in self._entries:
                    into[pc].update(PINNED)  # they are passed in host registers
        self.dirty_in = into
        self.dirty_out: dict[int, set[int]] = {pc: set() for pc in self._blocks}
        self.stored: dict[int, set[int]] = {pc: set() for pc in self._blocks}
        self.loop_heads: set[int] = set()
        while work:
            pc = work.pop()
            out = self._unsynced[pc] if pc in synced else into[pc] | self._written[pc]
            if pc not in self._loops:
                self.stored[pc] = out - _PASSED
                out = out & _PASSED
            self.dirty_out[pc] = out
            for successor in self.successors[pc]:
                if successor <= pc:
                    self.loop_heads.add(successor)
                if not out <= into[successor]:
                    into[successor] |= out
                    work.append(successor)

    def _check_long_paths(self) -> None:
        """Add checks so that no path without a check is longer than `MAX_UNCHECKED_INSTRUCTIONS`."""
        unchecked = dict.fromkeys(self._blocks, 0)  # the most instructions since a check
        for pc, block in sorted(self._blocks.items()):  # backward branches go to loop heads, which are checked
            if pc not in self.checks and unchecked[pc] + len(block.instructions) > MAX_UNCHECKED_INSTRUCTIONS:
                self.checks = self.checks | {pc}
            ran = (0 if pc in self.checks else unchecked[pc]) + len(block.instructions)
            for successor in self.successors[pc]:
                unchecked[successor] = max(unchecked[successor], ran)

    def _find_nan_boxed(self) -> dict[int, set[int]]:
        """Find ``nan_boxed_in``."""
        boxed: dict[int, dict[int, bool]] = {}  # f registers that each block writes, and whether with a single
        # Registers read as singles before they are written: in the block at first, then also after it.
        wanted: dict[int, set[int]] = {}
        before: dict[int, list[int]] = {pc: [] for pc in self._blocks}
        for pc, block in self._blocks.items():
            written: dict[int, bool] = {}
            read: set[int] = set()
            for instruction in block.instructions:
                read.update(n for n in nan_boxed_read(instruction) if n not in written)
                target = registers_of(instruction)[1] or 0
                if target >= _FIRST_F:
                    written[target] = writes_nan_boxed(instruction)
            boxed[pc], wanted[pc] = written, read
            for successor in self.successors[pc]:
                before[successor].append(pc)
        work = list(self._blocks)
        while work:
            pc = work.pop()
            for previous in before[pc]:
                passed = wanted[pc] - boxed[previous].keys() - wanted[previous]
                if passed:
                    wanted[previous] |= passed
                    work.append(previous)
        into = {pc: set(wanted[pc]) if before[pc] else set() for pc in self._blocks}
        changed = any(into.values())
        while changed:
            changed = False
            for pc, registers in into.items():
                kept = {n for n in registers if all(boxed[p].get(n, n in into[p]) for p in before[pc])}
                changed |= kept != registers
                into[pc] = kept
        return into

    def _find_checked_bases(self) -> dict[int, set[int]]:
        """Find ``checked_bases_in``."""
        gained: dict[int, set[int]] = {}
        lost: dict[int, set[int]] = {}
        before: dict[int, list[int]] = {pc: [] for pc in self._blocks}
        for pc, block in self._blocks.items():
            checked: set[int] = set()
            for instruction in block.instructions:
                if instruction.row.access:
                    checked.add(instruction.rs1)
                checked.discard(registers_of(instruction)[1] or 0)
            gained[pc], lost[pc] = checked, self._written[pc]
            for successor in self.successors[pc]:
                before[successor].append(pc)
        every = set(range(1, 32))
        into = {pc: set() if pc in self._entries or not before[pc] else set(every) for pc in self._blocks}
        changed = True
        while changed:
            changed = False
            for pc in self._blocks:
                if not into[pc]:
                    continue
                checked = into[pc].intersection(*((into[p] - lost[p]) | gained[p] for p in before[pc]))
                changed |= checked != into[pc]
                into[pc] = checked
        return into
