"""Source lines of instructions from the executable's DWARF line tables, which are read at the first query.

pyelftools does the parsing, of 30,000 rows in a second; so a query about one instruction reads only the tables of the
units that have code there. Damaged or unknown debug information counts as absent.
"""

from __future__ import annotations

import io
import posixpath
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
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

    @cached_property
    def rows(self) -> tuple[LineRow, ...]:
        """All rows by address, including those of line 0 (code without a source line)."""
        try:
            return tuple(sorted(row for unit in self._units for row in unit.rows))
        except Exception:  # a damaged table makes the parser raise almost anything
            return ()

    def at(self, pc: int) -> tuple[str, int] | None:
        """File and line of the instruction at ``pc``; None without one."""
        try:
            starts, places, elsewhere = self._places
            index = bisect_right(starts, pc - self._bias) - 1
            units = [places[index][1]] if index >= 0 and pc - self._bias < places[index][0] else []
            row = next((row for unit in (*units, *elsewhere) if (row := unit.row_at(pc)) is not None), None)
        except Exception:  # as above
            return None
        return (row.file, row.line) if row is not None else None

    @cached_property
    def _places(self) -> tuple[list[int], list[tuple[int, _Unit]], list[_Unit]]:
        """Where the code of units starts in the file, in order; where it ends, and the unit; and the units that do not
        say where their code is."""
        ranges = [(unit, unit.ranges()) for unit in self._units]
        known = [(start, end, unit) for unit, limits in ranges for start, end in limits or ()]
        known.sort(key=lambda one: one[0])
        elsewhere = [unit for unit, limits in ranges if limits is None]
        return [start for start, _, _ in known], [(end, unit) for _, end, unit in known], elsewhere

    @cached_property
    def _units(self) -> list[_Unit]:
        from elftools.elf.elffile import ELFFile

        elf = ELFFile(io.BytesIO(self._data))
        if not elf.has_dwarf_info():
            return []
        dwarf = elf.get_dwarf_info()
        return [_Unit(dwarf, unit, self._bias) for unit in dwarf.iter_CUs()]


class _Unit:
    """The part of the table that is of one compiled source; ``dwarf``, ``unit``: as pyelftools reads them."""

    def __init__(self, dwarf: Any, unit: Any, bias: int) -> None:
        self._dwarf, self._unit, self._bias = dwarf, unit, bias

    def ranges(self) -> list[tuple[int, int]] | None:
        """Where the unit's code is, as addresses in the file; None if it does not say."""
        attributes = self._unit.get_top_DIE().attributes
        low, high = (attributes.get(f"DW_AT_{end}_pc") for end in ("low", "high"))
        if low is not None and high is not None:
            size = high.value if high.form != "DW_FORM_addr" else high.value - low.value
            return [(low.value, low.value + size)]
        listed = attributes.get("DW_AT_ranges")
        if listed is None or listed.form == "DW_FORM_rnglistx":
            return None
        base = low.value if low is not None else 0
        found = []
        for entry in self._dwarf.range_lists().get_range_list_at_offset(listed.value, self._unit):
            if hasattr(entry, "base_address"):
                base = entry.base_address
            else:
                start = 0 if entry.is_absolute else base
                found.append((start + entry.begin_offset, start + entry.end_offset))
        return found

    def row_at(self, pc: int) -> LineRow | None:
        """The row of the instruction at ``pc``; None without one, or of line 0."""
        index = bisect_right(self._addresses, pc) - 1
        if index < 0 or pc >= self.rows[index].end or self.rows[index].line == 0:
            return None
        return self.rows[index]

    @cached_property
    def _addresses(self) -> list[int]:
        return [row.address for row in self.rows]

    @cached_property
    def rows(self) -> list[LineRow]:
        """All rows of the unit, by address."""
        return sorted(self._read())

    def _read(self) -> Iterator[LineRow]:
        program = self._dwarf.line_program_for_CU(self._unit)
        if program is None:
            return
        files = unit_files(program, self._unit)
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
