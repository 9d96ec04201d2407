"""Checks of arguments by the same rules for commands and library: words out of a list, numbers within a range, truth
values, paths and lists.

Dataclasses of settings call these when they are made, so that no caller can leave a check out. Layers below, which know
nothing of this package's errors, check their arguments themselves.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.suggestions import nearest
from measure.errors import ArgumentError

_LONGEST_SHOWN = 80  # characters of a value that a message has in full


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


def check_flag(name: str, value: Any) -> None:
    """Raise `ArgumentError` for an argument ``name`` that is neither True nor False."""
    if not isinstance(value, bool):
        raise not_expected(name, value, "True or False")


def path_of(name: str, value: Any, expected: str = "a path (str or Path)") -> Path:
    """The argument ``name`` as a path. Raises `ArgumentError` for what is none."""
    if not isinstance(value, str | os.PathLike):
        raise not_expected(name, value, expected)
    return Path(value)


def items_of(name: str, value: Any, expected: str) -> tuple[Any, ...]:
    """The items of an argument ``name``, which may be any iterable but a text, a mapping and a table: the characters,
    keys and columns of these are not meant. Raises `ArgumentError` for those, and for what has no items."""
    is_table = getattr(value, "ndim", 1) != 1  # of numpy or pandas, without importing either
    if isinstance(value, str | bytes | Mapping) or is_table or not isinstance(value, Iterable):
        raise not_expected(name, value, expected)
    return tuple(value)


def list_of(name: str, value: Any, what: str, kind: type = str) -> tuple[Any, ...]:
    """The items of an argument ``name``, each of type ``kind``. Raises `ArgumentError` as `items_of`, and for other
    items; it says which list to write in the place of a text."""
    instead = f": write {[value]!r}" if isinstance(value, str) else ""
    items = items_of(name, value, f"a list of {what}{instead}")
    for number, item in enumerate(items):
        if not isinstance(item, kind):
            raise not_expected(f"{name}[{number}]", item, f"a {kind.__name__}")
    return items


def mapping_of(name: str, value: Any, what: str, kind: type | tuple[type, ...], expected: str) -> dict[str, Any]:
    """The argument ``name`` as a dictionary of texts to values of a ``kind``; ``what``: a mapping of what to what;
    ``expected``: the words for one value. None is an empty one. Raises `ArgumentError` for anything else."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise not_expected(name, value, f"a mapping of {what}")
    for key, item in value.items():
        if not isinstance(key, str):
            raise not_expected(name, key, f"a str as each key: a mapping of {what}")
        if not isinstance(item, kind):
            raise not_expected(f"{name}[{key!r}]", item, expected)
    return dict(value)


def not_expected(name: str, value: Any, expected: str) -> ArgumentError:
    """The error for an argument ``name`` of a wrong type; the value is shown if it is short."""
    shown = repr(value)
    if len(shown) > _LONGEST_SHOWN or "\n" in shown:
        shown = f"a value of type {type(value).__name__}"
    return ArgumentError(f"{name}: got {shown}, expected {expected}")


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
