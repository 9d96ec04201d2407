"""Gives preprocessed text the lines of its source where that splices lines by a backslash at their ends.

clang's preprocessor writes what is spliced on one line, the first, and its compiler tells the lines apart, as users,
debuggers and gcov do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from instrumenter.tokens import tokens

_MARKER = re.compile(r'^#[ \t]*(\d+)[ \t]+"((?:[^"\\]|\\.)*)"([ \t0-9]*)$', re.MULTILINE)
_SPLICE = re.compile(rb"\\[ \t]*\r?\n")


@dataclass(frozen=True)
class _Token:
    """A token of the source, or of the preprocessed text: where it stands, the line from 0, the column in bytes."""

    text: bytes
    line: int
    column: int


def with_spliced_lines(text: str, directory: Path) -> str:
    """Preprocessed ``text`` with each statement on its line; files that it names are relative to ``directory``."""
    spliced: dict[str, dict[int, list[bytes]]] = {}
    for match in _MARKER.finditer(text):
        if match[2] not in spliced:
            spliced[match[2]] = {} if "3" in match[3].split() else _spliced_lines(directory, match[2])
    if not any(spliced.values()):
        return text
    return "\n".join(_split(text.split("\n"), spliced))


def _spliced_lines(directory: Path, name: str) -> dict[int, list[bytes]]:
    """The lines of a source that are spliced and no directive, by the number of the first of them."""
    try:
        text = (directory / re.sub(r"\\(.)", r"\1", name)).read_bytes()
    except OSError:
        return {}
    if _SPLICE.search(text) is None:
        return {}
    found: dict[int, list[bytes]] = {}
    lines = text.split(b"\n")
    first = 0
    for number, line in enumerate(lines):
        if line.rstrip().endswith(b"\\"):
            continue
        if number > first and not lines[first].lstrip().startswith(b"#"):
            found[first + 1] = [re.sub(rb"\\\s*$", b"", each) for each in lines[first : number + 1]]
        first = number + 1
    return found


def _split(lines: Sequence[str], spliced: dict[str, dict[int, list[bytes]]]) -> Iterator[str]:
    """The preprocessed ``lines``, with those that stand for several lines of the source split."""
    of_file: dict[int, list[bytes]] = {}
    number, too_many = 1, 0
    for line in lines:
        match = _MARKER.match(line)
        if match is not None:
            number, of_file, too_many = int(match[1]), spliced.get(match[2], {}), 0
            yield line
            continue
        if too_many and not line.strip():
            too_many -= 1
        elif number in of_file and line.strip() and not line.lstrip().startswith("#"):
            parts = _parts(line.encode("utf-8", "surrogateescape"), of_file[number])
            too_many += len(parts) - 1
            yield from (part.decode("utf-8", "surrogateescape") for part in parts)
        else:
            yield line
        number += 1


def _parts(line: bytes, source: Sequence[bytes]) -> list[bytes]:
    """A line of preprocessed text, split as its source is, as far as their tokens are the same."""
    written = list(_tokens_of(source))
    found = list(_tokens_of([line]))
    matcher = SequenceMatcher(None, [one.text for one in written], [one.text for one in found], autojunk=False)
    same = {block.a + n: block.b + n for block in matcher.get_matching_blocks() for n in range(block.size)}
    parts: list[bytes] = []
    start, indent = 0, b""
    for number, token in enumerate(_at_macros(written, same)):
        if number in same and token.line > len(parts):
            at = found[same[number]].column
            parts += [indent + line[start:at].rstrip(), *[b""] * (token.line - len(parts) - 1)]
            start, indent = at, b" " * token.column
    return [*parts, indent + line[start:]]


def _at_macros(written: Sequence[_Token], same: dict[int, int]) -> Iterator[_Token]:
    """The tokens of the source, those of a macro's arguments on the line of its name, as compilers have them."""
    depth, line = 0, 0
    for number, token in enumerate(written):
        after = written[number + 1].text if number + 1 < len(written) else b""
        if depth == 0 and number not in same and after == b"(" and re.match(rb"[A-Za-z_$]", token.text):
            line = token.line
            yield token
            depth = -1  # until its parenthesis
            continue
        if depth:
            depth = max(depth, 0) + (token.text == b"(") - (token.text == b")")
            yield _Token(token.text, line, token.column)
        else:
            yield token


def _tokens_of(lines: Sequence[bytes]) -> Iterator[_Token]:
    """The tokens of spliced lines, without comments."""
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    at = 0
    for kind, token, offset in tokens(b"".join(lines), 0):
        while offset >= starts[at + 1]:
            at += 1
        if kind != "comment":
            yield _Token(token, at, offset - starts[at])
