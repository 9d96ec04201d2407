"""Finds the calls by which functions return and may get back to themselves: optimised code does them by a jump.

A program that recurses so needs no stack for it. A counter behind such a call would need some for each turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from clang.cindex import Cursor, CursorKind

from instrumenter.find import clang
from instrumenter.find.evaluation import text_of

_RETURN = re.compile(rb"\breturn\b([^;]*)")
_CALLED = re.compile(rb"([A-Za-z_$\x80-\xff][\w$\x80-\xff]*)\s*(?:<[^<>()]*>\s*)?\(")


class TailCalls:
    """The tail calls between the functions of one source, by their names without scopes: overloads are one.

    ``functions``: name and body of each; ``text``: the source.
    """

    def __init__(self, functions: Iterable[tuple[str, Cursor]], text: bytes) -> None:
        self._bodies: dict[str, list[Cursor]] = {}
        for name, body in functions:
            self._bodies.setdefault(name, []).append(body)
        self._text = text
        self._named: dict[str, set[str]] = {}  # called in return statements, by their text alone
        self._called: dict[str, set[str]] = {}  # by tail calls

    def back_to(self, name: str) -> set[str]:
        """The functions that ``name`` calls when it returns and that may return by a call of ``name``, or are it."""
        if not self._reaches(name, name, self._names_in_returns):
            return set()
        return {callee for callee in self._tail_callees(name)
                if callee == name or self._reaches(callee, name, self._tail_callees)}  # fmt: skip

    @staticmethod
    def _reaches(start: str, end: str, callees: Callable[[str], set[str]]) -> bool:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for callee in callees(waiting.pop()):
                if callee == end:
                    return True
                if callee not in seen:
                    seen.add(callee)
                    waiting.append(callee)
        return False

    def _names_in_returns(self, name: str) -> set[str]:
        if name not in self._named:
            texts = [text_of(self._text, body) for body in self._bodies.get(name, ())]
            self._named[name] = {
                called.decode("utf-8", "surrogateescape")
                for text in texts for returned in _RETURN.findall(text) for called in _CALLED.findall(returned)
            }  # fmt: skip
        return self._named[name]

    def _tail_callees(self, name: str) -> set[str]:
        if name not in self._called:
            self._called[name] = {
                call.spelling
                for body in self._bodies.get(name, ()) for cursor in body.walk_preorder()
                if cursor.kind == CursorKind.RETURN_STMT for call in tail_calls(cursor)
            }  # fmt: skip
        return self._called[name]


def tail_calls(statement: Cursor) -> Iterator[Cursor]:
    """The calls of a return statement after which nothing is left to do: one of ``n ? f(n - 1) : g()`` is."""
    waiting = list(statement.get_children())[:1]
    while waiting:
        value = clang.strip(waiting.pop())
        if value.kind == CursorKind.CALL_EXPR and value.spelling:
            yield value
        elif value.kind == CursorKind.CONDITIONAL_OPERATOR:
            waiting += list(value.get_children())[1:]
