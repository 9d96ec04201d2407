"""Turns results into values that JSON has."""

from __future__ import annotations

import math
from typing import Any


def plain_json(value: Any) -> Any:
    """``value`` with lists for tuples and Python's numbers for NumPy's, at any depth, and None for numbers that are not
    finite, which JSON does not have."""
    if isinstance(value, dict):
        return {key: plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if hasattr(value, "item"):  # a scalar of NumPy, which this module does not load
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
