"""Relocatable objects as LLVM writes them (ELF for x86-64), as numpy rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

R_64, R_PC32, R_PLT32, R_GOTPCREL, R_32, R_32S = 1, 2, 4, 9, 10, 11
R_GOTPCRELX, R_REX_GOTPCRELX = 41, 42
_SHT_PROGBITS, _SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS = 1, 2, 4, 8
_SHF_WRITE, _SHF_ALLOC, _SHF_EXECINSTR = 1, 2, 4
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


class ObjectFile:
    """An ELF object. ``symbols``: rows with ``section`` (0: defined elsewhere), ``value``, ``size``; ``names``: their
    names; ``text``: number of the code section. Raises `ValueError` unless there is exactly one."""

    def __init__(self, image: bytes) -> None:
        self._image = image
        (table_offset,) = np.frombuffer(image, "<u8", 1, 40)
        (n_sections,) = np.frombuffer(image, "<u2", 1, 60)
        self._sections = np.frombuffer(image, _SECTION, int(n_sections), int(table_offset))
        sections = self._sections
        symbols_at = int(np.flatnonzero(sections["type"] == _SHT_SYMTAB)[0])
        self.symbols = self._rows(symbols_at, _SYMBOL)
        strings = image[int(sections[sections[symbols_at]["link"]]["offset"]) :]
        self.names = [strings[at : strings.index(b"\0", at)].decode() for at in self.symbols["name"].tolist()]
        code = (sections["flags"] & _SHF_EXECINSTR != 0) & (sections["size"] > 0)
        self.text = int(np.flatnonzero(code)[0])
        if code.sum() != 1:
            raise ValueError(f"got an object with {code.sum()} code sections, expected one")

    def _rows(self, section: int, dtype: np.dtype[np.void]) -> NDArray[np.void]:
        row = self._sections[section]
        return np.frombuffer(self._image, dtype, int(row["size"]) // dtype.itemsize, int(row["offset"]))

    def bytes_of(self, section: int) -> NDArray[np.uint8]:
        """The contents of a section when loaded, uint8."""
        row = self._sections[section]
        size = int(row["size"])
        if row["type"] == _SHT_NOBITS:
            return np.zeros(size, np.uint8)
        return np.frombuffer(self._image, np.uint8, size, int(row["offset"]))

    def constants(self) -> list[int]:
        """The read-only sections that are loaded beside the code."""
        return self._loaded(0)

    def data(self) -> list[int]:
        """The writable sections, also those written only by relocation."""
        return self._loaded(_SHF_WRITE)

    def _loaded(self, write: int) -> list[int]:
        rows = self._sections
        loaded = (rows["flags"] & (_SHF_ALLOC | _SHF_WRITE) == _SHF_ALLOC | write) & (rows["size"] > 0)
        loaded &= (rows["type"] == _SHT_PROGBITS) | (rows["type"] == _SHT_NOBITS)
        return [int(n) for n in np.flatnonzero(loaded) if n != self.text]

    def relocations(self, section: int) -> NDArray[np.void]:
        """The relocations of a section: rows with ``offset``, ``type``, ``symbol``, ``addend``, by offset."""
        of_it = np.flatnonzero((self._sections["type"] == _SHT_RELA) & (self._sections["info"] == section))
        rows = np.concatenate([np.zeros(0, _RELOCATION), *(self._rows(int(n), _RELOCATION) for n in of_it)])
        return rows[np.argsort(rows["offset"], kind="stable")]
