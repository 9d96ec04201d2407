"""Splits preprocessed C and C++ into tokens, where the syntax tree does not say where a parenthesis or a bracket is."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Literals are one token each, with their prefixes and suffixes: a quote in a number (`1'000`) or in a raw string
# (`R"x(")x"`) begins nothing.
_TOKEN = re.compile(
    rb"(?P<raw>(?:u8|[uUL])?R\"(?P<delimiter>[^()\\\s\"]{0,16})\((?s:.*?)\)(?P=delimiter)\"[\w$]*)"
    rb"|(?P<text>(?:u8|[uUL])?\"(?:[^\"\\]|\\(?s:.))*\"[\w$]*|(?:u8|[uUL])?'(?:[^'\\\n]|\\(?s:.))+'[\w$]*)"
    rb"|(?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9a-zA-Z_]|[\w.$])*)"
    rb"|(?P<word>[A-Za-z_$\x80-\xff][\w$\x80-\xff]*)"
    rb"|(?P<comment>//[^\n]*|/\*(?s:.*?)\*/)"
    rb"|(?P<sign>[^\s])"
)
_OPENING, _CLOSING = (b"(", b"[", b"{"), (b")", b"]", b"}")


def tokens(text: bytes, start: int, end: int | None = None) -> Iterator[tuple[str, bytes, int]]:
    """The kind, the text and the offset of each token in ``text[start:end]``.

    Kinds: ``raw`` (a raw string), ``text`` (a string or a character), ``number``, ``word``, ``comment`` and ``sign``
    (one byte of an operator, or a quote that nothing closes). ``start`` is not inside of a token.
    """
    for match in _TOKEN.finditer(text, start, len(text) if end is None else end):
        yield str(match.lastgroup) if match["raw"] is None else "raw", match[0], match.start()


def at_depth_0(text: bytes, start: int, end: int | None = None) -> Iterator[tuple[bytes, int]]:
    """The text and the offset of each token outside of brackets in ``text[start:end]``, opening brackets included."""
    depth = 0
    for kind, token, offset in tokens(text, start, end):
        depth -= kind == "sign" and token in _CLOSING
        if depth < 0:
            return
        if depth == 0 and not (kind == "sign" and token in _CLOSING):
            yield token, offset
        depth += kind == "sign" and token in _OPENING


def closing_parenthesis(text: bytes, offset: int) -> int:
    """The offset of the parenthesis that closes the first one at or after ``offset``.

    Raises ValueError if there is none.
    """
    depth = 0
    for kind, token, at in tokens(text, offset):
        if kind == "sign" and token in b"()":
            depth += 1 if token == b"(" else -1
            if depth == 0:
                return at
    raise ValueError(f"no parenthesis closes at or after byte {offset}")
