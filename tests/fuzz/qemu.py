"""The same program under QEMU's user mode: another implementation of everything, floating point and flags included."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

from emulator.isa.decode import assemble, decode
from experiments.benchmarks.host import qemu
from tests.fuzz.programs import CODE, COUNTER, DATA, DATA_BYTES, Program, elf

_START, _END = 0x8000, 0x9000  # offsets in the code: what loads the registers, and what writes them down
_STATE = DATA + DATA_BYTES  # x, f, fcsr
_STATE_WORDS = 65
_BASE = 31
_WRITE, _EXIT, _FCSR = 64, 94, 3
_COUNTERS = 0xC00
_SECONDS = 30
# Where QEMU 7.2 is wrong (ctzw of a word of zeros is 32: Zbb), or may differ: an sc whose word was written meanwhile.
_OTHERWISE = ("ctzw", "lr.w", "lr.d", "sc.w", "sc.d", "fence.i")


@cache
def is_installed() -> bool:
    return qemu() is not None


def is_comparable(program: Program) -> bool:
    """Whether QEMU must end in the same state: no system calls, counters, signal handlers, nor `_OTHERWISE`."""
    if program.catches or len(program.code()[0]) > _START:
        return False
    for item in program.items:
        if item.kind == "call":
            return False
        instruction = decode(item.word) if item.kind == "code" else None
        if instruction is None:
            continue
        if instruction.row.mnemonic in _OTHERWISE:
            return False
        if "csr" in instruction.row.fields and instruction.imm & 0xFFF >= _COUNTERS:
            return False
    return True


def final_state(program: Program) -> tuple[int, tuple[int, ...], bytes]:
    """Status as a shell has it; x, f and fcsr; the window of memory. The last two are empty where it did not end by
    itself.

    The loop counter is 0 at the end, so its register can hold the address of what is written.
    """
    body, end = program.code()
    code = bytearray(body.ljust(_END, b"\0"))
    code[end : end + 4] = assemble("jal", 0, imm=_END - end).to_bytes(4, "little")
    code[_START : _START + 4 * len(_start())] = _words(_start())
    code += _words(_end())
    state = b"".join(value.to_bytes(8, "little") for value in (*program.x, *program.f, program.fcsr))
    whole = bytearray(elf(bytes(code), program.data + state))
    whole[24:32] = (CODE + _START).to_bytes(8, "little")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program"
        path.write_bytes(whole)
        path.chmod(0o755)
        done = subprocess.run([str(qemu()), str(path)], capture_output=True, timeout=_SECONDS, check=False)
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    if len(done.stdout) != DATA_BYTES + 8 * _STATE_WORDS:
        return status, (), b""
    words = done.stdout[DATA_BYTES:]
    values = tuple(int.from_bytes(words[8 * n : 8 * n + 8], "little") for n in range(_STATE_WORDS))
    return status, values, done.stdout[:DATA_BYTES]


def _words(words: list[int]) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


def _start() -> list[int]:
    """Load all registers and go to the body."""
    found = [
        assemble("lui", _BASE, imm=_STATE),
        assemble("ld", 1, _BASE, imm=512),
        assemble("csrrw", 0, 1) | _FCSR << 20,
    ]
    found += [assemble("fld", n, _BASE, imm=256 + 8 * n) for n in range(32)]
    found += [assemble("ld", n, _BASE, imm=8 * n) for n in range(1, 32)]
    return [*found, assemble("jal", 0, imm=-(_START + 4 * len(found)))]


def _end() -> list[int]:
    """Write the registers down, then the window and them to standard output."""
    found = [assemble("lui", COUNTER, imm=_STATE)]
    found += [assemble("sd", rs1=COUNTER, rs2=n, imm=8 * n) for n in range(32) if n != COUNTER]
    found += [assemble("fsd", rs1=COUNTER, rs2=n, imm=256 + 8 * n) for n in range(32)]
    found += [
        assemble("sd", rs1=COUNTER, rs2=0, imm=8 * COUNTER), assemble("csrrs", 5) | _FCSR << 20,
        assemble("sd", rs1=COUNTER, rs2=5, imm=512), assemble("addi", 10, 0, imm=1), assemble("lui", 11, imm=DATA),
        assemble("lui", 12, imm=DATA_BYTES), assemble("addi", 12, 12, imm=8 * _STATE_WORDS),
        assemble("addi", 17, 0, imm=_WRITE), assemble("ecall"), assemble("addi", 10), assemble("addi", 17, 0,
        imm=_EXIT),
        assemble("ecall"),
    ]  # fmt: skip
    return found
