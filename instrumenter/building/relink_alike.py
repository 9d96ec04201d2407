"""Links a program with counters so that its data lie where those of the program without them do.

What library code executes depends on how data are aligned, and what a program does may depend on their addresses. Both
programs have the same data apart from the counters, but counters among them would move those that follow, and their
code is longer, which would move all data. So here code and counters are put below the other program's image, and each
section of data gets the address that it has there. Where one program has a variable that the other has not, such as the
counters, the linked one keeps it apart, or leaves room of its size.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from common.elf_files import is_elf
from instrumenter.building.elf_symbols import Symbol, read_symbols, symbols_of
from instrumenter.building.relink import OBJECTS, PADDING, link_command, relinked
from instrumenter.errors import SourceError

_ROOM = "__measure_room"  # prefix of the symbols in place of variables that the other program has
_LOWEST_ADDRESS = 0x1_0000
_MOVED = (".text", ".eh_frame_hdr", ".eh_frame", ".gcc_except_table")
"""Sections of code and its tables, which are longer in the program with counters."""
_KINDS_OF_DATA = (".bss", ".data", ".rodata", ".data.rel.ro", ".sbss", ".sdata")
_SCRIPT = """SECTIONS {{
  .measure_own : {{ {own} }}
  .gcc_except_table : {{ *(.gcc_except_table .gcc_except_table.*) }}
  .eh_frame_hdr : {{ *(.eh_frame_hdr) }}
  .eh_frame : {{ KEEP(*(.eh_frame)) }}
  .text : {{ *(.text .text.*) }}
}} INSERT BEFORE {first};
"""
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # Elf64_Ehdr
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_PROGBITS, _SYMTAB, _STRTAB, _NOBITS = 1, 2, 3, 8
_WRITE, _ALLOC = 1, 2
_GLOBAL_OBJECT = 1 << 4 | 1
_FIXED_ADDRESSES = 2  # e_type


class _Section(NamedTuple):
    """A section of a program that is in memory."""

    name: str
    type: int
    flags: int
    address: int
    size_bytes: int
    alignment: int

    @property
    def end(self) -> int:
        """Address after its last byte."""
        return self.address + self.size_bytes


class _Room(NamedTuple):
    """Room for a variable that only the other program has, in the output section of its kind, ``name`` for short."""

    symbol: str
    section: _Section
    size_bytes: int
    alignment: int


def relinked_alike(program: Path, seed: int | None, other: bytes) -> bytes:
    """``program``, a build kept with `keep_link`, linked in the order of ``seed`` with its data at the addresses that
    they have in ``other``, a program of the same sources with other counters or none, linked by the same seed. None:
    both in the order of their builds.

    Its code lies elsewhere, and its debug information is left out. Where the two programs' data differ in more than
    variables that one of them lacks, so that their sections cannot have the same places, and for programs that are
    position-independent, it is only linked in the order of the seed. Raises `SourceError` as `relinked`.
    """
    if _HEADER.unpack_from(other)[1] == _FIXED_ADDRESSES:
        try:
            return _linked_alike(program, seed, other)
        except SourceError:  # sections would overlap
            pass
    return relinked(program, seed)


def _linked_alike(program: Path, seed: int | None, other: bytes) -> bytes:
    sections = _sections(other)
    command, _ = link_command(program)
    own, rooms = _differences(_variables(program.read_bytes()), _variables(other), sections)
    patterns = " ".join(f'*("{kind}.{name}")' for name in own for kind in _KINDS_OF_DATA)
    first = next(one.name for one in sections if one.name not in _MOVED)
    starts = [f"--section-start={one.name}={one.address:#x}" for one in sections if one.name not in _MOVED]
    with tempfile.TemporaryDirectory(prefix="perturbation-alike-") as name:
        script, room = Path(name) / "script", Path(name) / "room.o"
        script.write_text(_SCRIPT.format(own=patterns, first=first), "utf-8")
        words = [*command, f"--image-base={_LOWEST_ADDRESS:#x}", "-T", str(script), *starts]
        if rooms:
            objects = [word for word in command if word.startswith(f"{OBJECTS}/") and is_elf(program.parent / word)]
            room.write_bytes(_object_of_rooms(list(rooms.values()), (program.parent / objects[0]).read_bytes()))
            # Where the linker's sort leaves equals as they come, they come in the order of the other program.
            beside = next((one for one in objects if _defines(program.parent / one, rooms)), objects[-1])
            words.insert(words.index(beside) + 1, str(room))
            words += [word for one in rooms.values() for word in ("-u", one.symbol)]
        return relinked(program, seed, words, {variable: one.symbol for variable, one in rooms.items()})


def _defines(path: Path, names: Container[str]) -> bool:
    """Whether an object defines one of these symbols."""
    return any(symbol.defined and symbol.name in names for symbol in read_symbols(path))


def _sections(program: bytes) -> list[_Section]:
    """The sections of a program that are in memory, in the order of their headers."""
    header = _HEADER.unpack_from(program)
    offset, count, names_at = header[6], header[12], header[13]
    headers = [_SECTION.unpack_from(program, offset + n * _SECTION.size) for n in range(count)]
    names = headers[names_at][4]
    return [
        _Section(program[names + at : program.index(b"\0", names + at)].decode(), kind, flags, address, size, alignment)
        for at, kind, flags, address, _, size, _, _, alignment, _ in headers
        if flags & _ALLOC
    ]


def _variables(program: bytes) -> dict[str, list[Symbol]]:
    """The variables of a program by name, each address once; gaps (`PADDING_SOURCE`) are in all programs."""
    found: dict[str, dict[int, Symbol]] = defaultdict(dict)
    for symbol in symbols_of(BytesIO(program)):
        if symbol.kind == "object" and symbol.defined and symbol.size_bytes and not symbol.name.startswith(PADDING):
            found[symbol.name][symbol.address] = symbol
    return {name: list(symbols.values()) for name, symbols in found.items()}


def _differences(
    here: Mapping[str, Sequence[Symbol]], there: Mapping[str, Sequence[Symbol]], sections: Iterable[_Section]
) -> tuple[list[str], dict[str, _Room]]:
    """The variables that only ``here`` has, or with another size, and rooms for those that only ``there`` has so."""
    own = [name for name in here if _sizes(here[name]) != _sizes(there.get(name, ()))]
    rooms: dict[str, _Room] = {}
    for name, symbols in there.items():
        if _sizes(symbols) == _sizes(here.get(name, ())) or len(symbols) > 1:
            continue
        (symbol,) = symbols
        section = next((one for one in sections if one.address <= symbol.address < one.end), None)
        if section is not None:
            # The alignment of the variable itself, or more, gives it the place that it has there.
            alignment = min(symbol.address & -symbol.address, max(section.alignment, 1))
            rooms[name] = _Room(f"{_ROOM}{len(rooms)}", section, symbol.size_bytes, alignment)
    return [name for name in own if re.fullmatch(r"[\w.$]+", name)], rooms


def _sizes(symbols: Sequence[Symbol]) -> list[int]:
    return sorted(symbol.size_bytes for symbol in symbols)


def _object_of_rooms(rooms: Sequence[_Room], alike: bytes) -> bytes:
    """An object file with a section of zeros for each of ``rooms``, for the machine and the ABI of the object
    ``alike``."""
    section_names, symbol_names = bytearray(b"\0"), bytearray(b"\0")
    headers, symbols = [_SECTION.pack(*[0] * 10)], [_SYMBOL.pack(*[0] * 6)]
    size = max(room.size_bytes for room in rooms)
    for number, room in enumerate(rooms, 1):
        at = len(section_names)
        section_names += f"{room.section.name}.{room.symbol}\0".encode()
        headers.append(
            _SECTION.pack(
                at, room.section.type, room.section.flags & (_WRITE | _ALLOC), 0, _HEADER.size, room.size_bytes, 0, 0,
                room.alignment, 0,
            )
        )  # fmt: skip
        symbols.append(_SYMBOL.pack(len(symbol_names), _GLOBAL_OBJECT, 0, number, 0, room.size_bytes))
        symbol_names += f"{room.symbol}\0".encode()
    content = bytearray(size)
    tables = [b"".join(symbols), bytes(symbol_names)]
    names_at = len(section_names)
    section_names += b".symtab\0.strtab\0"
    tables.append(bytes(section_names))
    for number, (table, name_at) in enumerate(zip(tables, (names_at, names_at + 8, names_at + 8), strict=True)):
        content += bytes(-len(content) % 8)
        link, first_global, entry = (len(rooms) + 2, 1, _SYMBOL.size) if number == 0 else (0, 0, 0)
        kind = _SYMTAB if number == 0 else _STRTAB
        headers.append(
            _SECTION.pack(name_at, kind, 0, 0, _HEADER.size + len(content), len(table), link, first_global, 8, entry)
        )
        content += table
    content += bytes(-len(content) % 8)
    identity, _, machine, version, _, _, _, flags, *_ = _HEADER.unpack_from(alike)
    header = _HEADER.pack(
        identity, 1, machine, version, 0, 0, _HEADER.size + len(content), flags, _HEADER.size, 0, 0, _SECTION.size,
        len(headers), len(headers) - 1,
    )  # fmt: skip
    return header + bytes(content) + b"".join(headers)
