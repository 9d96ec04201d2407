"""Puts attributes such as noinline before function definitions of a preprocessed source; nothing else changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from clang.cindex import Cursor, CursorKind

from instrumenter.compiler.toolchain import GUEST_TARGET
from instrumenter.find.clang import parse
from instrumenter.find.line_markers import LineMap
from instrumenter.languages import is_cplusplus
from instrumenter.rewrite.edits import Edits

_VERSION = re.compile(r"([CD])[0-5](?=E)")


def with_attributes(
    preprocessed: str, name: str, attributes: Mapping[str, str], flags: Sequence[str] = (),
    target: str | None = GUEST_TARGET,
) -> tuple[str, tuple[str, ...]]:  # fmt: skip
    """The text with an attribute before each definition of a function in ``attributes`` (symbol of the function to
    attribute, such as ``noinline``), and the symbols of functions that have a definition in it.

    ``name``: of the source, whose ending tells the language. In C++ templates and lambdas stay as they are: their
    instances have symbols of their own. Raises `SourceError` for text that does not parse.
    """
    text = preprocessed.encode("utf-8", "surrogateescape")
    edits = Edits()
    found = []
    for cursor, symbols in _definitions(text, name, flags, target):
        symbol = next((one for one in symbols if one in attributes), None)
        if symbol is not None:
            edits.insert(cursor.extent.start.offset, f"__attribute__(({attributes[symbol]})) ")
            found.append(symbol)
    return edits.apply(text).decode("utf-8", "surrogateescape"), tuple(found)


def _definitions(
    text: bytes, name: str, flags: Sequence[str], target: str | None
) -> Iterator[tuple[Cursor, list[str]]]:
    """The function definitions in the text with their symbols, of which constructors and destructors have several."""
    lines = LineMap(text, name)
    if not is_cplusplus(name):
        for cursor in parse(text, name, target, lines, flags).get_children():
            if cursor.kind == CursorKind.FUNCTION_DECL and cursor.is_definition():
                yield cursor, [cursor.spelling]
        return
    from instrumenter.find.cplusplus.parse import parse as parse_cplusplus
    from instrumenter.spec.cplusplus_names import FUNCTIONS, RECORDS

    scopes = (CursorKind.NAMESPACE, CursorKind.LINKAGE_SPEC, CursorKind.UNEXPOSED_DECL, *RECORDS)
    waiting = [parse_cplusplus(text, name, target, lines, flags)]
    while waiting:
        for cursor in waiting.pop().get_children():
            if cursor.kind in scopes:
                if cursor.kind not in (CursorKind.CLASS_TEMPLATE, CursorKind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION):
                    waiting.append(cursor)
            elif cursor.kind in FUNCTIONS and cursor.kind != CursorKind.FUNCTION_TEMPLATE and cursor.is_definition():
                symbol = cursor.mangled_name
                versions = "012" if cursor.kind in (CursorKind.CONSTRUCTOR, CursorKind.DESTRUCTOR) else ""
                yield cursor, [symbol, *(_VERSION.sub(rf"\g<1>{version}", symbol, count=1) for version in versions)]
