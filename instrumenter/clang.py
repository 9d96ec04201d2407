"""libclang: preprocessed C in, a syntax tree out, and the few questions that its Python binding leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clang import cindex
from clang.cindex import Cursor, CursorKind

from instrumenter.errors import SourceError
from instrumenter.lines import LineMap

_FILE = "program.i"
_ASSIGN_FIRST, _ASSIGN_LAST = 22, 32  # CXBinaryOperator_Assign .. _OrAssign
_INCREMENT_FIRST, _INCREMENT_LAST = 1, 4  # CXUnaryOperator_PostInc .. _PreDec
_TRANSPARENT = (CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR)


def parse(text: bytes, name: str, target: str | None, lines: LineMap) -> Cursor:
    """Parse preprocessed ``text``; the root of its syntax tree. Raises `SourceError` on errors in it."""
    arguments = ["-x", "cpp-output", "-std=gnu17", "-w", "-fms-extensions"]
    if target:
        arguments.append(f"--target={target}")
    unit = cindex.Index.create().parse(
        _FILE, arguments, unsaved_files=[(_FILE, text.decode("utf-8", "surrogateescape"))]
    )
    errors = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
    if errors:
        where = [f"  {lines.place(d.location.offset)}: {d.spelling}" for d in errors[:5]]
        raise SourceError(f"{name} cannot be analysed:\n" + "\n".join(where))
    return unit.cursor


def strip(cursor: Cursor) -> Cursor:
    """The expression inside parentheses and implicit conversions."""
    while cursor.kind in _TRANSPARENT:
        children = list(cursor.get_children())
        if len(children) != 1:
            break
        cursor = children[0]
    return cursor


def _operator(cursor: Cursor, function: str) -> int:
    library: Any = cindex.conf.lib
    return int(getattr(library, function)(cursor))


def is_assignment(cursor: Cursor) -> bool:
    """Whether the expression is ``=`` or a compound assignment."""
    if cursor.kind == CursorKind.COMPOUND_ASSIGNMENT_OPERATOR:
        return True
    if cursor.kind != CursorKind.BINARY_OPERATOR:
        return False
    return _ASSIGN_FIRST <= _operator(cursor, "clang_getCursorBinaryOperatorKind") <= _ASSIGN_LAST


def is_increment(cursor: Cursor) -> bool:
    """Whether the expression is ``++`` or ``--``, before or after its operand."""
    if cursor.kind != CursorKind.UNARY_OPERATOR:
        return False
    kind = _operator(cursor, "clang_getCursorUnaryOperatorKind")
    return _INCREMENT_FIRST <= kind <= _INCREMENT_LAST


def written_parts(target: Cursor) -> Iterator[Cursor]:
    """The declarations that a write to lvalue ``target`` changes a part of, innermost first.

    ``a.b[2].c``: fields c and b, then variable a. A pointer ends the walk: ``p->c`` writes field c, not p.
    """
    while True:
        target = strip(target)
        children = list(target.get_children())
        if target.kind == CursorKind.DECL_REF_EXPR:
            if target.referenced is not None:
                yield target.referenced
            return
        if target.kind == CursorKind.MEMBER_REF_EXPR:
            if target.referenced is not None:
                yield target.referenced
            if not children or _is_pointer(children[0]):
                return
            target = children[0]
        elif target.kind == CursorKind.ARRAY_SUBSCRIPT_EXPR:
            base = strip(children[0])
            if base.type.get_canonical().kind not in (
                cindex.TypeKind.CONSTANTARRAY, cindex.TypeKind.INCOMPLETEARRAY, cindex.TypeKind.VARIABLEARRAY,
            ):  # fmt: skip
                return
            target = base
        else:
            return


def _is_pointer(cursor: Cursor) -> bool:
    return bool(cursor.type.get_canonical().kind == cindex.TypeKind.POINTER)


def callee(call: Cursor) -> Cursor | None:
    """The function that a call names directly; None for a call through a pointer."""
    children = list(call.get_children())
    if not children:
        return None
    named = strip(children[0])
    if named.kind == CursorKind.DECL_REF_EXPR and named.referenced is not None:
        referenced = named.referenced
        return referenced if referenced.kind == CursorKind.FUNCTION_DECL else None
    return None
