"""The C library that is compiled in few processes is zig's own, section for section, and so are programs with it."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from elftools.elf.elffile import ELFFile

from instrumenter.building.elf_symbols import symbols_of
from instrumenter.compiler import c_library, toolchain
from instrumenter.compiler.c_library import is_usable, named_directly, sources_of
from instrumenter.compiler.toolchain import HOST_TARGET, Toolchain
from instrumenter.errors import SourceError, ToolchainError

SOURCE = """
#include <math.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *same(void *p) { return p; }
int main(int n, char **names) {
    pthread_t thread;
    regex_t pattern;
    pthread_create(&thread, 0, same, names);
    pthread_join(thread, 0);
    regcomp(&pattern, "a*", 0);
    printf("%f %zu\\n", sin(n) + pow(n, 2.5), strlen(getenv("HOME")));
    return system("true");
}
"""
COMMON_SOURCE = """
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static void *same(void *p) { return p; }
int main(int n, char **names) {
    pthread_t thread;
    time_t now = time(0);
    double x;
    pthread_create(&thread, 0, same, names);
    pthread_join(thread, 0);
    sscanf(names[0], "%lf", &x);
    printf("%f %Lf %s %zu\\n", sin(n) + pow(n, x), log2l(n) + fmal(n, n, x), ctime(&now), strlen(getenv("HOME")));
    return 0;
}
"""
_IN_FILES_ONLY = (".comment", ".debug", ".rela.debug", ".symtab", ".strtab", ".shstrtab", ".llvm_addrsig")


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files in an archive, in order."""
    data, at, names = archive.read_bytes(), 8, b""
    while at < len(data):
        name, size = data[at : at + 16].decode().strip(), int(data[at + 48 : at + 58])
        content = data[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
        if name == "//":
            names = content
        elif name != "/":
            if name[1:].isdigit():
                first = int(name[1:])
                name = names[first : names.index(b"\n", first)].decode()
            yield Path(name.rstrip("/")).name, content


class Symbols(NamedTuple):
    """Global and weak symbols that the files of an archive define, and those that they cannot do without."""

    defined: set[str]
    needed: set[str]


def symbols(archive: Path) -> Symbols:
    found = [symbol for _, content in members(archive) for symbol in symbols_of(io.BytesIO(content))]
    return Symbols(
        {symbol.name for symbol in found if symbol.defined and symbol.binding != "local"},
        {symbol.name for symbol in found if not symbol.defined and symbol.binding == "global"},
    )


def sections(elf: bytes) -> dict[str, Any]:
    """What is loaded of an ELF file, and the relocations of it, by section."""
    found: dict[str, Any] = {}
    for section in ELFFile(io.BytesIO(elf)).iter_sections():
        name = section.name
        if name.startswith(_IN_FILES_ONLY):
            continue
        facts = [section[key] for key in ("sh_type", "sh_flags", "sh_addr", "sh_size", "sh_addralign")]
        symbols = name.startswith(".rela") or section["sh_type"] == "SHT_NOBITS"  # numbers of symbols may differ
        found.setdefault(name, []).append((facts, b"" if symbols else section.data()))
    return found


@pytest.mark.slow
def test_it_is_zigs_own(tmp_path: Path) -> None:
    compiler = Toolchain()
    (tmp_path / "a.c").write_text(SOURCE)
    compiler.compile(tmp_path / "a.c", ["-O2"], tmp_path / "a.o")
    ours = compiler.traced_link([tmp_path / "a.o"], ["-O2"], tmp_path / "ours")
    # The driver for C++ takes zig's own, which is built with the C++ library for many other tests.
    compiler.prepare("c++")
    zigs = compiler.traced_link([tmp_path / "a.o"], ["-O2"], tmp_path / "zigs", "c++")
    paths = [Path(next(word for word in words if word.endswith("libc.a"))) for words in (ours, zigs)]
    assert "c-library" in str(paths[0])
    assert "c-library" not in str(paths[1])
    mine, other = map(list, map(members, paths))
    assert [name for name, _ in mine] == [name for name, _ in other]
    assert len(mine) > 1000
    for (name, content), (_, expected) in zip(mine, other, strict=True):
        assert sections(content) == sections(expected), name
    starts = [Path(next(word for word in words if word.endswith("crt1.o"))).read_bytes() for words in (ours, zigs)]
    assert sections(starts[0]) == sections(starts[1])


@pytest.mark.slow
def test_programs_are_those_with_zigs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so are the arguments for links in other orders."""
    compiler = Toolchain()
    compiler.prepare("c++")  # and zig's own C library
    (tmp_path / "a.c").write_text(SOURCE)
    compiler.compile(tmp_path / "a.c", ["-O2"], tmp_path / "a.o")
    words = compiler.traced_link([tmp_path / "a.o"], ["-O2", "-lm", "-lpthread"], tmp_path / "ours")
    monkeypatch.setattr(c_library, "is_usable", lambda arguments: False)
    expected = compiler.traced_link([tmp_path / "a.o"], ["-O2", "-lm", "-lpthread"], tmp_path / "zigs")
    assert sections((tmp_path / "ours").read_bytes()) == sections((tmp_path / "zigs").read_bytes())
    assert [Path(word).name.replace("ours", "zigs") for word in words] == [Path(word).name for word in expected]


@pytest.mark.slow
@pytest.mark.parametrize("target", [toolchain.GUEST_TARGET, HOST_TARGET])
def test_programs_with_what_is_common_are_those_with_all_of_it(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is common needs nothing else of the library. And nothing else of it is in the compiler's other libraries,
    from which a program would take it without a word."""
    everything = Toolchain(target)
    everything.prepare()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compilers = [everything, Toolchain(target)]
    (tmp_path / "a.c").write_text(COMMON_SOURCE)
    everything.compile(tmp_path / "a.c", ["-O2"], tmp_path / "a.o")
    programs, links, libraries = [], [], []
    for compiler in compilers:
        words = compiler.traced_link([tmp_path / "a.o"], ["-O2"], tmp_path / "program")
        programs.append(sections((tmp_path / "program").read_bytes()))
        archives = {Path(word).name: tmp_path / word for word in words if word.endswith(".a")}
        links.append([Path(word).name for word in words])
        libraries.append(symbols(archives.pop("libc.a")))
    assert programs[0] == programs[1]
    assert links[0] == links[1]
    whole, mine = libraries
    others = [symbols(path) for path in archives.values()]
    left_out = whole.defined - mine.defined
    assert left_out
    assert mine.defined < whole.defined
    assert not mine.needed & left_out
    for other in others:
        assert other.defined
        assert not other.needed & left_out
        assert not other.defined & left_out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-static -O2 a.o -lm", True),
        ("-O2 -static -Wall -g -O3 a.o b.c -lpthread", True),
        ("-O2 a.o", False),  # may be one that loads libraries
        ("-static a.o", True),
        ("-static -Os a.o", True),
        ("-static -O2 -static-pie a.o", False),
        ("-static -O2 -c a.c", False),
        ("-static -O2 -march=rv64gcv a.o", False),
        ("-static -O2 -flto a.o", True),  # other compilers do not optimise their libraries when they link
        ("-static -O2 -fPIE a.o", False),
        ("-static -O2 a.o -lstdc++", False),
        ("-static -O2 -nostdlib a.o", False),
    ],
)
def test_links_that_may_use_it(words: str, expected: bool) -> None:
    assert is_usable(words.split()) is expected


