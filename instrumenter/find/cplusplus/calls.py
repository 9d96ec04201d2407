"""Finds which functions a C++ call may reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clang import cindex
from clang.cindex import Cursor, CursorKind

from instrumenter.find import clang
from instrumenter.spec.cplusplus_names import FUNCTIONS


def reachable(call: Cursor) -> list[Cursor]:
    """The functions that a call may reach: one, the overloads by name in a template, none where that is open."""
    referenced = call.referenced
    if referenced is not None and referenced.kind in FUNCTIONS:
        return [] if referenced.kind == CursorKind.CONSTRUCTOR else [referenced]
    named = next(iter(call.get_children()), None)
    named = None if named is None else clang.strip(named)  # of a name in parentheses, as in `(std::max)(a, b)`
    referenced = named.referenced if named is not None and named.kind == CursorKind.DECL_REF_EXPR else None
    if referenced is not None and referenced.kind in FUNCTIONS:
        return [referenced]
    if named is None or named.kind not in (CursorKind.MEMBER_REF_EXPR, CursorKind.DECL_REF_EXPR):
        return []
    return [one for child in named.get_children() if child.kind == CursorKind.OVERLOADED_DECL_REF
            for one in _overloads(child)]  # fmt: skip


def _overloads(reference: Cursor) -> Iterator[Cursor]:
    library: Any = cindex.conf.lib
    library.clang_getOverloadedDecl.restype = Cursor
    for number in range(library.clang_getNumOverloadedDecls(reference)):
        found = library.clang_getOverloadedDecl(reference, number)
        found._tu = reference._tu
        yield found
