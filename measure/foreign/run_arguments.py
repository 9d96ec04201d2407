"""Arguments of ``--run``: a file or a pattern, with the name of its variant before it or without."""

from __future__ import annotations

from pathlib import Path


def name_and_pattern(argument: str) -> tuple[str | None, str]:
    """The name of a variant and its file or pattern: ``NAME=PATTERN``, or None and ``PATTERN``.

    A file whose own name has ``=`` in it, or whose directory has, is a file.
    """
    name, equals, pattern = argument.partition("=")
    return (None, argument) if not equals or "/" in name or Path(argument).exists() else (name, pattern)


def named(argument: str, variant: str | None) -> tuple[str | None, str]:
    """The variant of an argument, which is ``variant``, that of the argument before it, unless it names one itself, and
    the argument with the variant's name."""
    found, pattern = name_and_pattern(argument)
    variant = variant if found is None else found
    return variant, argument if variant is None else f"{variant}={pattern}"
