"""Makes libclang show the init statements of ``switch (init; condition)`` and ``for (init; variable : range)``.

Its visitor leaves these two out, and shows that of ``if``. So the text is parsed once more, as
``if (init; 1) switch (condition)`` and ``if (init; 1) for (variable : range)``. What precedes and what follows stays at
its offset; the text from the semicolon to the closing parenthesis comes from a macro.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from string import ascii_letters, digits

from clang.cindex import Cursor, CursorKind

from instrumenter.find.cplusplus.parse import SystemText
from instrumenter.tokens import at_depth_0, closing_parenthesis

_HIDING = (CursorKind.SWITCH_STMT, CursorKind.CXX_FOR_RANGE_STMT)
_LINE_MARKER = re.compile(rb"^[ \t]*#.*$", re.MULTILINE)
_WORDS = re.compile(rb"[\w$\x80-\xff]+")
_MOST_BYTES_OF_NAME = 5  # of a macro; the shortest text that one stands for is `;x)`


def end_of_init_statement(text: bytes, offset: int) -> int | None:
    """Where the init statement of the ``if``, ``switch`` or loop over a range at ``offset`` ends, None without one."""
    opening = text.index(b"(", offset)
    inside = at_depth_0(text, opening + 1, closing_parenthesis(text, opening))
    return next((at for token, at in inside if token == b";"), None)


class InitStatements:
    """The init statements of the ``switch`` statements and the loops over ranges in one source.

    ``parse``: gives the root of the syntax tree of a text, to which lines of ``#define`` apply.
    """

    def __init__(self, text: bytes, system: SystemText, parse: Callable[[bytes, str], Cursor]) -> None:
        self._text, self._system, self._parse = text, system, parse
        self._ends: dict[int, int] = {}  # of init statements, by the start of their statements
        self._found: dict[int, Cursor] | None = None

    def note(self, cursor: Cursor) -> bool:
        """Whether a statement has an init statement that libclang does not show.

        All statements of a source are noted before the first is asked for by `of`.
        """
        if cursor.kind not in _HIDING:
            return False
        start = int(cursor.extent.start.offset)
        end = end_of_init_statement(self._text, start)
        if end is not None and self._found is None:
            self._ends[start] = end
        return end is not None

    def of(self, cursor: Cursor) -> Iterable[Cursor]:
        """The init statement of a statement; none where it has none, or where libclang cannot be made to show it."""
        if not self._ends or cursor.kind not in _HIDING:
            return ()
        if self._found is None:
            self._found = dict(self._read())
        found = self._found.get(int(cursor.extent.start.offset))
        return () if found is None else (found,)

    def _read(self) -> Iterator[tuple[int, Cursor]]:
        """The init statements, by the start of their statements."""
        text, macros = self._as_if()
        for outer in self._parse(text, macros).get_children():
            start = outer.location
            if start.file is None or not start.file.name.endswith(".ii") or self._system.contains(start.offset):
                continue
            for cursor in outer.walk_preorder():
                end = self._ends.get(int(cursor.extent.start.offset)) if cursor.kind == CursorKind.IF_STMT else None
                first = next(iter(cursor.get_children()), None) if end is not None else None
                if end is not None and first is not None and first.extent.start.offset < end:
                    yield int(cursor.extent.start.offset), first

    def _as_if(self) -> tuple[bytes, str]:
        """The text with ``if`` statements around those with init statements, and the macros in it."""
        changed, macros = bytearray(self._text), []
        words = set(_WORDS.findall(self._text))
        done = 0  # what is in a replaced part stays as it is, in the macro
        for start, end in sorted(self._ends.items()):
            if start < done:
                continue
            closing = closing_parenthesis(self._text, start)
            room = closing - end  # without the space before the name
            if _WORDS.match(self._text, closing + 1):
                room -= 1
            name = next((name for name in _names(min(room, _MOST_BYTES_OF_NAME)) if name not in words), None)
            if name is None:
                continue
            words.add(name)
            keyword = b"switch" if self._text.startswith(b"switch", start) else b"for"
            inside = _LINE_MARKER.sub(b"", self._text[end + 1 : closing]).replace(b"\n", b" ")
            macros.append(f"#define {name.decode()} ;1){keyword.decode()}({inside.decode('utf-8', 'replace')})\n")
            changed[start : start + len(keyword)] = b"if".ljust(len(keyword))
            changed[end : closing + 1] = (b" " + name).ljust(closing + 1 - end)
            done = closing
        return bytes(changed), "".join(macros)


def _names(length: int) -> Iterator[bytes]:
    """Names of macros that have ``length`` bytes."""
    for rest in product(ascii_letters + digits, repeat=max(length - 1, 0)):
        yield ("$" + "".join(rest)).encode()
