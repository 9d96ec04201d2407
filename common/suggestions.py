"""Suggestions for names that do not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str], most: int = 1) -> str:
    """``"; did you mean 'x'?"``, with up to ``most`` of ``names`` that are similar, or an empty string."""
    found = difflib.get_close_matches(name, sorted(set(names)), n=most, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""
