"""Blocks as observers are told of them: transfers whose target is in the code."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.engine import blocks
from emulator.engine.blocks import Block, BlockCache
from emulator.errors import GuestFault
from emulator.events import OpClass
from emulator.isa.decode import Instruction, decode

AUIPC_RA, AUIPC_T1 = 0x00001097, 0x00001317  # auipc ra|t1, 1
JALR_RA_RA, JALR_ZERO_T1 = 0x010080E7, 0x01030067  # jalr ra, 16(ra); jalr x0, 16(t1)
JALR_RA_A0, JAL_RA = 0x000500E7, 0x100000EF  # jalr ra, 0(a0); jal ra, +256
NOP = 0x00000013


def illegal(pc: int, raw: int) -> GuestFault:
    return GuestFault(f"{raw:#x} at {pc:#x}", 4, pc)


def discover(words: list[int], start: int = 0x2000) -> tuple[Block, BlockCache]:
    def fetch(pc: int) -> int:
        return words[(pc - start) // 4]

    cache = BlockCache(fetch, illegal)
    return cache.get(start), cache


@pytest.mark.parametrize(
    ("words", "op_class", "target", "call_target"),
    [
        ([AUIPC_RA, JALR_RA_RA], OpClass.CALL, 0x3010, 0x3010),
        ([AUIPC_T1, JALR_ZERO_T1], OpClass.JUMP, 0x3010, None),
        ([JAL_RA], OpClass.CALL, 0x2100, 0x2100),
        ([AUIPC_RA, JALR_RA_A0], OpClass.INDIRECT_CALL, None, None),  # another register
        ([AUIPC_RA, NOP, JALR_RA_RA], OpClass.INDIRECT_CALL, None, None),  # not next to each other
        ([0x80000097, JALR_RA_RA], OpClass.INDIRECT_CALL, None, None),  # outside the address space
    ],
)
def test_transfers_with_a_target_in_the_code(
    words: list[int], op_class: OpClass, target: int | None, call_target: int | None
) -> None:
    block, cache = discover(words)
    row = cache.facts.blocks[0]
    assert row["terminator"] == op_class == cache.facts.instructions["op_class"][len(words) - 1]
    assert (int(row["target_pc"]) if row["target_known"] else None) == target
    assert block.call_target == call_target
    # The engine goes by the registers: only jal has a target of its own there.
    assert block.target_pc == (target if words == [JAL_RA] else None)


def test_blocks_that_are_decoded_later_keep_their_numbers() -> None:
    _, cache = discover([NOP, JAL_RA])
    block = cache.get(0x2004)
    later = BlockCache(cache._fetch, illegal)
    later.facts = cache.facts
    later.add([0x2000, 0x2004], [0, 1])
    assert later.known_block(0x2008) is None
    assert later.numbers() == {0, 1}
    assert later.number_at(0x2004) == later.number_of(0x2004) == 1
    assert later.known_block(0x2004) == block
    assert later.facts.n_blocks == 2
    another = BlockCache(cache._fetch, illegal)
    another.facts = cache.facts
    assert another.number_at(0x2004) == another.number_of(0x2004) == 2


def test_the_compiling_thread_decodes_a_block_while_all_numbers_are_collected() -> None:
    """A block without its number here would run without its analyzers' functions."""
    _, cache = discover([NOP, JAL_RA])
    cache.get(0x2004)
    later = BlockCache(cache._fetch, illegal)
    later.facts = cache.facts
    later.add([0x2000, 0x2004], [0, 1])

    class Decoding(dict[int, Block]):
        """Has the block at 0x2004 decoded as soon as all blocks have been read."""

        def values(self) -> list[Block]:  # type: ignore[override]
            found = list(super().values())
            later.get(0x2004)
            return found

    later.by_pc = Decoding()
    assert later.numbers() == {0, 1}


def test_what_reaches_into_changed_code_is_forgotten() -> None:
    memory = {
        0x1FF8: NOP,
        0x1FFC: NOP,
        0x2000: JAL_RA,
        0x2010: NOP,
        0x2014: JAL_RA,
        0x3000: NOP,
        0x3004: JAL_RA,
    }
    cache = BlockCache(lambda pc: memory[pc], illegal)
    starts = (0x1FF8, 0x2010, 0x3000)
    numbers = [cache.get(pc).number for pc in starts]
    assert cache.overlapping(np.array([0x1FF6, 0x2004, 0x200E, 0x2018, 0x3010]) >> 1) == []
    changed = np.array([0x2002, 0x2012, 0x2014]) >> 1
    assert cache.overlapping(changed) == [0x1FF8, 0x2010]
    cache.invalidate([0x1FF8, 0x2010])
    assert cache.overlapping(changed) == []
    assert [cache.number_of(pc) for pc in starts] == [None, None, numbers[2]]
    assert cache.get(0x2010).number == 3  # a row of its own: the one before is of other code


def test_a_block_ends_before_an_instruction_that_faults() -> None:
    block, cache = discover([NOP, 0])
    assert block.pcs == (0x2000,)
    with pytest.raises(GuestFault, match="0x0 at 0x2004"):
        cache.get(0x2004)


def test_a_defect_of_the_decoder_ends_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(raw: int) -> Instruction | None:
        if raw == JAL_RA:
            raise IndexError
        return decode(raw)

    monkeypatch.setattr(blocks, "decode", broken)
    with pytest.raises(IndexError):
        discover([NOP, JAL_RA])
