"""Tells the language of a source from the ending of its name, and which C is taken."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath

CPLUSPLUS_ENDINGS = (".cc", ".cp", ".cpp", ".cxx", ".c++", ".C", ".CPP", ".ii")
OLD_C_FLAGS = tuple(
    f"-Wno-error={mistake}"
    for mistake in (
        "implicit-function-declaration", "implicit-int", "int-conversion", "incompatible-pointer-types",
        "incompatible-function-pointer-types", "return-mismatch",
    )
)  # fmt: skip
"""Flags for the C that gcc takes up to version 13: many programs by which architectures are compared are as old."""

_ONLY_CPLUSPLUS = re.compile(
    r"-std=(c|gnu)\+\+.*|-f(no-)?(rtti|exceptions|char8_t|coroutines|sized-deallocation)|-nostdinc\+\+"
)
_ONLY_C = re.compile(r"-std=(c|gnu|iso9899:)\d.*|-ansi")


def is_cplusplus(source: str | Path) -> bool:
    """Whether the source is C++ by the ending of its name, as compilers decide it."""
    return PurePath(source).suffix in CPLUSPLUS_ENDINGS


def flags_of_language(source: str | Path, flags: Sequence[str]) -> list[str]:
    """``flags`` without those for the other language: a C++ program may have C sources, as that of its counters."""
    other = _ONLY_C if is_cplusplus(source) else _ONLY_CPLUSPLUS
    return [flag for flag in flags if not other.fullmatch(flag)]


def generated_ending(source: str | Path) -> str:
    """The ending of the name of a generated file that takes the source's place."""
    return ".cpp" if is_cplusplus(source) else ".c"
