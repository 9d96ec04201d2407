"""A set of compiled stencils: code bytes and holes, read from LLVM's object and kept on disk for later processes."""

from __future__ import annotations

import functools
import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.file_cache import checked_or_made
from emulator.engine.persist.translation_store import sources_identity
from emulator.engine.stencils.stencil_layout import HOLES, N_STENCILS
from emulator.events import TraceSelection
from emulator.native_code.compiler import Compiler
from emulator.native_code.object_file import R_32, R_32S, R_64, R_PC32, R_PLT32, ObjectFile

STENCIL_DTYPE = np.dtype([("offset", "u4"), ("size", "u4"), ("first_hole", "u4"), ("end_hole", "u4"), ("kind", "u8")])
# ``kind`` of a stencil: absent (the host's code would call a library function), followed by more code, or at the end.
ABSENT, GOES_ON, ENDS = 0, 1, 2
PADDING_BYTES = 8
HOLE_DTYPE = np.dtype([("offset", "u4"), ("value", "u2"), ("wide", "u1"), ("relative", "u1"), ("addend", "i8")])


class StencilSet(NamedTuple):
    """All stencils of a selection. ``code``, ``constants``: bytes, uint8, code with `PADDING_BYTES` behind it, because
    it is copied by eight bytes; ``stencils``: rows of `STENCIL_DTYPE` by handler, then `PROLOGUE`, `HEAD`, `EXIT_STUB`,
    `FAULT_STUB`; ``holes``: rows of `HOLE_DTYPE`."""

    code: NDArray[np.uint8]
    constants: NDArray[np.uint8]
    stencils: NDArray[np.void]
    holes: NDArray[np.void]


_TYPES = (np.dtype(np.uint8), np.dtype(np.uint8), STENCIL_DTYPE, HOLE_DTYPE)  # of a `StencilSet`
_SIZES = struct.Struct("<4Q")


@functools.cache
def stencils_for(compiler: Compiler, selection: TraceSelection) -> StencilSet:
    """The stencils for ``selection``, from disk, or compiled and kept."""

    def make() -> bytes:
        from emulator.engine.stencils.stencil_compiler import StencilEmitter

        return _packed(_read(compiler.object(StencilEmitter(selection).emit())))

    return _unpacked(checked_or_made(compiler.path_of(f"stencils {selection} {sources_identity()}"), make))


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
    """Read the stencils from a relocatable object."""
    file = ObjectFile(image)
    symbols, names, text = file.symbols, file.names, file.text
    constants, base_of = _constants(file)
    meaning = np.full(len(symbols), -1, np.int64)  # by symbol: the place in `HOLES` of the value that fills its holes
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
    relocations, code = file.relocations(text), file.bytes_of(text)
    for name, symbol in zip(names, symbols, strict=True):
        if int(symbol["section"]) != text or not name.startswith("s"):
            continue
        start, size = int(symbol["value"]), int(symbol["size"])
        low, high = np.searchsorted(relocations["offset"], [start, start + size])
        mine = relocations[low:high]
        if not np.isin(mine["type"], (R_64, R_PC32, R_PLT32, R_32, R_32S)).all() or (meaning[mine["symbol"]] < 0).any():
            continue  # absent: it calls a library function
        goes_on = meaning[mine["symbol"]] == HOLES["next"]
        last = size - 4
        if len(mine) and goes_on[-1] and int(mine[-1]["offset"]) - start == last and code[start + last - 1] == 0xE9:
            mine, size = mine[:-1], last - 1  # drop the jump at the end: the next stencil is copied behind it
        made = np.zeros(len(mine), HOLE_DTYPE)
        made["offset"] = mine["offset"] - start
        made["value"] = meaning[mine["symbol"]]
        made["wide"] = mine["type"] == R_64
        made["relative"] = np.isin(mine["type"], (R_PC32, R_PLT32))
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
    padded = np.concatenate([code, np.zeros(PADDING_BYTES, np.uint8)])
    return StencilSet(padded, constants, stencils, np.concatenate(holes))


def _constants(file: ObjectFile) -> tuple[NDArray[np.uint8], dict[int, int]]:
    """All constant sections, concatenated, uint8, and the offset of each section in them."""
    parts: list[NDArray[np.uint8]] = []
    base_of: dict[int, int] = {}
    size = 0
    for section in file.constants():
        padding = -size % 64
        part = file.bytes_of(section)
        base_of[section] = size + padding
        parts += [np.zeros(padding, np.uint8), part]
        size += padding + len(part)
    return np.concatenate([np.zeros(0, np.uint8), *parts]), base_of
