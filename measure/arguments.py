"""Checks of arguments by the same rules for commands and library: words out of a list, and numbers within a range.

Dataclasses of settings call these when they are made, so that no caller can leave a check out. Layers below, which know
nothing of this package's errors, check their arguments themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from common.suggestions import nearest
from measure.errors import ArgumentError


def check_word(name: str, value: Any, words: Sequence[str]) -> None:
    """Raise `ArgumentError` for an argument ``name`` that is none of ``words``."""
    if not isinstance(value, str) or value not in words:
        similar = nearest(value, words) if isinstance(value, str) else ""
        raise ArgumentError(f"{name}: got {value!r}, expected one of {', '.join(words)}{similar}")


def check_number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    whole: bool = False,
    what: str = "",
) -> None:
    """Raise `ArgumentError` for an argument ``name`` that is no number of at least ``least``, more than ``above``, at
    most ``most`` and less than ``below``; ``whole``: an integer. ``what``: its unit, or what it is a fraction of."""
    bounds = (
        ("at least", least, operator.ge),
        ("more than", above, operator.gt),
        ("at most", most, operator.le),
        ("less than", below, operator.lt),
    )
    given = [(words, bound, holds) for words, bound, holds in bounds if bound is not None]
    if _is_number(value, whole) and all(holds(value, bound) for _, bound, holds in given):
        return
    limits = " and ".join(f"{words} {bound:,}" for words, bound, _ in given)
    kind = "a whole number" if whole else "a number"
    expected = f"{kind} of {limits}" if limits else kind
    raise ArgumentError(f"{name}: got {value!r}, expected {expected}{f' ({what})' if what else ''}")


def _is_number(value: Any, whole: bool) -> bool:
    """Whether ``value`` is a number of Python or numpy, and no truth value."""
    if isinstance(value, bool | str):
        return False
    try:
        if whole:
            operator.index(value)
        else:
            float(value)
    except (TypeError, ValueError):
        return False
    return True
