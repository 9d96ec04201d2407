"""Reads the symbols of programs and objects: 64-bit, little-endian ELF files, as all our targets have.

pyelftools finds the table; its own loop over symbols takes as long as compiling a program does.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import IO, NamedTuple

from common.elf_files import is_elf

_ENTRY = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size
_KINDS = {1: "object", 2: "function", 6: "thread-local"}
_BINDINGS = {0: "local", 1: "global", 2: "weak"}
_UNDEFINED = 0
_START_THREADS = frozenset(("pthread_create", "thrd_create"))


class Symbol(NamedTuple):
    """A symbol. ``kind``: object, function, thread-local or ""; ``binding``: local, global, weak or ""; ``defined``:
    whether the file has it; ``address``: in a program."""

    name: str
    kind: str
    binding: str
    defined: bool
    address: int
    size_bytes: int


def read_symbols(path: Path) -> list[Symbol]:
    """The symbols of an ELF file, in the order of its table; none without a table."""
    with path.open("rb") as file:
        return symbols_of(file)


def starts_threads(path: Path) -> bool:
    """Whether a program, or an object of one, refers to a function that starts threads; those of C++ do, too.

    An object that the linker compiles (-flto) is no ELF file. It has its names one after the other in one text, so that
    a longer name with that of such a function counts, too: counters are then atomic without need.
    """
    if not is_elf(path):
        contents = path.read_bytes()
        return any(name.encode() in contents for name in _START_THREADS)
    return any(symbol.name.partition("@")[0] in _START_THREADS for symbol in read_symbols(path))


def symbols_of(file: IO[bytes]) -> list[Symbol]:
    """`read_symbols` of an open file."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    table = ELFFile(file).get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        return []
    names = table.stringtable.data()
    return [
        Symbol(
            names[at : names.index(b"\0", at)].decode("utf-8", "surrogateescape"),
            _KINDS.get(info & 15, ""), _BINDINGS.get(info >> 4, ""), section != _UNDEFINED, value, size,
        )
        for at, info, _, section, value, size in _ENTRY.iter_unpack(table.data())
    ]  # fmt: skip
