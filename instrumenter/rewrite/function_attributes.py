"""Puts attributes such as noinline before function definitions of preprocessed C; nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clang.cindex import CursorKind

from instrumenter.building.toolchain import GUEST_TARGET
from instrumenter.find.clang import parse
from instrumenter.find.line_markers import LineMap
from instrumenter.rewrite.edits import Edits


def with_attributes(
    preprocessed: str, name: str, attributes: Mapping[str, str], flags: Sequence[str] = (),
    target: str | None = GUEST_TARGET,
) -> tuple[str, tuple[str, ...]]:  # fmt: skip
    """The text with an attribute before each definition of a function in ``attributes`` (function to attribute, such
    as ``noinline``), and the functions that have a definition in it. Raises `SourceError` for text that is not C."""
    text = preprocessed.encode("utf-8", "surrogateescape")
    edits = Edits()
    found = []
    for cursor in parse(text, name, target, LineMap(text, name), flags).get_children():
        wanted = cursor.kind == CursorKind.FUNCTION_DECL and cursor.is_definition() and cursor.spelling in attributes
        if wanted:
            edits.insert(cursor.extent.start.offset, f"__attribute__(({attributes[cursor.spelling]})) ")
            found.append(cursor.spelling)
    return edits.apply(text).decode("utf-8", "surrogateescape"), tuple(found)
