"""Finds objects that were in a project's directory before its build, and that the build took as they were.

An earlier build has left them, as a rule, and make takes what is newer than its source: nothing is counted in it. A
project may have objects and archives without their sources, too; in these there is nothing to count.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from common.elf_files import ARCHIVE_MAGIC, ELF_MAGIC
from common.listed_names import listed
from instrumenter.projects.build_advice import with_make_clean
from instrumenter.wrapper.arguments import Kind, read_command_line
from instrumenter.wrapper.shared_libraries import begin_of, find_library

_SOURCES = (".c", ".cc", ".cp", ".cpp", ".cxx", ".c++", ".C", ".y", ".l")
_THIN_MAGIC = b"!<thin>\n"  # of an archive that only names its members
_HEADER_BYTES = 60  # of a member
_MOST_NAMES = 4

CompiledFiles = Mapping[str, Mapping[str, Any]]
"""Of each compiled file in a tree: its ``time`` of change [ns] and its ``contents``, hashes by the name of what is in
it: an object, or the members of an archive."""


class OldInputs(NamedTuple):
    """Names of what a program is linked from and what was there before its build, by whether the sources are there."""

    with_sources: list[str]
    without_sources: list[str]


def compiled_files(tree: Path) -> dict[str, dict[str, Any]]:
    """The objects, archives and programs in ``tree``, by their paths in it."""
    found = {}
    for path in _files(tree):
        if begin_of(path).startswith((ELF_MAGIC, ARCHIVE_MAGIC, _THIN_MAGIC)):
            found[str(path.relative_to(tree))] = {"time": path.stat().st_mtime_ns, "contents": _contents(path)}
    return found


def unchanged(tree: Path, before: CompiledFiles) -> list[str]:
    """Those of the files ``before`` that are in ``tree`` as they were."""
    return [name for name, facts in before.items() if _time(tree / name) == facts["time"]]


def old_inputs(tree: Path, before: CompiledFiles, link: Mapping[str, Any], target: str) -> OldInputs:
    """What a program is linked from and what was there ``before`` its build; ``link``: the listing's entry."""
    kept = unchanged(tree, before)
    old = {content: name for name in before for name, content in before[name]["contents"].items()}
    for path in _files(tree):  # the same may have been compiled again
        name = str(path.relative_to(tree))
        if name not in kept and begin_of(path).startswith(ELF_MAGIC):
            for content in _contents(path).values():
                old.pop(content, None)
    stems = {path.stem for path in _files(tree) if path.suffix in _SOURCES}
    found: dict[str, bool] = {}
    for path in _inputs(link, target):
        if not path.is_relative_to(os.path.realpath(tree)):
            continue
        name = str(path.relative_to(os.path.realpath(tree)))
        contents = _contents(path)
        members = [each for each, content in contents.items() if name in kept or content in old]
        if name in kept:
            found[name] = all(_has_source(each, stems) for each in members)
        elif begin_of(path) in (ARCHIVE_MAGIC, _THIN_MAGIC):
            found |= {f"{each} in {name}": _has_source(each, stems) for each in members}
    return OldInputs([name for name, has in found.items() if has], [name for name, has in found.items() if not has])


def explain_old_inputs(program: str, names: list[str], command: str) -> str:
    """What to do about the files ``names`` that an earlier build has left, from which ``program`` is linked."""
    return f"'{program}' is linked from {listed(names, _MOST_NAMES)}, {with_make_clean(command, len(names))}"


def notices_about_old_inputs(inputs: OldInputs) -> list[str]:
    """A sentence about objects that came with the project."""
    if not inputs.without_sources:
        return []
    names = listed(inputs.without_sources, _MOST_NAMES)
    return [f"Compiled before the build, so nothing is counted in it: {names}"]


def _files(tree: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(tree):
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return -1


def _has_source(name: str, stems: Iterable[str]) -> bool:
    """Whether an object may be of a source with one of ``stems``: automake makes program-a.o of a.c, cmake a.c.o."""
    stem = Path(name).name.partition(".")[0]
    return stem in stems or stem.rpartition("-")[2] in stems


def _inputs(link: Mapping[str, Any], target: str) -> Iterator[Path]:
    """The objects and libraries of a link, without links in their paths."""
    directory = Path(link["directory"])
    line = read_command_line(link["words"], directory, link["driver"] == "c++", target)
    for token in line.tokens:
        name = token.words[0] if token.kind is Kind.FILE else find_library(line, token, directory)
        if name:
            yield Path(os.path.realpath(directory / name))


def _contents(path: Path) -> dict[str, str]:
    """Hashes of the object ``path``, or of the members of an archive, by their names; none of what cannot be read."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    if data.startswith(_THIN_MAGIC):
        thin = ((name, path.parent / name) for name, _ in _members(data))
        return {name: _hash(member.read_bytes()) for name, member in thin if member.is_file()}
    if data.startswith(ARCHIVE_MAGIC):
        return {name: _hash(content) for name, content in _members(data)}
    return {path.name: _hash(data)}


def _members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the members of an archive of GNU's or BSD's form; a thin one has no contents."""
    is_thin, names, at = archive.startswith(_THIN_MAGIC), b"", len(ARCHIVE_MAGIC)
    while at + _HEADER_BYTES <= len(archive):
        field, size = archive[at : at + 16].rstrip(), archive[at + 48 : at + 58].strip()
        if not size.isdigit():
            return
        at += _HEADER_BYTES
        is_table = field in (b"/", b"//", b"/SYM64/")
        length = 0 if is_thin and not is_table else int(size)
        content = archive[at : at + length]
        if field == b"//":
            names = content
        elif field.startswith(b"#1/") and field[3:].isdigit():
            own = int(field[3:])
            field, content = content[:own].rstrip(b"\0"), content[own:]
        elif field[:1] == b"/" and field[1:].isdigit():
            field = names[int(field[1:]) :].partition(b"\n")[0]
        if not is_table and not field.startswith(b"__.SYMDEF"):
            yield os.fsdecode(field.removesuffix(b"/")), content
        at += length + length % 2


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
