"""Parses preprocessed C by libclang into a syntax tree, with queries that its Python binding lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from clang import cindex
from clang.cindex import Cursor, CursorKind, StorageClass, TypeKind

from instrumenter.errors import SourceError
from instrumenter.find.line_markers import LineMap
from instrumenter.languages import OLD_C_FLAGS

_FILE = "program.i"
_ASSIGN_FIRST, _ASSIGN_LAST = 22, 32  # CXBinaryOperator_Assign .. _OrAssign
_ADD, _SUBTRACT = 6, 7  # CXBinaryOperator_Add, _Sub
_INCREMENT_FIRST, _INCREMENT_LAST = 1, 4  # CXUnaryOperator_PostInc .. _PreDec
_ADDRESS_OF, _DEREFERENCE, _EXTENSION = 5, 6, 14  # CXUnaryOperator_AddrOf, _Deref, _Extension
_TRANSPARENT = (CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR)
_ARRAYS = (TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY, TypeKind.VARIABLEARRAY)

# Flags that change the language; all others concern the preprocessor or the code generator.
_LANGUAGE_FLAG = re.compile(
    r"-(std=.*|ansi|f(no-)?(signed-char|unsigned-char|short-enums|gnu89-inline|ms-extensions|blocks|gnu-keywords"
    r"|declspec|builtin.*|freestanding|wrapv|common|borland-extensions|plan9-extensions))"
)
_LENIENT = ("-w", *OLD_C_FLAGS, "-Wno-error=return-type")  # the compiler decides, not this analysis


def parse(text: bytes, name: str, target: str | None, lines: LineMap, flags: Sequence[str] = ()) -> Cursor:
    """Parse preprocessed ``text`` like the compiler with ``flags``; returns the root of the syntax tree.

    Raises `SourceError` with the user's file and line for text that is not C.
    """
    diagnostics, root = parse_leniently(text, target, flags)
    errors = [d for d in diagnostics if d.severity >= cindex.Diagnostic.Error]
    if errors:
        where = [f"  {lines.place(d.location.offset)}: {d.spelling}" for d in errors[:5]]
        raise SourceError(f"{name} cannot be analysed:\n" + "\n".join(where))
    return root


def parse_leniently(text: bytes, target: str | None, flags: Sequence[str]) -> tuple[list[Any], Cursor]:
    """The diagnostics and the root of the syntax tree, even for text with errors."""
    arguments = ["-x", "cpp-output", "-std=gnu17", "-fms-extensions"]
    arguments += [flag for flag in flags if _LANGUAGE_FLAG.fullmatch(flag)]
    arguments += [*_LENIENT, *([f"--target={target}"] if target else [])]
    try:
        unit = cindex.Index.create().parse(_FILE, arguments, unsaved_files=[(_FILE, text)])
    except cindex.TranslationUnitLoadError:
        raise SourceError(f"libclang could not analyse the program with the flags {' '.join(arguments)}") from None
    return list(unit.diagnostics), unit.cursor


def strip(cursor: Cursor) -> Cursor:
    """The expression inside parentheses, ``__extension__`` and implicit conversions."""
    while cursor.kind in _TRANSPARENT or is_unary(cursor, _EXTENSION):
        children = list(cursor.get_children())
        if len(children) != 1:
            break
        cursor = children[0]
    return cursor


def _operator(cursor: Cursor, function: str) -> int:
    library: Any = cindex.conf.lib
    return int(getattr(library, function)(cursor))


def _is_binary(cursor: Cursor, first: int, last: int) -> bool:
    if cursor.kind != CursorKind.BINARY_OPERATOR:
        return False
    return first <= _operator(cursor, "clang_getCursorBinaryOperatorKind") <= last


def is_unary(cursor: Cursor, first: int, last: int | None = None) -> bool:
    """Whether the expression is a unary operator with a number from ``first`` to ``last`` (CXUnaryOperatorKind)."""
    if cursor.kind != CursorKind.UNARY_OPERATOR:
        return False
    kind = _operator(cursor, "clang_getCursorUnaryOperatorKind")
    return first <= kind <= (first if last is None else last)


def is_assignment(cursor: Cursor) -> bool:
    """Whether the expression is ``=`` or a compound assignment."""
    if cursor.kind == CursorKind.COMPOUND_ASSIGNMENT_OPERATOR:
        return True
    return _is_binary(cursor, _ASSIGN_FIRST, _ASSIGN_LAST)


def is_increment(cursor: Cursor) -> bool:
    """Whether the expression is ``++`` or ``--``, before or after its operand."""
    return is_unary(cursor, _INCREMENT_FIRST, _INCREMENT_LAST)


def is_address_of(cursor: Cursor) -> bool:
    """Whether the expression is ``&operand``."""
    return is_unary(cursor, _ADDRESS_OF)


def is_array(cursor: Cursor) -> bool:
    """Whether the expression or declaration has array type."""
    return cursor.type.get_canonical().kind in _ARRAYS


def initializer(variable: Cursor) -> Cursor | None:
    """The initialiser of a variable's declaration."""
    function = cindex.conf.lib.clang_Cursor_getVarDeclInitializer
    function.restype = Cursor
    function.argtypes = [Cursor]
    found = function(variable)
    return None if found.kind.is_invalid() else _adopt(found, variable)


