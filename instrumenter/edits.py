"""Insertions into a text by byte offset, nested as the syntax they wrap is nested."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Edits:
    """Collects insertions and replacements of one text.

    At one offset, what closes inner syntax comes before what closes outer, then single insertions, then what
    opens outer syntax before inner.
    """

    _pieces: list[tuple[int, int, int, int, bytes, int]] = field(default_factory=list)

    def wrap(self, start: int, end: int, before: str, after: str) -> None:
        """Put ``before`` and ``after`` around ``[start, end)``."""
        self._pieces.append((start, 2, -end, len(self._pieces), before.encode(), start))
        self._pieces.append((end, 0, -start, -len(self._pieces), after.encode(), end))

    def insert(self, offset: int, text: str) -> None:
        """Put ``text`` at ``offset``."""
        self._pieces.append((offset, 1, 0, len(self._pieces), text.encode(), offset))

    def replace(self, start: int, end: int, text: str) -> None:
        """Put ``text`` in the place of ``[start, end)``, which nothing else may cut."""
        self._pieces.append((start, 3, 0, len(self._pieces), text.encode(), end))

    def apply(self, text: bytes) -> bytes:
        """The text with all edits made."""
        out = []
        position = 0
        for offset, _, _, _, piece, resume in sorted(self._pieces):
            out.append(text[position:offset])
            out.append(piece)
            position = max(resume, offset, position)
        out.append(text[position:])
        return b"".join(out)
