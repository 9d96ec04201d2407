"""What to say of a build command that failed, judged by what it printed: its first error, its end, and what to do."""

from __future__ import annotations

import re

_FIRST_ERROR = re.compile(r"(?<![\w-])error: |^CMake Error|^(?:\S*/)?ld: (?!warning)|: undefined reference to ", re.I)
_ERROR_LINES = 3  # the compiler shows the line below its message, cmake and the linker say there what they miss
_LAST_LINES, _LAST_LINES_AFTER_ERROR = 15, 6

_ADVICE = (
    (
        re.compile(r"file in wrong format|Relocations in generic ELF|is incompatible with elf"),
        "It links with another command than $CC. Set the makefile's variables for the linker and the archiver, too: "
        "`{make} LD=$CC AR=$AR`, or as the makefile calls them",
    ),
    (
        re.compile(r"Exec format error|cannot execute binary file|Syntax error: .*unexpected"),
        "It seems to run a program that it has just made, which is for another machine than this one. Name a target "
        "that only builds: `{make} TARGET`",
    ),
    (
        re.compile(r"using shared libraries requires dynamic linking"),
        "It links a program to a shared library, but programs are linked statically. Let it make static libraries: "
        "`./configure --disable-shared`, or a target or variable of the makefile",
    ),
    (
        re.compile(r"error: [^\n]*__(BEGIN|END)_DECLS"),
        "Its C sources take the names __BEGIN_DECLS and __END_DECLS from glibc's headers; the C library here is musl. "
        "Let the build command define them: {with_declarations}",
    ),
    (
        re.compile(r"error: '(?P<header>(?:argp|error|execinfo|fpu_control|fts|gnu/[\w-]+|obstack|printf"
                   r"|sys/(?:cdefs|queue|sysctl|tree))\.h)' file not found"),
        "<{header}> belongs to glibc; the C library here is musl, which has no such header. Build without the part of "
        "the program that includes it, or put a header of that name into a copy of the project",
    ),
)  # fmt: skip
_DECLARATIONS = "-D__BEGIN_DECLS= -D__END_DECLS="
_MAKE = re.compile(r"(?<![\w./-])make\b(?: +(?:-\S+|\w+=(?:\"[^\"]*\"|[^\s\"'&|;]*)))*")


def failed_build(command: str, how: str, output: str, log: str, target: str) -> str:
    """The message about ``command``, which ``how`` says what it ended with. ``output``: what it printed, all of which
    is in the file ``log``; ``target``: what it compiled for."""
    lines = output.strip().splitlines() or ["(nothing)"]
    tail = lines[-_LAST_LINES:]
    parts = [f"the build command {how}: {command}"]
    error = next((number for number, line in enumerate(lines) if _FIRST_ERROR.search(line)), None)
    if error is not None:
        after = error + _ERROR_LINES
        parts += ["Its first error:", *_indented(lines[error:after])]
        tail = lines[after:][-_LAST_LINES_AFTER_ERROR:]
    parts += [f"Its last lines (all of them: {log}):", *_indented(tail)] if tail else [f"All that it printed: {log}"]
    return "\n".join([*parts, _advice_on(output, target, command)])


def _advice_on(output: str, target: str, command: str) -> str:
    """Sentences on ``output``, what ``command`` printed: a remedy for each known problem, or general ones. ``target``:
    what it compiled for."""
    make = _MAKE.search(command)
    words = {
        "make": make[0] if make else "make CC=$CC",
        "with_declarations": f"`{_with_flags(command, _DECLARATIONS)}`",
    }
    known = [
        advice.format(**words, **found.groupdict())
        for symptom, advice in _ADVICE
        for found in [symptom.search(output)]
        if found
    ]
    if known:
        return "\n".join(known)
    return (
        f"It ran in a copy of the project, with CC=instrument-cc in the environment; a configure script needs "
        f"--host={target}, and libraries that are not part of the project are not there"
    )


def _with_flags(command: str, flags: str) -> str:
    """The build command with more flags for the C compiler, whatever the makefile calls its own flags."""
    if re.search(r"(?<!\S)CC=\$CC(?!\S)", command):
        return re.sub(r"(?<!\S)CC=\$CC(?!\S)", lambda _: f'CC="$CC {flags}"', command)
    if re.search(r"(?<!\S)cmake (?!--)", command):
        return re.sub(r"(?<!\S)cmake (?!--)", lambda _: f'cmake -DCMAKE_C_FLAGS="{flags}" ', command, count=1)
    return f'export CC="$CC {flags}"; {command}'


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
