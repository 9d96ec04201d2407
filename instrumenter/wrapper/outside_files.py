"""Files outside of a project that its build takes: headers, sources and libraries that command lines or other headers
name by whole paths.

A built project is kept by the hash of its own files. These belong to what it is made from, too, so the wrapper writes
their paths, a line each, into the file that ``INSTRUMENT_OUTSIDE`` names.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from common.file_cache import cache_directory
from instrumenter.compiler.processor_options import is_probe
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.wrapper.arguments import CommandLine, Kind
from instrumenter.wrapper.listing import OUTSIDE_VARIABLE
from instrumenter.wrapper.plain_compile import preprocessor_words
from instrumenter.wrapper.shared_libraries import find_library

_PACKAGE = Path(__file__).parents[1]
_NAME = re.compile(r"(?:\\[ #\\]|\$\$|[^\s\\])+")  # of a file in a rule for make
_ESCAPED = re.compile(r"\\([ #\\])|\$(\$)")


def note_outside_files(line: CommandLine, target: str, driver: str, directory: Path, root: str) -> None:
    """Write down what a command line takes from outside of the project ``root``, if the environment says where to.
    Raises `ToolchainError`."""
    place = os.environ.get(OUTSIDE_VARIABLE)
    if not place or line.stage == "ask" or is_probe([each.words[0] for each in line.sources], directory):
        return
    taken = [token.words[0] for token in line.tokens if token.kind is Kind.FILE]
    taken += [found for token in line.tokens if (found := find_library(line, token, directory))]
    toolchain = Toolchain(target)
    for source in line.sources:
        # The compiler's own file of dependencies may be wanted by the build, elsewhere and without system headers.
        words = ["-M", *preprocessor_words(line, source)[1:]]
        status, rule, _ = toolchain.run(words, directory, driver)
        taken += [source.words[0]] if status else _names_in(rule.decode("utf-8", "surrogateescape"))
    own = [os.path.realpath(each) for each in (root, _PACKAGE, cache_directory(), toolchain.folder)]
    outside = sorted({path for name in taken if (path := _outside(directory / name, own))})
    if outside:
        with Path(place).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(b"".join(os.fsencode(path) + b"\n" for path in outside))


def _names_in(rule: str) -> list[str]:
    """The files on which the target of a rule for make depends."""
    _, _, names = rule.replace("\\\n", " ").partition(": ")
    return [_ESCAPED.sub(lambda found: found[1] or found[2], name) for name in _NAME.findall(names)]


def _outside(path: Path, own: Iterable[str]) -> str | None:
    """The file at ``path``, without links in its path, unless it is in one of the folders ``own``."""
    found = Path(os.path.realpath(path))
    return str(found) if found.is_file() and not any(map(found.is_relative_to, own)) else None


def read_outside_files(place: Path) -> list[str]:
    """The files that `note_outside_files` wrote down, sorted; none if there is no file."""
    return sorted({os.fsdecode(line) for line in place.read_bytes().splitlines()}) if place.is_file() else []


def outside_digest(paths: Sequence[str]) -> str:
    """Hash of the contents of files; empty without files."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            content = hashlib.sha256(Path(path).read_bytes()).digest()
        except OSError:
            content = b"none"
        digest.update(os.fsencode(path) + b"\0" + content)
    return digest.hexdigest() if paths else ""
