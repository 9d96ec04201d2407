"""The C library of static programs, compiled from zig's sources of musl in less than half the time that zig takes.

zig starts a compiler for each of the 1,050 sources, and each start costs more than the compiling. clang itself compiles
many sources in one process; so this part asks zig for its command line for such a source, and gives clang that with
many of them. The objects have the same code and data, and so have the programs. Of the sources in zig's own language,
zig makes its other libraries as ever.

Most programs need a third of the sources, which `instrumenter.compiler.common_members` lists: with ``common`` only
those are compiled. A link takes from a library what it needs, so a program is the same with it, or has undefined
symbols. The whole library then takes its place, in the same folder: zig would compile its others again for another.

zig uses the library as an *installation*: a file that names its folders, which `ZIG_LIBC` in the environment names.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common.atomic_files import move_directory, move_file, remove_tree, workspace
from instrumenter.compiler.common_members import is_common
from instrumenter.errors import ToolchainError

VARIABLE = "ZIG_LIBC"
_DESCRIPTION = "libc.txt"
_WHOLE = "whole"  # a file that is there when the library is not only what is common
_ARCHIVE = "libc.a"
_CODE, _HEADERS = "lib", "include"

_MUSL_FLAGS = (
    "-std=c99", "-ffreestanding", "-fexcess-precision=standard", "-frounding-math", "-ffp-contract=off",
    "-fno-strict-aliasing", "-Wa,--noexecstack", "-D_XOPEN_SOURCE=700",
)  # fmt: skip
_MODULE_FLAGS = ("-fno-builtin", "-ffunction-sections", "-fdata-sections")
_FASTER = ("internal", "malloc", "string")
"""Folders of the sources that zig compiles for speed; the others are compiled for size."""
_START = "crt1"  # where a program begins
# What a compiler's installation has for the beginning and end of programs; in programs of zig there is nothing there.
_EMPTY_OBJECTS = ("crti", "crtn", "crtbegin", "crtend", "crtbeginT")
_EMPTY_LIBRARIES = ("m", "pthread", "dl", "rt", "util", "crypt", "resolv", "xnet")
_EMPTY_ARCHIVE = b"!<arch>\n"
_OF_ONE_FILE = ("-o", "-dependency-file", "-MT", "-serialize-diagnostic-file", "-main-file-name")  # with a value
_UNWANTED = ("-sys-header-deps", "-MV", "-disable-free")  # -disable-free: many sources would fill the memory
_SOURCES_AT_ONCE = 24  # a process has the more to do at its end, the more it has compiled

_OTHER_LIBRARY = ("-static-pie", "-pie", "-shared", "-r", "-nostdlib", "-nodefaultlibs", "-nostartfiles", "-nolibc")
_NO_LINK = ("-c", "-S", "-E", "-M", "-MM", "-fsyntax-only")
_OTHER_PREFIXES = ("-m", "-fpi", "-fPI", "-lc++", "-lstdc++")


def is_usable(arguments: Sequence[str]) -> bool:
    """Whether a link by the driver ``cc`` with ``arguments`` gets the library that `make` makes: zig compiles others
    for other machines and kinds of programs. It has one for each level of optimisation, too, which differ little."""
    return (
        "-static" in arguments
        and not any(word in _OTHER_LIBRARY or word in _NO_LINK for word in arguments)
        and not any(word.startswith(_OTHER_PREFIXES) for word in arguments)
    )


def description(folder: Path) -> Path:
    """The file that describes the library in ``folder`` to zig; it is there when the library, or what is common, is."""
    return folder / _DESCRIPTION


def is_whole(folder: Path) -> bool:
    """Whether all of the library is in ``folder``."""
    return (folder / _WHOLE).exists()


def named_directly(words: Sequence[str]) -> list[str]:
    """The arguments of a linker, with the library that `make` made by its path, and without what is empty in its
    installation: as zig calls the linker with a library of its own."""
    installed = next(
        (n for n, word in enumerate(words[1:]) if words[n] == "-L" and f"{word}/{_EMPTY_OBJECTS[0]}.o" in words), None
    )
    if installed is None or "-lc" not in words:
        return list(words)
    code, at = words[installed + 1], words.index("-lc")
    first = max(n for n, word in enumerate(words[:at]) if word == "--start-group")
    last = words.index("--end-group", at)
    empty = {f"{code}/{name}.o" for name in _EMPTY_OBJECTS}
    kept = [*words[:installed], *words[installed + 2 : first], f"{code}/{_ARCHIVE}", *words[last + 1 :]]
    return [word for word in kept if word not in empty]


def make(
    zig: str, target: str, folder: Path, environment: Mapping[str, str], lock: Sequence[int], *, common: bool = False
) -> None:  # fmt: skip
    """Compile the library for ``target`` into ``folder``, in one of the folders of the compiler's cache, on all
    processors. ``zig``: the compiler's program; ``environment``: in which it runs; ``lock``: descriptors that it
    inherits; ``common``: only what most programs need.

    Raises `ToolchainError` or `OSError` when something about this compiler is not as it is known here.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with workspace(folder.parents[1]) as made:  # where `common.compiler_cache` finds what a killed process left
        _Maker(zig, target, made, environment, lock).make(folder, common)
        if description(folder).is_file():
            move_file(made / _CODE / _ARCHIVE, folder / _CODE / _ARCHIVE)
            (folder / _WHOLE).touch()
        else:
            move_directory(made, folder, lambda place: description(place).is_file())


