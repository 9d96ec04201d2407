"""Discovery of dynamic basic blocks in guest memory: decoded instructions and their static facts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.engine.same_blocks import SameBlocks
from emulator.engine.tables import GUEST_SPACE, Table
from emulator.events import MAX_BLOCK_INSTRUCTIONS, BlockFacts, OpClass
from emulator.isa.decode import Instruction, decode

_STATIC_TARGETS = (OpClass.BRANCH, OpClass.JUMP, OpClass.CALL)
_PAIRED = {OpClass.INDIRECT_CALL: OpClass.CALL, OpClass.INDIRECT_JUMP: OpClass.JUMP}
_MOST_HALVES = 2 * MAX_BLOCK_INSTRUCTIONS  # of a block
_FEW = 16  # so many take as long one by one as in numpy
_KEEPS_GOING = (OpClass.BRANCH, OpClass.CALL, OpClass.INDIRECT_CALL)


class Block(NamedTuple):
    """A dynamic basic block. ``target_pc`` is the static taken target; ``ends`` how control leaves."""

    number: int  # row in BlockFacts
    pc: int
    end_pc: int
    instructions: tuple[Instruction, ...]
    pcs: tuple[int, ...]
    words: tuple[int, ...]  # as they are in memory
    target_pc: int | None
    transfers: bool  # the last instruction is a control transfer
    slow: bool  # the last instruction is executed by the oracle
    call_target: int | None  # where a call goes, when that is static: jal, or auipc followed by jalr

    @property
    def last(self) -> Instruction:
        return self.instructions[-1]

    def successors(self) -> list[int]:
        """Static successors in the same function: a call continues at its return site."""
        if self.slow:
            return [self.end_pc]
        if not self.transfers:
            return [self.end_pc]
        op_class = self.last.op_class
        found = []
        if self.target_pc is not None and op_class != OpClass.CALL:
            found.append(self.target_pc)
        if op_class in _KEEPS_GOING:
            found.append(self.end_pc)
        return found


def facts_row(instruction: Instruction, pc: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """The instruction's row of INSTRUCTION_DTYPE: registers that it has not are 0, f registers 32-63."""
    row = instruction.row
    numbers = (instruction.rd, instruction.rs1, instruction.rs2, instruction.rs3)
    registers = [
        0 if kind == "-" else number + (32 if kind == "f" else 0)
        for kind, number in zip(row.register_kinds, numbers, strict=True)
    ]
    return (
        pc, instruction.length_bytes, instruction.op_class, row.access, row.access_bytes, *registers,
    )  # type: ignore[return-value]  # fmt: skip


