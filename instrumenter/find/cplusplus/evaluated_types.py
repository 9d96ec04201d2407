"""Tells which types make the compiler evaluate what stands in ``typeid`` and in the bounds of an array."""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind, Type, TypeKind

_METHODS = (CursorKind.CXX_METHOD, CursorKind.DESTRUCTOR, CursorKind.CONVERSION_FUNCTION)


def has_variable_length(kind: Type) -> bool:
    """Whether a type is an array whose length is known when the program runs."""
    while kind.get_canonical().kind == TypeKind.CONSTANTARRAY:
        kind = kind.get_canonical().element_type
    return bool(kind.get_canonical().kind == TypeKind.VARIABLEARRAY)


def is_polymorphic(expression: Cursor) -> bool:
    """Whether the type of an expression is a class with virtual functions."""
    waiting, seen = [expression.type], set()
    while waiting:
        definition = waiting.pop().get_canonical().get_declaration().get_definition()
        if definition is None or definition.hash in seen:
            continue
        seen.add(definition.hash)
        for child in definition.get_children():
            if child.kind in _METHODS and child.is_virtual_method():
                return True
            if child.kind == CursorKind.CXX_BASE_SPECIFIER:
                waiting.append(child.type)
    return False
