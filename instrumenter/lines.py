"""Preprocessed text and where it came from: byte offsets to the user's files and lines, by the line markers."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

_MARKER = re.compile(rb'^#\s*(?:line\s+)?(\d+)(?:\s+"((?:[^"\\]|\\.)*)")?', re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """A position in the user's source."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class LineMap:
    """Maps byte offsets of preprocessed text to `Place`."""

    def __init__(self, text: bytes, name: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer(rb"\n", text))]
        self._markers: list[tuple[int, int, str]] = [(0, 1, name)]  # physical line after it, its number, file
        current = name
        for match in _MARKER.finditer(text):
            if match[2] is not None:
                current = re.sub(r"\\(.)", r"\1", match[2].decode("utf-8", "surrogateescape"))
            physical = bisect_right(self._starts, match.start())  # index of the line after the marker
            self._markers.append((physical, int(match[1]), current))
        self._physical = [marker[0] for marker in self._markers]

    def place(self, offset: int) -> Place:
        """The user's file and line of the byte at ``offset``."""
        line = bisect_right(self._starts, offset) - 1
        physical, number, file = self._markers[bisect_right(self._physical, line) - 1]
        return Place(file, number + line - physical)

    def marker_lines(self, text: bytes) -> list[tuple[int, int]]:
        """Byte ranges of the marker lines, sorted."""
        return [
            (match.start(), text.find(b"\n", match.start()) + 1 or len(text))
            for match in _MARKER.finditer(text)
        ]