class _Maker:
    """Makes the library in the folder ``made``; other arguments as of `make`."""

    def __init__(
        self, zig: str, target: str, made: Path, environment: Mapping[str, str], lock: Sequence[int]
    ) -> None:  # fmt: skip
        self._zig, self._target, self._made = zig, target, made
        self._environment, self._lock = environment, lock
        self._zig_library = Path(zig).parent / "lib"
        self._musl = self._zig_library / "libc" / "musl"
        self._work = made / "work"  # a copy: clang puts each object beside its source

    def make(self, place: Path, common: bool) -> None:
        """Make all of it, or what is ``common``; it will be used at ``place``."""
        self._describe(place)
        n_processors = os.cpu_count() or 1
        with ThreadPoolExecutor(n_processors) as pool:
            others = pool.submit(self._make_other_libraries, n_processors)  # the longest work of one thread: first
            try:
                self._compile(pool, common)
                others.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C: only what runs comes to its end
                raise
        if not common:
            (self._made / _WHOLE).touch()
        shutil.rmtree(self._work)

    def _compile(self, pool: ThreadPoolExecutor, common: bool) -> None:
        """Compile all of the C library, or what is ``common``, in ``pool``, and put it together."""
        machine = self._target.partition("-")[0]
        shutil.copytree(self._musl, self._work)
        sources = [
            source
            for source in sources_of(self._work, machine)
            if not common or is_common(source.relative_to(self._work))
        ]
        driver = {suffix: self._driver_words(suffix) for suffix in (".c", ".s", ".S")}
        start = self._work / "crt" / f"{_START}.c"
        by_level: dict[str, list[Path]] = {"-O3": [], "-Os": []}
        for source in sources:
            is_faster = source.relative_to(self._work).parts[1] in _FASTER
            by_level["-O3" if is_faster else "-Os"].append(source)
        calls = [self._call([*driver[".c"], "-fno-stack-protector", "-DCRT", "-Os"], start, [start])]
        for level, group in by_level.items():
            in_c = [source for source in group if source.suffix == ".c"]
            for first in range(0, len(in_c), _SOURCES_AT_ONCE):
                calls.append(self._call([*driver[".c"], level], in_c[0], in_c[first : first + _SOURCES_AT_ONCE]))
            for source in group:
                if source.suffix != ".c":
                    words = [*driver[source.suffix], level, "-c", "-o", str(source.with_suffix(".o"))]
                    calls.append([*words, str(source)])
        compiled = pool.map(self._clang, calls)
        self._copy_headers(machine)
        list(compiled)
        self._gather(sources, driver[".s"])

    def _make_other_libraries(self, n_processors: int) -> None:
        """Let zig compile into its cache what else its programs are linked with. It tries to link a program then, and
        fails, for the C library is not in its place."""
        source = self._made / "empty.s"
        source.touch()
        with contextlib.suppress(ToolchainError):
            self._run(
                # zig runs two compilers fewer at once than the number says.
                ["build-exe", "-target", self._target, f"-j{n_processors + 2}", "-lc", "-static", "-O", "ReleaseFast",
                 source.name, "-femit-bin=empty"], self._made, {VARIABLE: str(description(self._made))},
            )  # fmt: skip
        for left in self._made.glob("empty*"):
            left.unlink()

    def _describe(self, place: Path) -> None:
        """Write the description of the library, as it will be at ``place``."""
        folders = {"include_dir": _HEADERS, "sys_include_dir": _HEADERS, "crt_dir": _CODE, "cc_dir": _CODE}
        lines = [f"{key}={place / name}\n" for key, name in folders.items()]
        lines += [f"{key}=\n" for key in ("msvc_lib_dir", "kernel32_lib_dir", "darwin_sdk_dir")]
        description(self._made).write_text("".join(lines), "utf-8")

    def _gather(self, sources: Iterable[Path], driver: Sequence[str]) -> None:
        """Put the library together, of the objects of ``sources``."""
        code = self._made / _CODE
        code.mkdir()
        objects = [str(source.with_suffix(".o").relative_to(self._work)) for source in sources]
        self._run(["ar", "rcs", str(code / _ARCHIVE), *objects], self._work)
        move_file(self._work / "crt" / f"{_START}.o", code / f"{_START}.o")
        empty = self._work / "empty.s"
        empty.touch()
        self._clang([*driver, "-c", "-o", str(empty.with_suffix(".o")), str(empty)])
        for name in _EMPTY_OBJECTS:
            shutil.copyfile(empty.with_suffix(".o"), code / f"{name}.o")
        for name in _EMPTY_LIBRARIES:
            (code / f"lib{name}.a").write_bytes(_EMPTY_ARCHIVE)

    def _copy_headers(self, machine: str) -> None:
        """Copy the headers of zig's folders into one; of two of one name the one for fewer machines stays."""
        family = {"riscv64": "riscv", "x86_64": "x86"}[machine]
        for name in ("any-linux-any", f"{family}-linux-any", "generic-musl", self._target):
            headers = self._zig_library / "libc" / "include" / name
            shutil.copytree(headers, self._made / _HEADERS, dirs_exist_ok=True, copy_function=shutil.copyfile)

    # --- command lines
    def _driver_words(self, suffix: str) -> list[str]:
        """clang's arguments with which zig compiles a source of the library whose name ends in ``suffix``."""
        # zig does not quote: with a cache in this directory the command line has no spaces of its path.
        own_cache = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), "probe.cache")
        probe = self._made / f"probe{suffix}"
        probe.touch()
        try:
            said = self._run(
                ["build-obj", "-target", self._target, "-O", "ReleaseFast", "-static", "-lc", *_MODULE_FLAGS,
                 "--verbose-cc", probe.name, "-femit-bin=probe.o"], self._made, own_cache,
            )  # fmt: skip
        finally:
            remove_tree(self._made / "probe.cache")
            for left in self._made.glob("probe.*"):
                left.unlink()
        lines = [line for line in said.splitlines() if f" {probe.name} " in line and " clang " in line]
        if len(lines) != 1:
            raise ToolchainError(f"zig does not tell how it compiles: got {said[:200]!r}")
        words = iter(lines[0].split(" clang ", 1)[1].split())
        kept: list[str] = []
        for word in words:
            if word == "-isystem":
                headers = next(words, "")
                if Path(headers).parent.name != "include":  # of the C library
                    kept += [word, headers]
            elif word in ("-MF", "-o", "--serialize-diagnostics"):
                next(words, "")
            elif word not in (probe.name, "-MD", "-MV", "-c", "-fbuiltin"):
                kept.append(word)
        includes = [self._musl / "arch" / self._target.partition("-")[0], self._musl / "arch" / "generic"]
        includes += [self._musl / "src" / "include", self._musl / "src" / "internal", self._musl / "include"]
        headers_of_zig = self._zig_library / "libc" / "include"
        includes += [headers_of_zig / self._target, headers_of_zig / "generic-musl"]
        names = [f"-ffile-prefix-map={self._work}={self._musl}", f"-ffile-compilation-dir={self._musl}"]
        flags = [*_MUSL_FLAGS, "-Qunused-arguments", "-w", *names]
        return [*kept, *flags, *(word for folder in includes for word in ("-I", str(folder)))]

    def _call(self, driver: Sequence[str], example: Path, sources: Sequence[Path]) -> list[str]:
        """The arguments of a call that compiles ``sources``, each to an object beside it; ``driver``: the arguments of
        a call for one, such as ``example``."""
        said = self._clang([*driver, "-c", "-###", str(example)])
        words = iter(shlex.split(said.strip().splitlines()[-1])[1:])
        kept: list[str] = []
        for word in words:
            if word in _OF_ONE_FILE:
                next(words, "")
            elif word not in _UNWANTED:
                kept.append(word)
        if kept[:1] != ["-cc1"] or kept[-1:] != [str(example)]:
            raise ToolchainError(f"clang does not tell how it compiles: got {said[-200:]!r}")
        return [*kept[:-1], *map(str, sources)]

    def _clang(self, words: Sequence[str]) -> str:
        return self._run(["clang", *words], self._work)

    def _run(self, words: Sequence[str], directory: Path, variables: Mapping[str, str] | None = None) -> str:
        """Run zig, with more ``variables`` in its environment, and return what it wrote to standard error."""
        done = subprocess.run(
            [self._zig, *words], cwd=directory, env={**self._environment, **(variables or {})},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", pass_fds=self._lock,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise ToolchainError(f"zig {words[0]} failed: {done.stderr[:500]}")
        return done.stderr


def sources_of(musl: Path, machine: str) -> list[Path]:
    """The sources of the library in the folder ``musl``: those for the machine in place of general ones.

    They are in the order of zig's library, for from the order follows which functions lie where in a program: that of
    a dictionary, in which only letters and digits count.
    """
    found: dict[tuple[str, str], Path] = {}
    for pattern in ("src/*/*.[csS]", f"src/*/{machine}/*.[csS]"):
        for source in musl.glob(pattern):
            found[source.relative_to(musl).parts[1], source.stem] = source

    def order(source: Path) -> tuple[str, str, str]:
        path = str(source.relative_to(musl))
        letters = re.sub("[^A-Za-z0-9]", "", path)
        return letters.lower(), letters.swapcase(), path

    return sorted(found.values(), key=order)
