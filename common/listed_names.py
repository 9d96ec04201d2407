"""Lists of names in messages, cut to a length."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str], most: int) -> str:
    """``a, b, c and 4 more``: the first ``most`` of ``names``, and how many others there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
