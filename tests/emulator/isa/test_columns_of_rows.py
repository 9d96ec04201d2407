"""Columns of every row of the instruction table, from every engine, against the oracle's registers and memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pytest

from emulator.engine.instrument.columns import ColumnMemory
from emulator.events import ACCESS_LOAD, COLUMN_TYPES, ColumnSet, OpClass, TraceSelection
from emulator.isa.decode import Instruction
from tests.emulator.isa.rig import CODE, DATA, PLAIN_ROWS, Rig, State, instance, random_state

FIELDS = tuple(COLUMN_TYPES)
RUNS = 8  # of each row: the optimised translation comes with the second or third


@pytest.fixture(scope="module")
def oracle() -> Iterator[Rig]:
    rig = Rig("oracle")
    yield rig
    rig.close()


def event(instruction: Instruction, before: State, after: State) -> dict[str, int]:
    """The event of ``instruction``, which is at CODE and led from the one state to the other."""
    row = instruction.row
    found = dict.fromkeys(FIELDS, 0)
    found |= {"pc": CODE, "word": instruction.word, "opcode": row.index, "class": int(instruction.op_class)}
    numbers = {"rs1": instruction.rs1, "rs2": instruction.rs2, "rs3": instruction.rs3}
    for (name, number), kind in zip(numbers.items(), row.register_kinds[1:], strict=True):
        if kind != "-":
            found[name] = int((before.f if kind == "f" else before.x)[number])
    if row.register_kinds[0] != "-":
        found["rd"] = int((after.f if row.register_kinds[0] == "f" else after.x)[instruction.rd])
    if row.access:
        offset = 0 if instruction.op_class == OpClass.ATOMIC else instruction.imm
        found["address"] = int(found["rs1"] + offset) % (1 << 64)
        data = before.data if row.access & ACCESS_LOAD else after.data
        at = found["address"] - DATA
        found["value"] = int.from_bytes(data[at : at + row.access_bytes], "little")
    if row.ends_block:
        found["target"], found["taken"] = after.pc, int(after.pc != CODE + instruction.length_bytes)
    return found


@pytest.mark.parametrize("engine", ["interpreter", "templates", "optimised"])
@pytest.mark.parametrize("group", range(4))
def test_rows(engine: str, group: int, oracle: Rig) -> None:
    memory = ColumnMemory(FIELDS)
    columns = ColumnSet(
        place=0, fields=FIELDS, kinds=(), mnemonics=tuple(sorted(row.mnemonic for row in PLAIN_ROWS)), ranges=(),
        state=memory.address,
    )  # fmt: skip
    failures = []
    for row in PLAIN_ROWS[group::4]:
        rng = np.random.default_rng(zlib.crc32(row.mnemonic.encode()))
        instruction = instance(row, rng)
        rig = Rig(engine, TraceSelection(inline=(columns,)))
        try:
            oracle.put(CODE, [instruction.word])
            oracle.forget()
            rig.put(CODE, [instruction.word])
            for number in range(RUNS):
                state = random_state(rng, instruction, number % 4)
                expected = event(instruction, state, oracle.run(state))
                rig.run(state)
                n = memory.take()
                found = {name: int(column[0]) for name, column in memory.columns.items()}
                if (n, found) != (1, expected):
                    wrong = {name: (found[name], expected[name]) for name in FIELDS if found[name] != expected[name]}
                    failures.append(f"{row.mnemonic}, run {number}: {n} events, {wrong}")
                    break
        finally:
            rig.close()
    assert not failures, "\n" + "\n".join(failures)
