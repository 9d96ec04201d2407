"""Looks at the tables that commands print."""

from __future__ import annotations


def widest_row(shown: str) -> int:
    """Characters of the longest line of the tables in what was printed."""
    return max(len(line) for line in shown.splitlines() if line.startswith(("│", "┃")))
