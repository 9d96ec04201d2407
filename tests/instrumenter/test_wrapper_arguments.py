"""Compiler command lines taken apart, without a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrumenter.errors import SourceError
from instrumenter.wrapper.arguments import CommandLine, Kind, read_command_line


def read(text: str, directory: Path = Path("/nowhere"), cplusplus: bool = False) -> CommandLine:
    return read_command_line(text.split(), directory, cplusplus)


def kinds(line: CommandLine) -> dict[str, Kind]:
    return {" ".join(token.words): token.kind for token in line.tokens}


def test_every_option_belongs_to_a_step() -> None:
    line = read(
        "-c src/a.c -o out/a.o -I inc -Iother -DX=1 -D Y -include cfg.h -isystem sys -O2 -std=c99 -Wall -Werror "
        "-MMD -MF dep.d -MT t -fPIC -pthread -Lx -l m -lm -Wl,-E,-z,now -Xlinker a -static -x c b.h lib.a c.cpp d.S"
    )
    assert kinds(line) == {
        "-c": Kind.STAGE, "src/a.c": Kind.C, "-o out/a.o": Kind.OUTPUT, "-I inc": Kind.PREPROCESSOR,
        "-Iother": Kind.PREPROCESSOR, "-DX=1": Kind.PREPROCESSOR, "-D Y": Kind.PREPROCESSOR,
        "-include cfg.h": Kind.PREPROCESSOR, "-isystem sys": Kind.PREPROCESSOR, "-O2": Kind.OTHER,
        "-std=c99": Kind.OTHER, "-Wall": Kind.OTHER, "-Werror": Kind.STRICT, "-MMD": Kind.DEPENDENCY,
        "-MF dep.d": Kind.DEPENDENCY, "-MT t": Kind.DEPENDENCY, "-fPIC": Kind.OTHER, "-pthread": Kind.OTHER,
        "-Lx": Kind.LINKER, "-l m": Kind.LINKER, "-lm": Kind.LINKER, "-Wl,-E": Kind.LINKER, "-Wl,-z": Kind.LINKER,
        "-Wl,now": Kind.LINKER, "-Xlinker a": Kind.LINKER, "-static": Kind.LINKER, "-x c": Kind.LANGUAGE,
        "b.h": Kind.C, "lib.a": Kind.C, "c.cpp": Kind.C, "d.S": Kind.C,
    }  # fmt: skip
    assert (line.stage, line.output) == ("compile", "out/a.o")
    assert " ".join(line.compile_words()) == (
        "-I inc -Iother -DX=1 -D Y -include cfg.h -isystem sys -O2 -std=c99 -Wall -Werror -fPIC -pthread"
    )


def test_inputs_go_by_their_names() -> None:
    line = read("a.c b.i c.cpp d.S e.o libf.a g.so.1 h.ld -x c -")
    assert [token.kind for token in line.tokens if token.kind is not Kind.LANGUAGE] == [
        Kind.C, Kind.PREPROCESSED, Kind.OTHER_SOURCE, Kind.OTHER_SOURCE, *[Kind.FILE] * 4, Kind.OTHER_SOURCE,
    ]  # fmt: skip
    assert [token.language for token in line.sources] == [
        "c", "cpp-output", "C++", "assembler", "standard input",
    ]  # fmt: skip
    assert read("a.c", cplusplus=True).tokens[0].kind is Kind.OTHER_SOURCE
    assert [t.language for t in read("-x c++ a.c -x none b.c").sources] == ["c++", "c"]


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("a.c", "link"), ("a.o", "link"), ("-c a.c", "compile"), ("-S a.c", "assembly"), ("-E a.c", "ask"),
        ("-M a.c", "ask"), ("-MM a.c", "ask"), ("-MD -c a.c", "compile"), ("-fsyntax-only a.c", "check"),
        ("--version", "ask"), ("-dumpmachine", "ask"), ("-print-file-name=libc.a", "ask"), ("-v", "ask"),
        ("-v a.c -c", "compile"), ("-O2", "ask"), ("-E -c a.c", "ask"), ("--print-search-dirs", "ask"),
    ],
)  # fmt: skip
def test_the_stage(text: str, stage: str) -> None:
    assert read(text).stage == stage


def test_what_is_not_for_this_machine_is_left_out() -> None:
    line = read(
        "-march=native -mtune=generic -march=rv64gc -mabi=lp64d -fcf-protection=none -pie -s -Wl,-s,-Map,x.map,-z,now "
        "-march=rv64gcv -Wl,--gc-sections a.o"
    )
    assert [t.words[0] for t in line.tokens if t.kind is not Kind.LEFT_OUT] == [
        "-Wl,-z", "-Wl,now", "-march=rv64gcv", "-Wl,--gc-sections", "a.o",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "a.o -Wl,-soname -Wl,lib.so.1", "-Wl,-rpath -Wl,/usr/lib a.o", "-Xlinker -soname -Xlinker lib.so.1 a.o",
        "-Wl,-rpath-link -O2 -Xlinker dir a.o", "a.o -Wl,-soname,lib.so.1 -Wl,-Map -Wl,x.map,-h -Wl,name,-R,dir",
        "a.o -Xlinker -s -Wl,-soname=lib.so.1,--rpath=x", "a.o -Wl,-rpath",
    ],
)  # fmt: skip
def test_words_for_the_linker_are_one_list(text: str) -> None:
    # The value after a word that is left out stayed, and the linker did not know it.
    line = read(text)
    assert [t.words for t in line.tokens if t.kind is not Kind.LEFT_OUT and t.words != ("-O2",)] == [("a.o",)]


def test_a_partial_link_is_one_by_each_spelling() -> None:
    assert [read(text).relocatable for text in ("-r a.o", "-Wl,-r a.o", "-Xlinker -r a.o", "-Wl,-z,now a.o")] == [
        True, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-c a.c", []),
        ("-c a.c -MD", ["-MD", "-MF", "/w/b/x.d", "-MQ", "b/x.o"]),
        ("-c a.c -MMD -MP -MF f.d", ["-MMD", "-MP", "-MF", "f.d", "-MQ", "b/x.o"]),
        ("-c a.c -MD -MT here -MFf.d", ["-MD", "-MT", "here", "-MFf.d"]),
        ("-c a.c -Wp,-MD,f.d", ["-MD", "-MF", "f.d", "-MQ", "b/x.o"]),
        ("-c a.c -MP", []),
    ],
)
def test_dependency_files_stay_what_they_are(text: str, expected: list[str]) -> None:
    assert read(text).dependency_words("/w/b/x.o", "b/x.o") == expected


def test_response_files(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("-O2 '-DNAME=\"a b\"'\n-c @two")
    (tmp_path / "two").write_text(r"sp\ ace.c")
    line = read_command_line(["@one", "@missing"], tmp_path)
    assert [word for token in line.tokens for word in token.words] == [
        "-O2", '-DNAME="a b"', "-c", "sp ace.c", "@missing",
    ]  # fmt: skip


def test_an_option_without_its_value_is_told() -> None:
    with pytest.raises(SourceError, match=r"^-o: expected a value after it$"):
        read("-c a.c -o")
