"""Errors of the instrumenter; every message names file and line where there is one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InstrumenterError(Exception):
    """Base of what the instrumenter raises on purpose; the message is meant for the user."""


class SpecError(InstrumenterError):
    """A metric description is not valid."""


class SourceError(InstrumenterError):
    """The C source does not compile or cannot be instrumented as asked."""


class ToolchainError(InstrumenterError):
    """The cross-compiler is missing, failed for reasons of its own, or took too long."""


def nearest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` with the closest known names, or an empty string."""
    found = difflib.get_close_matches(name, sorted(set(known)), n=3, cutoff=0.5)
    if not found:
        return ""
    return "; did you mean " + " or ".join(repr(match) for match in found) + "?"
