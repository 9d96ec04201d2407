"""Dynamic basic blocks: decoding them from guest memory, and their static facts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.engine.address_tables import GUEST_SPACE, Table
from emulator.engine.decode.block_interning import InternedBlocks
from emulator.errors import EmulatorError
from emulator.events import FIRST_PROGRAM, MAX_BLOCK_INSTRUCTIONS, BlockFacts, OpClass
from emulator.isa.decode import Instruction, decode
from emulator.listeners import CodeListener

_STATIC_TARGETS = (OpClass.BRANCH, OpClass.JUMP, OpClass.CALL)
_PAIRED = {OpClass.INDIRECT_CALL: OpClass.CALL, OpClass.INDIRECT_JUMP: OpClass.JUMP}
_MAX_HALVES = 2 * MAX_BLOCK_INSTRUCTIONS  # of a block
_FEW = 16  # elements that take as long one by one as in numpy
_FALLS_THROUGH = (OpClass.BRANCH, OpClass.CALL, OpClass.INDIRECT_CALL)


class Block(NamedTuple):
    """A dynamic basic block. ``target_pc``: the static taken target; None where there is none."""

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
        if op_class in _FALLS_THROUGH:
            found.append(self.end_pc)
        return found


def facts_row(instruction: Instruction, pc: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """The instruction's row of INSTRUCTION_DTYPE: absent registers are 0, f registers 32-63."""
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
    """Blocks by start address. ``fetch(pc)`` gives the raw bits at pc or raises a guest fault; ``on_illegal(pc, raw)``
    gives the fault of an illegal instruction; ``listener`` gets a report of each block that `get` decodes;
    ``program``: the number of the program that the blocks are of."""

    def __init__(
        self, fetch: Callable[[int], int], on_illegal: Callable[[int, int], EmulatorError],
        listener: CodeListener | None = None, program: int = FIRST_PROGRAM,
    ) -> None:  # fmt: skip
        self.program = program
        self._fetch = fetch
        self._on_illegal = on_illegal
        self.facts = BlockFacts()
        self.by_pc: dict[int, Block] = {}
        self.interned: InternedBlocks | None = None  # blocks of all processes, when there are several
        self._listener = listener
        self._starts = Table(GUEST_SPACE >> 1)  # by pc / 2: 1 where a block begins
        self._undecoded: dict[int, int] = {}  # pc to number, of blocks that have facts and are not decoded yet

    def get(self, pc: int) -> Block:
        """The block that starts at ``pc``, discovered on first use.

        An instruction that cannot be fetched or decoded ends the block before it; it faults when reached.
        """
        block = self.by_pc.get(pc)
        if block is None:
            block = self._discover(pc)
            self.by_pc[pc] = block
            self._starts.bytes[pc >> 1] = 1
            if self._listener is not None:
                self._listener.block_decoded(pc)
        return block

    def known_block(self, pc: int) -> Block | None:
        """The block that starts at ``pc`` if it was ever discovered, in this process or an earlier one."""
        block = self.by_pc.get(pc)
        if block is None and pc in self._undecoded:
            block = self.get(pc)
        return block

    def add(self, pcs: Sequence[int], numbers: Sequence[int]) -> None:
        """Add blocks that have facts already; they are decoded on demand."""
        self._undecoded.update(zip(pcs, numbers, strict=True))
        if len(pcs) < _FEW:
            for pc in pcs:
                self._starts.bytes[pc >> 1] = 1
        else:
            self._starts.view("u1")[np.asarray(pcs, np.int64) >> 1] = 1

    def join(self, other: BlockCache) -> None:
        """Share facts and block numbers with ``other``."""
        if other.interned is None:
            other.interned = InternedBlocks(other.facts)
        self.facts, self.interned = other.facts, other.interned

    def begin_of(self, block: Block, n_instructions: int) -> int:
        """The number of the first ``n_instructions`` of ``block``: see `BlockFacts.begin_of`."""
        number = self.facts.begin_of(block.number, n_instructions)
        if self._listener is not None:
            self._listener.block_decoded(block.pc)
        return number

    def number_of(self, pc: int) -> int | None:
        """The number of the block at ``pc``; None when it is unknown."""
        block = self.by_pc.get(pc)
        return self._undecoded.get(pc) if block is None else block.number

    def number_at(self, pc: int) -> int:
        """The number of the block at ``pc``, discovered on first use."""
        number = self.number_of(pc)
        return self.get(pc).number if number is None else number

    def numbers(self) -> set[int]:
        """The numbers of all known blocks.

        The compiling thread may decode blocks meanwhile: it adds them to ``by_pc``, and they stay in ``_undecoded``. So
        this reads ``_undecoded`` first, and whole.
        """
        return {*self._undecoded.values(), *(block.number for block in list(self.by_pc.values()))}

    def overlapping(self, changed: NDArray[np.int64]) -> list[int]:
        """Addresses of the blocks that contain one of the halfwords ``changed`` (pc / 2, ascending, not empty)."""
        found: list[int] = []
        halves: list[int] = changed.tolist()
        end_pcs = self.facts.blocks["end_pc"]
        seen = 0  # block starts before this place are done
        for half in halves:
            start = max(seen, half - _MAX_HALVES, 0)
            seen = half + 1
            while (start := self._starts.find(b"\1", start, seen)) >= 0:
                number = self.number_of(2 * start)
                assert number is not None
                at = bisect_left(halves, start)
                if at < len(halves) and 2 * halves[at] < end_pcs[number]:
                    found.append(2 * start)
                start += 1
        return found

    def invalidate(self, pcs: Sequence[int]) -> None:
        """Drop the blocks at ``pcs``, whose code has changed; their facts and numbers stay valid."""
        for pc in pcs:
            self._starts.bytes[pc >> 1] = 0
            self.by_pc.pop(pc, None)
            self._undecoded.pop(pc, None)

    def close(self) -> None:
        """Drop all blocks; their facts stay."""
        self.by_pc, self._undecoded = {}, {}
        self._starts.clear()

    def _discover(self, start: int) -> Block:
        """Decode the block at ``start``, or take it from facts or interned blocks. Raises the guest's fault."""
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
            except EmulatorError:
                if not instructions:
                    raise
                break
            instructions.append(instruction)
            pcs.append(pc)
            words.append(raw)
            pc += instruction.length_bytes
            if instruction.ends:
                break
        number = None if self.interned is None else self.interned.find(start, words, self.program)
        if number is not None:
            return _block(number, instructions, pcs, words)
        observed_class, observed_target = _transfer(instructions, pcs)
        rows = [facts_row(i, at) for i, at in zip(instructions, pcs, strict=True)]
        rows[-1] = (*rows[-1][:2], observed_class, *rows[-1][3:])
        number = self.facts.append(rows, observed_target, words, self.program)
        return _block(number, instructions, pcs, words)

    def _from_facts(self, number: int) -> Block:
        """The block as it was when discovered, whatever its memory holds now."""
        about = self.facts.blocks[number]
        first = int(about["first_instruction"])
        rows = self.facts.instructions[first : first + int(about["n_instructions"])]
        words, pcs = rows["word"].tolist(), rows["pc"].tolist()
        instructions = [decode(word) for word in words]
        return _block(number, [i for i in instructions if i is not None], pcs, words)


def _block(number: int, instructions: Sequence[Instruction], pcs: Sequence[int], words: Sequence[int]) -> Block:
    """The `Block` of decoded instructions."""
    last = instructions[-1]
    observed_class, observed_target = _transfer(instructions, pcs)
    return Block(
        number, pcs[0], pcs[-1] + last.length_bytes, tuple(instructions), tuple(pcs), tuple(words),
        observed_target if last.op_class in _STATIC_TARGETS else None,
        last.row.ends_block and not last.row.slow, last.slow,
        observed_target if observed_class == OpClass.CALL else None,
    )  # fmt: skip


def observed_class(block: Block) -> OpClass:
    """The class of the last instruction of ``block`` in the facts."""
    return _transfer(block.instructions, block.pcs)[0]


def _transfer(instructions: Sequence[Instruction], pcs: Sequence[int]) -> tuple[OpClass, int | None]:
    """Class and static target of the instruction that ends the block.

    Compilers write most calls as auipc and jalr, whose target is in the code like that of jal: the facts have it as
    a direct call (or, where nothing is linked, a direct jump).
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
