"""Determines which children of an expression or statement are evaluated: only in them events can happen."""

from __future__ import annotations

from collections.abc import Iterator

from clang.cindex import Cursor, CursorKind, StorageClass

from instrumenter.find import clang

_TYPE_FIRST = (CursorKind.CSTYLE_CAST_EXPR, CursorKind.COMPOUND_LITERAL_EXPR)
_UNEVALUATING_BUILTINS = frozenset(
    f"__builtin_{name}" for name in ("constant_p", "object_size", "dynamic_object_size", "classify_type", "assume")
)


def text_of(text: bytes, cursor: Cursor) -> bytes:
    """The part of the program text that a cursor covers."""
    return text[cursor.extent.start.offset : cursor.extent.end.offset]


def evaluated(cursor: Cursor, text: bytes) -> Iterator[Cursor]:
    """The children that are evaluated when the statement or expression is."""
    kind = cursor.kind
    if kind == CursorKind.CXX_UNARY_EXPR or (kind.is_declaration() and kind != CursorKind.VAR_DECL):
        if kind == CursorKind.TYPEDEF_DECL:
            yield from array_bounds(cursor, text)
        return
    if kind == CursorKind.VAR_DECL:
        if cursor.storage_class not in (StorageClass.STATIC, StorageClass.EXTERN):
            yield from array_bounds(cursor, text)
            value = clang.initializer(cursor)
            if value is not None:
                yield value
        return
    children = list(cursor.get_children())
    if kind == CursorKind.GENERIC_SELECTION_EXPR:
        children = [child for child in children[1:] if child.kind.is_expression()]
    elif kind in (CursorKind.CASE_STMT, *_TYPE_FIRST):
        children = children[-1:]
    elif kind == CursorKind.CALL_EXPR and cursor.spelling in _UNEVALUATING_BUILTINS:
        children = []
    elif kind == CursorKind.UNEXPOSED_EXPR and children:
        children = _evaluated_of_unexposed(children, text_of(text, cursor))
    yield from children


def _evaluated_of_unexposed(children: list[Cursor], text: bytes) -> list[Cursor]:
    if text.startswith(b"__builtin_choose_expr"):
        return children[1:]
    if text.startswith(b"__builtin_offsetof"):
        return []
    if text[:1] in (b"[", b"."):  # a designated initialiser: its index is a constant
        return children[-1:]
    if len(children) == 4:  # `a ?: b`: libclang shows a three times
        return [children[0], children[3]]
    return children


def array_bounds(declaration: Cursor, text: bytes) -> Iterator[Cursor]:
    """The bounds of a variable-length array."""
    value = clang.initializer(declaration) if declaration.kind == CursorKind.VAR_DECL else None
    for child in declaration.get_children():
        if child.kind.is_expression() and (value is None or child != value):
            start = child.extent.start.offset
            if child.kind != CursorKind.INTEGER_LITERAL and text[max(0, start - 80) : start].rstrip().endswith(b"["):
                yield child
