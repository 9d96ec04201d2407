"""When LLVM is loaded: only for who runs long enough, for it takes longer than many programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys
from emulator.isa.decode import assemble
from emulator.machine import Machine
from tests.fuzz.programs import elf

rounds = int(sys.argv[1])
words = [
    assemble("lui", 6, imm=rounds << 12), assemble("addi", 6, 6, imm=-1), assemble("bne", rs1=6, rs2=0, imm=-4),
    assemble("addi", 17, 0, imm=94), assemble("ecall"),
]
with Machine(elf(b"".join(word.to_bytes(4, "little") for word in words), b"")) as machine:
    machine.run()
    assert machine.instructions >= rounds << 13
    print(machine.translator._background.has_llvm)
"""


def has_llvm(rounds: int) -> bool:
    """Whether LLVM is there after so many times 4096 rounds of a loop, in a process of its own."""
    command = [sys.executable, "-c", SCRIPT, str(rounds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout == "True\n"


def test_llvm_is_loaded_for_who_runs_long() -> None:
    has_llvm(10)  # this one may have to compile what is kept of the emulator itself
    assert not has_llvm(10)
    assert has_llvm(1000)
