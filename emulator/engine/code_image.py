"""Host code that is linked but for where it lies: one piece with its constants, which is copied into memory and runs.

Translations refer to nothing outside of them but a few functions of the C library; tables are reached through the
state. So what a linker would do anew in every process is done once, when LLVM has made an object, and a process
that finds its translations on the disk needs no LLVM.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from emulator.engine.object_file import (
    R_GOTPCREL,
    R_GOTPCRELX,
    R_PC32,
    R_PLT32,
    R_REX_GOTPCRELX,
    ObjectFile,
)

_ALIGNMENT = 64
_JUMP = b"\xff\x25"  # jmp *[rip + 32 bits]
_STUB_BYTES = 8


class CodeImage(NamedTuple):
    """``code``: code from the beginning on, then constants and the addresses that are filled in where it is loaded.

    ``symbols``: offset and size by name; ``fixups``: offset of 8 bytes, the symbol defined elsewhere whose address goes
    there ("" for this image's own), and what is added.
    """

    code: bytes
    symbols: dict[str, tuple[int, int]]
    fixups: list[tuple[int, str, int]]

    def packed(self) -> bytes:
        """For a file."""
        about = json.dumps([self.symbols, self.fixups]).encode()
        return struct.pack("<I", len(about)) + about + self.code


NO_CODE = CodeImage(b"", {}, [])


def unpacked(raw: bytes) -> CodeImage:
    """What `CodeImage.packed` has written."""
    (length,) = struct.unpack_from("<I", raw)
    symbols, fixups = json.loads(raw[4 : 4 + length])
    return CodeImage(raw[4 + length :], symbols, fixups)


def linked(image: bytes) -> CodeImage:
    """Lay out a relocatable object. Raises `ValueError` for what translations have no use for."""
    return _Linker(ObjectFile(image)).link()


class _Linker:
    def __init__(self, file: ObjectFile) -> None:
        self._file = file
        self._sections = [file.text, *file.constants()]
        self._base: dict[int, int] = {}  # of sections
        self._code = bytearray()
        self._fixups: list[tuple[int, str, int]] = []
        self._slots: dict[int, int] = {}  # by symbol: where its address is
        self._stubs: dict[int, int] = {}  # by symbol: a jump to it

    def link(self) -> CodeImage:
        for section in self._sections:
            self._align()
            self._base[section] = len(self._code)
            self._code += self._file.bytes_of(section).tobytes()
        for section in self._sections:
            for offset, kind, symbol, addend in self._file.relocations(section).tolist():
                self._relocate(self._base[section] + offset, kind, symbol, addend)
        symbols = {
            name: (self._base[int(row["section"])] + int(row["value"]), int(row["size"]))
            for name, row in zip(self._file.names, self._file.symbols, strict=True)
            if name and int(row["section"]) in self._base
        }
        return CodeImage(bytes(self._code), symbols, self._fixups)

    def _align(self) -> None:
        self._code += bytes(-len(self._code) % _ALIGNMENT)

    def _relocate(self, place: int, kind: int, symbol: int, addend: int) -> None:
        if kind in (R_PC32, R_PLT32):
            goal = self._inside(symbol) if self._is_inside(symbol) or kind == R_PC32 else self._stub(symbol)
            self._put(place, goal + addend - place)
        elif kind in (R_GOTPCREL, R_GOTPCRELX, R_REX_GOTPCRELX):
            self._put(place, self._slot(symbol) + addend - place)
        else:
            raise ValueError(
                f"an object with a relocation of type {kind}, expected those of code near its data"
            )

    def _put(self, place: int, value: int) -> None:
        struct.pack_into("<i", self._code, place, value)

    def _is_inside(self, symbol: int) -> bool:
        return int(self._file.symbols[symbol]["section"]) in self._base

    def _inside(self, symbol: int) -> int:
        """Where a symbol of the object is."""
        row = self._file.symbols[symbol]
        if not self._is_inside(symbol):
            raise ValueError(f"an object that expects {self._file.names[symbol]} to be near")
        return self._base[int(row["section"])] + int(row["value"])

    def _slot(self, symbol: int) -> int:
        """Where the address of ``symbol`` will be."""
        if symbol not in self._slots:
            self._code += bytes(-len(self._code) % 8)
            self._slots[symbol] = len(self._code)
            self._code += bytes(8)
            inside = self._is_inside(symbol)
            fixup = ("", self._inside(symbol)) if inside else (self._file.names[symbol], 0)
            self._fixups.append((self._slots[symbol], *fixup))
        return self._slots[symbol]

    def _stub(self, symbol: int) -> int:
        """Where a jump to ``symbol``, which is somewhere else, is."""
        if symbol not in self._stubs:
            slot = self._slot(symbol)
            place = self._stubs[symbol] = len(self._code)
            self._code += (_JUMP + struct.pack("<i", slot - place - 6)).ljust(_STUB_BYTES, b"\xcc")
        return self._stubs[symbol]


class LoadedCode:
    """Images in this process's memory, to be executed. ``bases``: addresses, one for each.

    ``known``: addresses of symbols; what is not there is looked for in the C library. Raises `OSError` where the host
    gives no memory for code, and `ValueError` for a symbol that nobody has.
    """

    def __init__(self, images: Sequence[CodeImage], known: Mapping[str, int]) -> None:
        offsets = [0]
        for image in images:
            offsets.append(offsets[-1] + -(-len(image.code) // _ALIGNMENT) * _ALIGNMENT)
        size = max(offsets[-1], 1)
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        view = np.frombuffer(self._map, np.uint8)
        start = int(view.ctypes.data)
        del view  # so that the map can be closed
        self.bases = [start + offset for offset in offsets[:-1]]
        for image, offset in zip(images, offsets, strict=False):
            self._map[offset : offset + len(image.code)] = image.code
            for place, name, addend in image.fixups:
                value = (_address(name, known) if name else start + offset) + addend
                struct.pack_into("<Q", self._map, offset + place, value)
        if _library().mprotect(
            ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_EXEC
        ):
            problem = ctypes.get_errno()
            raise OSError(problem, "the host gives no memory for code")

    def close(self) -> None:
        """Give the memory back."""
        self._map.close()


def _address(name: str, known: Mapping[str, int]) -> int:
    if name in known:
        return known[name]
    try:
        return ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise ValueError(f"translated code needs {name}, which the C library has not") from None


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
