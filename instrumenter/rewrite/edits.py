"""Insertions into a text by byte offset, nested like the syntax that they wrap."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Edits:
    """Collects insertions and replacements of one text.

    At one offset, closings of inner syntax come before closings of outer syntax, then single insertions, then
    openings of outer syntax before openings of inner syntax.
    """

    _insertions: list[tuple[int, int, int, int, bytes, int]] = field(default_factory=list)

    def wrap(self, start: int, end: int, before: str, after: str) -> None:
        """Put ``before`` and ``after`` around ``[start, end)``."""
        self._insertions.append((start, 2, -end, len(self._insertions), before.encode(), start))
        self._insertions.append((end, 0, -start, -len(self._insertions), after.encode(), end))

    def insert(self, offset: int, text: str) -> None:
        """Put ``text`` at ``offset``."""
        self._insertions.append((offset, 1, 0, len(self._insertions), text.encode(), offset))

    def replace(self, start: int, end: int, text: str) -> None:
        """Put ``text`` in the place of ``[start, end)``, which no other edit may cut."""
        self._insertions.append((start, 3, 0, len(self._insertions), text.encode(), end))

    def apply(self, text: bytes) -> bytes:
        """The text with all edits made."""
        out = []
        position = 0
        for offset, _, _, _, inserted, resume in sorted(self._insertions):
            out.append(text[position:offset])
            out.append(inserted)
            position = max(resume, offset, position)
        out.append(text[position:])
        return b"".join(out)
