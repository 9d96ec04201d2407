"""Which loads a compiler could move: those on which nothing in their block depends that must happen."""

from __future__ import annotations

import pytest

from emulator.engine.emit.volatile_loads import volatile_loads
from emulator.isa.decode import assemble, decode

LOAD = assemble("ld", 5, 10)


@pytest.mark.parametrize(
    ("rest", "loose"),
    [
        ([], True),  # the value goes out of the block
        ([assemble("addi", 5)], True),  # it is overwritten
        ([assemble("addi", 6, 5, imm=1)], True),  # what comes of it goes out
        ([assemble("sd", rs1=10, rs2=5)], False),
        ([assemble("addi", 6, 5), assemble("beq", rs1=6, rs2=0, imm=8)], False),
        ([assemble("ld", 6, 5)], False),  # it is an address
        ([assemble("addi", 6, 5), assemble("addi", 6), assemble("beq", rs1=6, rs2=0, imm=8)], True),
        ([assemble("fcvt.d.l", 5, 5)], False),  # raises flags
        ([assemble("fmv.d.x", 5, 5)], True),
        ([assemble("jalr", 1, 5)], False),
    ],
)
def test_loads(rest: list[int], loose: bool) -> None:
    instructions = [decode(word) for word in (LOAD, *rest)]
    assert volatile_loads([one for one in instructions if one is not None])[0] is loose


def test_a_load_to_x0_is_loose_and_other_instructions_are_not() -> None:
    words = [
        assemble("lw", 0, 10),
        assemble("fld", 5, 10),
        assemble("addi", 5, 5),
        assemble("amoadd.w", 0, 10, 11),
    ]
    instructions = [decode(word) for word in words]
    assert volatile_loads([one for one in instructions if one is not None]) == [True, True, False, False]
