"""Links a built program anew with its functions and data in a random order: a code layout for every run.

A build for this has each function and each variable in a section of its own (`SECTION_FLAGS`), its objects beside the
program, and the linker's command in `COMMAND_NAME`. `relinked` runs that command in some ten milliseconds and keeps
nothing, so that a campaign of a thousand layouts needs no disk. zig's compiler driver passes the linker's options of
order not on, hence the linker itself is called.

The order is that of a keyed hash of the symbols' names: two programs linked by the same seed have the functions that
they share in the same order. Padding (`PADDING_SOURCE`) takes part: gaps of 2 bytes to 2 KiB, which move what follows.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from common import compiler_cache
from common.elf_files import is_elf
from instrumenter.building.elf_symbols import read_symbols
from instrumenter.compiler.toolchain import TIMEOUT_SECONDS
from instrumenter.errors import SourceError, ToolchainError

COMMAND_NAME = "link.json"
OBJECTS = "objects"
LIBRARIES = "libraries"
PADDING = "__measure_padding"  # prefix of the symbols that only move other code and data
_LARGEST_GAP_BITS = 11
_TYPE_END = 18  # of an ELF file: the bytes up to here tell class, byte order and type


def _padding(section: str, kind: str, letter: str, bits: range) -> str:
    return "".join(
        f'.section {section}.{PADDING}_{letter}{bit},"{kind}\n{PADDING}_{letter}{bit}:\n.skip {1 << bit}\n'
        for bit in bits
    )


PADDING_SOURCE = (
    _padding(".text", 'axR",@progbits', "text", range(1, _LARGEST_GAP_BITS + 1))
    + _padding(".data", 'awR",@progbits', "data", range(3, _LARGEST_GAP_BITS + 1))
    + _padding(".bss", 'awR",@nobits', "bss", range(3, _LARGEST_GAP_BITS + 1))
)
"""Assembler of the gaps; "R" keeps them from being collected as unused."""


def wanted_symbols(objects: Sequence[Path]) -> list[str]:
    """Linker flags that keep the global functions and variables of ``objects`` in the program.

    In sections of their own, those that nothing uses would be left out, unlike in the program's own build. Objects
    that the linker compiles (-flto) are no ELF files: in their own build, too, what nothing uses is left out.
    """
    names = sorted({name for each in objects if is_elf(each) for name in _symbols(each, "global")})
    return [f"-Wl,-u,{name}" for name in names]


def keep_link(folder: Path, words: Sequence[str], directory: Path | None = None) -> bool:
    """Keep the linker's arguments ``words``, which made ``folder``/program, for `relinked`; False if it is impossible.

    ``directory``: where the command ran, for relative names of files; default: ``folder``. Inputs other than the
    compiler's own libraries are copied into ``folder``. A command cannot be repeated when a name
    in it is not that of a file (names with spaces are cut), or when the copy fails to link.
    """
    if not words:
        return False
    objects = folder / OBJECTS
    objects.mkdir(exist_ok=True)
    cached = str(compiler_cache.compiler_cache())
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-o":
            next(rest, None)
            continue
        if word == "-u":  # a symbol follows, and there may be a file of its name
            kept += [word, *islice(rest, 1)]
            continue
        path = (directory or folder) / word
        is_file = os.path.isfile(path)  # also of words that are too long for a file's name
        if word.startswith("-") or not (os.path.isabs(word) or is_file):
            kept.append(word)
        elif not is_file:
            return False
        elif word.startswith(cached):
            kept.append(word)
        else:
            copy = objects / f"{len(kept)}_{path.name}"
            (shutil.move if path.parent == folder else shutil.copy2)(path, copy)
            kept.append(f"{OBJECTS}/{copy.name}")
    command = {"words": kept, "symbols": _symbols(folder / "program")}
    (folder / COMMAND_NAME).write_text(json.dumps(command), "utf-8")
    try:
        again = relinked(folder / "program", 0)
    except SourceError:
        again = b""
    with (folder / "program").open("rb") as program:
        if again[:_TYPE_END] == program.read(_TYPE_END):  # an executable again, of the same kind
            return True
    (folder / COMMAND_NAME).unlink()
    shutil.rmtree(objects)
    return False


def can_relink(program: Path) -> bool:
    """Whether ``program`` can be linked anew: its command and all of the command's inputs are there.

    Inputs in the compiler's cache stay there until this process ends.
    """
    try:
        words, _ = link_command(program)
    except SourceError:
        return False
    compiler_cache.use_libraries(compiler_cache.compiler_cache())
    inputs = [word for word in words if os.sep in word and not word.startswith("-")]
    return all((program.parent / word).is_file() for word in inputs)


def link_shifted(program: Path, padding: Path, folder: Path) -> None:
    """Link ``program``, a build kept with `keep_link`, with the object ``padding`` before its code, into
    ``folder``/program, and keep that link as `keep_link` does. Raises `SourceError` as `relinked`."""
    words, _ = link_command(program)
    (folder / OBJECTS).mkdir()
    own = [word for word in words if word.startswith(f"{OBJECTS}/")]
    for word in own:
        _link_or_copy(program.parent / word, folder / word)
    shutil.move(padding, folder / OBJECTS / padding.name)
    after = words.index(own[0]) + 1  # the gaps of `PADDING_SOURCE` come first in every program
    words = [*words[:after], f"{OBJECTS}/{padding.name}", *words[after:]]
    _link([*words, "-o", "program"], folder, folder / "program")
    command = {"words": words, "symbols": _symbols(folder / "program")}
    (folder / COMMAND_NAME).write_text(json.dumps(command), "utf-8")


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


def portable_link(program: Path) -> tuple[bytes, dict[str, Path]]:
    """What `relinked` needs of ``program`` on another machine: the contents of `COMMAND_NAME`, in which all inputs lie
    beside the program, and these inputs by their names there. Raises `SourceError`."""
    words, symbols = link_command(program)
    inputs: dict[str, Path] = {}
    portable = []
    for n, word in enumerate(words):
        if os.path.isabs(word):  # of the compiler
            name = f"{LIBRARIES}/{n}_{Path(word).name}"
            inputs[name] = Path(word)
            word = name
        elif word.startswith(f"{OBJECTS}/"):
            inputs[word] = program.parent / word
        portable.append(word)
    return json.dumps({"words": portable, "symbols": symbols}).encode(), inputs


def relinked(
    program: Path, seed: int | None, words: Sequence[str] | None = None, standing_in: Mapping[str, str] | None = None
) -> bytes:  # fmt: skip
    """``program``, a build kept with `keep_link`, linked with its functions and data in the order of ``seed``; None: in
    that of the build.

    Its debug information is left out. ``words``: the linker's arguments, default: as kept; ``standing_in``: by a symbol
    that another program has, the one that takes its place in the order. Raises `SourceError` when the linker or an
    input is missing or fails.
    """
    kept, symbols = link_command(program)
    words, instead = words or kept, standing_in or {}
    with tempfile.TemporaryDirectory(prefix="perturbation-link-") as name:
        order, output = Path(name) / "order", Path(name) / "program"
        options = ["--strip-debug", "-o", str(output)]
        if seed is not None:
            in_order = symbol_order(list({*symbols, *instead}), seed)
            order.write_bytes(_lines([instead.get(symbol, symbol) for symbol in in_order]))
            options += [f"--symbol-ordering-file={order}", "--no-warn-symbol-ordering"]
        _link([*words, *options], program.parent, program)
        return output.read_bytes()


def _link(words: Sequence[str], directory: Path, program: Path) -> None:
    """Run the linker in ``directory``. Raises `SourceError` about ``program``."""
    try:
        done = subprocess.run(
            [_compiler(), "ld.lld", *words],
            cwd=directory, capture_output=True, timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"{program} cannot be linked anew: {error}") from None
    if done.returncode != 0:
        message = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        raise SourceError(f"{program} cannot be linked anew: {message}; `measure run` builds it again")


def symbol_order(symbols: Sequence[str], seed: int) -> list[str]:
    """``symbols`` in the order of their hashes with ``seed``: the symbols of a part have their order in the whole."""
    key = str(seed).encode()
    return sorted(symbols, key=lambda symbol: hashlib.blake2b(_encoded(symbol), key=key, digest_size=16).digest())


def _encoded(symbol: str) -> bytes:
    return symbol.encode("utf-8", "surrogateescape")


def _lines(symbols: Sequence[str]) -> bytes:
    return b"".join(_encoded(symbol) + b"\n" for symbol in symbols)


def link_command(program: Path) -> tuple[list[str], list[str]]:
    """The linker's arguments and the program's symbols, as `keep_link` left them. Raises `SourceError`."""
    path = program.parent / COMMAND_NAME
    try:
        command = json.loads(path.read_text("utf-8"))
        return command["words"], command["symbols"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{path}: the linker's command cannot be read: {error}") from None


def _symbols(elf_path: Path, binding: str | None = None) -> list[str]:
    """Names of the functions, variables and gaps that a program or object defines, or of those of one ``binding``."""
    names = {
        symbol.name
        for symbol in read_symbols(elf_path)
        if (symbol.kind or symbol.name.startswith(PADDING)) and symbol.defined and binding in (None, symbol.binding)
    }
    return sorted(name for name in names if "\n" not in name)


@functools.cache
def _compiler() -> str:
    """The compiler's executable; started by Python it would take three times as long as the link itself."""
    from importlib.util import find_spec

    found = find_spec("ziglang")
    if found is None or found.origin is None:
        raise ToolchainError("the cross-compiler is not installed: pip install ziglang")
    return str(Path(found.origin).parent / "zig")
