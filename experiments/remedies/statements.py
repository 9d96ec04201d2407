"""Counts the statements of C functions, each with all functions that it may reach, as PIRA's first selection does.

PIRA (Lehr, Huck and Bischof, "PIRA: performance instrumentation refinement automation", AI-SEPS 2018) instruments at
first the functions whose aggregated number of statements reaches a threshold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from instrumenter.building.generated_sources import preprocess_all
from instrumenter.compiler.toolchain import GUEST_TARGET, Toolchain
from instrumenter.find.clang import parse_leniently

if TYPE_CHECKING:
    from clang.cindex import Cursor


@dataclass
class Body:
    """A function, or a variable with its initialiser. ``statements``: its own; ``names``: functions and global
    variables that its text names."""

    statements: int = 0
    names: set[str] = field(default_factory=set)


def aggregated_statements(sources: Sequence[Path], flags: Sequence[str]) -> dict[str, int]:
    """Of each function that ``main`` may reach: its statements and those of all functions that it may reach, each once.

    Raises `SourceError` as the compiler's preprocessor does.
    """
    bodies: dict[str, Body] = {}
    for text in preprocess_all(sources, flags, Toolchain()).values():
        _, root = parse_leniently(text.encode("utf-8", "surrogateescape"), GUEST_TARGET, flags)
        for name, body in bodies_of(root):
            known = bodies.setdefault(name, Body())
            known.statements += body.statements
            known.names |= body.names
    return aggregated(bodies)


def aggregated(bodies: Mapping[str, Body]) -> dict[str, int]:
    """`aggregated_statements` of parsed functions."""
    return {
        name: sum(bodies[one].statements for one in reachable(bodies, name))
        for name in reachable(bodies, "main")
        if bodies[name].statements
    }


def reachable(bodies: Mapping[str, Body], name: str) -> set[str]:
    """``name`` and all that it names, directly or not."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in bodies and one not in found:
            found.add(one)
            waiting += bodies[one].names
    return found


def bodies_of(root: Cursor) -> Iterator[tuple[str, Body]]:
    """Functions with a body, and global variables with an initialiser, of a syntax tree.

    A function whose name stands in a table counts as reached by every function that names the table: calls through
    pointers are not followed in any other way.
    """
    from clang.cindex import CursorKind

    for cursor in root.get_children():
        if cursor.kind == CursorKind.FUNCTION_DECL and cursor.is_definition():
            block = next(one for one in cursor.get_children() if one.kind == CursorKind.COMPOUND_STMT)
            yield cursor.spelling, Body(statements_in(block), set(_names(block)))
        elif cursor.kind == CursorKind.VAR_DECL:
            yield cursor.spelling, Body(0, set(_names(cursor)))


def statements_in(cursor: Cursor) -> int:
    """The statements in a statement: a block, a label and an empty statement are none themselves."""
    from clang.cindex import CursorKind

    children = list(cursor.get_children())
    if cursor.kind == CursorKind.COMPOUND_STMT:
        return sum(map(statements_in, children))
    if cursor.kind in (CursorKind.CASE_STMT, CursorKind.DEFAULT_STMT, CursorKind.LABEL_STMT):
        return statements_in(children[-1]) if children else 0
    if cursor.kind == CursorKind.NULL_STMT:
        return 0
    if cursor.kind == CursorKind.IF_STMT:
        return 1 + sum(map(statements_in, children[1:]))
    if cursor.kind in (CursorKind.FOR_STMT, CursorKind.WHILE_STMT, CursorKind.SWITCH_STMT):
        return 1 + statements_in(children[-1])
    if cursor.kind == CursorKind.DO_STMT:
        return 1 + statements_in(children[0])
    return 1


def _names(cursor: Cursor) -> Iterator[str]:
    from clang.cindex import CursorKind

    named = (CursorKind.FUNCTION_DECL, CursorKind.VAR_DECL)
    for one in cursor.walk_preorder():
        if one.kind == CursorKind.DECL_REF_EXPR and one.referenced is not None and one.referenced.kind in named:
            yield one.referenced.spelling
