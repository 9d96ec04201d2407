"""What to do about a build command that failed, judged by what it printed."""

from __future__ import annotations

import re

_ADVICE = (
    (
        re.compile(r"file in wrong format|Relocations in generic ELF|is incompatible with elf"),
        "It links with another command than $CC. Set the makefile's variables for the linker and the archiver, too: "
        "`make CC=$CC LD=$CC AR=$AR`",
    ),
    (
        re.compile(r"Exec format error|cannot execute binary file|Syntax error: .*unexpected"),
        "It seems to run a program that it has just made, which is for another machine than this one. Name a target "
        "that only builds: `make CC=$CC TARGET`",
    ),
    (
        re.compile(r"using shared libraries requires dynamic linking"),
        "It links a program to a shared library, but programs are linked statically. Let it make static libraries: "
        "`./configure --disable-shared`, or a target or variable of the makefile",
    ),
)


def build_advice(output: str, target: str) -> str:
    """Sentences on ``output``, what the command printed: a remedy for each known problem, or general ones. ``target``:
    what it compiled for."""
    known = [advice for symptom, advice in _ADVICE if symptom.search(output)]
    if known:
        return "\n".join(known)
    return (
        f"It ran in a copy of the project, with CC=instrument-cc in the environment; a configure script needs "
        f"--host={target}, and libraries that are not part of the project are not there"
    )
