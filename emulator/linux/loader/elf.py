"""ELF executables: segments to load, symbols, and the function or source line of an address.

`load_image` reads a riscv64 executable - static, position-independent, or dynamically linked - and refuses everything
else with a message that says what was got, what is expected and what to do. Damaged files raise `GuestImageError` and
nothing else. `process_image` writes the segments into memory and loads the interpreter of a dynamically linked
program; source lines are in `debug_lines`. Few runs need symbols, so the symbol table is only checked when the file
is read, and parsed at the first query.
"""

from __future__ import annotations

import hashlib
import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from emulator.errors import GuestImageError
from emulator.memory import ADDRESS_SPACE_BYTES, EXEC, PAGE_BYTES, READ, WRITE, page_floor

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.linux.loader.call_frames import CallFrames, Registers
    from emulator.linux.loader.debug_lines import DebugLines, LineRow

POSITION_INDEPENDENT_BASE = 0x1_0000
"""Load address of position-independent executables; others are usually linked at the same address."""

_ET_EXEC, _ET_DYN = 2, 3
_EM_RISCV = 243
_PT_LOAD, _PT_INTERP, _PT_PHDR = 1, 3, 6
_PF_X, _PF_W, _PF_R = 1, 2, 4
_SHT_SYMTAB, _SHT_NOBITS, _SHT_DYNSYM = 2, 8, 11
_STT_NOTYPE, _STT_OBJECT, _STT_FUNC = 0, 1, 2
_EF_FLOAT_ABI_QUAD, _EF_RVE = 6, 8
_EF_KNOWN = 0x1F  # RVC, float ABI (two bits), RVE, TSO

_FILE_TYPES = {0: "no type", 1: "an object file", 4: "a core dump"}
_MACHINES = {
    3: "x86 (32 bit)",
    8: "MIPS",
    20: "PowerPC",
    21: "PowerPC 64",
    22: "S/390",
    40: "ARM (32 bit)",
    62: "x86-64",
    183: "AArch64",
    258: "LoongArch",
}

_REMEDY = "compile it with `instrument-cc`"


class Segment(NamedTuple):
    """A segment to load: ``data`` at ``address``, then zeros up to ``memory_bytes``."""

    address: int
    data: memoryview
    memory_bytes: int
    prot: int  # READ | WRITE | EXEC
    offset: int = 0  # of the data in the file

    @property
    def end(self) -> int:
        return self.address + self.memory_bytes


class Symbol(NamedTuple):
    """A named address; ``size_bytes`` is 0 if the file gives no size."""

    address: int
    size_bytes: int
    name: str
    is_function: bool


class _SymbolTable(NamedTuple):
    """Byte ranges of a symbol table and of its names in the file; both lie within the file."""

    entries: slice
    names: slice


