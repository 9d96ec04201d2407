"""OpenMP in builds for machines that have no OpenMP runtime: programs are compiled without it, and run on one thread.

The compiler wrapper leaves out what `LEFT_OUT` matches, so the compiler ignores OpenMP's pragmas and leaves ``_OPENMP``
undefined: programs that guard their calls with it see that there is none. Sources that include ``omp.h`` all the same
find the routines of a program with one thread in `HEADERS`, after all directories of their project.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HEADERS = Path(__file__).parents[1] / "headers"
HEADER_WORDS = ("-idirafter", str(HEADERS))
ENTRY = "openmp"
"""The kind of the wrapper's entry in the listing about an output that was made without OpenMP."""
NOTICE = (
    "OpenMP is not there for {machine}: -fopenmp is left out, its pragmas are ignored, and the program runs on one "
    "thread"
)
# -fopenmp-simd needs no runtime. -qopenmp and -fiopenmp are Intel's.
LEFT_OUT = re.compile(
    r"-fi?openmp(=.*)?|-fopenmp-(targets|target|offload|version|cuda|assume).*|-q(no-)?openmp(-.*|=.*)?"
)
LIBRARIES = frozenset(("gomp", "omp", "omp5", "iomp5"))
_LIBRARY_FLAGS = frozenset(f"-l{name}" for name in LIBRARIES)

# What cmake's FindOpenMP would find out by compiling a program that wants _OPENMP: flags that the wrapper leaves out,
# no library, and the version of the routines in omp.h that all versions of cmake know (5.0).
CMAKE_VARIABLES = "".join(
    f'set(OpenMP_{language}_FLAGS "-fopenmp" CACHE STRING "")\nset(OpenMP_{language}_LIB_NAMES "" CACHE STRING "")\n'
    f'set(OpenMP_{language}_SPEC_DATE 201811 CACHE INTERNAL "")\n'
    for language in ("C", "CXX")
)


def without(flags: Iterable[str]) -> list[str]:
    """``flags`` without those that turn OpenMP on, and without its library."""
    return [flag for flag in flags if not LEFT_OUT.fullmatch(flag) and flag not in _LIBRARY_FLAGS]


def notices_about_flags(flags: Sequence[str], machine: str) -> list[str]:
    """A sentence for the user if ``flags`` of a program turn OpenMP on, which is left out."""
    return [NOTICE.format(machine=machine)] if without(flags) != list(flags) else []


def openmp_notices(entries: Iterable[Mapping[str, Any]], machine: str) -> list[str]:
    """A sentence for the user if something that a build left was made without OpenMP; ``entries``: of the listing.

    Programs with which a configure script tried the compiler do not exist any more.
    """
    left = any(each["kind"] == ENTRY and Path(each["output"]).exists() for each in entries)
    return [NOTICE.format(machine=machine)] if left else []
