"""Checks the settings of a cycle-close trace, for the command and the library."""

from __future__ import annotations

from typing import Literal, get_args, get_origin, get_type_hints

from common.quantities import SHORTEST_TRACED_INTERVAL
from measure.arguments import check_number, check_word
from measure.cycle_close.predictors import predictor_named
from measure.cycle_close.tracer import Settings
from measure.errors import ArgumentError


def check_settings(settings: Settings) -> None:
    """Raise `ArgumentError` for settings out of range."""
    for name, hint in get_type_hints(Settings).items():
        value = getattr(settings, name)
        if get_origin(hint) is Literal:
            check_word(name, value, get_args(hint))
        elif hint is bool and not isinstance(value, bool):
            raise ArgumentError(f"{name}: got {value!r}, expected True or False")
    check_number(
        "interval_instructions", settings.interval_instructions, least=SHORTEST_TRACED_INTERVAL, whole=True,
        what="instructions",
    )  # fmt: skip
    check_number("dimensions", settings.dimensions, least=1, most=65536, whole=True, what="entries of a signature")
    check_number("threshold", settings.threshold, above=0, most=1, what="a fraction of the base: 0.25 is 25%")
    check_number("entries", settings.entries, least=1, whole=True, what="phases in the table")
    check_number("warm_references", settings.warm_references, least=0, whole=True, what="memory references")
    check_number("warm_branches", settings.warm_branches, least=0, whole=True, what="branches")
    wait_step = "a fraction of an instruction's time: 0.2 is 20%"
    check_number("wait_step", settings.wait_step, least=0, most=10, what=wait_step)
    try:
        predictor_named(settings.predictor)
    except (ValueError, AttributeError):
        raise ArgumentError(
            f"predictor: got {settings.predictor!r}, expected 'last' or 'rle-N' with N of at least 1"
        ) from None
