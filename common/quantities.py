"""Parses counts with decimal prefixes: 500000, 500k, 2G."""

from __future__ import annotations

import re

NUMBER = r"\d[\d_]*(?:\.\d+)?"
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
SHORTEST_TRACED_INTERVAL = 1000  # instructions


def parse_count(text: str) -> int:
    """``2G`` and the like as a number. Raises ValueError for other text."""
    match = re.fullmatch(rf"({NUMBER})\s*([kMGT]?)", text.strip())
    if match is None:
        raise ValueError("expected a count such as 500000, 500k or 2G")
    return round(float(match[1].replace("_", "")) * _FACTORS[match[2]])


def parse_interval(text: str) -> int:
    """Length of an interval of a trace or of vectors, in instructions. Raises ValueError."""
    length = parse_count(text)
    if length < SHORTEST_TRACED_INTERVAL:
        raise ValueError(f"an interval of {text} instructions, expected at least {SHORTEST_TRACED_INTERVAL}")
    return length
