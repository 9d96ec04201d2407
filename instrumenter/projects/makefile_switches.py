"""Finds the variable of a makefile that leaves a library out: what a conditional around the library's name tests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

_MAKEFILE = re.compile(r"(?:GNUm|m|M)akefile(?:\.in|\.am)?|[\w.-]+\.mk")
_MOST_BYTES = 1 << 20  # of a makefile that is read
_MOST_FOLDERS = 1_000  # that are looked at
_MANY_HAVE = frozenset(("include", "lib", "library", "sys", "api", "common", "config", "types", "version", "main"))
"""Parts of names that say nothing of a library."""
_BRANCH = re.compile(r"^\s*(else\b\s*)?(ifn?eq|ifn?def)\b\s*(.*?)\s*(?:#.*)?$")
_ELSE, _END = re.compile(r"^\s*else\b"), re.compile(r"^\s*endif\b")
_VARIABLE = r"\$(?:[({](?:strip\s+)?(?:\$[({])?(\w+)[)}]*)"
_COMPARED = (
    re.compile(rf"\(\s*{_VARIABLE}\s*,\s*(.*?)\s*\)"),
    re.compile(rf"""["']{_VARIABLE}["']\s+["'](.*?)["']"""),
)
_NAME = re.compile(r"\w+")
_OPPOSITE = {
    "no": "yes", "yes": "no", "0": "1", "1": "0", "n": "y", "y": "n", "false": "true", "true": "false",
    "off": "on", "on": "off",
}  # fmt: skip
_NEGATED = {"ifeq": "ifneq", "ifneq": "ifeq", "ifdef": "ifndef", "ifndef": "ifdef"}
_OF_SYSTEM = re.compile(r"OS|UNAME\w*|\w*PLATFORM\w*|SYS(TEM)?|ARCH|HOST\w*|TARGET\w*|MAKECMDGOALS|CC|CXX", re.I)
"""Variables that say for which machine or with which compiler is built: none that leaves a library out."""


def word_without(directory: Path, missing: str) -> str | None:
    """The word for make's command line, such as ``HAVE_READLINE=no``, that leaves out the library of which ``missing``,
    a header or a library, is missed; None if no makefile of the project in ``directory`` has such a conditional."""
    parts = re.split(r"[^a-z0-9]+", missing.lower().removesuffix(".hpp").removesuffix(".h"))
    names = [part for part in parts if len(part) > 2 and part not in _MANY_HAVE]
    for makefile in _makefiles(directory):
        with makefile.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_BYTES)
        for line, conditions in _lines_with_conditions(text):
            words = [_false_by(condition) for condition in conditions]
            switch = next(filter(None, reversed(words)), None)
            if switch and any(name in line.lower() for name in names):
                return switch
    return None


def _makefiles(directory: Path) -> list[Path]:
    """The makefiles of a project, those at the top first."""
    folders = islice(os.walk(directory), _MOST_FOLDERS)
    found = [Path(folder, name) for folder, _, names in folders for name in names if _MAKEFILE.fullmatch(name)]
    return sorted((path for path in found if path.is_file()), key=lambda path: (len(path.parts), path))


def _lines_with_conditions(text: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The lines of a makefile within conditionals, with the directives that enclose them, the outermost first: the
    kind of each (the opposite one after ``else``) and what it tests."""
    enclosing: list[tuple[str, str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if branch := _BRANCH.match(line):
            if branch[1] and enclosing:
                enclosing.pop()
            enclosing.append((branch[2], branch[3]))
        elif enclosing and _END.match(line):
            enclosing.pop()
        elif enclosing and _ELSE.match(line):
            kind, tested = enclosing.pop()
            enclosing.append((_NEGATED[kind], tested))
        elif enclosing:
            yield line, enclosing


def _false_by(condition: tuple[str, str]) -> str | None:
    """The word for make's command line that makes a condition false, if a user can say so."""
    kind, tested = condition
    if kind in ("ifdef", "ifndef"):
        name = _NAME.fullmatch(tested)
        if name is None or _OF_SYSTEM.fullmatch(tested):
            return None
        return f"{tested}=" if kind == "ifdef" else f"{tested}=1"
    found = next(filter(None, (form.fullmatch(tested) for form in _COMPARED)), None)
    if found is None or "$" in found[2] or _OF_SYSTEM.fullmatch(found[1]):
        return None
    variable, value = found.groups()
    if kind == "ifneq":  # it holds unless the variable has this value
        return f"{variable}={value}"
    return f"{variable}={_OPPOSITE.get(value.lower(), '' if value else '1')}"
