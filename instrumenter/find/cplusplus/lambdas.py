"""Reads the captures of lambdas: what their initialisers evaluate belongs to the function around the lambda."""

from __future__ import annotations

from collections.abc import Iterator

from clang.cindex import Cursor, CursorKind

from instrumenter.find import clang


def captured_variables(lambda_: Cursor) -> Iterator[tuple[Cursor, Cursor]]:
    """The variables that a lambda declares by captures such as ``[k = f()]``, with their initialisers.

    As children of the lambda libclang shows only the parts of these initialisers.
    """
    for child in lambda_.get_children():
        declared = child.referenced if child.kind == CursorKind.VARIABLE_REF else None
        if declared is not None and declared.location == child.location:
            value = clang.initializer(declared)
            if value is not None:
                yield declared, value


def init_captures(lambda_: Cursor) -> list[Cursor]:
    """The initialisers of the captures of a lambda."""
    return [value for _, value in captured_variables(lambda_)]
