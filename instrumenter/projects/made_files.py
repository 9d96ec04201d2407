"""Looks at the files that a project's build has left in its tree: who made them, and what stands for a program."""

from __future__ import annotations

import os
from pathlib import Path

from common.elf_files import ARCHIVE_MAGIC, ELF_MAGIC
from instrumenter.errors import MissingProgram, SourceError
from instrumenter.wrapper.linker_call import is_of_guest
from instrumenter.wrapper.shared_libraries import begin_of

_BEGIN_OF_SCRIPT = 4096  # bytes, in which libtool says what it has made


def may_be_of_another_compiler(tree: Path) -> bool:
    """Whether a build that linked no program may have called another compiler than the wrapper: its ``tree`` has
    objects, archives or programs of another machine, or none of the emulated one."""
    of_guest = False
    for folder, _, names in os.walk(tree):
        for path in (Path(folder, name) for name in names):
            if begin_of(path).startswith((ELF_MAGIC, ARCHIVE_MAGIC)):
                if not is_of_guest(path):
                    return True
                of_guest = True
    return not of_guest


def libtool_program(name: str) -> str:
    """Where libtool puts the program for which it makes the script ``name``, which sets the libraries' path."""
    return str(Path(name).parent / ".libs" / Path(name).name)


def no_program(tree: Path, name: str) -> SourceError:
    """The error for a file ``name`` of a ``tree`` that is no ELF file. Raises `OSError`."""
    with (tree / name).open("rb") as file:
        begin = file.read(_BEGIN_OF_SCRIPT)
    program = libtool_program(name)
    if begin.startswith(b"#!") and b"libtool" in begin and (tree / program).is_file():
        finding = f"'{name}' is a shell script of libtool: the program is {program}"
        return MissingProgram(f"{finding}. Say `binary: {program}`", finding)
    return SourceError(f"'{name}' is no program (no ELF file): perhaps a script of the build")
