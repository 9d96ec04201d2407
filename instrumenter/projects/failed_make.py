"""Whether another call of make may do what a build command failed to do, judged by what the command printed."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path, PurePath

from instrumenter.projects.undeclared_names import undeclared_names

MISSING_HEADER = re.compile(r"error: '(?P<missing>[^'\n]+\.h(?:pp)?)' file not found")
_RULE_FAILED = re.compile(
    r"^(?:\S*make(?:\[\d+\])?: \*\*\* (?:\[|No rule to make target)|ninja: build stopped|ninja: error: )", re.M
)
_NO_PROGRAM = re.compile(
    r"^\S*make(?:\[\d+\])?: [\w.+-]+: No such file or directory$|(?:^|: )[\w.+-]+: (?:command )?not found$", re.M
)
_FAILED_TARGET = re.compile(r"^make: \*\*\* \[(?:[^\]\n]*[: ])?([^\s\]]+)\] Error", re.M)  # of the outermost make
_TESTS = re.compile(r"(?:.*[-_/])?(?:tests?|check)(?:[-_].*)?")
_BUILD_FILE = re.compile(r"(?:GNUm|m|M)akefile.*|.*\.mk|CMakeLists\.txt|.*\.cmake|.*\.sh|meson\.build")
_COMPILED = (".c", ".cc", ".cpp", ".cxx", ".o", ".h", ".hpp")
_MOST_FOLDERS, _MOST_BYTES = 1_000, 1 << 20  # of a project, and of a file, that are looked at


def may_need_order(output: str, tree: Path) -> bool:
    """Whether making one file after the other may help a build in ``tree`` that failed and printed ``output``.

    It does not where no rule of make failed, as make was not started or found no target; where a source misses a
    header that nothing in the project makes, or does not include one that it needs; and where this machine lacks a
    program.
    """
    if not _RULE_FAILED.search(output):
        return False
    if _NO_PROGRAM.search(output):
        return False
    missing = {found["missing"] for found in MISSING_HEADER.finditer(output)}
    if missing:
        return any(_may_be_made(PurePath(header).name, tree) for header in missing)
    return undeclared_names(output) is None


def failed_tests(output: str) -> tuple[str, ...]:
    """The targets of the outermost make that failed, and whose names say that they run tests."""
    return tuple(dict.fromkeys(name for name in _FAILED_TARGET.findall(output) if _TESTS.fullmatch(name)))


def _may_be_made(header: str, tree: Path) -> bool:
    """Whether a file of the project's build names ``header``, or a file is there that it may be made from, such as a
    grammar or a template of its name."""
    stem = f"{header.partition('.')[0]}."
    for folder, _, names in islice(os.walk(tree), _MOST_FOLDERS):
        for name in names:
            if name.startswith(stem) and not name.endswith(_COMPILED):
                return True
            path = Path(folder, name)
            if _BUILD_FILE.fullmatch(name) and path.is_file():
                with path.open(encoding="utf-8", errors="replace") as file:
                    if header in file.read(_MOST_BYTES):
                        return True
    return False
