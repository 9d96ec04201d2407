"""Describes a program for a campaign: the key ``program`` for a C or C++ file or a directory, with its input.

Builds nothing but a project whose program is not known by name.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from common.cplusplus_symbols import shortened
from instrumenter.find.languages import is_cplusplus
from measure.errors import CampaignError

_MAKE = "make CC=$CC"
_MOST_FILES_LOOKED_AT = 10_000
_BEFORE = r"(?:^|[;}])(?:(?!\b(?:if|for|while|switch|return|else)\b)[^\n;=#])*"  # on the line of a definition
_MAIN = re.compile(r"^[^\n;=#/]*(?<!\w)main\s*\([^;{]*\)\s*\{", re.M)
_BUILDS = (
    (("configure",), "./configure --host=$HOST && make -j2"),
    (("makefile", "Makefile", "GNUmakefile"), _MAKE),
    (("CMakeLists.txt",), "cmake -S . -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build -j2"),
)
"""Files that tell how a directory is built, and the command, in the order in which they are looked for."""


def build_commands(directory: Path) -> list[str]:
    """The commands that may build ``directory``, the likeliest first; none if it has no build of its own."""
    found = [command for names, command in _BUILDS if any((directory / name).is_file() for name in names)]
    return [_make_command(directory) if command is _MAKE else command for command in found]


def _make_command(directory: Path) -> str:
    """The call of make: with a C++ compiler if there is C++, which is also $CC if there is no C, as in ``CC = g++``."""
    names = [path.name for path in islice(directory.rglob("*"), _MOST_FILES_LOOKED_AT)]
    if not any(is_cplusplus(name) for name in names):
        return _MAKE
    return f"{_MAKE} CXX=$CXX" if any(name.endswith(".c") for name in names) else "make CC=$CXX CXX=$CXX"


def program_keys(
    program: Path, build: str | None, binary: str | None, beside: Path, notify: Callable[[str], None]
) -> dict[str, Any]:
    """The keys of ``program`` that say what it is made of, with paths relative to the directory ``beside``.

    Raises `CampaignError` for a path that is no C or C++ file and no directory with such files or a build, and when a
    build makes no program or several.
    """
    if program.is_dir():
        build = build or next(iter(build_commands(program)), None)
        if build is not None:
            if beside.resolve().is_relative_to(program.resolve()):
                raise CampaignError(
                    f"the campaign file would be inside {program}, which is copied and hashed for each build: start "
                    f"`measure init` from outside of it, or say where the file goes with --out ../NAME.yaml"
                )
            if binary is not None and os.path.normpath(binary).startswith(("/", "..")):
                raise CampaignError(f"--binary {binary}: expected a path below {program}, such as src/mine")
            binary = binary or _only_program(program, build, notify)
            return {"build": build, "directory": relative(program, beside), "binary": binary}
        sources = sorted(path for path in program.iterdir() if _is_source(path))
        if not sources:
            raise CampaignError(
                f"{program}: has no C or C++ file, configure script, makefile or CMakeLists.txt: say how it is built "
                "with --build COMMAND"
            )
        if binary is not None:
            raise CampaignError("--binary names what a build makes, but the directory has no build: leave it out")
        return sources_keys(sources, beside)
    for option, value in (("--build", build), ("--binary", binary)):
        if value is not None:
            raise CampaignError(f"{option} means nothing for one source file: give the directory that is built")
    if not program.is_file():
        raise CampaignError(f"{program}: no such file or directory; expected a C or C++ file or a directory")
    if not _is_source(program):
        raise CampaignError(
            f"{program}: is no C or C++ file, expected FILE.c, FILE.cpp or alike, or a directory with a build of its "
            "own"
        )
    return sources_keys([program], beside)


def sources_keys(sources: Sequence[Path], beside: Path) -> dict[str, Any]:
    """The keys for a list of C and C++ files."""
    names = [relative(source, beside) for source in sources]
    return {"source": names[0]} if len(names) == 1 else {"sources": names}


def flag_keys(flags: str | None, program: Path, build: str | None) -> dict[str, Any]:
    """The key for the compiler's flags. Raises `CampaignError` for a directory with a build, and unbalanced quotes."""
    if flags is None:
        return {}
    if program.is_dir() and (build or build_commands(program)):
        raise CampaignError(
            "--flags means nothing for a directory with a build: give them in --build, such as "
            f"`make CC=$CC CFLAGS='{flags}'`"
        )
    try:
        return {"flags": shlex.split(flags)}
    except ValueError as error:
        raise CampaignError(f"--flags {flags}: {error}") from None


