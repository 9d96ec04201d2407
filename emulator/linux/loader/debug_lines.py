"""Source lines of instructions from the executable's DWARF line tables, which are read at the first query.

pyelftools does the parsing. Damaged or unknown debug information counts as absent.
"""

from __future__ import annotations

import io
import posixpath
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple


class LineRow(NamedTuple):
    """The source line of the instructions in ``[address, end)``; ``is_statement``: whether a statement starts there."""

    address: int
    end: int
    file: str
    line: int
    is_statement: bool


class DebugLines:
    """The line table of one executable; ``bias`` is added to every address."""

    def __init__(self, data: bytes, bias: int) -> None:
        self._data = data
        self._bias = bias
        self._rows: tuple[LineRow, ...] | None = None
        self._addresses: list[int] = []

    def rows(self) -> tuple[LineRow, ...]:
        """All rows by address, including those of line 0 (code without a source line)."""
        if self._rows is None:
            try:
                self._rows = tuple(sorted(self._read()))
            except Exception:  # a damaged table makes the parser raise almost anything
                self._rows = ()
            self._addresses = [row.address for row in self._rows]
        return self._rows

    def at(self, pc: int) -> tuple[str, int] | None:
        """File and line of the instruction at ``pc``; None without one."""
        rows = self.rows()
        index = bisect_right(self._addresses, pc) - 1
        if index < 0 or pc >= rows[index].end or rows[index].line == 0:
            return None
        return rows[index].file, rows[index].line

    def _read(self) -> Iterator[LineRow]:
        from elftools.elf.elffile import ELFFile

        elf = ELFFile(io.BytesIO(self._data))
        if not elf.has_dwarf_info():
            return
        dwarf = elf.get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            if program is None:
                continue
            files = unit_files(program, unit)
            previous = None
            for entry in program.get_entries():
                state = entry.state
                if state is None:
                    continue
                if previous is not None and state.address > previous.address:
                    yield LineRow(
                        previous.address + self._bias,
                        state.address + self._bias,
                        files.get(previous.file, "?"),
                        previous.line,
                        bool(previous.is_stmt),
                    )
                previous = None if state.end_sequence else state


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def unit_files(program: Any, unit: Any) -> dict[int, str]:
    """The path of each file number of the line ``program`` of a ``unit``, both as pyelftools reads them.

    Up to DWARF 4, files count from 1 and directory 0 is that of the unit.
    """
    attribute = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
    directory = _text(attribute.value) if attribute else ""
    header = program.header
    first = 0 if header.version >= 5 else 1
    folders = [_text(entry) for entry in header.include_directory]
    if first == 1:
        folders.insert(0, directory)
    names = {}
    for number, entry in enumerate(header.file_entry, first):
        folder = folders[entry.dir_index] if entry.dir_index < len(folders) else ""
        names[number] = posixpath.normpath(posixpath.join(directory, folder, _text(entry.name)))
    return names
