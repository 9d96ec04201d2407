"""Every row of the instruction table, through every engine, against the oracle."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pytest

from emulator.events import FULL_RECORD, NOTHING
from emulator.isa.decode import converts_with_rounding
from emulator.isa.table import ROWS
from tests.emulator.isa.rig import CODE, PLAIN_ROWS, Rig, instance, random_state

STATES = {"interpreter": 60, "templates": 40, "optimised": 60}
SPACING = 8  # bytes between instances in the code page


@pytest.fixture(scope="module")
def oracle() -> Iterator[Rig]:
    rig = Rig("oracle")
    yield rig
    rig.close()


def modes(mnemonic: str) -> list[int | None]:
    """Rounding fields that the engines translate; to the nearest, ties away: only conversions from and to integers."""
    row = ROWS[mnemonic]
    if "rm" not in row.fields:
        return [None]
    return [None, 0, 1, 2, 3, 4] if converts_with_rounding(row) else [None, 0, 1, 2, 3]


@pytest.mark.parametrize("engine", list(STATES))
@pytest.mark.parametrize("group", range(8))
def test_rows(engine: str, group: int, oracle: Rig) -> None:
    failures = []
    for row in PLAIN_ROWS[group::8]:
        rng = np.random.default_rng(zlib.crc32(row.mnemonic.encode()))
        for rm in modes(row.mnemonic):
            rig = Rig(engine)
            try:
                instruction = instance(row, rng, rm)
                oracle.put(CODE, [instruction.word])
                oracle.forget()
                rig.put(CODE, [instruction.word])
                for number in range(STATES[engine]):
                    state = random_state(rng, instruction, number % 4)
                    expected, found = oracle.run(state), rig.run(state)
                    wrong = found.differences(expected)
                    if wrong:
                        operands = [hex(int(state.x[r])) for r in (instruction.rs1, instruction.rs2)]
                        floats = [hex(int(state.f[r])) for r in (instruction.rs1, instruction.rs2, instruction.rs3)]
                        failures.append(f"{row.mnemonic} rm={rm} frm={number % 4} {operands} {floats}: {wrong[:3]}")
                        break
            finally:
                rig.close()
    assert not failures, "\n" + "\n".join(failures)


@pytest.mark.parametrize("engine", ["interpreter", "templates", "optimised"])
def test_random_sequences(engine: str, oracle: Rig) -> None:
    """Straight-line mixtures: values that stay in host registers between instructions."""
    candidates = [row for row in PLAIN_ROWS if not row.access and not row.ends_block]
    for seed in range(25):
        rng = np.random.default_rng([seed, 5])
        rig = Rig(engine, FULL_RECORD if seed % 2 else NOTHING)
        try:
            instructions = []
            for _ in range(40):
                row = candidates[rng.integers(len(candidates))]
                allowed = modes(row.mnemonic)
                instructions.append(instance(row, rng, allowed[rng.integers(len(allowed))]))
            words = [instruction.word for instruction in instructions]
            oracle.memory.write(CODE, b"\x02\x90" * 2048)
            oracle.forget()
            oracle.put(CODE, words)
            rig.put(CODE, words)
            for number in range(8):
                state = random_state(rng, instructions[0], number % 4)
                wrong = rig.run(state).differences(oracle.run(state))
                names = [instruction.row.mnemonic for instruction in instructions]
                assert not wrong, f"{wrong[:4]} after {names}"
        finally:
            rig.close()
