"""Shared libraries of a project have their objects in them, as an archive: programs, which are linked statically, take
what they need of that.

`embedding_object` makes an object that puts the archive into a shared library, in a section that is never loaded. The
links of programs find the library by its path, or by ``-l`` and ``-L`` as `find_library` does, and link what
`members_in` finds there in its place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from common.elf_files import ARCHIVE_MAGIC, ELF_MAGIC
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.errors import SourceError
from instrumenter.wrapper.arguments import CommandLine, Kind, Token

MEMBERS_SECTION = ".measure.members"
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
    """The file that ``-lNAME`` or ``-l:FILE`` means, an archive or shared library of the project, or the file of that
    name. None for other tokens, and for libraries in none of the folders of -L."""
    if token.kind is not Kind.LINKER or not token.words[0].startswith("-l"):
        return None
    name = token.value
    exact = name.startswith(":")
    names = [name[1:]] if exact else [f"lib{name}.a", f"lib{name}.so"]
    folders = [other.value for other in line.tokens if other.words[0].startswith("-L")]
    files = [os.path.join(folder, each) for folder in folders for each in names]
    begins = ((file, begin_of(directory / file)) for file in files)
    return next((file for file, begin in begins if begin and (exact or begin.startswith(_MEMBERS))), None)


def embedding_object(inputs: Sequence[str], folder: Path, directory: Path, toolchain: Toolchain) -> Path:
    """Make an object in ``folder`` that puts an archive into a shared library: of the objects among ``inputs``, words
    for the linker that runs in ``directory``, and of all members of the archives. Raises `SourceError`."""
    members = [word for word in inputs if not word.startswith("-") and begin_of(directory / word).startswith(_MEMBERS)]
    archive, source = folder / "members.a", folder / "embedding.s"
    status, _, errors = toolchain.run_tool("ar", ["qcLs", str(archive), *members], directory)
    if status:
        raise SourceError(f"the library cannot be archived: {errors.decode('utf-8', 'replace').strip()}")
    source.write_text(f'.section {MEMBERS_SECTION},"",@progbits\n.incbin "{archive.name}"\n', "utf-8")
    made = source.with_suffix(".o")
    toolchain.compile(source, [f"-I{folder}"], made)
    return made


def members_in(library: Path) -> bytes | None:
    """The archive in a shared library, None in one that the wrapper did not link, and for other files."""
    if begin_of(library)[: len(ELF_MAGIC)] != ELF_MAGIC:
        return None
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with library.open("rb") as file:
            section = ELFFile(file).get_section_by_name(MEMBERS_SECTION)
            return section.data() if section is not None else None
    except (OSError, ELFError):
        return None
