"""The code shadow: code as it was when decoded, so that a change is found by comparing.

It is kept by halfwords, of which all instructions consist, in tables by address that take memory only where there is
code. The discovery kernel writes into them, too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emulator.engine.address_tables import GUEST_SPACE, Table
from emulator.engine.decode.discovery_kernel import AMBIGUOUS, KNOWN, NEW_PAGES
from emulator.memory import N_PAGES, PAGE_BYTES, PAGE_SHIFT

_PAGE_HALVES = PAGE_BYTES // 2
_PAGE_LONGS = PAGE_BYTES // 8
_FEW = 8  # words
_NOTHING = np.zeros(0, np.int64)
_ONE = b"\1"


class CodeShadow:
    """Halfwords of code as they were when decoded.

    ``tables``: by pc / 2, uint16: the halfword; by pc / 2, uint16: `KNOWN` where it was decoded; uint8 flags: by page,
    1 where the page has decoded code; from `AMBIGUOUS` on, by page, 1 where code was decoded, changed and decoded again
    before the guest announced a change; at `NEW_PAGES`, 1 when `pages` has to collect pages anew.
    """

    def __init__(self) -> None:
        self._tables = Table(GUEST_SPACE), Table(GUEST_SPACE), Table(NEW_PAGES + 1)
        self.tables: tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint8]] = (
            self._tables[0].view("u2"), self._tables[1].view("u2"), self._tables[2].view("u1")
        )  # fmt: skip
        self._code, self._known, self._flags = self.tables
        self._code_longs, self._known_longs = (table.view("u8") for table in self._tables[:2])
        self._has_code, self._is_ambiguous = self._flags[:NEW_PAGES].view("?").reshape(2, AMBIGUOUS)
        self._scratch = np.zeros(0, np.bool_)
        self._known_pages = np.zeros(0, np.int64)

    def note(self, start: int, code: bytes) -> None:
        """Record that ``code`` was decoded at ``start``; start and length are even."""
        places, halves = slice(start >> 1, start + len(code) >> 1), np.frombuffer(code, np.uint16)
        pages = slice(start >> PAGE_SHIFT, (start + len(code) - 1 >> PAGE_SHIFT) + 1)
        self._is_ambiguous[pages] |= ((self._code[places] ^ halves) & self._known[places]).any()
        self._has_code[pages] = True
        self._flags[NEW_PAGES] = 1
        self._code[places] = halves
        self._known[places] = KNOWN

    def within(self, start: int, n_bytes: int) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
        """The halfwords of ``[start, start + n_bytes)``, ``start`` even, and which of them were decoded; copies."""
        places = slice(start >> 1, start + n_bytes >> 1)
        return self._code[places].copy(), self._known[places] != 0

    def pages(self, first: int = 0, last: int = N_PAGES - 1) -> NDArray[np.int64]:
        """The numbers of the pages from ``first`` to ``last`` that have, or had, decoded code, ascending."""
        if self._flags[NEW_PAGES]:
            self._flags[NEW_PAGES] = 0
            self._known_pages = self._has_code.nonzero()[0]
        pages = self._known_pages
        if first == 0 and last == N_PAGES - 1:
            return pages
        return pages[pages.searchsorted(first) : pages.searchsorted(last, "right")]

    def changes(self, page: int, contents: memoryview | None) -> NDArray[np.int64]:
        """pc / 2 of the decoded halfwords that differ from ``contents``, the memory from ``page`` on; int64.

        In ambiguous pages, and in the one page ``page`` if ``contents`` is None, all decoded halfwords count as
        different. The pages are not ambiguous afterwards.
        """
        first = page * _PAGE_HALVES
        if contents is None:
            return self._known[first : first + _PAGE_HALVES].nonzero()[0] + first
        # Four halfwords at once: a guest that patches code has all of its pages compared again and again. Halfwords
        # that were not decoded may differ, too.
        n_longs, begin = len(contents) >> 3, page * _PAGE_LONGS
        if len(self._scratch) < n_longs:
            self._scratch = np.zeros(n_longs, np.bool_)  # kept: new memory would come from the host every time
        now, then = np.frombuffer(contents, np.uint64), self._code_longs[begin : begin + n_longs]
        differs = np.not_equal(now, then, out=self._scratch[:n_longs])
        last = page + n_longs // _PAGE_LONGS
        is_uncertain = self._tables[2].find(_ONE, AMBIGUOUS + page, AMBIGUOUS + last) >= 0
        if is_uncertain:
            differs |= np.repeat(self._is_ambiguous[page:last], _PAGE_LONGS)
        where = differs.nonzero()[0]
        if not len(where):
            return _NOTHING
        if len(where) <= _FEW and not is_uncertain:
            return self._changes_at(where.tolist(), begin, contents.cast("Q"))
        differing = now[where] ^ then[where]
        known = self._known_longs[begin + where]
        differing &= known
        if is_uncertain:
            uncertain = self._is_ambiguous[page + where // _PAGE_LONGS]
            differing[uncertain] = known[uncertain]
            self._is_ambiguous[page:last] = False
        if not np.count_nonzero(differing):
            return _NOTHING
        long, half = differing.view(np.uint16).reshape(-1, 4).nonzero()
        return where[long] * 4 + (half + first)

    def _changes_at(self, where: list[int], begin: int, now: memoryview) -> NDArray[np.int64]:
        """The same for a few 64-bit words, for which numpy takes longer."""
        found = []
        code, known = self._tables[0].longs, self._tables[1].longs
        for place in where:
            differing = (now[place] ^ code[begin + place]) & known[begin + place]
            found += [4 * (begin + place) + half for half in range(4) if differing >> 16 * half & KNOWN]
        return np.array(found, np.int64) if found else _NOTHING

    def invalidate(self, places: NDArray[np.int64]) -> None:
        """Forget the halfwords at ``places`` (pc / 2)."""
        self._known[places] = 0

    def close(self) -> None:
        """Give the tables' memory back."""
        for table in self._tables:
            table.clear()
