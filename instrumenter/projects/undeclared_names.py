"""What to say of names that a compiler does not know because a source does not include the header that declares them.

With glibc such a source compiles, for glibc's headers include more of each other than musl's do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath

from instrumenter.languages import is_cplusplus

GUARD = "-D_GNU_SOURCE"
# Names, the header that declares them in musl, and whether only for programs that define _GNU_SOURCE (or that choose
# no strict standard).
_DECLARED = tuple(
    (re.compile(names), header, guarded)
    for names, header, guarded in (
        (r"u?int(_least|_fast)?\d+_t|u?int(ptr|max)_t|U?INT(\d+|PTR|MAX)_(MAX|MIN)|SIZE_MAX", "stdint.h", False),
        (r"std::u?int((_least|_fast)?\d+|ptr|max)_t", "cstdint", False),
        (r"u_(char|short|int|long)|u_int\d+_t|ushort|uint|ulong", "sys/types.h", True),
        (r"ssize_t|off_t|pid_t|uid_t|gid_t|mode_t", "sys/types.h", False),
        (r"size_t|ptrdiff_t|NULL", "stddef.h", False),
        (r"struct timeval|gettimeofday", "sys/time.h", False),
        (r"fd_set", "sys/select.h", False),
        (r"time_t|clock_t|struct tm|time|clock", "time.h", False),
        (r"struct timespec|clockid_t|clock_gettime|nanosleep|CLOCK_(MONOTONIC|REALTIME)", "time.h", True),
        (r"(U?(CHAR|SHRT|INT|LONG|LLONG)|SCHAR)_(MAX|MIN)|CHAR_BIT", "limits.h", False),
        (r"(PATH|NAME|IOV|LINE)_MAX", "limits.h", True),
        (r"M_PI|M_PI_[24]|M_E|M_SQRT2", "math.h", True),
        (r"str(n?)casecmp|bcopy|bzero|bcmp|index|rindex|ffs", "strings.h", False),
        (r"read|write|close|lseek|getpid|sleep|unlink|access|isatty|getopt", "unistd.h", False),
        (r"usleep", "unistd.h", True),
        (r"s?random|mkstemp|[de]rand48|setenv", "stdlib.h", True),
        (r"v?asprintf|popen|pclose|fileno|fdopen", "stdio.h", True),
        (r"alloca", "alloca.h", False),
        (r"basename|dirname", "libgen.h", False),
        (r"FILE|stdin|stdout|stderr", "stdio.h", False),
        (r"va_list", "stdarg.h", False),
    )
)
_ERROR = re.compile(
    r"^ *(?P<file>[^\s:][^:\n]*):\d+(?::\d+: (?:fatal )?error)?: (?:"  # as the compiler says it, or the product
    r"(?:unknown type name|use of undeclared identifier|call to undeclared (?P<library>library )?function)"
    r" '(?P<name>\w+)'"
    r"|(?:[^'\n]*incomplete[^'\n]*|tentative definition has) type '(?P<struct>struct \w+)'"
    r"|no (?:type|member) named '(?P<member>\w+)' in namespace 'std')",
    re.M,
)
_NOTE = re.compile(
    r"note: include the header <(?P<header>[^>\n]+)> or explicitly provide a declaration for '(?P<name>\w+)'"
)
_MOST_FILES = 3


@dataclass
class Undeclared:
    """Names that need headers, each by its header; ``files`` that lack them; whether any is guarded or a function."""

    names: dict[str, list[str]] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    guarded: bool = False
    functions: bool = True

    @property
    def flags(self) -> str:
        """The flags of the compiler that include the headers."""
        return " ".join([*([GUARD] if self.guarded else []), *(f"-include {header}" for header in self.names)])

    @property
    def languages(self) -> tuple[str, ...]:
        """The variables of make that name the compilers of the files."""
        cplusplus = [is_cplusplus(file) for file in self.files]
        return tuple(name for name, wanted in (("CC", not all(cplusplus)), ("CXX", any(cplusplus))) if wanted)

    def explanation(self, demand: str = "Let the build command include") -> str:
        """What is wrong, and the ``demand`` to include the headers, whose flags are not in it."""
        several = sum(map(len, self.names.values())) > 1
        parts = [f"{_listed(names)} in <{header}>" for header, names in self.names.items()]
        verb = "are" if len(next(iter(self.names.values()))) > 1 else "is"
        declared = ", ".join([parts[0].replace(" in <", f" {verb} declared in <"), *parts[1:]])
        files = list(dict.fromkeys(PurePath(file).name for file in self.files))
        more = f" and {len(files) - _MOST_FILES} more" if len(files) > _MOST_FILES else ""
        shown = (", ".join(files[:_MOST_FILES]) + more) if more else _listed(files)
        do = "does" if len(files) == 1 else "do"
        them = "them" if several else "it"
        lacking = f" with {GUARD}, which {shown} {do} not have" if self.guarded else (
            f", which {shown} {do} not include"
        )  # fmt: skip
        why = (
            "older compilers accepted calls of functions that are not declared"
            if self.functions
            else f"glibc's other headers happen to include {them}, those of musl, the C library here, do not"
        )
        return f"{declared}{lacking}; {why}. {demand} {them}"


def undeclared_names(output: str) -> Undeclared | None:
    """The names in a compiler's ``output`` that are errors only because a known header is not included, if any."""
    noted = {found["name"]: found["header"] for found in _NOTE.finditer(output)}
    result = Undeclared()
    for error in _ERROR.finditer(output):
        member = error["member"]
        name = f"std::{member}" if member else error["name"] or error["struct"]
        known = next(((header, guarded) for names, header, guarded in _DECLARED if names.fullmatch(name)), None)
        if error["library"] and name in noted:
            known = (noted[name], False)
        if known is None:
            continue
        header, guarded = known
        names = result.names.setdefault(header, [])
        if name not in names:
            names.append(name)
        result.files.append(error["file"])
        result.guarded |= guarded
        result.functions &= bool(error["library"])
    return result if result.names else None


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
