"""Code images: host code and constants, linked except for their address, which is filled in when they are loaded.

Translations refer to nothing outside but a few functions of the C library; tables are reached through the hart's state.
So linking is done once, when LLVM has made an object, and a process that finds its translations on disk needs no LLVM.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import json
import mmap
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from emulator.native_code.object_file import (
    R_32,
    R_32S,
    R_64,
    R_GOTPCREL,
    R_GOTPCRELX,
    R_PC32,
    R_PLT32,
    R_REX_GOTPCRELX,
    ObjectFile,
)

_ALIGNMENT = 64
_JUMP = b"\xff\x25"  # jmp *[rip + 32 bits]
_VIA_GOT = (R_GOTPCREL, R_GOTPCRELX, R_REX_GOTPCRELX)


class CodeImage(NamedTuple):
    """Linked code. ``code``: code, then constants and addresses, then from ``data_at`` on writable data, if any.

    ``symbols``: offset and size by name; ``fixups``: for each 8-byte address to fill in its offset, the symbol ("" for
    the start of this image), and an addend; ``values``: the same for 4-byte fields of symbols that are numbers.
    """

    code: bytes
    symbols: dict[str, tuple[int, int]]
    fixups: list[tuple[int, str, int]]
    values: list[tuple[int, str, int]]
    data_at: int

    @property
    def has_data(self) -> bool:
        """Whether the image has writable data, which needs pages of its own."""
        return self.data_at < len(self.code)

    def packed(self) -> bytes:
        """The image as the bytes of a file; `unpacked` reads them."""
        about = json.dumps([self.symbols, self.fixups, self.values, self.data_at]).encode()
        return struct.pack("<I", len(about)) + about + self.code


NO_CODE = CodeImage(b"", {}, [], [], 0)


def unpacked(raw: bytes) -> CodeImage:
    """The image that `CodeImage.packed` has written."""
    (length,) = struct.unpack_from("<I", raw)
    return CodeImage(raw[4 + length :], *json.loads(raw[4 : 4 + length]))


def linked(image: bytes) -> CodeImage:
    """Link a relocatable object. Raises `ValueError` for relocations that translations do not have."""
    return _Linker(ObjectFile(image)).link()


class _Linker:
    """Links one object: lays out its sections and resolves its relocations."""

    def __init__(self, file: ObjectFile) -> None:
        self._file = file
        self._base: dict[int, int] = {}  # offset in the code, by section
        self._code = bytearray()
        self._fixups: list[tuple[int, str, int]] = []
        self._values: list[tuple[int, str, int]] = []
        self._got: dict[int, int] = {}  # by symbol: offset of the 8 bytes with its address
        self._stubs: dict[int, int] = {}  # by symbol: offset of a jump to it

    def link(self) -> CodeImage:
        """The linked image."""
        file, data = self._file, self._file.data()
        self._append([file.text, *file.constants()])
        relocations = {section: file.relocations(section).tolist() for section in (*self._base, *data)}
        for _, kind, symbol, _ in itertools.chain(*relocations.values()):
            if kind in _VIA_GOT:
                self._got_entry(symbol)
            elif kind == R_PLT32 and not file.symbols[symbol]["section"]:
                self._stub(symbol)
        if data:
            self._align(mmap.PAGESIZE)
        data_at = len(self._code)
        self._append(data)
        for section, rows in relocations.items():
            for offset, kind, symbol, addend in rows:
                self._relocate(self._base[section] + offset, kind, symbol, addend)
        for symbol, slot in self._got.items():
            self._fix(slot, symbol, 0)
        symbols = {
            name: (self._base[int(row["section"])] + int(row["value"]), int(row["size"]))
            for name, row in zip(file.names, file.symbols, strict=True)
            if name and int(row["section"]) in self._base
        }
        return CodeImage(bytes(self._code), symbols, self._fixups, self._values, data_at)

    def _align(self, n_bytes: int) -> None:
        self._code += bytes(-len(self._code) % n_bytes)

    def _append(self, sections: Iterable[int]) -> None:
        """Append sections to the code, aligned."""
        for section in sections:
            self._align(_ALIGNMENT)
            self._base[section] = len(self._code)
            self._code += self._file.bytes_of(section).tobytes()

    def _relocate(self, place: int, kind: int, symbol: int, addend: int) -> None:
        """Apply one relocation at offset ``place`` of the code. Raises `ValueError`."""
        if kind == R_64:
            self._fix(place, symbol, addend)
            return
        if kind in (R_32, R_32S) and not self._file.symbols[symbol]["section"]:
            self._values.append((place, self._file.names[symbol], addend))
            return
        if kind in _VIA_GOT:
            target = self._got[symbol]
        elif kind == R_PLT32 and symbol in self._stubs:
            target = self._stubs[symbol]
        elif kind in (R_PC32, R_PLT32):
            target = self._inside(symbol)
        else:
            raise ValueError(
                f"got an object with a relocation of type {kind}, expected only relocations of the small code model"
            )
        struct.pack_into("<i", self._code, place, target + addend - place)

    def _inside(self, symbol: int) -> int:
        """The offset of a symbol that the object defines."""
        row = self._file.symbols[symbol]
        if int(row["section"]) not in self._base:
            raise ValueError(
                f"got an object that refers to {self._file.names[symbol]} by a near address, expected it to define it"
            )
        return self._base[int(row["section"])] + int(row["value"])

    def _fix(self, place: int, symbol: int, addend: int) -> None:
        """Add a fixup: the address of ``symbol`` is filled in at ``place`` when the image is loaded."""
        if self._file.symbols[symbol]["section"]:
            self._fixups.append((place, "", self._inside(symbol) + addend))
        else:
            self._fixups.append((place, self._file.names[symbol], addend))

    def _got_entry(self, symbol: int) -> int:
        """The offset of the 8 bytes that will hold the address of ``symbol``."""
        if symbol not in self._got:
            self._align(8)
            self._got[symbol] = len(self._code)
            self._code += bytes(8)
        return self._got[symbol]

    def _stub(self, symbol: int) -> None:
        """Append a jump to ``symbol``, which is defined elsewhere, unless it has one."""
        if symbol not in self._stubs:
            slot = self._got_entry(symbol)
            place = self._stubs[symbol] = len(self._code)
            self._code += _JUMP + struct.pack("<i", slot - place - len(_JUMP) - 4)


class LoadedCode:
    """Images loaded into executable memory. ``bases``: the host address of each image.

    ``known``: addresses and numbers by symbol; other symbols are looked up in the C library.
    Raises `OSError` where the host gives no memory for code, and `ValueError` for an unknown symbol.
    """

    def __init__(self, images: Sequence[CodeImage], known: Mapping[str, int]) -> None:
        offsets: list[int] = []
        size = 0
        for image in images:
            alignment = mmap.PAGESIZE if image.has_data else _ALIGNMENT
            size += -size % alignment
            offsets.append(size)
            size += len(image.code) + -len(image.code) % alignment
        size = max(size, 1)
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        view = np.frombuffer(self._map, np.uint8)
        start = int(view.ctypes.data)
        del view  # so that the map can be closed
        self.bases = [start + offset for offset in offsets]
        for image, offset in zip(images, offsets, strict=True):
            self._map[offset : offset + len(image.code)] = image.code
            for place, name, addend in image.fixups:
                value = (_address(name, known) if name else start + offset) + addend
                struct.pack_into("<Q", self._map, offset + place, value)
            for place, name, addend in image.values:
                struct.pack_into("<I", self._map, offset + place, known[name] + addend)
        _protect(start, size, mmap.PROT_READ | mmap.PROT_EXEC)
        for image, base in zip(images, self.bases, strict=True):
            if image.has_data:
                _protect(base + image.data_at, len(image.code) - image.data_at, mmap.PROT_READ | mmap.PROT_WRITE)

    def close(self) -> None:
        """Give the memory back."""
        self._map.close()


def _address(name: str, known: Mapping[str, int]) -> int:
    """The address of a symbol, from ``known`` or the C library. Raises `ValueError`."""
    if name in known:
        return known[name]
    try:
        return ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise ValueError(f"translated code needs {name}, which the C library does not have") from None


def _protect(start: int, n_bytes: int, protection: int) -> None:
    if _library().mprotect(ctypes.c_void_p(start), ctypes.c_size_t(n_bytes), protection):
        raise OSError(ctypes.get_errno(), "the host gives no memory for code")


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