def test_what_is_empty_is_not_named_in_links_that_are_kept() -> None:
    installed = (
        "-static -o p /c/lib/crt1.o /c/lib/crti.o /c/lib/crtbegin.o -L/mine -L /c/lib a.o --start-group -lmine "
        "--end-group --start-group -lm -lpthread -lc -ldl --end-group /z/libzigc.a /c/lib/crtend.o /c/lib/crtn.o"
    )
    direct = "-static -o p /c/lib/crt1.o -L/mine a.o --start-group -lmine --end-group /c/lib/libc.a /z/libzigc.a"
    assert named_directly(installed.split()) == direct.split()
    assert named_directly(direct.split()) == direct.split()
    assert named_directly([]) == []


def test_sources_for_the_machine_replace_general_ones(tmp_path: Path) -> None:
    for name in ("src/exit/_Exit.c", "src/exit/exit.c", "src/math/fma.c", "src/math/riscv64/fma.c", "src/math/x/fma.c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [str(source.relative_to(tmp_path)) for source in sources_of(tmp_path, "riscv64")]
    assert found == ["src/exit/exit.c", "src/exit/_Exit.c", "src/math/riscv64/fma.c"]


def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Toolchain, list[str]]:
    """A toolchain without a library, and what is made of it: by zig, or by us."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made: list[str] = []

    def let_zig(self: Toolchain, cplusplus: bool, lto: bool) -> bool:
        made.append(f"zig{', with C++' * cplusplus}{', for -flto' * lto}")
        return True

    def make(zig: str, target: str, folder: Path, *_: object, common: bool) -> None:
        made.append(f"{target}, common" if common else target)
        folder.mkdir(parents=True, exist_ok=True)
        c_library.description(folder).touch()

    monkeypatch.setattr(Toolchain, "_let_zig_make_libraries", let_zig)
    monkeypatch.setattr(c_library, "make", make)
    return Toolchain(), made


def test_it_is_made_once_for_each_target_and_not_for_cplusplus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guest, made = fresh(tmp_path, monkeypatch)
    for compiler in (guest, Toolchain(HOST_TARGET), Toolchain(None)):
        compiler.prepare()
        compiler.prepare()
        compiler.prepare("c++")
    assert made == [guest.target, "zig, with C++", HOST_TARGET, "zig, with C++", "zig", "zig, with C++"]


def test_what_zig_makes_is_made_anew_for_another_installation_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """zig does not find what one at another place has made; ours is found."""
    guest, made = fresh(tmp_path, monkeypatch)
    for program in (toolchain._executable(), "/elsewhere/ziglang/zig", "/elsewhere/ziglang/zig"):
        monkeypatch.setattr(toolchain, "_executable", lambda program=program: program)
        guest.prepare()
        guest.prepare("c++")
    assert made == [guest.target, "zig, with C++", "zig, with C++"]


def test_links_with_lto_have_a_cplusplus_library_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the compiler would make in the link, whose time would be that of each further program."""
    guest, made = fresh(tmp_path, monkeypatch)
    monkeypatch.setattr(Toolchain, "run", lambda self, *arguments: (0, b"", b""))
    for flags in ("-flto", "-flto=thin", "-flto -fno-lto", "-O2"):
        guest.run_link(["a.o", *flags.split(), "-lc++"], tmp_path, "c++")
    assert made == ["zig, with C++, for -flto", "zig, with C++"]
    assert guest.library_seconds > 0


