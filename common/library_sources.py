"""Tells the sources of the compiler's own libraries from those of a program, by their paths in debug information."""

from __future__ import annotations

STRING_FUNCTIONS = "/instrumenter/runtime/string_functions.c"
"""How debug information names the source of the functions that `instrumenter.compiler.string_functions` adds."""
COMPILER_FOLDER = "/ziglang"
"""How it names the folder of the compiler, wherever that is installed."""


def is_library_source(path: str) -> bool:
    """Whether a source or header belongs to the C or C++ library that the compiler of the ziglang wheel brings,
    or that guests get in the place of parts of these."""
    return f"{COMPILER_FOLDER}/" in path or path.endswith(STRING_FUNCTIONS)
