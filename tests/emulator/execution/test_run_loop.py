"""Going on after a limit, and after the machine was closed; steps that add up to one."""

from __future__ import annotations

import pytest

from emulator.errors import InstructionLimit
from emulator.isa.decode import assemble
from emulator.machine import Machine
from tests.fuzz.programs import elf

ROUNDS = 1000
ENGINES = ("translated", "oracle")


def program() -> bytes:
    """A loop of ``ROUNDS`` rounds with a system call in each; it ends with status 7."""
    words = [
        assemble("addi", 5, 0, imm=ROUNDS),
        assemble("addi", 17, 0, imm=172), assemble("ecall"),
        assemble("addi", 5, 5, imm=-1), assemble("bne", rs1=5, rs2=0, imm=-12),
        assemble("addi", 10, 0, imm=7), assemble("addi", 17, 0, imm=94), assemble("ecall"),
    ]  # fmt: skip
    return elf(b"".join(word.to_bytes(4, "little") for word in words), bytes(16))


WHOLE_INSTRUCTIONS = 1 + 4 * ROUNDS + 3


@pytest.mark.parametrize("engine", ENGINES)
def test_a_guest_goes_on_when_its_limit_is_raised(engine: str) -> None:
    with Machine(program(), engine=engine, background=False, limit_instructions=100) as machine:
        with pytest.raises(InstructionLimit, match="did not end within 100 instructions"):
            machine.run()
        assert machine.ending is None
        assert 100 <= machine.instructions < 110
        machine.limit_instructions = None
        assert machine.run().status == 7
        assert machine.instructions == WHOLE_INSTRUCTIONS


@pytest.mark.parametrize("engine", ENGINES)
def test_whoever_goes_on_with_a_closed_machine_comes_to_a_fault(engine: str) -> None:
    with Machine(program(), engine=engine, background=False) as machine:
        machine.advance(100)
        assert (machine.translator is None) == (engine == "oracle")
    assert machine.translator is None
    machine.close()
    machine.save_translations()
    ending = machine.run()
    assert ending.signal == 11
    assert "nothing is mapped there" in (ending.message or "")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("step", [1, 37, 3001])
def test_steps_lead_to_where_the_oracle_is_after_one(engine: str, step: int) -> None:
    with (
        Machine(program(), engine="oracle") as oracle,
        Machine(program(), engine=engine, background=False, optimise_executions=20) as machine,
    ):
        target = 0
        while target < 2000:
            target += step
            machine.advance_to_instructions(target)
        oracle.advance_to_instructions(target)
        assert (machine.instructions, machine.hart.pc) == (oracle.instructions, oracle.hart.pc)
        assert machine.hart.x.tolist() == oracle.hart.x.tolist()