class BlockCache:
    """Blocks by start address. ``fetch(pc)`` gives the raw bits at pc or raises a guest fault."""

    def __init__(self, fetch: Callable[[int], int], on_illegal: Callable[[int, int], Exception]) -> None:
        self._fetch = fetch
        self._on_illegal = on_illegal
        self.facts = BlockFacts()
        self.by_pc: dict[int, Block] = {}
        self.same: SameBlocks | None = None  # blocks of all processes, when there are several
        self.on_decoded: Callable[[int], None] | None = None  # told of addresses that blocks are known at
        self._starts = Table(GUEST_SPACE >> 1)  # by pc / 2: 1 where a block begins
        self._undecoded: dict[int, int] = {}  # pc to number of blocks that have facts and are not decoded yet

    def get(self, pc: int) -> Block:
        """The block that starts at ``pc``, discovered on first use.

        An instruction that cannot be fetched or decoded ends the block before it; it faults when reached.
        """
        block = self.by_pc.get(pc)
        if block is None:
            block = self._discover(pc)
            self.by_pc[pc] = block
            self._starts.bytes[pc >> 1] = 1
            if self.on_decoded is not None:
                self.on_decoded(pc)
        return block

    def known(self, pc: int) -> Block | None:
        """The block that starts at ``pc`` if it was ever discovered, in this process or an earlier one."""
        block = self.by_pc.get(pc)
        if block is None and pc in self._undecoded:
            block = self.get(pc)
        return block

    def add(self, pcs: Sequence[int], numbers: Sequence[int]) -> None:
        """Blocks were discovered whose facts there are: they are decoded when somebody asks."""
        self._undecoded.update(zip(pcs, numbers, strict=True))
        if len(pcs) < _FEW:
            for pc in pcs:
                self._starts.bytes[pc >> 1] = 1
        else:
            self._starts.view("u1")[np.asarray(pcs, np.int64) >> 1] = 1

    def pcs(self) -> list[int]:
        """Where blocks are known."""
        return [*self.by_pc, *(pc for pc in self._undecoded if pc not in self.by_pc)]

    def join(self, other: BlockCache) -> None:
        """Have facts and numbers of blocks in common with ``other``."""
        if other.same is None:
            other.same = SameBlocks(other.facts)
        self.facts, self.same = other.facts, other.same

    def number_of(self, pc: int) -> int | None:
        """The number of the block at ``pc``; None when none is known."""
        block = self.by_pc.get(pc)
        return self._undecoded.get(pc) if block is None else block.number

    def number_at(self, pc: int) -> int:
        """The same; it is discovered on first use."""
        number = self.number_of(pc)
        return self.get(pc).number if number is None else number

    def numbers(self) -> set[int]:
        """Of all blocks that are known."""
        return {block.number for block in self.by_pc.values()} | {
            number for pc, number in self._undecoded.items() if pc not in self.by_pc
        }

    def reaching(self, changed: NDArray[np.int64]) -> list[int]:
        """Addresses of the blocks with an instruction in one of the ``changed`` halves of addresses, which ascend and
        are some."""
        found: list[int] = []
        halves: list[int] = changed.tolist()
        end_pcs = self.facts.blocks["end_pc"]
        seen = 0  # where blocks begin before there is known
        for half in halves:
            start = max(seen, half - _MOST_HALVES, 0)
            seen = half + 1
            while (start := self._starts.find(b"\1", start, seen)) >= 0:
                number = self.number_of(2 * start)
                assert number is not None
                at = bisect_left(halves, start)
                if at < len(halves) and 2 * halves[at] < end_pcs[number]:
                    found.append(2 * start)
                start += 1
        return found

    def forget(self, pcs: Sequence[int]) -> None:
        """Forget the blocks at ``pcs``, whose code has changed; their facts and numbers stay valid."""
        for pc in pcs:
            self._starts.bytes[pc >> 1] = 0
            self.by_pc.pop(pc, None)
            self._undecoded.pop(pc, None)

    def close(self) -> None:
        """Nobody runs any of them again; their facts stay."""
        self.by_pc, self._undecoded = {}, {}
        self._starts.clear()

    def _discover(self, start: int) -> Block:
        number = self._undecoded.get(start)
        if number is not None:
            return self._from_facts(number)
        instructions: list[Instruction] = []
        pcs: list[int] = []
        words: list[int] = []
        pc = start
        while len(instructions) < MAX_BLOCK_INSTRUCTIONS:
            try:
                raw = self._fetch(pc)
                instruction = decode(raw)
                if instruction is None:
                    raise self._on_illegal(pc, raw)
            except Exception:
                if not instructions:
                    raise
                break
            instructions.append(instruction)
            pcs.append(pc)
            words.append(raw)
            pc += instruction.length_bytes
            if instruction.ends:
                break
        number = None if self.same is None else self.same.find(start, words)
        if number is not None:
            return _block(number, instructions, pcs, words)
        told_class, told_target = _transfer(instructions, pcs)
        rows = [facts_row(i, at) for i, at in zip(instructions, pcs, strict=True)]
        rows[-1] = (*rows[-1][:2], told_class, *rows[-1][3:])
        return _block(self.facts.append(rows, told_target, words), instructions, pcs, words)

    def _from_facts(self, number: int) -> Block:
        """As it was when it was discovered, whatever is there now."""
        about = self.facts.blocks[number]
        first = int(about["first_instruction"])
        rows = self.facts.instructions[first : first + int(about["n_instructions"])]
        words, pcs = rows["word"].tolist(), rows["pc"].tolist()
        instructions = [decode(word) for word in words]
        return _block(number, [i for i in instructions if i is not None], pcs, words)


def _block(
    number: int, instructions: Sequence[Instruction], pcs: Sequence[int], words: Sequence[int]
) -> Block:
    last = instructions[-1]
    told_class, told_target = _transfer(instructions, pcs)
    return Block(
        number, pcs[0], pcs[-1] + last.length_bytes, tuple(instructions), tuple(pcs), tuple(words),
        told_target if last.op_class in _STATIC_TARGETS else None, last.row.ends_block and not last.row.slow, last.slow,
        told_target if told_class == OpClass.CALL else None,
    )  # fmt: skip


def told_class(block: Block) -> OpClass:
    """What observers are told that the last instruction of ``block`` is."""
    return _transfer(block.instructions, block.pcs)[0]


def _transfer(instructions: Sequence[Instruction], pcs: Sequence[int]) -> tuple[OpClass, int | None]:
    """Class and static target of what ends the block.

    Compilers write most calls as auipc and jalr, whose target is in the code like that of jal: observers are
    told a direct call (or, where nothing is linked, a direct jump).
    """
    last = instructions[-1]
    op_class, target = last.op_class, None
    if op_class in _STATIC_TARGETS:
        target = pcs[-1] + last.imm
    elif op_class in _PAIRED and len(instructions) > 1:
        before = instructions[-2]
        if before.row.mnemonic == "auipc" and before.rd == last.rs1:
            op_class, target = _PAIRED[op_class], (pcs[-2] + before.imm + last.imm) & ~1
    if target is None or not 0 <= target < 1 << 31:
        return last.op_class, None
    return op_class, target
