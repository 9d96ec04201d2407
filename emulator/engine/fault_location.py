"""Which guest instruction a host address inside a translation belongs to: read from line tables, on demand."""

from __future__ import annotations

import io
from typing import Any

from elftools.elf.elffile import ELFFile


def function_size(image: bytes, name: str) -> int:
    """Size in bytes of the host code of function ``name`` in an object."""
    table: Any = ELFFile(io.BytesIO(image)).get_section_by_name(".symtab")
    symbols = table.get_symbol_by_name(name)
    return int(symbols[0]["st_size"]) if symbols else 0


def _text(image: bytes) -> bytes:
    section: Any = ELFFile(io.BytesIO(image)).get_section_by_name(".text")
    return bytes(section.data())


def pc_at(located: bytes, original: bytes, offset: int) -> int | None:
    """The guest pc of the access at ``offset`` of the code.

    ``located`` is the object with debug locations; None when its code differs from ``original``'s or the
    offset has no location.
    """
    if _text(located) != _text(original):
        return None
    information = ELFFile(io.BytesIO(located)).get_dwarf_info()
    found = None
    for unit in information.iter_CUs():
        program = information.line_program_for_CU(unit)
        if program is None:
            continue
        for entry in program.get_entries():
            state = entry.state
            if state is not None and not state.end_sequence and state.address <= offset and state.line:
                found = (state.address, state.line) if found is None or state.address >= found[0] else found
    return found[1] if found else None
