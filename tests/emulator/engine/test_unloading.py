"""Compiled code leaves the process with the machine, or the guest's code, that it was made for."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from emulator.engine.entry.entry import Entry
from emulator.isa.decode import assemble
from emulator.machine import Machine
from tests.fuzz.programs import CODE, elf

ROUNDS = 8
SLACK = 1 << 16  # what Python itself loads meanwhile


def code_bytes() -> int:
    """Of host code that is in no file."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, protection, *_, inode = line.split()[:5]
        if protection.startswith("r-x") and inode == "0":
            low, high = (int(address, 16) for address in span.split("-"))
            total += high - low
    return total


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
    before = code_bytes()
    for _ in range(ROUNDS):
        assert run(1) == 10
    assert code_bytes() < before + SLACK


def test_forgotten_translations_leave_no_code_behind() -> None:
    with translating(60) as machine:
        machine.advance(100)
        before = code_bytes()
        assert machine.run().status == 600 % 256
        assert code_bytes() < before + SLACK


def places_taken() -> int:
    return sum(1 for place in Entry.get()._machines if place)


def test_a_machine_that_nobody_closed_gets_no_faults_of_others() -> None:
    gc.collect()
    before = places_taken()
    machine = translating(1)
    assert machine.run().status == 10
    assert places_taken() == before + 1
    del machine
    gc.collect()
    assert places_taken() == before
    with pytest.raises(RuntimeError, match="compiler failed"), translating(1) as failing:
        failing.translator._background._failure = RuntimeError("compiler failed")  # type: ignore[union-attr]  # translated
    assert places_taken() == before
