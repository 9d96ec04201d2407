"""A kernel function's source, the types of its local names, and the other functions that it calls."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple, Protocol

from emulator.kernels.value_types import Kind, Type, Value, joined, llvm_types


class Source(NamedTuple):
    """The source of a function. ``first_line``: of its definition in ``file``; ``names``: objects from outside of it,
    by name."""

    definition: ast.FunctionDef
    file: str
    first_line: int
    names: dict[str, Any]


class EmittedFunction(NamedTuple):
    """An emitted function: its name in the text, and the type of its result, None for none."""

    name: str
    result: Type | None


class Functions(Protocol):
    """The emitter of called functions."""

    def emitted(self, function: Any, types: tuple[Type, ...]) -> EmittedFunction | None:
        """``function`` for arguments of ``types``, emitted on first use; None if it is not a kernel's function."""


class Names:
    """Types of local names and of the result; a type is widened until all values assigned to the name fit.

    ``is_stable``: no type was widened since the function's emission began.
    """

    def __init__(self) -> None:
        self.types: dict[str, Type | None] = {}
        self.is_stable = True

    def take(self, name: str, value: Value) -> Type:
        """The type of ``name`` after the assignment of ``value``."""
        known = self.types.get(name)
        if known is None:
            self.types[name] = known = value.type
        elif known != value.type:
            grown = joined(Value(known, ()) if isinstance(known, Kind) else _without_parts(known), value)
            if grown != known:
                self.types[name], self.is_stable = grown, False
            return grown
        return known


def _without_parts(type_: Type) -> Value:
    return Value(type_, ("",) * len(llvm_types(type_)))


def assigned(definition: ast.FunctionDef) -> set[str]:
    """The local names of a function."""
    own = {argument.arg for argument in definition.args.args}
    return own | {n.id for n in ast.walk(definition) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
