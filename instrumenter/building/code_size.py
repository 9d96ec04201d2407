"""Measures the code of a built program."""

from __future__ import annotations

from pathlib import Path

from instrumenter.building.elf_symbols import symbols_of
from instrumenter.building.relink import PADDING


def has_code(object_file: Path) -> bool:
    """Whether an object file has a byte of code: assembler for another machine often leaves none."""
    from elftools.elf.constants import SH_FLAGS
    from elftools.elf.elffile import ELFFile

    with object_file.open("rb") as file:
        sections = ELFFile(file).iter_sections()
        return any(one["sh_size"] and one["sh_flags"] & SH_FLAGS.SHF_EXECINSTR for one in sections)


def code_size(elf_path: Path) -> tuple[int, int]:
    """Bytes of code of a program, and the number of RISC-V instructions in its functions (0 for other machines).

    Padding between functions is not counted, nor is the code that only moves other code: both differ between code
    layouts.
    """
    from elftools.elf.elffile import ELFFile

    with elf_path.open("rb") as file:
        elf = ELFFile(file)
        section = elf.get_section_by_name(".text")
        code = section.data() if section is not None else b""
        if elf["e_machine"] != "EM_RISCV" or section is None:
            return len(code), 0
        start = section["sh_addr"]
        functions = sorted(
            (symbol.address - start, symbol.address - start + symbol.size_bytes)
            for symbol in symbols_of(file)
            if symbol.kind == "function" and symbol.name != PADDING
        )
    count = position = 0
    for begin, end in functions:
        position = max(position, begin)  # several names may share a function
        while position < min(end, len(code)):
            position += 4 if code[position] & 3 == 3 else 2
            count += 1
    return len(code), count
