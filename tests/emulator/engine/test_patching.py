"""Guests that change their code: what they run is new behind each fence.i, and only that is translated anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.isa.decode import assemble
from emulator.machine import Machine
from tests.fuzz.programs import CODE, elf

FUNCTIONS = 8  # of four instructions each, side by side in a page of their own
FUNCTION_BYTES = 16
OPTIONS = {
    "oracle": {"engine": "oracle"},
    "interpreter": {"templates": False, "optimise_executions": 1 << 30, "background": False},
    "templates": {"optimise_executions": 1 << 30, "background": False},
    "optimised": {"optimise_executions": 2, "background": False},
    "background": {"optimise_executions": 2},
}  # fmt: skip
ADD, SUM, PLACE, LEFT = 5, 6, 8, 9
PATCHED = CODE + 0x2000
Step = tuple[int, int, int, bool]  # function, instruction in it, what it adds from now on, whether a fence follows


def program(steps: list[Step]) -> bytes:
    """Calls all functions, and then for each step patches one instruction and, if it says so, fences and calls them all
    again. Each instruction adds something to SUM."""
    words = [assemble("lui", PLACE, imm=PATCHED)]
    call = [
        word
        for n in range(FUNCTIONS)
        for entry in (0, 8)  # its second half is a block of its own
        for word in (assemble("jalr", 1, PLACE, imm=FUNCTION_BYTES * n + entry),)
    ]
    words += call
    for function, place, value, fence in [*steps, (0, 0, 1, True)]:
        patch = assemble("addi", SUM, SUM, imm=value)
        words += [
            assemble("lui", ADD, imm=(patch + 0x800) & 0xFFFFF000),
            assemble("addi", ADD, ADD, imm=patch & 0xFFF),
        ]
        if patch & 0x800:  # the immediate is signed
            words[-1] = assemble("addi", ADD, ADD, imm=(patch & 0xFFF) - 0x1000)
        words.append(assemble("sw", rs1=PLACE, rs2=ADD, imm=FUNCTION_BYTES * function + 4 * place))
        if fence:
            words += [assemble("fence.i"), *call * 3]
    words += [assemble("addi", 10), assemble("addi", 17, imm=93), assemble("ecall")]
    code = b"".join(word.to_bytes(4, "little") for word in words)
    body = [assemble("addi", SUM, SUM, imm=1)] * 3 + [assemble("jalr", 0, 1)]
    functions = b"".join(word.to_bytes(4, "little") for word in body * FUNCTIONS)
    assert len(code) <= PATCHED - CODE, "too many steps"
    made = bytearray(elf(code.ljust(PATCHED - CODE, b"\0") + functions, bytes(64)))
    made[64 + 4] |= 2  # code may be written to
    return bytes(made)


def expected(steps: list[Step]) -> int:
    adds = np.ones((FUNCTIONS, 3), np.int64)
    total = adds.sum() + adds[:, 2].sum()
    for function, place, value, fence in [*steps, (0, 0, 1, True)]:
        adds[function, place] = value
        if fence:
            total += 3 * (adds.sum() + adds[:, 2].sum())
    return int(total) % (1 << 64)


STEPS = st.lists(
    st.tuples(st.integers(0, FUNCTIONS - 1), st.integers(0, 2), st.integers(-2048, 2047), st.booleans()),
    min_size=1, max_size=12,
)  # fmt: skip


@pytest.mark.parametrize("engine", list(OPTIONS))
@settings(max_examples=10, deadline=None)
@given(steps=STEPS)
def test_what_is_patched_runs_behind_the_fence(engine: str, steps: list[Step]) -> None:
    with Machine(program(steps), **OPTIONS[engine]) as machine:  # type: ignore[arg-type]
        assert machine.run().status == 0
        assert int(machine.hart.x[SUM]) == expected(steps)


def test_what_is_not_patched_stays_known() -> None:
    """One function of eight in a page is patched ten times: only its own two blocks are discovered anew."""

    def blocks(n_patches: int, place: int) -> int:
        steps = [(3, place, 2 + n, True) for n in range(n_patches)]
        with Machine(program(steps), **OPTIONS["templates"]) as machine:  # type: ignore[arg-type]
            assert machine.run().status == 0
            # The calls of each step are blocks of their own: one for each of them.
            return machine.facts.n_blocks - n_patches * (3 * 2 * FUNCTIONS)

    assert blocks(10, 0) - blocks(0, 0) <= 10 * 2
    assert blocks(10, 2) - blocks(0, 2) <= 10 * 3


def test_code_changed_twice_before_one_fence() -> None:
    """A block is decoded, its second half changed and decoded by itself, all before the guest says that it has changed
    code: then both are as they are in memory."""

    def store(word: int) -> list[int]:
        low = word & 0xFFF
        return [
            assemble("lui", ADD, imm=(word + 0x800) & 0xFFFFF000),
            assemble("addi", ADD, ADD, imm=low - 0x1000 * (low >> 11)),
            assemble("sw", rs1=PLACE, rs2=ADD, imm=8),
        ]  # fmt: skip

    words = [
        assemble("lui", PLACE, imm=PATCHED), assemble("jalr", 1, PLACE), *store(assemble("addi", SUM, SUM, imm=100)),
        assemble("jalr", 1, PLACE, imm=8), assemble("addi", SUM), assemble("fence.i"), assemble("jalr", 1, PLACE),
        assemble("jalr", 1, PLACE, imm=8), assemble("addi", 10), assemble("addi", 17, imm=93), assemble("ecall"),
    ]  # fmt: skip
    code = b"".join(word.to_bytes(4, "little") for word in words)
    start = program([])
    at = start.index(assemble("lui", PLACE, imm=PATCHED).to_bytes(4, "little"))
    made = start[:at] + code + start[at + len(code) :]
    for options in OPTIONS.values():
        with Machine(made, **options) as machine:  # type: ignore[arg-type]
            assert machine.run().status == 0
            assert int(machine.hart.x[SUM]) == 102 + 100
