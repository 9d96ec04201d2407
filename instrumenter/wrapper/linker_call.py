"""A makefile's own call of ``ld``: the linker of this machine knows no objects of the emulated one.

Calls with objects for the emulated machine are the compiler's linker's if they link partially (``-r``), and a call of
the wrapper if they make a shared library. Others are the linker's of this machine, which its own compilers call by this
name, too.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from common.elf_files import ARCHIVE_MAGIC, ELF_MAGIC
from instrumenter.compiler.toolchain import GUEST_TARGET, Toolchain
from instrumenter.errors import SourceError
from instrumenter.wrapper.arguments import WITH_VALUE

NAME = "ld"
_RELOCATABLE = ("-r", "-i", "--relocatable")
_BINARY = ("-b", "--format", "-format")  # of data that becomes an object
_WITH_VALUE = {*WITH_VALUE, *_BINARY, "-m", "-Map", "--version-script", "-version-script", "-soname", "--soname"}
_OF_COMPILER = ("-o", "-L", "-l", "-shared")
_EMULATION = {"riscv64": "elf64lriscv"}
_MACHINES = {"riscv64": 243}  # in the header of an ELF file
_MACHINE_AT = 18


def link(arguments: Sequence[str], directory: Path) -> list[str]:
    """Execute a call of ``ld`` in ``directory``; returns only for a shared library: the wrapper's arguments for it.
    Raises `SourceError` for a program, and `ToolchainError`."""
    words = list(arguments)
    toolchain = Toolchain(GUEST_TARGET)
    if not words or words[0] in ("-v", "-V", "--version", "--help"):
        toolchain.become([*toolchain.tool("ld.lld"), *words])
    is_partial = any(word in _RELOCATABLE for word in words)
    is_data = is_partial and any(word.startswith(_BINARY) for word in words)
    objects = [word for word in words if is_of_guest(directory / word)]
    if not objects and not is_data:
        _become_next(words)
    if is_partial:
        _link_partially(words, toolchain, without_objects=not objects)
    if "-shared" in words or "-Bshareable" in words:
        return _for_compiler(words)
    raise SourceError(
        "got a call of ld that links a program, expected one of the compiler, which adds the C library and counters: "
        "let the makefile link with $CC, by its variable for the linker (`LD=$CC`), or in a copy of the project"
    )


def _link_partially(words: list[str], toolchain: Toolchain, *, without_objects: bool) -> NoReturn:
    """Let the compiler's linker execute ``words``. Without objects it would not know the kind of floating-point
    numbers in calls, which all objects of a program have in common: it gets an empty one."""
    emulation = _EMULATION[GUEST_TARGET.partition("-")[0]]
    kept = [word for n, word in enumerate(words) if word != "-m" and (n == 0 or words[n - 1] != "-m")]
    first = ["-m", emulation]
    with tempfile.TemporaryDirectory() as folder:
        if without_objects:
            source, empty = Path(folder, "empty.c"), Path(folder, "empty.o")
            source.touch()
            toolchain.compile(source, [], empty)
            first.append(str(empty))
        status, _, errors = toolchain.run_tool("ld.lld", [*first, *kept], Path.cwd())
    os.write(2, errors)
    raise SystemExit(status)


def _for_compiler(words: list[str]) -> list[str]:
    """The call of a compiler that links as ``words`` say."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        own = [word, next(rest, "")] if word in _WITH_VALUE else [word]
        if word == "-m":
            continue
        if word == "-Bshareable":
            own = ["-shared"]
        is_plain = not word.startswith("-") or own[0].startswith(_OF_COMPILER)
        found += own if is_plain else [each for value in own for each in ("-Xlinker", value)]
    return ["-nostdlib", *found]


def is_of_guest(path: Path) -> bool:
    """Whether a file is an object for the emulated machine, or an archive whose first object is."""
    try:
        with path.open("rb") as file:
            begin = file.read(1 << 16)
    except (OSError, ValueError):
        return False
    at = 0
    if begin.startswith(ARCHIVE_MAGIC):
        at = max(0, begin.find(ELF_MAGIC))
    header = begin[at : at + _MACHINE_AT + 2]
    if not header.startswith(ELF_MAGIC) or len(header) < _MACHINE_AT + 2:
        return False
    (machine,) = struct.unpack_from("<H", header, _MACHINE_AT)
    return bool(machine == _MACHINES[GUEST_TARGET.partition("-")[0]])


def _become_next(words: list[str]) -> NoReturn:
    """Let the ``ld`` that follows on PATH execute ``words``. Raises `SourceError` if there is none."""
    for folder in os.get_exec_path():
        program = Path(folder or ".", NAME)
        if os.access(program, os.X_OK) and not (program.parent / "instrument-cc").exists():
            os.execv(program, [NAME, *words])
    raise SourceError("ld: this machine has no linker of its own, and no input is for the emulated machine")
