"""Sentences for the user about how a program was compiled, which say nothing of its counters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from common.listed_names import listed
from instrumenter.projects.build_advice import with_flags

_MOST_SOURCES = 3  # named in a sentence
_LEVEL = re.compile(r"-O(\w*)")


def optimisation_notices(units: Iterable[Mapping[str, Any]], command: str) -> list[str]:
    """A sentence if sources with counters are compiled without optimisation, as many projects do by default.

    ``units``: the listing's entries of the sources, each with its ``name``; ``command``: of the build.
    """
    counted = [each for each in units if each.get("sites")]
    plain = [each for each in counted if not _is_optimised(each["words"])]
    names = list(dict.fromkeys(str(each["name"]) for each in plain))
    if not names:
        return []
    if any("-O0" in each["words"] for each in plain):
        why, remedy = "-O0 in the flags", "to measure that, give the build command flags with -O2"
    else:
        drivers = sorted({str(each["driver"]) for each in plain})
        compilers = ["CXX" if driver == "c++" else "CC" for driver in drivers]
        why, remedy = "no -O in the flags", f"to measure that: `{with_flags(command, '-O2', compilers)}`"
    return [
        f"Compiled without optimisation ({why}): {listed(names, _MOST_SOURCES)}. An optimised program spends its time "
        f"elsewhere; {remedy}"
    ]


def _is_optimised(words: Sequence[str]) -> bool:
    """Whether the last level of a command line is one of optimisation."""
    levels = [found[1] for word in words for found in [_LEVEL.fullmatch(word)] if found]
    return bool(levels) and levels[-1] != "0"
