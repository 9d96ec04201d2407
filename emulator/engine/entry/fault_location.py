"""Fault location: the guest instruction of a host address inside a translation, read from line tables on demand."""

from __future__ import annotations

import io

from elftools.elf.elffile import ELFFile

from emulator.native_code.code_image import CodeImage, linked


def access_at(located: bytes, original: CodeImage, name: str, offset: int) -> tuple[int, int] | None:
    """The guest pc of the access at ``offset`` of the code of function ``name``, and its block's place in the region.

    ``located`` is the object with debug locations; None when its code differs from ``original``'s or the
    offset has no location.
    """
    if linked(located).code != original.code:
        return None
    offset += original.symbols[name][0]
    information = ELFFile(io.BytesIO(located)).get_dwarf_info()
    found: tuple[int, int, int] | None = None  # host address, pc, place of the block
    for unit in information.iter_CUs():
        program = information.line_program_for_CU(unit)
        if program is None:
            continue
        for entry in program.get_entries():
            state = entry.state
            if state is None or state.end_sequence or state.address > offset or not state.line:
                continue
            if found is None or state.address >= found[0]:
                found = state.address, state.line, state.column
    return found[1:] if found else None
