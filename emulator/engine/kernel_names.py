"""What a function of a kernel refers to: its source, its local names, and other functions."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple, Protocol

from emulator.engine.kernel_types import Kind, Type, Value, joined, llvm_types


class Source(NamedTuple):
    """A function's. ``first_line``: of the definition in its file; ``names``: what it refers to outside of it."""

    definition: ast.FunctionDef
    file: str
    first_line: int
    names: dict[str, Any]


class Made(NamedTuple):
    """A function that is written: how it is called in the text, and what it returns."""

    name: str
    result: Type | None


class Functions(Protocol):
    """Who writes the functions that are called."""

    def made(self, function: Any, types: tuple[Type, ...]) -> Made | None:
        """``function`` for arguments of these types; None if it is no function of a kernel's."""


class Names:
    """Types of local names and of the result, which grow until all values that they get fit."""

    def __init__(self) -> None:
        self.types: dict[str, Type | None] = {}
        self.is_settled = True

    def take(self, name: str, value: Value) -> Type:
        """The type of ``name``, which is to have ``value``."""
        known = self.types.get(name)
        if known is None:
            self.types[name] = known = value.type
        elif known != value.type:
            grown = joined(Value(known, ()) if isinstance(known, Kind) else _without_parts(known), value)
            if grown != known:
                self.types[name], self.is_settled = grown, False
            return grown
        return known


def _without_parts(type_: Type) -> Value:
    return Value(type_, ("",) * len(llvm_types(type_)))


def assigned(definition: ast.FunctionDef) -> set[str]:
    """The local names of a function."""
    own = {argument.arg for argument in definition.args.args}
    return own | {
        n.id for n in ast.walk(definition) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
