"""Maps byte offsets of preprocessed text to the user's files and lines, by the line markers."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

_MARKER = re.compile(rb'^#[ \t]*(?:line[ \t]+)?(\d+)(?:[ \t]+"((?:[^"\\]|\\.)*)")?', re.MULTILINE)
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")


@dataclass(frozen=True)
class Place:
    """A position in the user's source."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class LineMap:
    """Maps byte offsets of preprocessed text to `Place`, and places of debug information back to offsets."""

    def __init__(self, text: bytes, name: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer(rb"\n", text))]
        self._length = len(text)
        self._markers: list[tuple[int, int, str]] = [(0, 1, name)]  # physical line after it, its number, file
        current = name
        for match in _MARKER.finditer(text):
            if match[2] is not None:
                current = _unescape(match[2].decode("utf-8", "surrogateescape"))
            physical = bisect_right(self._starts, match.start())  # index of the line after the marker
            self._markers.append((physical, int(match[1]), current))
        self._physical = [marker[0] for marker in self._markers]
        self._by_place: dict[tuple[str, int], list[int]] | None = None

    def place(self, offset: int) -> Place:
        """The user's file and line of the byte at ``offset``."""
        return self._place_of_line(bisect_right(self._starts, offset) - 1)

    def _place_of_line(self, line: int) -> Place:
        physical, number, file = self._markers[bisect_right(self._physical, line) - 1]
        return Place(file, number + line - physical)

    def offsets(self, file: str, line: int, column: int) -> list[int]:
        """The offsets of a compiler's ``file:line:column`` (column from 1, of the preprocessed line).

        There are several if several preprocessed lines belong to the same line of the user.
        """
        if self._by_place is None:
            self._by_place = {}
            for number in range(len(self._starts)):
                place = self._place_of_line(number)
                self._by_place.setdefault((place.file, place.line), []).append(number)
        found = []
        for number in self._by_place.get((file, line), ()):
            end = self._starts[number + 1] if number + 1 < len(self._starts) else self._length + 1
            offset = self._starts[number] + column - 1
            if offset < end:
                found.append(offset)
        return found


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 8)) if len(m[1]) == 3 else m[1], text)
