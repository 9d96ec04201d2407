"""memcpy, memmove, memset and strlen of guests: right, a word at a time, and never in place of a program's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from common.library_sources import STRING_FUNCTIONS, is_library_source
from emulator.linux.vfs.files import VirtualFiles
from emulator.machine import Machine
from instrumenter.building.elf_symbols import read_symbols
from instrumenter.building.program_build import build_program
from instrumenter.compiler import string_functions
from instrumenter.compiler.toolchain import GUEST_TARGET, HOST_TARGET, Toolchain
from instrumenter.errors import CompileFailure
from measure.program_code.counter_code import program_image
from tests.instrumenter.guest_output import output_of

NAIVE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { N = 240 };
static unsigned char x[N] __attribute__((aligned(64))), y[N] __attribute__((aligned(64)));
static unsigned seed = 1;
static unsigned char next(void) { return (seed = seed * 1664525 + 1013904223) >> 24; }
static void same(const char *function, int size, int to, int from) {
    for (int i = 0; i < N; i++)
        if (x[i] != y[i]) {
            printf("%s, %d bytes to %d from %d: byte %d differs\n", function, size, to, from, i);
            exit(0);
        }
}
static void move(unsigned char *to, const unsigned char *from, int size) {
    if (to < from)
        for (volatile int i = 0; i < size; i++) to[i] = from[i];
    else
        for (volatile int i = size - 1; i >= 0; i--) to[i] = from[i];
}
int main(void) {
    for (int size = 0; size <= 100; size += size < 40 ? 1 : 7)
        for (int to = 0; to < 8; to++) {
            for (int i = 0; i < N; i++) x[i] = y[i] = next();
            for (int from = 0; from < 8; from++) {
                if (memcpy(x + to, x + 120 + from, size) != x + to) puts("memcpy returns something else");
                move(y + to, y + 120 + from, size);
                same("memcpy", size, to, from);
                if (memmove(x + to, x + from + size / 2, size) != x + to) puts("memmove returns something else");
                move(y + to, y + from + size / 2, size);
                if (memmove(x + to + size / 3, x + from, size) != x + to + size / 3) puts("memmove, too");
                move(y + to + size / 3, y + from, size);
                same("memmove", size, to, from);
            }
            if (memset(x + to, 0x180 | size, size) != x + to) puts("memset returns something else");
            for (volatile int i = 0; i < size; i++) y[to + i] = 0x80 | size;
            same("memset", size, to, 0);
            for (int i = 0; i < N; i++) x[i] = next() | 128 >> i % 3 * 7;
            for (int i = 0; i < to; i++) x[i] = 0;
            x[to + size] = 0;
            int length = 0;
            for (volatile int i = to; x[i]; i++) length++;
            if (strlen((char *)x + to) != length) printf("strlen is not %d\n", length);
        }
    puts("done");
}
"""
COPIES = r"""
#include <string.h>
static char from[4096], to[4096];
int main(int n, char **words) {
    for (int i = 0; i < 100; i++) {
        %s;
        __asm__ volatile("" : : "r"(to), "r"(from) : "memory");
    }
    return 0;
}
"""
OWN = r"""
#include <stddef.h>
int calls;
void *memcpy(void *restrict to, const void *restrict from, size_t size) {
    calls++;
    for (size_t i = 0; i < size; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
    return to;
}
"""
USES_OWN = r"""
#include <stdio.h>
#include <string.h>
extern int calls;
char a[100], b[100];
int main(int n, char **words) {
    calls = 0;
    memcpy(a, words[0], n);
    memmove(b, a, n + strlen(a + 50));
    int counted = calls;
    printf("%d", counted);
    return 0;
}
"""
CPLUSPLUS = """
#include <iostream>
#include <string>
int main(int n, char **) { std::string text(3000, 'a' + n); std::cout << (text + text).size(); }
"""


def compiled(folder: Path, name: str, text: str, flags: tuple[str, ...] = ("-O2",)) -> Path:
    (folder / name).write_text(text)
    Toolchain().compile(folder / name, flags, folder / f"{name}.o")
    return folder / f"{name}.o"


def linked(folder: Path, *inputs: Path, flags: tuple[str, ...] = ("-O2",), driver: str = "cc") -> Path:
    Toolchain().link(inputs, flags, folder / "program", driver)
    return folder / "program"


def compilers_own(program: Path) -> set[str]:
    """Those of the four functions that a program has of the compiler's run-time library."""
    names = {symbol.name for symbol in read_symbols(program) if symbol.name.startswith("compiler_rt.")}
    known = {"memcpy.memcpyFast": "memcpy", "memmove.memmoveFast": "memmove", "fastMemset": "memset"}
    known["strlen"] = "strlen"
    return {function for name, function in known.items() if f"compiler_rt.{name}" in names}


