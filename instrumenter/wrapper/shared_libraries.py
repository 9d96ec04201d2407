"""Shared libraries of a project become archives, under their own names: programs are linked statically.

`write_archive` takes the place of a shared library that was linked. The links of programs find it by its path, or by
``-l`` and ``-L``, as `find_library` does, and take what they need of it, as from any archive.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from common.elf_files import ARCHIVE_MAGIC, ELF_MAGIC
from instrumenter.building.toolchain import Toolchain
from instrumenter.errors import SourceError
from instrumenter.wrapper.arguments import CommandLine, Kind, Token

_BITCODE_MAGIC = b"BC\xc0\xde"  # of an object that is compiled with -flto
_MEMBERS = (ELF_MAGIC, ARCHIVE_MAGIC, _BITCODE_MAGIC)


def begin_of(path: Path) -> bytes:
    """The first bytes of a file, as many as tell its kind; none where there is no file."""
    try:
        with path.open("rb") as file:
            return file.read(len(ARCHIVE_MAGIC))
    except OSError:
        return b""


def find_library(line: CommandLine, token: Token, directory: Path) -> str | None:
    """The file that ``-lNAME`` or ``-l:FILE`` means: an archive of the project, also one in place of a shared library,
    or the file of that name. None for other tokens, and for libraries in none of the folders of -L."""
    if token.kind is not Kind.LINKER or not token.words[0].startswith("-l"):
        return None
    name = token.value
    exact = name.startswith(":")
    names = [name[1:]] if exact else [f"lib{name}.a", f"lib{name}.so"]
    folders = [other.value for other in line.tokens if other.words[0].startswith("-L")]
    files = [os.path.join(folder, each) for folder in folders for each in names]
    return next(
        (file for file in files if (begin := begin_of(directory / file)) == ARCHIVE_MAGIC or (exact and begin)), None
    )


def write_archive(place: Path, inputs: Sequence[str], directory: Path, toolchain: Toolchain) -> None:
    """Write an archive of the objects among ``inputs``, words for the linker, and of all members of the archives, to
    ``place``. Raises `SourceError`."""
    members = [word for word in inputs if not word.startswith("-") and begin_of(directory / word).startswith(_MEMBERS)]
    place.unlink(missing_ok=True)  # the linker's, to which members would be added
    status, _, errors = toolchain.run_tool("ar", ["qcLs", str(place), *members], directory)
    if status:
        raise SourceError(f"{place.name} cannot be made as an archive: {errors.decode('utf-8', 'replace').strip()}")
