"""Compiled code leaves the process with the machine, or the guest's code, that it was made for."""

from __future__ import annotations

from pathlib import Path

from emulator.isa.decode import assemble
from emulator.machine import Machine
from tests.fuzz.programs import CODE, elf

ROUNDS = 8
SLACK = 30  # mappings that Python itself makes meanwhile


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def program(fences: int) -> bytes:
    """``fences`` times: a loop of 10 rounds, one of its instructions changed, and fence.i."""
    words = [
        assemble("lui", 8, imm=CODE), assemble("lui", 9, imm=1 << 20), assemble("addi", 5, 0, imm=fences),
        assemble("addi", 6, 0, imm=10),
        assemble("addi", 28, 0, imm=0), assemble("addi", 7, 7, imm=1), assemble("addi", 6, 6, imm=-1),
        assemble("bne", rs1=6, rs2=0, imm=-12),
        assemble("lw", 29, 8, imm=16), assemble("add", 29, 29, 9), assemble("sw", rs1=8, rs2=29, imm=16),
        assemble("fence.i"), assemble("addi", 5, 5, imm=-1), assemble("bne", rs1=5, rs2=0, imm=-40),
        assemble("addi", 10, 7, imm=0), assemble("addi", 17, 0, imm=94), assemble("ecall"),
    ]  # fmt: skip
    whole = bytearray(elf(b"".join(word.to_bytes(4, "little") for word in words), bytes(16)))
    whole[64 + 4] = 7  # the code may be written to
    return bytes(whole)


def translating(fences: int) -> Machine:
    """A machine that translates every block twice over."""
    return Machine(program(fences), background=False, optimise_executions=2)


def run(fences: int) -> int:
    with translating(fences) as machine:
        return machine.run().status


def test_a_closed_machine_leaves_no_code_behind() -> None:
    run(1)
    before = mappings()
    for _ in range(ROUNDS):
        assert run(1) == 10
    assert mappings() < before + SLACK


def test_forgotten_translations_leave_no_code_behind() -> None:
    with translating(60) as machine:
        machine.advance(100)
        before = mappings()
        assert machine.run().status == 600 % 256
        assert mappings() < before + SLACK
