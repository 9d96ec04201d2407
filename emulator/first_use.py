"""Compiles the emulator's own kernels and stencils ahead of the first program.

The first process after an installation compiles the interpreter, its stencils, the discovery kernel and the kernels of
the timing models, and keeps them on disk. A command that has to build a program first calls `compile_ahead` during the
build.
"""

from __future__ import annotations

import struct

from emulator.isa.decode import assemble
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from emulator.timing.inorder import InOrderCore
from emulator.timing.machine_config import MachineConfig

_BASE = 0x10000
_ELF_HEADER_BYTES, _PROGRAM_HEADER_BYTES = 64, 56
_RISCV, _EXECUTABLE, _LOADED, _READ_AND_EXECUTE = 243, 2, 1, 5
_CODE_OFFSET = _ELF_HEADER_BYTES + _PROGRAM_HEADER_BYTES
_EXIT_GROUP, _A0, _A7 = 94, 10, 17


def compile_ahead(config: MachineConfig | None = None) -> None:
    """Run a program of a few instructions, on the given machine if any, so that all kernels are compiled and kept."""
    core = InOrderCore(config, initial_state="random") if config is not None else None
    with Machine(_smallest_program(), files=VirtualFiles(), core=core) as machine:
        machine.run()


def _smallest_program() -> bytes:
    """An ELF executable that stores and loads a word and ends with status 0."""
    sp, t0 = 2, 5
    words = [
        assemble("sd", rs1=sp, rs2=t0, imm=-8), assemble("ld", t0, sp, imm=-8),
        assemble("addi", _A0, 0, imm=0), assemble("addi", _A7, 0, imm=_EXIT_GROUP), assemble("ecall"),
    ]  # fmt: skip
    code = b"".join(word.to_bytes(4, "little") for word in words)
    size = _CODE_OFFSET + len(code)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", _EXECUTABLE, _RISCV, 1, _BASE + _CODE_OFFSET, _ELF_HEADER_BYTES, 0, 0,
        _ELF_HEADER_BYTES, _PROGRAM_HEADER_BYTES, 1, 0, 0, 0,
    )  # fmt: skip
    segment = struct.pack("<IIQQQQQQ", _LOADED, _READ_AND_EXECUTE, 0, _BASE, _BASE, size, size, 4096)
    return header + segment + code
