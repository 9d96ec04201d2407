"""Tells separators of thousands from decimal points: ``1.227`` may be either, and only its column tells which."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from measure.foreign.errors import TraceFileError
from measure.foreign.trace import is_measured

_MAYBE_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}\.\d{3}")
_BELOW_THOUSAND = re.compile(r"[-+]?(0|[1-9]\d{0,2})")
_MANY = 5  # different whole numbers below 1000


def check_thousands(cells: Sequence[str], where: Callable[[int], str]) -> None:
    """Raise `TraceFileError` for a column whose points seem to separate thousands, naming the first.

    ``cells``: (n,) text, stripped; ``where``: the place of a cell by its number.

    Such a column has nothing but values with exactly three digits after the point, and whole numbers below 1000. A
    column that is written with three decimals has no whole numbers; one whose trailing zeros are dropped has values
    with one or two decimals too, but perhaps not among few records. So one of these is asked for besides: a value ends
    in a zero, which is dropped elsewhere; or the values lie closer together as thousands (984 and 1227) than as
    decimals (984 and 1.227); or the whole numbers are many, and about as close.
    """
    with_point: list[int] = []
    whole: list[int] = []
    for n, cell in enumerate(cells):
        if _MAYBE_THOUSANDS.fullmatch(cell):
            with_point.append(n)
        elif _BELOW_THOUSAND.fullmatch(cell):
            whole.append(n)
        elif is_measured(cell):
            return
    counts = {abs(int(cells[n])) for n in whole} - {0}
    if not with_point or not counts:
        return
    ends_in_zero = any(cells[n].endswith("0") for n in with_point)
    decimals = np.log([abs(float(cells[n])) for n in with_point])
    others = np.log([abs(int(cells[n])) for n in whole if int(cells[n])])
    as_decimals, as_thousands = (
        float(np.std(np.concatenate((decimals + shift, others)))) for shift in (0.0, np.log(1000))
    )
    if ends_in_zero or as_thousands < as_decimals or (len(counts) >= _MANY and as_thousands < 2 * as_decimals):
        at = with_point[0]
        other = next(n for n in whole if int(cells[n]))
        text, plain = cells[at], cells[at].replace(".", "")
        raise TraceFileError(
            f"{where(at)}: got {text!r}: with a decimal point it is {text}, with a separator of thousands {plain}; the "
            f"column has no other values than such and whole numbers below 1000 ({cells[other]}), which speaks for "
            f"separators. Expected numbers without them: write {plain}; if points are decimal points, give every value "
            f"decimals ({cells[other]}.000)"
        )