def input_keys(arguments: Sequence[str], stdin: Path | None, files: Sequence[str], beside: Path) -> dict[str, Any]:
    """The keys for arguments, standard input and files. Arguments that name files of this directory are files.

    Raises `CampaignError` for files that do not exist and guest paths that are not absolute.
    """
    found: dict[str, Any] = {"args": list(arguments)} if arguments else {}
    if stdin is not None:
        found["stdin"] = relative(_existing(stdin, "--stdin"), beside)
    mapped: dict[str, str] = {}
    for argument in arguments:
        if argument and Path(argument).is_file():
            mapped[_guest_path(argument)] = relative(Path(argument), beside)
    for given in files:
        guest, equals, host = given.rpartition("=")
        if equals and not guest.startswith("/"):
            raise CampaignError(f"--file {given}: got the guest path '{guest}', expected an absolute one: /{guest}")
        mapped[guest or _guest_path(host)] = relative(_existing(Path(host), "--file"), beside)
    if mapped:
        found["files"] = mapped
    return found


def sources_that_define(names: Sequence[str], sources: Sequence[Path]) -> list[Path]:
    """C and C++ files beside ``sources`` with a definition of one of ``names``, which a link missed.

    Names of C++ are as the linker writes them, ``ns::Box::f(int)``: the file has ``f`` after ``Box::``, or somewhere
    ``Box`` as well. Files that have a function main are other programs.
    """
    definitions = [_definition_of(name) for name in names]
    found = []
    for candidate in sorted({path for source in sources for path in source.resolve().parent.iterdir()}):
        if candidate in {source.resolve() for source in sources} or not _is_source(candidate):
            continue
        text = candidate.read_text("utf-8", "replace")
        if not _MAIN.search(text) and any(all(one.search(text) for one in needed) for needed in definitions):
            found.append(candidate)
    return found


def _definition_of(name: str) -> list[re.Pattern[str]]:
    """What the text of a file has that defines ``name``: a definition of its last part, and the class around it."""
    *around, last = re.sub(r"(?<!operator)(?<!operator<)<.*?>(?=::|$)", "", shortened(name)[0]).split("::")
    body = r"\s*(\([^;]*\)[\w\s]*(:[^;]*)?\{|[\[=;])"
    needed = [re.compile(rf"{_BEFORE}(?<![\w~]){re.escape(last).replace('operator', 'operator *')}{body}", re.M)]
    return needed + [re.compile(rf"(?<!\w){re.escape(part)}(?!\w)") for part in around[-1:]]


def _is_source(path: Path) -> bool:
    """Whether the file is C or C++ by the ending of its name, and not preprocessed."""
    return path.is_file() and path.suffix != ".ii" and (path.suffix == ".c" or is_cplusplus(path))


def relative(path: Path, beside: Path) -> str:
    """``path`` relative to the directory ``beside``, where the campaign file is."""
    return os.path.relpath(path.resolve(), beside.resolve())


def _guest_path(argument: str) -> str:
    return os.path.normpath("/" + argument.lstrip("/"))


def _existing(path: Path, option: str) -> Path:
    if not path.is_file():
        raise CampaignError(f"{option} {path}: no such file")
    return path


def _only_program(directory: Path, command: str, notify: Callable[[str], None]) -> str:
    """The program that the build makes. Raises `CampaignError` if there is none or more than one."""
    from instrumenter.building.project import linked_programs
    from instrumenter.errors import InstrumenterError

    try:
        made = linked_programs(directory, command, notify)
    except InstrumenterError as error:
        others = [other for other in build_commands(directory) if other != command]
        ways = "".join(f"\nIt has another build, too; to take that: --build '{other}'" for other in others)
        raise CampaignError(f"{directory}: {error}{ways}") from None
    alike = [name for name in made if Path(name).name == directory.resolve().name]
    if len(made) != 1 and len(alike) != 1:
        got = f"links {len(made)} programs ({', '.join(made)})" if made else "links no program with $CC"
        raise CampaignError(
            f"{directory}: the build `{command}` {got}: say which one to measure with --binary PATH"
            if made
            else f"{directory}: the build `{command}` {got}: say how it is built with --build COMMAND, "
            "such as `make CC=$CC`"
        )
    return (alike or list(made))[0]
