"""Accesses to fcsr and its parts are translated: every engine against the oracle, and a guest whose
threads, handlers and processes each have an fcsr of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.engine.hart_state import MXCSR_ROUNDING
from emulator.engine.oracle import Oracle
from emulator.isa.decode import TIES_AWAY, Instruction, converts_with_rounding, decode_word
from emulator.isa.table import ROWS
from emulator.machine import Machine
from instrumenter.building.program_build import build_program
from tests.emulator.isa.reference_encoding import encode
from tests.emulator.isa.rig import CODE, EBREAK, PAGE, PLAIN_ROWS, Rig, State, instance, random_state
from tests.fuzz.programs import elf

TRANSLATING = ["interpreter", "templates", "optimised"]
FFLAGS, FRM, FCSR = 1, 2, 3
ACCESSES = ("csrrw", "csrrs", "csrrc", "csrrwi", "csrrsi", "csrrci")
GUEST = Path(__file__).parents[1] / "guest"
OPTIONS: dict[str, dict[str, Any]] = {
    "interpreter": {"templates": False, "optimise_executions": 1 << 30}, "templates": {"optimise_executions": 1 << 30},
    "optimised": {"optimise_executions": 20}, "oracle": {"engine": "oracle"},
}  # fmt: skip


@pytest.fixture(scope="module")
def oracle() -> Iterator[Rig]:
    rig = Rig("oracle")
    yield rig
    rig.close()


def access(name: str, rd: int, source: int, number: int) -> int:
    return ROWS[name].match | rd << 7 | source << 15 | number << 20


def place(words: list[int], oracle: Rig, rig: Rig) -> None:
    """``words`` and nothing else, in a new ``rig`` and in the oracle's."""
    oracle.memory.write(CODE, EBREAK * (PAGE // len(EBREAK)))
    oracle.forget()
    for one in (oracle, rig):
        one.put(CODE, words)


@pytest.mark.parametrize("engine", TRANSLATING)
@pytest.mark.parametrize("name", ACCESSES)
def test_every_access(name: str, engine: str, oracle: Rig) -> None:
    """x0 and the same register twice among the operands; flags that the host has raised, in each rounding mode."""
    failures = []
    raising = [encode("fadd.d", 30, 30, 31), encode("fdiv.d", 29, 31, 28)]
    for number, (rd, source) in product((FFLAGS, FRM, FCSR), ((0, 0), (0, 6), (5, 0), (5, 6), (7, 7))):
        rig = Rig(engine)
        try:
            words = [*raising, access(name, rd, source, number)]
            place(words, oracle, rig)
            rng = np.random.default_rng([number, rd, source])
            instruction = decode_word(words[0])
            assert instruction is not None
            for n in range(24):
                state = random_state(rng, instruction, n % 4)
                state.x[6:8] = rng.integers(0, 256, 2, np.uint64)
                wrong = rig.run(state).differences(oracle.run(state))
                if wrong:
                    failures.append(f"{name} x{rd} {number} x{source} fcsr {state.fcsr:#x}: {wrong[:3]}")
        finally:
            rig.close()
    assert not failures, "\n" + "\n".join(failures)


FLOATING = [row for row in PLAIN_ROWS if "f" in row.register_kinds and not row.access]


def sequence(rng: np.random.Generator, count: int) -> list[int]:
    """Instructions that raise flags, or round, and accesses to what they change; modes are those of the host."""
    words = []
    for _ in range(count):
        draw = rng.random()
        rd, source = (int(n) for n in rng.integers(0, 32, 2))
        if draw < 0.15:
            words.append(access("csrrwi", rd, int(rng.integers(len(MXCSR_ROUNDING))), FRM))
        elif draw < 0.3:
            words.append(access(ACCESSES[rng.integers(6)], rd, source, FFLAGS))
        elif draw < 0.4:
            words.append(access("csrrs", rd, 0, (FFLAGS, FRM, FCSR)[rng.integers(3)]))
        elif draw < 0.45:
            words.append(access("csrrwi", rd, source, FCSR))  # the mode becomes 0
        else:
            row = FLOATING[rng.integers(len(FLOATING))]
            mode: int | None = None
            if "rm" in row.fields and rng.random() < 0.5:
                mode = int(rng.integers(TIES_AWAY + converts_with_rounding(row)))
            words.append(instance(row, rng, mode).word)
    return words


def check(engine: str, oracle: Rig, seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    rig = Rig(engine)
    try:
        words = sequence(rng, count)
        place(words, oracle, rig)
        first = decode_word(words[0])
        assert first is not None
        for number in range(6):
            state: State = random_state(rng, first, number % 4)
            wrong = rig.run(state).differences(oracle.run(state))
            assert not wrong, f"{wrong[:4]} after {[hex(word) for word in words]}"
    finally:
        rig.close()


@pytest.mark.parametrize("engine", TRANSLATING)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), count=st.integers(1, 30))
def test_sequences(engine: str, oracle: Rig, seed: int, count: int) -> None:
    check(engine, oracle, seed, count)


@pytest.mark.parametrize("engine", TRANSLATING)
def test_an_invalid_operation_stays_before_the_flags_are_cleared(engine: str, oracle: Rig) -> None:
    """What a conversion compares and converts raises flags on the host: not after they are cleared, although only the
    last instruction uses the result."""
    values = (
        0x7FF0000000000001,
        0x7FF8000000000000,
        0x7FF0000000000000,
        0x43E0000000000001,
        0x3FF8000000000000,
    )
    names = ("fcvt.w.d", "fcvt.wu.d", "fcvt.l.d", "fcvt.lu.d", "fcvt.w.s", "fcvt.l.s")
    for name, mode in product(names, range(6)):
        rig = Rig(engine)
        try:
            words = [
                encode(name, 5, 1, rm=mode if mode < 5 else 7), access("csrrwi", 6, 0, FFLAGS),
                access("csrrs", 7, 0, FFLAGS), encode("add", 8, 5, 5),
            ]  # fmt: skip
            place(words, oracle, rig)
            for value in values:
                f = np.zeros(32, np.uint64)
                f[1] = value if name.endswith("d") else value >> 32 | 0xFFFFFFFF << 32
                state = State(np.zeros(32, np.uint64), f, 0, CODE, bytes(PAGE))
                found = rig.run(state)
                assert not found.differences(oracle.run(state)), (name, mode, hex(value))
                assert found.fcsr == found.x[7] == 0
        finally:
            rig.close()


def test_they_do_not_leave_translations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle executes no instruction of a guest with many of them but the system call at its end, if that."""
    body = [
        access("csrrs", 5, 0, FCSR), access("csrrwi", 6, 1, FRM), encode("fcvt.d.l", 1, 9, rm=4),
        access("csrrw", 0, 6, FRM), encode("fcvt.l.d", 7, 1, rm=2), access("csrrw", 7, 5, FCSR),
        access("csrrci", 0, 1, FFLAGS),
    ]  # fmt: skip
    words = [
        encode("lui", 9, imm=0x1000), *body, encode("addi", 9, 9, imm=-1), encode("bne", 0, 9, 0, -4 * len(body) - 4),
        encode("addi", 10), encode("addi", 17, imm=93), encode("ecall"),
    ]  # fmt: skip
    executed: list[Any] = []
    monkeypatch.setattr(Oracle, "execute", _noting(executed, Oracle.execute))
    program = elf(b"".join(word.to_bytes(4, "little") for word in words), bytes(64))
    for options in OPTIONS.values():
        executed.clear()
        if "engine" in options:
            continue
        with Machine(program, background=False, **options) as machine:
            assert machine.run().status == 0
            assert machine.instructions > 4096 * len(body)
        assert executed in ([], ["ecall"])


def _noting(executed: list[str], execute: Callable[[Oracle, Instruction], None]) -> Callable[..., None]:
    def noting(self: Oracle, instruction: Instruction) -> None:
        executed.append(instruction.row.mnemonic)
        execute(self, instruction)

    return noting


@pytest.fixture(scope="module")
def guest() -> Path:
    return build_program([GUEST / "fcsr.c"], ["-O2"]).elf_path


@pytest.mark.parametrize("engine", list(OPTIONS))
def test_every_task_has_an_fcsr_of_its_own(guest: Path, engine: str) -> None:
    with Machine(guest, **OPTIONS[engine]) as machine:
        ending = machine.run()
        assert machine.files.output(1) == b""  # it says what is wrong
        assert ending.status == 0


def test_going_back_restores_it(guest: Path) -> None:
    with Machine(guest, **OPTIONS["templates"]) as machine:
        machine.advance(20_000)
        found = []
        snapshot = machine.snapshot()
        for _ in range(2):
            fcsr = []
            for _ in range(40):
                machine.advance(3_000)
                fcsr.append(machine.hart.fcsr)
            found.append(fcsr)
            machine.restore(snapshot)
        assert found[0] == found[1]
        assert len(set(found[0])) > 1
