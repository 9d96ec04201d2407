"""What holds at the borders of the blocks of a region: pure analysis, before anything is emitted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from emulator.engine.abi import PINNED
from emulator.engine.blocks import Block
from emulator.engine.ways import Ways
from emulator.events import TraceSelection
from emulator.isa.decode import Instruction

MAX_UNCHECKED_INSTRUCTIONS = 256
MAX_LOOP_INSTRUCTIONS = 150  # of a loop whose registers stay in host registers
_PASSED = frozenset(PINNED)
_FIRST_F = 32  # the number of the first f register here


_registers: dict[int, tuple[tuple[int, ...], int | None]] = {}  # by word: as many as there are instructions


def registers_of(instruction: Instruction) -> tuple[tuple[int, ...], int | None]:
    """All registers that an instruction names (f registers from 32 on) and the one that it writes."""
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


def writes_single(instruction: Instruction) -> bool:
    """Whether its result is a single, which is NaN-boxed in its register."""
    name = instruction.row.mnemonic
    return name in ("flw", "fmv.w.x") or (
        instruction.row.register_kinds[0] == "f" and name.split(".")[1:2] == ["s"]
    )


def singles_read(instruction: Instruction) -> list[int]:
    """f registers (from 32 on) that it reads as singles: a value that is not NaN-boxed counts as a NaN."""
    row = instruction.row
    if not row.mnemonic.endswith(".s"):
        return []
    numbers = (instruction.rs1, instruction.rs2, instruction.rs3)
    return [n + _FIRST_F for kind, n in zip(row.register_kinds[1:], numbers, strict=True) if kind == "f"]


def accesses(block: Block) -> bool:
    """Whether it accesses memory."""
    return any(instruction.row.access for instruction in block.instructions)


class Flow:
    """What a region's emission has to know; all by pc of a block where it is about blocks.

    ``used``: registers that the region names, ascending. ``successors``: those that are reached by a branch inside the
    region; ``ways``: where computed jumps may lead. ``dirty_in``, ``dirty_out``: those that may differ from the
    state buffer before and after a block; ``sound_in``: those that were checked as bases of accesses on every way to
    it and not written since; ``boxed_in``: f registers that are yet to be read as singles and have one on every way to
    it inside the region: where it is an entry, too, that has to be looked at. ``checks``: blocks that check the
    budget; ``loop_heads``: those that are gone back to. ``stored``: registers that a block writes to the state buffer
    at its end. Short innermost loops leave none there, which costs each exit from them the stores; elsewhere, where
    there are many exits and few rounds, the blocks store what they write, and LLVM has half as much to do.
    ``resident``: registers are in the state buffer between blocks; ``changing``: others may write them.
    """

    def __init__(
        self,
        blocks: dict[int, Block],
        entries: list[int],
        ways: Ways,
        selection: TraceSelection,
        resident: bool,
        changing: bool,
    ) -> None:
        self._blocks, self._entries, self._ways, self._selection = blocks, entries, ways, selection
        self._resident = resident
        used: set[int] = set(PINNED)
        self._written: dict[int, set[int]] = {}
        self._unsettled: dict[int, set[int]] = {}  # by the block's last access or later
        for block in blocks.values():
            written: set[int] = set()
            unsettled: set[int] = set()
            for instruction in block.instructions:
                named, target = registers_of(instruction)
                used.update(named)
                if instruction.row.access:
                    unsettled.clear()
                if target is not None:
                    written.add(target)
                    unsettled.add(target)
            self._written[block.pc], self._unsettled[block.pc] = written, unsettled
        self.used = sorted(used)
        self.successors = {pc: self._successors(block) for pc, block in blocks.items()}
        self._loops = self._small_loops()
        self._follow()
        self.sound_in = {pc: set() for pc in blocks} if changing else self._sound_bases()
        # Who does not have what an entry expects is run by what runs blocks outside of regions, which must be one.
        self.boxed_in = {pc: set() for pc in blocks} if changing else self._boxed_singles()
        # An endless loop passes a loop head of the region or an entry, all of which are checked in one place.
        self.checks = set(blocks) if selection.exact_stop else self.loop_heads
        if not selection.exact_stop:
            self._check_long_ways()

    def _successors(self, block: Block) -> list[int]:
        if block.slow:
            return []
        found = []
        if not block.transfers:
            found.append(block.end_pc)
        else:
            if block.target_pc is not None:
                found.append(block.target_pc)
            found += self._ways.get(block.pc, ())
            if block.last.row.mnemonic.startswith("b"):
                found.append(block.end_pc)
        return [pc for pc in found if pc in self._blocks]

    def _small_loops(self) -> set[int]:
        """The blocks of innermost loops that are short: what lies between the target of a branch backwards and the
        branch."""
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
                continue  # there is another one inside
            inside = pcs[bisect_left(pcs, head) : bisect_right(pcs, ends[head])]
            if sum(len(self._blocks[pc].instructions) for pc in inside) <= MAX_LOOP_INSTRUCTIONS:
                found.update(inside)
        return found

    def _follow(self) -> None:
        """Which registers may differ from the state buffer, and where loops begin."""
        into: dict[int, set[int]] = {pc: set() for pc in self._blocks}
        work = list(self._blocks)
        settled: set[int] = set()
        if self._selection.exact_faults:
            settled = {pc for pc, block in self._blocks.items() if accesses(block)}
            if not self._resident:
                for pc in self._entries:
                    into[pc].update(PINNED)  # they come in host registers
        self.dirty_in = into
        self.dirty_out: dict[int, set[int]] = {pc: set() for pc in self._blocks}
        self.stored: dict[int, set[int]] = {pc: set() for pc in self._blocks}
        self.loop_heads: set[int] = set()
        while work:
            pc = work.pop()
            out = self._unsettled[pc] if pc in settled else into[pc] | self._written[pc]
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

    def _check_long_ways(self) -> None:
        """Check the budget often enough that no way without a check is longer than `MAX_UNCHECKED_INSTRUCTIONS`."""
        unchecked = dict.fromkeys(self._blocks, 0)  # instructions since the last check, at most
        for pc, block in sorted(self._blocks.items()):  # what goes back goes to a loop head, which is checked
            if pc not in self.checks and unchecked[pc] + len(block.instructions) > MAX_UNCHECKED_INSTRUCTIONS:
                self.checks = self.checks | {pc}
            ran = (0 if pc in self.checks else unchecked[pc]) + len(block.instructions)
            for successor in self.successors[pc]:
                unchecked[successor] = max(unchecked[successor], ran)

    def _boxed_singles(self) -> dict[int, set[int]]:
        """Registers with a single, on every way to each block from another one, that a way from there reads as such."""
        boxed: dict[int, dict[int, bool]] = {}  # what each block writes, and whether that is a single
        wanted: dict[
            int, set[int]
        ] = {}  # read as singles before they are written, in the block and then after it
        before: dict[int, list[int]] = {pc: [] for pc in self._blocks}
        for pc, block in self._blocks.items():
            written: dict[int, bool] = {}
            read: set[int] = set()
            for instruction in block.instructions:
                read.update(n for n in singles_read(instruction) if n not in written)
                target = registers_of(instruction)[1] or 0
                if target >= _FIRST_F:
                    written[target] = writes_single(instruction)
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

    def _sound_bases(self) -> dict[int, set[int]]:
        """Registers that were checked as bases of accesses, on every way to each block, and not written since."""
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
                sound = into[pc].intersection(*((into[p] - lost[p]) | gained[p] for p in before[pc]))
                changed |= sound != into[pc]
                into[pc] = sound
        return into