@pytest.mark.parametrize("error", [ToolchainError("another version"), OSError("full"), ValueError("no such word")])
def test_zig_makes_it_when_it_cannot_be_made(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    guest, made = fresh(tmp_path, monkeypatch)

    def fail(*_: object, common: bool) -> None:
        raise error

    monkeypatch.setattr(c_library, "make", fail)
    guest.prepare()
    assert made == ["zig"]


@pytest.mark.parametrize(
    ("failure", "needs_all"),
    [(None, False), ("a.c:1: error: expected ';'", False), ("ld.lld: error: undefined symbol: regcomp", True)],
)
def test_a_link_makes_what_most_programs_need_and_all_of_it_when_a_symbol_is_missing(
    failure: str | None, needs_all: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest, made = fresh(tmp_path, monkeypatch)
    tried = []

    def run(*_: object) -> tuple[int, bytes, bytes]:
        tried.append(len(made))
        return int(failure is not None), b"", (failure or "").encode()

    monkeypatch.setattr(Toolchain, "run", run)
    told: list[str] = []
    guest.notify = told.append
    for _ in range(2):
        told_by_linker = (failure or "").partition("error: ")[2]
        with contextlib.nullcontext() if failure is None else pytest.raises(SourceError, match=told_by_linker):
            guest.link([tmp_path / "a.o"], [], tmp_path / "program")
    whole = [guest.target] if needs_all else []
    assert made == [f"{guest.target}, common", *whole]
    assert tried == ([1, 2, 2] if needs_all else [1, 1])
    assert "the parts that most programs need" in told[0]
    assert ["needs more of the C library than most programs" in message for message in told[1:]] == [True] * len(whole)


@pytest.mark.parametrize("needs_its_library", [False, True])
def test_a_program_of_cplusplus_has_the_library_made_if_it_needs_it(
    needs_its_library: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest, made = fresh(tmp_path, monkeypatch)
    tried = []

    def run(_: Toolchain, arguments: list[str], directory: Path, driver: str) -> tuple[int, bytes, bytes]:
        tried.append(driver)
        missed = needs_its_library and driver == "cc"
        return int(missed), b"", b"ld.lld: error: undefined symbol: std::terminate()" if missed else b""

    monkeypatch.setattr(Toolchain, "run", run)
    for _ in range(2):
        guest.link([tmp_path / "a.o"], [], tmp_path / "program", "c++")
    assert made == [f"{guest.target}, common", *(["zig, with C++"] if needs_its_library else [])]
    assert tried == (["cc", "c++", "c++"] if needs_its_library else ["cc", "cc"])
    guest.link([tmp_path / "a.o"], ["-lc++"], tmp_path / "program", "c++")
    assert tried[-1] == "c++"


def test_a_space_in_the_path_of_the_cache_is_no_obstacle(tmp_path: Path) -> None:
    """The compiler prints its command line without quotes."""
    found = []
    for name in ("a b", "ab"):
        (tmp_path / name).mkdir()
        maker = c_library._Maker(toolchain._executable(), toolchain.GUEST_TARGET, tmp_path / name, os.environ, ())
        found.append([word.replace("a b", "ab") for word in maker._driver_words(".c")])
        assert list((tmp_path / name).iterdir()) == []
    assert found[0] == found[1]
    assert "-nostdinc" in found[0]


def test_the_library_is_known_by_a_path_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its description names it, and the link may be gone tomorrow."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "link"))
    assert Toolchain()._library.is_relative_to((tmp_path / "real").resolve())


def test_a_compiler_that_answers_otherwise_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "lib/libc/musl/src/exit").mkdir(parents=True)
    zig = tmp_path / "zig"
    zig.write_text("#!/bin/sh\necho changed >&2\n")
    zig.chmod(0o755)
    with pytest.raises(ToolchainError, match="zig does not tell how it compiles: got 'changed"):
        c_library.make(str(zig), "riscv64-linux-musl", tmp_path / "cache/global/made", {}, ())
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["global"]
    assert list((tmp_path / "cache/global").iterdir()) == []