def test_they_do_the_same_as_naive_loops(tmp_path: Path) -> None:
    program = linked(tmp_path, compiled(tmp_path, "a.c", NAIVE, ("-O2", "-fno-builtin")))
    with Machine(program, files=VirtualFiles(), background=False) as machine:
        assert machine.run().status == 0
        assert machine.files.output(1).decode() == "done\n"
    assert not compilers_own(program)


@pytest.mark.parametrize(
    ("call", "at_most"),
    [
        ("memcpy(to, from, 4096)", 0.4),
        ("memcpy(to, from + 3, 4093)", 1.0),
        ("memmove(from + 8, from, 4088)", 0.4),
        ("memmove(from, from + 8, 4088)", 0.4),
        ("memset(to, i, 4096)", 0.25),
    ],
)
def test_they_take_words(tmp_path: Path, call: str, at_most: float) -> None:
    """A copy of 4,096 bytes had 4,106 stores; ``at_most``: instructions a byte."""
    (tmp_path / "a.c").write_text(COPIES % call)
    build = build_program([tmp_path / "a.c"], ["-O2", "-fno-builtin"])
    with Machine(build.elf_path, files=VirtualFiles(), background=False) as machine:
        assert machine.run().status == 0
        assert machine.instructions < 100 * 4096 * at_most + 5000


def test_the_programs_own_is_linked(tmp_path: Path) -> None:
    """Of a source, and of an archive; also where the linker compiles."""
    own, main = compiled(tmp_path, "own.c", OWN), compiled(tmp_path, "main.c", USES_OWN, ("-O2", "-fno-builtin"))
    assert output_of(linked(tmp_path, own, main)) == "1"
    archive = tmp_path / "libown.a"
    subprocess.run([*Toolchain().tool("ar"), "rcs", str(archive), str(own)], check=True)
    program = linked(tmp_path, main, archive)
    assert output_of(program) == "1"
    assert not compilers_own(program)
    flags = ("-O2", "-flto", "-fno-builtin")
    own, main = compiled(tmp_path, "own.c", OWN, flags), compiled(tmp_path, "main.c", USES_OWN, flags)
    assert output_of(linked(tmp_path, own, main, flags=flags)) == "1"


def test_links_of_all_kinds_have_them(tmp_path: Path) -> None:
    """With -flto, memmove was the compiler's own: its library was taken before the program's calls were known."""
    flags = ("-O2", "-flto")
    program = linked(tmp_path, compiled(tmp_path, "a.c", COPIES % "memmove(to, from, n)", flags), flags=flags)
    assert not compilers_own(program)
    program = linked(tmp_path, compiled(tmp_path, "a.cpp", CPLUSPLUS), driver="c++")
    assert output_of(program) == "6000"
    assert not compilers_own(program)


def test_links_without_libraries_are_as_they_were() -> None:
    assert string_functions.are_for(GUEST_TARGET, ["a.o", "-static"])
    assert not string_functions.are_for(GUEST_TARGET, ["a.o"])
    assert not string_functions.are_for(GUEST_TARGET, ["a.o", "-static", "-nostdlib"])
    assert not string_functions.are_for(HOST_TARGET, ["a.o", "-static"])
    assert not string_functions.are_for(None, ["a.o", "-static"])


def test_a_program_that_the_archive_does_not_fit_is_linked_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The linker refuses objects for another processor; errors of the program's own are told as ever."""
    other = tmp_path / "other.o"
    (tmp_path / "other.c").write_text("int other;")
    Toolchain(HOST_TARGET).compile(tmp_path / "other.c", [], other)
    monkeypatch.setattr(string_functions, "archive", lambda *arguments: other)
    main = compiled(tmp_path, "main.c", "int main(void) { return 0; }")
    assert output_of(linked(tmp_path, main)) == ""
    with pytest.raises(CompileFailure) as failure:
        linked(tmp_path, compiled(tmp_path, "b.c", "int missing(void); int main(void) { return missing(); }"))
    assert failure.value.undefined == ("missing",)


def test_debug_information_names_them_as_a_librarys(tmp_path: Path) -> None:
    """Else they would be taken for functions of the program, and a call of them for one that is no longer inlined."""
    program = linked(tmp_path, compiled(tmp_path, "a.c", COPIES % "memmove(to, from, n)", ("-O2", "-fno-builtin")))
    image = program_image(program)
    line = image.source_line(next(symbol.address for symbol in image.symbols if symbol.name == "memmove"))
    assert line is not None
    assert line[0].endswith(STRING_FUNCTIONS)
    assert is_library_source(line[0])


def test_the_archive_does_not_depend_on_where_the_compiler_is_installed() -> None:
    """Programs of two installations that share a cache differed in their debug information."""
    *_, archive = Toolchain(GUEST_TARGET)._string_functions(["-static"])
    content = Path(archive).read_bytes()
    assert b"/ziglang/lib/include\0" in content
    assert b"site-packages" not in content
    assert b"/tmp/" not in content