@dataclass(frozen=True)
class ElfImage:
    """An executable that was read; all addresses are final guest addresses.

    ``phdr_address`` is where the program headers lie in memory (0 when they are not loaded); ``bias`` was
    added to every address of a position-independent executable.
    """

    name: str
    entry: int
    segments: tuple[Segment, ...]
    phdr_address: int
    phdr_count: int
    phdr_entry_bytes: int
    symbol_table: _SymbolTable | None = field(repr=False)
    bias: int
    data: bytes = field(repr=False)
    interpreter: str | None = None
    """Guest path of the program's dynamic linker; None for a statically linked program."""

    @property
    def start(self) -> int:
        """Lowest loaded address."""
        return min(segment.address for segment in self.segments)

    @property
    def end(self) -> int:
        """Address after the last loaded byte, where the heap may begin."""
        return max(segment.end for segment in self.segments)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """All named symbols that are defined in the file, by address."""
        if self.symbol_table is None:
            return ()
        entries, names = self.data[self.symbol_table.entries], self.data[self.symbol_table.names]
        return tuple(sorted(_parse_symbols(entries, names, self.bias)))

    @cached_property
    def _functions(self) -> tuple[list[int], list[Symbol]]:
        """Addresses and symbols of functions by address; of several at one address, the one with the largest size."""
        best: dict[int, Symbol] = {}
        for symbol in self.symbols:
            if symbol.is_function:
                held = best.get(symbol.address)
                if held is None or symbol.size_bytes > held.size_bytes:
                    best[symbol.address] = symbol
        ordered = [best[address] for address in sorted(best)]
        return [symbol.address for symbol in ordered], ordered

    @cached_property
    def _by_name(self) -> dict[str, Symbol]:
        return {symbol.name: symbol for symbol in reversed(self.symbols)}

    def find_symbol(self, name: str) -> Symbol | None:
        """The symbol (function or variable) of that name; the lowest one if static functions share it."""
        return self._by_name.get(name)

    def function_at(self, pc: int) -> Symbol | None:
        """The function that contains ``pc``, or None. A symbol without a size extends to the next one."""
        addresses, functions = self._functions
        index = bisect_right(addresses, pc) - 1
        if index < 0:
            return None
        found = functions[index]
        if found.size_bytes:
            return found if pc < found.address + found.size_bytes else None
        inside = any(s.prot & EXEC and s.address <= found.address and pc < s.end for s in self.segments)
        return found if inside else None

    def symbolize(self, pc: int) -> str:
        """The function and offset of ``pc``, such as ``name+0x12``, of C++ as people write it, ``ns::Box::push+0x12``;
        without a function, the address."""
        function = self.function_at(pc)
        if function is None:
            return f"{pc:#x}"
        from common.cplusplus_symbols import readable_name

        offset, name = pc - function.address, readable_name(function.name)
        return f"{name}+{offset:#x}" if offset else name

    @cached_property
    def _lines(self) -> DebugLines:
        from emulator.linux.loader.debug_lines import DebugLines  # imported late: few runs need lines

        return DebugLines(self.data, self.bias)

    def source_line(self, pc: int) -> tuple[str, int] | None:
        """``(file, line)`` of the instruction at ``pc``; None without debug information."""
        return self._lines.at(pc)

    @cached_property
    def _call_frames(self) -> CallFrames:
        from emulator.linux.loader.call_frames import CallFrames  # imported late, as above

        return CallFrames(self.data, self.bias)

    def caller(self, pc: int, registers: Registers, word_at: Callable[[int], int]) -> Registers | None:
        """Who called the function around ``pc``: see `emulator.linux.loader.call_frames`."""
        return self._call_frames.caller(pc, registers, word_at)

    def line_rows(self) -> tuple[LineRow, ...]:
        """Every row of the line table, by address; empty without debug information. Slow for big programs."""
        return self._lines.rows


@lru_cache(maxsize=8)  # a guest executes the same programs again and again
def hash_of(data: bytes) -> str:
    """A hash of a program's file, by which it is told from others."""
    return hashlib.sha256(data).hexdigest()


def load_image(source: str | Path | bytes, name: str | None = None, base: int = POSITION_INDEPENDENT_BASE) -> ElfImage:
    """Read an executable from a path or from its bytes; ``base``: load address of position-independent executables.

    Raises `GuestImageError` for files that cannot be read and programs that this machine cannot run.
    """
    if isinstance(source, bytes):
        return _Reader(source, name or "program", base).image()
    try:
        data = Path(source).read_bytes()
    except OSError as error:
        raise GuestImageError(f"{source}: cannot read the program: {error.strerror}") from error
    return _Reader(data, name or str(source), base).image()


def load_library(data: bytes, name: str, address: int, offset: int) -> ElfImage:
    """Read a shared library of which the byte at ``offset`` of the file is mapped at guest address ``address``.

    The addresses of the result are guest addresses; its ``entry`` has no meaning. Raises `GuestImageError` for other
    files.
    """
    return _Reader(data, name, 0).library(address, offset)


