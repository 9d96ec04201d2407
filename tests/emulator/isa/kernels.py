"""Loops that apply one instruction to many operands: one guest program, run by any engine, cases and results in memory.

Made with `reference_encoding` alone, so that the words are the manual's and not the table's.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from emulator.machine import Machine
from tests.conformance.engines import ENGINES, Engine
from tests.emulator.isa.reference_encoding import encode
from tests.fuzz.programs import CODE, DATA, elf

CASE = struct.Struct("<6Q")  # operands a, b, c, fcsr before; result, fcsr after
LIMIT_INSTRUCTIONS = 5_000_000
REPEATED = 6  # the first cases again, when the engine has translated the loop
A0, A7, EXIT = 10, 17, 93
OPERANDS = 0, 8, 16, 24  # offsets in a case
FFLAGS_AND_FRM = 3
ENGINE_NAMES = [engine.name for engine in ENGINES]


@dataclass
class Kernel:
    """One instruction and what it is applied to.

    ``words``: the instruction, and what it needs around it, on the registers that `registers` gives for ``seed``; the
    case lies at POINTER, and SCRATCH is free. ``kinds``: of result and operands, "x", "f", or "-" for none. ``cases``:
    operands and fcsr; ``expected``: result and, where the instruction is a floating-point one, fcsr.
    """

    name: str
    words: list[int]
    kinds: str
    seed: int
    cases: list[tuple[int, int, int, int]] = field(default_factory=list)
    expected: list[tuple[int, int | None]] = field(default_factory=list)

    def add(self, operands: Sequence[int], result: int, fcsr: int = 0, fcsr_after: int | None = None) -> None:
        a, b, c = (*operands, 0, 0, 0)[:3]
        self.cases.append((a, b, c, fcsr))
        self.expected.append((result % (1 << 64), fcsr_after))


def registers(seed: int) -> tuple[int, int, int, int]:
    """rd, rs1, rs2, rs3: other ones for every seed, so that all registers come up."""
    return 5 + seed % 9, 14 + seed % 4, 18 + seed % 5, 23 + seed % 3


POINTER, _LEFT, _FCSR, SCRATCH = 28, 29, 30, 31


def _loop(kernel: Kernel, cases_at: int) -> list[int]:
    """The loop over a kernel's cases, which lie at ``cases_at``."""
    rd, *sources = registers(kernel.seed)
    floating = any(expected[1] is not None for expected in kernel.expected)
    words = [
        encode("lui", POINTER, imm=cases_at + 0x800), encode("addi", POINTER, POINTER, imm=cases_at),
        encode("lui", _LEFT, imm=len(kernel.cases) + 0x800), encode("addiw", _LEFT, _LEFT, imm=len(kernel.cases)),
    ]  # fmt: skip
    body = [
        encode("fld" if kind == "f" else "ld", number, POINTER, imm=8 * n)
        for n, (kind, number) in enumerate(zip(kernel.kinds[1:], sources, strict=False))
        if kind != "-"
    ]
    if floating:
        body += [encode("ld", _FCSR, POINTER, imm=24), encode("csrrw", 0, _FCSR, imm=FFLAGS_AND_FRM)]
    body += kernel.words
    if kernel.kinds[0] != "-":
        body.append(encode("fsd" if kernel.kinds[0] == "f" else "sd", 0, POINTER, rd, imm=32))
    if floating:
        body += [encode("csrrs", _FCSR, 0, imm=FFLAGS_AND_FRM), encode("sd", 0, POINTER, _FCSR, imm=40)]
    body += [encode("addi", POINTER, POINTER, imm=CASE.size), encode("addi", _LEFT, _LEFT, imm=-1)]
    return [*words, *body, encode("bne", 0, _LEFT, 0, imm=-4 * len(body))]


def program(kernels: Sequence[Kernel]) -> bytes:
    """All loops, one after the other; the cases are its data."""
    words: list[int] = []
    data = b""
    for kernel in kernels:
        again = kernel.cases + kernel.cases[:REPEATED]
        whole = Kernel(kernel.name, kernel.words, kernel.kinds, kernel.seed, again, kernel.expected)
        words += _loop(whole, DATA + len(data))
        data += b"".join(CASE.pack(*case, 0, 0) for case in again)
    words += [encode("addi", A0, 0, imm=0), encode("addi", A7, 0, imm=EXIT), encode("ecall")]
    assert 4 * len(words) <= DATA - CODE, "too many kernels for one program"
    return elf(b"".join(word.to_bytes(4, "little") for word in words), data)


def machine_for(kernels: Sequence[Kernel], engine: Engine) -> Machine:
    return Machine(
        program(kernels), engine=engine.kind, background=False, templates=engine.templates,
        optimise_executions=engine.optimise_executions, limit_instructions=LIMIT_INSTRUCTIONS,
    )  # fmt: skip


def wrong(kernels: Sequence[Kernel], engine: Engine) -> list[str]:
    """Run ``kernels`` and say which results are others than expected."""
    with machine_for(kernels, engine) as machine:
        ending = machine.run()
        if ending.status:
            return [f"ended with status {ending.status}: {ending.message}"]
        found, at = [], DATA
        for kernel in kernels:
            n = len(kernel.cases) + min(REPEATED, len(kernel.cases))
            data = machine.memory.read(at, CASE.size * n)
            at += CASE.size * n
            for place in range(n):
                *case, result, fcsr = CASE.unpack_from(data, CASE.size * place)
                expected = kernel.expected[place % len(kernel.cases)]
                if kernel.kinds[0] != "-" and result != expected[0]:
                    found.append(f"{kernel.name} {[hex(v) for v in case]}: {result:#x}, expected {expected[0]:#x}")
                elif expected[1] is not None and fcsr != expected[1]:
                    found.append(f"{kernel.name} {[hex(v) for v in case]}: fcsr {fcsr:#x}, expected {expected[1]:#x}")
        return found


@cache
def engine_named(name: str) -> Engine:
    return next(engine for engine in ENGINES if engine.name == name)
