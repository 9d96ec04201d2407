"""Tells the sources of the compiler's own libraries from those of a program, by their paths in debug information."""

from __future__ import annotations

_WHEEL = "/ziglang/"


def is_library_source(path: str) -> bool:
    """Whether a source or header belongs to the C or C++ library that the compiler of the ziglang wheel brings."""
    return _WHEEL in path