class _Reader:
    def __init__(self, data: bytes, name: str, base: int) -> None:
        self._data = data
        self._name = name
        self._base = base

    def _refuse(self, got: str, remedy: str) -> GuestImageError:
        return GuestImageError(
            f"{self._name}: {got}; expected a riscv64 Linux executable (64-bit little-endian ELF): {remedy}"
        )

    def _bytes(self, offset: int, size: int, what: str) -> bytes:
        return self._data[self._checked_slice(offset, size, what)]

    def _checked_slice(self, offset: int, size: int, what: str) -> slice:
        if offset + size > len(self._data):
            raise self._refuse(
                f"the file is truncated: {what} ends at byte {offset + size} of {len(self._data)}",
                "copy or build it again",
            )
        return slice(offset, offset + size)

    def _damaged(self, what: str) -> GuestImageError:
        return self._refuse(f"the file is damaged: {what}", "build it again")

    def library(self, address: int, offset: int) -> ElfImage:
        _, headers, _ = self._headers()
        for p_type, p_flags, begin, vaddr, _, filesz, _, _ in headers:
            if p_type == _PT_LOAD and p_flags & _PF_X and page_floor(begin) <= offset < begin + filesz:
                self._base = address - offset + begin - vaddr
                return self.image(is_program=False)
        raise self._damaged(f"no executable segment contains byte {offset}")

    def image(self, is_program: bool = True) -> ElfImage:
        header, headers, bias = self._headers()
        entry, phoff, shoff, shentsize, shnum = header
        segments = self._segments(headers, bias)
        entry += bias
        inside = any(s.prot & EXEC and s.address <= entry < s.address + len(s.data) for s in segments)
        if is_program and not inside:
            raise self._damaged(f"the entry point {entry:#x} is not in executable code")
        return ElfImage(
            name=self._name,
            entry=entry,
            segments=segments,
            phdr_address=self._phdr_address(headers, phoff, bias),
            phdr_count=len(headers),
            phdr_entry_bytes=56,
            symbol_table=self._symbol_table(shoff, shentsize, shnum),
            bias=bias,
            data=self._data,
            interpreter=self._interpreter(headers),
        )

    def _headers(self) -> tuple[tuple[int, int, int, int, int], list[tuple[int, ...]], int]:
        """Fields of the ELF header (entry, offsets of both tables, size and number of section headers), the program
        headers, and the bias."""
        self._check_identity()
        header = self._bytes(0, 64, "the ELF header")
        (
            kind,
            machine,
            _version,
            entry,
            phoff,
            shoff,
            flags,
            _ehsize,
            phentsize,
            phnum,
            shentsize,
            shnum,
            _,
        ) = struct.unpack("<HHIQQQIHHHHHH", header[16:])
        self._check_kind(kind, machine, flags)
        if phnum == 0 or phentsize != 56:
            raise self._damaged(f"{phnum} program headers of {phentsize} bytes, expected some of 56")
        table = self._bytes(phoff, phnum * phentsize, "the program header table")
        headers = [struct.unpack_from("<IIQQQQQQ", table, k * phentsize) for k in range(phnum)]
        return (entry, phoff, shoff, shentsize, shnum), headers, self._base if kind == _ET_DYN else 0

    def _interpreter(self, headers: list[tuple[int, ...]]) -> str | None:
        for p_type, _, offset, _, _, filesz, _, _ in headers:
            if p_type == _PT_INTERP:
                path = self._bytes(offset, filesz, "the interpreter's name").rstrip(b"\0")
                if not path.startswith(b"/") or b"\0" in path:
                    raise self._damaged(f"the interpreter's name is {path!r}, expected an absolute path")
                return os.fsdecode(path)
        return None

    def _check_identity(self) -> None:
        identity = self._data[:16]
        if identity[:4] != b"\x7fELF":
            if not identity:
                got = "the file is empty"
            elif identity[:2] == b"#!":
                got = "it is a script, not an ELF file"
            else:
                got = f"it is not an ELF file (it begins with {identity[:4].hex(' ')})"
            raise self._refuse(got, "give the compiled program")
        if len(identity) < 16:
            raise self._refuse("the file is truncated within the ELF header", "copy or build it again")
        if identity[4] != 2:
            raise self._refuse("it is a 32-bit ELF file" if identity[4] == 1 else "its class is invalid", _REMEDY)
        if identity[5] != 1:
            raise self._refuse(
                "it is a big-endian ELF file" if identity[5] == 2 else "its byte order is invalid", _REMEDY
            )
        if identity[7] not in (0, 3):
            raise self._refuse(f"it is for another operating system (OS ABI {identity[7]})", _REMEDY)

    def _check_kind(self, kind: int, machine: int, flags: int) -> None:
        if machine != _EM_RISCV:
            what = _MACHINES.get(machine, f"machine number {machine}")
            raise self._refuse(f"it is a program for {what}", _REMEDY)
        if kind not in (_ET_EXEC, _ET_DYN):
            what = _FILE_TYPES.get(kind, f"file type {kind}")
            raise self._refuse(f"it is {what}, not an executable", "link it into a program")
        if flags & _EF_RVE:
            raise self._refuse("it uses the embedded (RV64E) ABI", "compile it with -mabi=lp64d")
        if flags & _EF_FLOAT_ABI_QUAD == _EF_FLOAT_ABI_QUAD:
            raise self._refuse("it uses the quad-precision floating-point ABI", "compile it with -mabi=lp64d")
        if flags & ~_EF_KNOWN:
            raise self._refuse(f"it has unknown ABI flags ({flags:#x})", _REMEDY)

    def _segments(self, headers: list[tuple[int, ...]], bias: int) -> tuple[Segment, ...]:
        segments: list[Segment] = []
        for p_type, p_flags, offset, vaddr, _, filesz, memsz, _ in headers:
            if p_type != _PT_LOAD or memsz == 0:
                continue
            address = vaddr + bias
            if filesz > memsz:
                raise self._damaged(f"the segment at {address:#x} has more bytes in the file than in memory")
            if address < PAGE_BYTES or address + memsz > ADDRESS_SPACE_BYTES:
                raise self._refuse(
                    f"the segment at {address:#x} ({memsz} bytes) lies outside the 2 GiB guest address space",
                    "link it at the default address",
                )
            data = memoryview(self._data)[self._checked_slice(offset, filesz, f"the segment at {address:#x}")]
            prot = (
                (READ if p_flags & _PF_R else 0) | (WRITE if p_flags & _PF_W else 0) | (EXEC if p_flags & _PF_X else 0)
            )
            segments.append(Segment(address, data, memsz, prot, offset))
        if not segments:
            raise self._damaged("it has no segment to load")
        segments.sort(key=lambda segment: segment.address)
        for before, after in pairwise(segments):
            if before.end > after.address:
                raise self._damaged(f"the segments at {before.address:#x} and {after.address:#x} overlap")
        return tuple(segments)

    def _phdr_address(self, headers: list[tuple[int, ...]], phoff: int, bias: int) -> int:
        for p_type, _, _, vaddr, *_ in headers:
            if p_type == _PT_PHDR:
                return (vaddr + bias) % ADDRESS_SPACE_BYTES
        for p_type, _, offset, vaddr, _, filesz, *_ in headers:
            if p_type == _PT_LOAD and offset <= phoff < offset + filesz:
                return vaddr + phoff - offset + bias
        return 0

    def _symbol_table(self, shoff: int, shentsize: int, shnum: int) -> _SymbolTable | None:
        if shoff == 0 or shnum == 0:
            return None
        if shentsize != 64:
            raise self._damaged(f"section headers of {shentsize} bytes, expected 64")
        table = self._bytes(shoff, shnum * shentsize, "the section header table")
        sections = [struct.unpack_from("<IIQQQQIIQQ", table, k * shentsize) for k in range(shnum)]
        # A stripped file still has its dynamic symbols.
        table_type = _SHT_SYMTAB if any(kind == _SHT_SYMTAB for _, kind, *_ in sections) else _SHT_DYNSYM
        for _, sh_type, _, _, offset, size, link, *_ in sections:
            if sh_type != table_type:
                continue
            if link >= shnum or sections[link][1] == _SHT_NOBITS:
                raise self._damaged("the symbol table has no names")
            names = self._checked_slice(sections[link][4], sections[link][5], "the symbol names")
            return _SymbolTable(self._checked_slice(offset, size - size % 24, "the symbol table"), names)
        return None


def _parse_symbols(entries: bytes, names: bytes, bias: int) -> Iterator[Symbol]:
    """The named symbols that are defined in the file, in the order of the table."""
    for name_offset, info, _, section, value, size in struct.iter_unpack("<IBBHQQ", entries):
        kind = info & 15
        if section == 0 or section >= 0xFF00 or kind not in (_STT_NOTYPE, _STT_OBJECT, _STT_FUNC):
            continue
        end = names.find(b"\0", name_offset)
        name = names[name_offset : end if end >= 0 else None].decode(errors="replace")
        # Skip labels inside functions; $x and $d mark code and data for disassemblers.
        if not name or name[0] == "$" or name.startswith(".L"):
            continue
        is_function = kind == _STT_FUNC or (kind == _STT_NOTYPE and size == 0 and name == "_start")
        yield Symbol(value + bias, size, name, is_function)