def _adopt(cursor: Cursor, owner: Cursor) -> Cursor:
    """Keep the owner's translation unit alive for a cursor from a raw call, which needs it."""
    cursor._tu = owner._tu
    return cursor


def written_parts(target: Cursor) -> Iterator[Cursor]:
    """The declarations of which a write to lvalue ``target`` changes a part, innermost first.

    ``a.b[2].c``: fields c and b, then variable a. A pointer ends the walk: ``p->c`` writes field c, not p; a
    dereference of an address expression (``*&x``, ``*(array + 1)``) is a write to ``x`` and ``array``.
    """
    target = strip(target)
    children = list(target.get_children())
    if target.kind == CursorKind.DECL_REF_EXPR:
        if target.referenced is not None:
            yield target.referenced
    elif target.kind == CursorKind.MEMBER_REF_EXPR:
        if target.referenced is not None:
            yield target.referenced
        if children:
            yield from _written_through(children[0]) if _is_pointer(children[0]) else written_parts(children[0])
    elif target.kind == CursorKind.ARRAY_SUBSCRIPT_EXPR:
        for child in children:
            yield from _written_through(child)
    elif is_unary(target, _DEREFERENCE):
        yield from _written_through(children[0])


def _written_through(address: Cursor) -> Iterator[Cursor]:
    """The declarations changed by a write through ``address``, as far as its text shows them."""
    address = strip(address)
    if is_array(address):
        yield from written_parts(address)
    elif is_address_of(address):
        yield from written_parts(next(address.get_children()))
    elif _is_binary(address, _ADD, _SUBTRACT):
        for child in address.get_children():
            yield from _written_through(child)


def _is_pointer(cursor: Cursor) -> bool:
    return bool(cursor.type.get_canonical().kind == TypeKind.POINTER)


def callees(call: Cursor) -> list[Cursor]:
    """The functions that a call may reach by name: one, or several for ``_Generic``; none through a pointer."""
    children = list(call.get_children())
    return _named_functions(children[0]) if children else []


def _named_functions(named: Cursor) -> list[Cursor]:
    named = strip(named)
    while is_unary(named, _ADDRESS_OF, _DEREFERENCE):
        named = strip(next(named.get_children()))
    if named.kind == CursorKind.GENERIC_SELECTION_EXPR:
        found: dict[str, Cursor] = {}
        for association in list(named.get_children())[1:]:
            if association.kind.is_expression():
                found.update({function.spelling: function for function in _named_functions(association)})
        return list(found.values())
    referenced = named.referenced if named.kind == CursorKind.DECL_REF_EXPR else None
    if referenced is None or referenced.kind != CursorKind.FUNCTION_DECL:
        return []
    return [referenced]


def is_global(variable: Cursor) -> bool:
    """Whether a variable lives as long as the program: at file scope, ``static`` or ``extern``."""
    if variable.kind != CursorKind.VAR_DECL:
        return False
    if variable.storage_class in (StorageClass.STATIC, StorageClass.EXTERN):
        return True
    parent = variable.semantic_parent
    return parent is not None and parent.kind == CursorKind.TRANSLATION_UNIT


def record_names(field: Cursor) -> list[str]:
    """Names of the structs or unions that contain a field; fields of unnamed inner ones belong to the outer, too."""
    names = []
    record = field.semantic_parent
    while record is not None and record.kind in (CursorKind.STRUCT_DECL, CursorKind.UNION_DECL):
        if record.spelling and "(" not in record.spelling:
            names.append(record.spelling)
            break
        record = record.semantic_parent
    return names
