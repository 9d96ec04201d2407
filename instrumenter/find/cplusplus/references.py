"""Finds where C++ binds references to variables: what is written through such a reference is not written by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from clang import cindex
from clang.cindex import Cursor, CursorKind, StorageClass, Type, TypeKind

from instrumenter.find.cplusplus.lambdas import captured_variables
from instrumenter.spec.cplusplus_names import FUNCTIONS

_DECLARATIONS = (CursorKind.VAR_DECL, CursorKind.UNEXPOSED_DECL)  # the second: of a structured binding
ASSIGNING = re.compile(r"operator(?:[-+*/%&|^]|<<|>>)?=|operator(?:\+\+|--)")


def is_writable_reference(kind: Type) -> bool:
    """Whether a type is a reference through which its object can be written."""
    canonical = kind.get_canonical()
    return canonical.kind == TypeKind.LVALUEREFERENCE and not canonical.get_pointee().is_const_qualified()


def is_local(variable: Cursor) -> bool:
    """Whether a variable lives in a call of a function."""
    parent = variable.semantic_parent
    inside = parent is not None and parent.kind in (*FUNCTIONS, CursorKind.LAMBDA_EXPR)
    return inside and variable.storage_class not in (StorageClass.STATIC, StorageClass.EXTERN)


def referred_to(cursor: Cursor, is_library: Callable[[Cursor], bool]) -> Iterator[Cursor]:
    """The expressions to which a declaration, a range, a capture or a call binds references that can be written.

    ``is_library``: whether a function is of the library. What it takes by a forwarding reference, such as the arguments
    of ``emplace_back``, it is held to read only.
    """
    if cursor.kind in _DECLARATIONS:
        value = [child for child in cursor.get_children() if child.kind.is_expression()]
        if value and is_writable_reference(cursor.type):
            yield value[-1]
    elif cursor.kind == CursorKind.CXX_FOR_RANGE_STMT:
        *children, _ = cursor.get_children()
        declared = [child for child in children if child.kind in _DECLARATIONS]
        ranges = [child for child in children if child.kind.is_expression()]
        if declared and ranges and is_writable_reference(declared[-1].type):
            yield ranges[-1]
    elif cursor.kind == CursorKind.LAMBDA_EXPR:
        yield from (value for declared, value in captured_variables(cursor) if is_writable_reference(declared.type))
    elif cursor.kind == CursorKind.CALL_EXPR:
        yield from _arguments(cursor, is_library)


def _arguments(call: Cursor, is_library: Callable[[Cursor], bool]) -> Iterator[Cursor]:
    function = call.referenced
    if function is None or function.kind not in FUNCTIONS:
        return
    arguments, types = list(call.get_arguments()), list(function.type.argument_types())
    by_method = function.kind == CursorKind.CXX_METHOD and len(arguments) > len(types)  # of an operator
    if by_method:
        arguments = arguments[1:]
    library: Any = cindex.conf.lib
    template = library.clang_getSpecializedCursorTemplate(function) if is_library(function) else None
    written = [
        child for child in (template.get_children() if template is not None else ())
        if child.kind == CursorKind.PARM_DECL
    ]  # fmt: skip
    for number, (argument, kind) in enumerate(zip(arguments, types, strict=False)):
        counted = number == 0 and not by_method and ASSIGNING.fullmatch(function.spelling)
        forwarded = written and "&&" in written[min(number, len(written) - 1)].type.spelling
        if argument is not None and is_writable_reference(kind) and not forwarded and not counted:
            yield argument
