"""What code was when it was decoded, so that a change of it is found by comparing.

By halfwords, of which all instructions are made, in tables by address that take memory only where there is code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from emulator.engine.tables import GUEST_SPACE, Table
from emulator.memory import N_PAGES, PAGE_BYTES, PAGE_SHIFT

Halves = tuple[NDArray[np.int64], NDArray[np.uint16]]  # halves of addresses, and what is there

_PAGE_HALVES = PAGE_BYTES // 2
_KNOWN = 0xFFFF


class NotedCode:
    """Halfwords of code as they were decoded."""

    def __init__(self) -> None:
        self._tables = Table(GUEST_SPACE), Table(GUEST_SPACE), Table(N_PAGES)
        self._code: NDArray[np.uint16] = self._tables[0].view("u2")
        self._known: NDArray[np.uint16] = self._tables[1].view("u2")  # `_KNOWN` or 0
        self._has: NDArray[np.bool_] = self._tables[2].view("?")  # pages with some
        self._untold: list[Callable[[], Halves]] = []

    def note(self, start: int, code: bytes) -> None:
        """``code`` was decoded at ``start``; both are even."""
        place, n = start >> 1, len(code) >> 1
        self._code[place : place + n] = np.frombuffer(code, np.uint16)
        self._known[place : place + n] = _KNOWN
        self._has[start >> PAGE_SHIFT : (start + len(code) - 1 >> PAGE_SHIFT) + 1] = True

    def note_later(self, decoded: Callable[[], Halves]) -> None:
        """Note what ``decoded`` tells when somebody wants to know."""
        self._untold.append(decoded)

    def within(self, start: int, n_bytes: int) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
        """The halfwords from ``start`` on, which is even, and which of them were noted; copies."""
        self._tell()
        places = slice(start >> 1, start + n_bytes >> 1)
        return self._code[places].copy(), self._known[places] != 0

    def pages(self, first: int = 0, last: int = N_PAGES - 1) -> list[int]:
        """Those from ``first`` to ``last`` that have something noted."""
        self._tell()
        return (np.flatnonzero(self._has[first : last + 1]) + first).tolist()

    def differs(self, page: int, contents: bytes) -> bool:
        """Whether what was noted in ``page`` is something else in its ``contents``."""
        self._tell()
        places = slice(page * _PAGE_HALVES, (page + 1) * _PAGE_HALVES)
        return bool(((np.frombuffer(contents, np.uint16) ^ self._code[places]) & self._known[places]).any())

    def forget(self, pages: Collection[int]) -> None:
        """Nothing is noted in ``pages``."""
        for page in pages:
            self._known[page * _PAGE_HALVES : (page + 1) * _PAGE_HALVES] = 0
            self._has[page] = False

    def close(self) -> None:
        """Nobody asks again."""
        self._untold.clear()
        for table in self._tables:
            table.clear()

    def _tell(self) -> None:
        while self._untold:
            places, code = self._untold.pop()()
            self._code[places] = code
            self._known[places] = _KNOWN
            self._has[places >> PAGE_SHIFT - 1] = True
