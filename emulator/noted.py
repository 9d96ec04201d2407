"""What code was when it was decoded, so that a change of it is found by comparing.

By halfwords, of which all instructions are made, in tables by address that take memory only where there is code. The
kernel that discovers blocks writes into them, too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.engine.discovery_kernel import AMBIGUOUS, KNOWN, NEW_PAGES
from emulator.engine.tables import GUEST_SPACE, Table
from emulator.memory import N_PAGES, PAGE_BYTES, PAGE_SHIFT

_PAGE_HALVES = PAGE_BYTES // 2


class NotedCode:
    """Halfwords of code as they were decoded.

    ``tables``: by half the address, uint16: the halfword, and `KNOWN` where one was noted; by page, uint8: 1 where some
    was noted, and from `AMBIGUOUS` on, 1 where code was decoded, changed and decoded again before the guest said that
    it has changed some; at `NEW_PAGES`, 1 when there are pages that were not told.
    """

    def __init__(self) -> None:
        self._tables = Table(GUEST_SPACE), Table(GUEST_SPACE), Table(NEW_PAGES + 1)
        self.tables: tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint8]] = (
            self._tables[0].view("u2"), self._tables[1].view("u2"), self._tables[2].view("u1")
        )  # fmt: skip
        self._code, self._known, self._flags = self.tables
        self._has, self._is_ambiguous = self._flags[:NEW_PAGES].view("?").reshape(2, AMBIGUOUS)
        self._told_pages = np.zeros(0, np.int64)

    def note(self, start: int, code: bytes) -> None:
        """``code`` was decoded at ``start``; both are even."""
        places, halves = slice(start >> 1, start + len(code) >> 1), np.frombuffer(code, np.uint16)
        pages = slice(start >> PAGE_SHIFT, (start + len(code) - 1 >> PAGE_SHIFT) + 1)
        self._is_ambiguous[pages] |= ((self._code[places] ^ halves) & self._known[places]).any()
        self._has[pages] = True
        self._flags[NEW_PAGES] = 1
        self._code[places] = halves
        self._known[places] = KNOWN

    def within(self, start: int, n_bytes: int) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
        """The halfwords from ``start`` on, which is even, and which of them were noted; copies."""
        places = slice(start >> 1, start + n_bytes >> 1)
        return self._code[places].copy(), self._known[places] != 0

    def pages(self, first: int = 0, last: int = N_PAGES - 1) -> NDArray[np.int64]:
        """Those from ``first`` to ``last`` that have, or had, something noted, ascending."""
        if self._flags[NEW_PAGES]:
            self._flags[NEW_PAGES] = 0
            self._told_pages = self._has.nonzero()[0]
        pages = self._told_pages
        return pages[pages.searchsorted(first) : pages.searchsorted(last, "right")]

    def changes(self, page: int, contents: memoryview | None) -> NDArray[np.int64]:
        """Halves of the addresses in the pages from ``page`` on whose code is something else in their ``contents``: all
        that were noted where that is not certain, and in the one page where there are none."""
        first = page * _PAGE_HALVES
        n_pages = 1 if contents is None else len(contents) // PAGE_BYTES
        places = slice(first, first + n_pages * _PAGE_HALVES)
        known = self._known[places]
        if contents is None:
            return known.nonzero()[0] + first
        differing = (np.frombuffer(contents, np.uint16) ^ self._code[places]) & known
        is_ambiguous = self._is_ambiguous[page : page + n_pages]
        if np.count_nonzero(is_ambiguous):  # a tenth of the time of any()
            uncertain = np.repeat(is_ambiguous, _PAGE_HALVES)
            differing[uncertain] = known[uncertain]
            is_ambiguous[:] = False
        return differing.nonzero()[0] + first

    def forget(self, places: NDArray[np.int64]) -> None:
        """Nothing is noted at these halves of addresses."""
        self._known[places] = 0

    def close(self) -> None:
        """Nobody asks again."""
        for table in self._tables:
            table.clear()
