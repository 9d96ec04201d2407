"""Stencils as they are laid: compiled, taken apart, and kept for later processes."""

from __future__ import annotations

import functools
import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emulator.engine.archive import sources_identity
from emulator.engine.llvm import Compiler
from emulator.engine.stencils import HOLES, N_STENCILS, StencilEmitter
from emulator.events import TraceSelection
from emulator.kept import read_checked, write_checked

_R_64, _R_PC32, _R_PLT32, _R_32, _R_32S = 1, 2, 4, 10, 11
_SECTION = np.dtype(
    [
        ("name", "u4"), ("type", "u4"), ("flags", "u8"), ("address", "u8"), ("offset", "u8"), ("size", "u8"),
        ("link", "u4"), ("info", "u4"), ("align", "u8"), ("entry", "u8"),
    ]
)  # fmt: skip
_SYMBOL = np.dtype(
    [("name", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2"), ("value", "u8"), ("size", "u8")]
)
_RELOCATION = np.dtype([("offset", "u8"), ("type", "u4"), ("symbol", "u4"), ("addend", "i8")])
_SHT_SYMTAB, _SHT_RELA, _SHF_EXECINSTR, _SHF_ALLOC = 2, 4, 4, 2

STENCIL_DTYPE = np.dtype(
    [("offset", "u4"), ("size", "u4"), ("first_hole", "u4"), ("end_hole", "u4"), ("kind", "u8")]
)
# ``kind`` of a stencil; an absent one is of an operation that the host has no instructions for.
ABSENT, GOES_ON, ENDS = 0, 1, 2
HOLE_DTYPE = np.dtype(
    [("offset", "u4"), ("value", "u2"), ("wide", "u1"), ("relative", "u1"), ("addend", "i8")]
)


class StencilSet(NamedTuple):
    """``code``: of all, uint8; ``constants``: what they load, uint8; ``stencils``: rows of `STENCIL_DTYPE` by handler,
    and then `ARRIVE`, `HEAD`, `DEPART`, `FAIL`; ``holes``: rows of `HOLE_DTYPE`."""

    code: NDArray[np.uint8]
    constants: NDArray[np.uint8]
    stencils: NDArray[np.void]
    holes: NDArray[np.void]


_TYPES = (np.dtype(np.uint8), np.dtype(np.uint8), STENCIL_DTYPE, HOLE_DTYPE)  # of a `StencilSet`
_SIZES = struct.Struct("<4Q")


@functools.cache
def stencils_for(compiler: Compiler, selection: TraceSelection) -> StencilSet:
    """The stencils for ``selection``, compiled if no earlier process has done it."""
    path = compiler.path_of(f"stencils {selection} {sources_identity()}")
    raw = None if path is None else read_checked(path)
    if raw is None:
        raw = _packed(_read(compiler.compile_object(StencilEmitter(selection).emit, near=True, keep=False)))
        if path is not None:
            write_checked(path, raw)
    return _unpacked(raw)


def _packed(stencils: StencilSet) -> bytes:
    parts = [array.tobytes() for array in stencils]
    return _SIZES.pack(*map(len, parts)) + b"".join(parts)


def _unpacked(raw: bytes) -> StencilSet:
    arrays = []
    begin = _SIZES.size
    for size, dtype in zip(_SIZES.unpack_from(raw), _TYPES, strict=True):
        arrays.append(np.frombuffer(raw[begin : begin + size], dtype))
        begin += size
    return StencilSet(*arrays)


def _read(image: bytes) -> StencilSet:
    """Take the object apart (ELF for x86-64, as LLVM has just written it)."""
    raw = np.frombuffer(image, np.uint8)
    (table_offset,) = np.frombuffer(image, "<u8", 1, 40)
    (n_sections,) = np.frombuffer(image, "<u2", 1, 60)
    sections = np.frombuffer(image, _SECTION, int(n_sections), int(table_offset))

    def rows(section: np.void, dtype: np.dtype[np.void]) -> NDArray[np.void]:
        return np.frombuffer(image, dtype, int(section["size"]) // dtype.itemsize, int(section["offset"]))

    symbols_at = int(np.flatnonzero(sections["type"] == _SHT_SYMTAB)[0])
    symbols = rows(sections[symbols_at], _SYMBOL)
    strings = image[int(sections[sections[symbols_at]["link"]]["offset"]) :]
    names = [strings[at : strings.index(b"\0", at)].decode() for at in symbols["name"].tolist()]
    text = int(np.flatnonzero(sections["flags"] & _SHF_EXECINSTR)[0])
    constants, base_of = _constants(raw, sections, text)
    meaning = np.full(len(symbols), -1, np.int64)  # which value fills a hole for the symbol
    added = np.zeros(len(symbols), np.int64)
    for place, (name, section) in enumerate(zip(names, symbols["section"].tolist(), strict=True)):
        if name in HOLES and section == 0:
            meaning[place] = HOLES[name]
        elif section in base_of:
            meaning[place] = HOLES["constants"]
            added[place] = base_of[section] + int(symbols["value"][place])
    stencils = np.zeros(N_STENCILS, STENCIL_DTYPE)
    holes: list[NDArray[np.void]] = []
    n_holes = 0
    of_text = (sections["type"] == _SHT_RELA) & (sections["info"] == text)
    relocations = np.concatenate([rows(section, _RELOCATION) for section in sections[of_text]])
    relocations = relocations[np.argsort(relocations["offset"], kind="stable")]
    code = raw[int(sections[text]["offset"]) :][: int(sections[text]["size"])]
    for name, symbol in zip(names, symbols, strict=True):
        if int(symbol["section"]) != text or not name.startswith("s"):
            continue
        start, size = int(symbol["value"]), int(symbol["size"])
        low, high = np.searchsorted(relocations["offset"], [start, start + size])
        mine = relocations[low:high]
        if (
            not np.isin(mine["type"], (_R_64, _R_PC32, _R_PLT32, _R_32, _R_32S)).all()
            or (meaning[mine["symbol"]] < 0).any()
        ):
            continue  # it calls a function that is somewhere else
        goes_on = meaning[mine["symbol"]] == HOLES["next"]
        last = size - 4
        if (
            len(mine)
            and goes_on[-1]
            and int(mine[-1]["offset"]) - start == last
            and code[start + last - 1] == 0xE9
        ):
            mine, size = mine[:-1], last - 1  # what is laid behind it comes next without a jump
        made = np.zeros(len(mine), HOLE_DTYPE)
        made["offset"] = mine["offset"] - start
        made["value"] = meaning[mine["symbol"]]
        made["wide"] = mine["type"] == _R_64
        made["relative"] = np.isin(mine["type"], (_R_PC32, _R_PLT32))
        made["addend"] = mine["addend"] + added[mine["symbol"]]
        holes.append(made)
        stencils[int(name[1:])] = (
            start,
            size,
            n_holes,
            n_holes + len(made),
            GOES_ON if goes_on.any() else ENDS,
        )
        n_holes += len(made)
    return StencilSet(code, constants, stencils, np.concatenate(holes))


def _constants(
    raw: NDArray[np.uint8], sections: NDArray[np.void], text: int
) -> tuple[NDArray[np.uint8], dict[int, int]]:
    """All that is loaded and is no code, in one piece, and where in it each section begins."""
    parts: list[NDArray[np.uint8]] = []
    base_of: dict[int, int] = {}
    size = 0
    for place, section in enumerate(sections):
        if place == text or not section["flags"] & _SHF_ALLOC or section["type"] != 1:
            continue
        padding = -size % 64
        part = raw[int(section["offset"]) :][: int(section["size"])]
        base_of[place] = size + padding
        parts += [np.zeros(padding, np.uint8), part]
        size += padding + len(part)
    return np.concatenate([np.zeros(0, np.uint8), *parts]), base_of
