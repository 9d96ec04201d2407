"""What is said of a build that failed: headers that a source does not include, and programs to build alone."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from instrumenter.errors import SourceError
from instrumenter.projects.build_advice import build_failure, failed_build, first_error
from instrumenter.projects.project import linked_programs

INT8 = "run.c:452:39: error: unknown type name 'int8_t'\n"
WHY = "glibc's other headers happen to include it, those of musl, the C library here, do not"


def advice(command: str, output: str, linked: tuple[str, ...] = ()) -> str:
    return failed_build(command, "failed", output, "log", "riscv64-linux-musl", linked).splitlines()[-1]


def library(function: str, header: str) -> str:
    return (
        f"b.c:3:1: error: call to undeclared library function '{function}' with type 'int (int)'; ISO C99 and later "
        "do not support implicit function declarations [-Wimplicit-function-declaration]\n    3 | x\n      | ^\n"
        f"b.c:3:1: note: include the header <{header}> or explicitly provide a declaration for '{function}'\n"
    )


def test_the_marks_below_a_line_of_an_interpreter_are_no_error() -> None:
    output = (
        'Traceback (most recent call last):\n  File "man.py", line 9, in <module>\n    load(name)\n    ^^^^^^^^^^\n'
        "OSError: lib.so: not there\nmake: *** [Makefile:9: man.3] Error 1\n"
    )
    assert first_error(output) == "OSError: lib.so: not there"
    message = failed_build("make", "failed", output, "log", "riscv64-linux-musl")
    assert "\nIts first error:\n  OSError: lib.so: not there\n" in message
    assert first_error("Linking\n\n") == first_error("") == ""


def test_a_program_of_the_project_that_is_not_found_is_not_to_be_installed() -> None:
    # The advice was to install it, seconds after the build had made it.
    output = "/bin/sh: 1: mktable: not found\nmake: *** [Makefile:3: table.h] Error 127\n"
    assert advice("make CC=$CC", output, ("out/app", "tools/mktable")) == (
        "It calls mktable by its name alone, and the program that it made is tools/mktable. Let the shell find it "
        "there: `export PATH=$PWD/tools:$PATH; make CC=$CC`"
    )
    assert "`export PATH=$PWD:$PATH; make`" in advice("make", output, ("mktable",))
    assert "this machine does not have: install it" in advice("make CC=$CC", output, ("out/app",))


def test_a_failure_in_another_process_keeps_what_is_known_of_it(tmp_path: Path) -> None:
    output = "a.c:1:1: error: no\nld: a.o: file in wrong format\nmake: *** [Makefile:3: test] Error 1\n"
    failure = build_failure("make", "failed", output, "log", "riscv64", (), tmp_path)
    known = {
        "one_by_one": True, "tests": ("test",), "first_error": "a.c:1:1: error: no", "other_compiler": True,
        "advises_command": True, "place": None,
    }  # fmt: skip
    for each in (failure, pickle.loads(pickle.dumps(failure))):
        assert (str(each), vars(each)) == (str(failure), known)


@pytest.mark.parametrize(
    ("header", "folder", "flag"),
    [("zlib.h", ".", "-I$PWD"), ("z/conf.h", "zlib", "-I$PWD/zlib"), ("inner.h", "zlib/z", "-I$PWD/zlib/z")],
)
def test_a_header_that_the_project_has_is_told_with_its_folder(
    tmp_path: Path, header: str, folder: str, flag: str
) -> None:
    # It was called missing, with the advice to put the library's sources into the project, where they were.
    for name in ("zlib.h", "zlib/z/conf.h", "zlib/z/inner.h", "old/copy/zlib.h", "other/conf.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    output = f"a.c:1:10: error: '{header}' file not found with <angled> include; use \"quotes\" instead\n"
    told = failed_build("make CC=$CC", "failed", output, "log", "riscv64-linux-musl", tree=tmp_path).splitlines()[-1]
    assert told == (
        f"{header} is in the project, in the folder {folder}, where the compiler does not look for it: "
        f'`make CC="$CC {flag}"`'
    )
    absent = failed_build(
        "make", "failed", output.replace(header, "gone.h"), "log", "riscv64-linux-musl", tree=tmp_path
    )
    assert "gone.h, which is not there" in absent


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            INT8 * 2 + "run.c:860:5: error: use of undeclared identifier 'user_turn'\n",
            f"int8_t is declared in <stdint.h>, which run.c does not include; {WHY}. Let the build command include it: "
            '`make CC="$CC -include stdint.h"`',
        ),
        (
            "src/a.c:1:1: error: unknown type name 'uint64_t'\nsrc/b.c:2:2: error: use of undeclared identifier "
            "'INT32_MAX'\nsrc/b.c:3:3: error: variable has incomplete type 'struct timeval'\n",
            "uint64_t and INT32_MAX are declared in <stdint.h>, struct timeval in <sys/time.h>, which a.c and b.c do "
            f"not include; {WHY.replace(' it,', ' them,')}. Let the build command include them: "
            '`make CC="$CC -include stdint.h -include sys/time.h"`',
        ),
        (
            "a.c:3:5: error: call to undeclared function 'usleep'; ISO C99 and later do not support implicit\n",
            f"usleep is declared in <unistd.h> with -D_GNU_SOURCE, which a.c does not have; {WHY}. Let the build "
            'command include it: `make CC="$CC -D_GNU_SOURCE -include unistd.h"`',
        ),
        (
            library("printf", "stdio.h") + library("strlen", "string.h"),
            "printf is declared in <stdio.h>, strlen in <string.h>, which b.c does not include; older compilers "
            "accepted calls of functions that are not declared. Let the build command include them: "
            '`make CC="$CC -include stdio.h -include string.h"`',
        ),
    ],
)
def test_names_without_their_header(output: str, expected: str) -> None:
    assert advice("make CC=$CC", output) == expected


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("make", '`export CXX="$CXX -include cstdint"; make`'),
        ("make CC=$CC CXX=$CXX -j2", '`make CC=$CC CXX="$CXX -include cstdint" -j2`'),
        ("make CC=$CXX CXX=$CXX", '`make CC="$CXX -include cstdint" CXX="$CXX -include cstdint"`'),
        ("cmake -B b && cmake --build b", '`cmake -DCMAKE_CXX_FLAGS="-include cstdint" -B b && cmake --build b`'),
    ],
)
def test_names_without_their_header_in_cplusplus(command: str, remedy: str) -> None:
    output = "x.cpp:3:6: error: no type named 'uint16_t' in namespace 'std'\n"
    assert advice(command, output).endswith(f": {remedy}")


def test_names_of_both_languages_and_many_files() -> None:
    output = "".join(f"{name}:1:1: error: unknown type name 'uint'\n" for name in ("a.c", "b.c", "c.c", "d.cc"))
    said = advice("make CC=$CC CXX=$CXX", output)
    assert "which a.c, b.c, c.c and 1 more do not have" in said
    flags = "-D_GNU_SOURCE -include sys/types.h"
    assert said.endswith(f'`make CC="$CC {flags}" CXX="$CXX {flags}"`')


@pytest.mark.parametrize("output", [
    "a.c:1:1: error: unknown type name 'widget'\n", "a.c:1:1: warning: unknown type name 'int8_t'\n",
    "a.c:1:1: error: passing 'int' to parameter of incompatible type 'struct timeval'\n",
])  # fmt: skip
def test_other_names_are_the_projects_own(output: str) -> None:
    assert "Let the build command include" not in advice("make CC=$CC", output)


EXEC = "./{} -s -o repl.c\n/bin/sh: 1: ./{}: Exec format error\nmake: *** [Makefile:3: repl.c] Error 126\n"
MANY = "It had linked qjs, qjsc, run-test262 before that; to build only one: "


@pytest.mark.parametrize(
    ("command", "linked", "expected"),
    [
        ("make CC=$CC", ("qjs", "qjsc", "run-test262"), f"{MANY}`make CC=$CC qjs`"),
        ("make -j2 CC=$CC all && true", ("qjs", "qjsc", "run-test262"), f"{MANY}`make -j2 CC=$CC qjs && true`"),
        ("make CC=$CC", ("qjsc",), "It had linked qjsc before that; to build only that: `make CC=$CC qjsc`"),
        ("cd src && make", ("src/a", "src/b"), "src/a, src/b before that; to build only one: `cd src && make a`"),
        ("make -j 2 CC=$CC", ("a", "a_test"), "to build only one: `make -j 2 CC=$CC a`"),
        ("make CC=$CC", ("examples/hello", "qjs", "qjsc"), "to build only one: `make CC=$CC qjs`"),
        ("make -C src CC=$CC", ("src/a",), "to build only that: `make -C src CC=$CC a`"),
        (
            "cmake -B b && cmake --build b -j2", ("b/bin/test-x", "b/bin/x"),
            "to build only one: `cmake -B b && cmake --build b --target x -j2`",
        ),
        ("./build.sh", ("x",), "It had linked x before that; let the build command make only that, and run nothing"),
        ("make", tuple("abcdefgh"), "a, b, c, d, e, f and 2 more before that; to build only one: `make a`"),
        ("make CC=$CC", (), "Name a target that only builds: `make CC=$CC TARGET`"),
    ],
)  # fmt: skip
def test_a_build_that_runs_a_program_names_what_to_build(command: str, linked: tuple[str, ...], expected: str) -> None:
    for output, reason in (
        (EXEC.format("qjsc", "qjsc"), "It seems to run a program that it has just made"),
        ("make: *** [Makefile:3: check] Error 1\n", "Its tests failed, which a measurement does not need"),
    ):
        said = advice(command, output, linked)
        assert said.startswith(reason)
        assert expected in said


def test_programs_and_flags_that_a_build_lacks_are_told_with_what_helps() -> None:
    """A target "that does without" autoreconf was advised, which came before it in the command."""
    made = "autoreconf -fi && ./configure --host=$HOST && make"
    said = advice(made, "/bin/sh: 1: autoreconf: not found\n")
    assert "install autoconf, automake and libtool, or give the directory of a release" in said
    assert "TARGET" not in said
    assert "`make CC=$CC TARGET`" in advice("make CC=$CC", "make: bison: No such file or directory\n")
    output = "ld.lld: error: relocation R_RISCV_HI20 cannot be used; recompile with -fPIC\n"
    said = advice("make CC=$CC CFLAGS=-O3", output)
    assert said.startswith("It links code that is not position-independent. CFLAGS on the command line of make")


def test_a_step_after_linking_that_fails_for_any_reason_names_what_to_build() -> None:
    output = "pandoc: not found\nmake: *** [Makefile:9: doc] Error 127\n"
    assert advice("make CC=$CC", output, ("a",)) == ("It had linked a before that; to build only that: `make CC=$CC a`")
    assert "a configure script needs" in advice("./configure && make CC=$CC", output)
    assert "a configure script" not in advice("make CC=$CC", output)
    # A source that does not compile is no such step.
    assert "had linked" not in advice("make CC=$CC", f"x.c:1:1: error: no\n{output}", ("a",))


NO_ZLIB = (
    "checking for zlib.h... no\nconfigure: error: cannot find zlib.h.\nRerun ./configure with CPPFLAGS=-I<include dir> "
    "if you have the header\nfile in a non-standard directory, or with --disable-zlib to disable\nsupport for it.\n"
)


def test_an_error_of_configure_gives_the_option_that_it_names() -> None:
    ends = "To do without this one: `"
    said = advice("./configure --host=$HOST CC=$CC && make -j2", NO_ZLIB)
    assert said.endswith(f"{ends}./configure --host=$HOST CC=$CC --disable-zlib && make -j2`")
    oniguruma = "configure: error: not found; use --without-oniguruma (or --without-oniguruma).\n"
    assert advice("cd a; ./configure", oniguruma).endswith(f"{ends}cd a; ./configure --without-oniguruma`")
    for given in ("./configure --host=$HOST --disable-zlib && make", "make CC=$CC"):
        assert "do without" not in advice(given, NO_ZLIB)


@pytest.mark.parametrize(
    ("source", "remedy"),
    [("core/Main.cc", 'make CC=$CC CXX="$CXX -std=gnu++98"'), ("a.c", 'make CC="$CC -std=gnu89" CXX=$CXX')],
)
def test_a_source_that_the_compiler_refuses_may_be_of_an_older_standard(source: str, remedy: str) -> None:
    said = advice("make CC=$CC CXX=$CXX", f"{source}:9:43: error: invalid suffix on literal\n")
    assert said.startswith("The compiler is clang, by default for C17 and C++17.")
    assert f"`{remedy}`" in said


def test_a_host_that_was_given_is_not_asked_for() -> None:
    assert "needs --host" in advice("./configure && make", "configure: error: no\n")
    assert "needs --host" not in advice("./configure --host=$HOST && make", "configure: error: no\n")


def test_a_failed_build_knows_what_it_had_linked_but_not_trials(tmp_path: Path) -> None:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "a.c").write_text("int main(void) { return 0; }\n")
    command = (
        "mkdir -p CMakeFiles && $CC a.c -o CMakeFiles/try && $CC a.c -o conftest && rm conftest && "
        "$CC a.c -o app && make CC=$CC"
    )
    (directory / "Makefile").write_text("all: app\n\t@echo './app: Exec format error'; exit 126\n")
    with pytest.raises(SourceError) as caught:
        linked_programs(directory, command, lambda text: None)
    assert str(caught.value).endswith(f"It had linked app before that; to build only that: `{command} app`")


def test_the_advised_command_works(tmp_path: Path) -> None:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "Makefile").write_text("run: run.c\n\t$(CC) -o run run.c\n")
    (directory / "run.c").write_text(
        "#include <stdlib.h>\nint8_t x;\nuint y;\nint main(void) { struct timeval t; gettimeofday(&t, 0); "
        'usleep(1); return strcasecmp("a", "A"); }\n'
    )
    with pytest.raises(SourceError) as caught:
        linked_programs(directory, "make CC=$CC", lambda text: None)
    command = str(caught.value).rsplit("`", 2)[1]
    flags = "-include stdint.h -include sys/types.h -include sys/time.h"
    assert command == f'make CC="$CC -D_GNU_SOURCE {flags}"'
    assert linked_programs(directory, command, lambda text: None) == ["run"]


@pytest.mark.parametrize(
    "line", ["/bin/bash: line 10: makeinfo: command not found", "make: help2man: No such file or directory"]
)
def test_a_manual_that_cannot_be_made_is_left_out(line: str) -> None:
    told = failed_build(
        "./configure && make -j2", "failed", f"{line}\nmake: *** [bc.info] Error 127\n", "log", "riscv64"
    )
    assert told.endswith("do without the manual: `./configure && make -j2 MAKEINFO=true HELP2MAN=true`")
    assert "install it" not in told
    other = failed_build("make", "failed", "/bin/sh: 1: gperf: not found\n", "log", "riscv64")
    assert other.endswith(
        "needs the program gperf, which this machine does not have: install it, or name a target that "
        "does without it: `make TARGET`"
    )
