"""What another call of make may do about a build that failed, and variables that leave a library out."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrumenter.projects.build_advice import build_failure
from instrumenter.projects.failed_make import failed_tests, may_need_order
from instrumenter.projects.makefile_switches import word_without

FAILED = "make: *** [Makefile:3: a.o] Error 1\n"


def missing(header: str) -> str:
    return f"a.c:1:10: fatal error: '{header}' file not found\n    1 | #include <{header}>\n"


@pytest.mark.parametrize(("output", "expected"), [
    ("table.h: no such file\n" + FAILED, True),
    ("make[2]: *** [Makefile:3: a.o] Error 1\n", True),
    ("make: *** No rule to make target 'a.h', needed by 'a.o'.  Stop.\n", True),
    ("ninja: build stopped: subcommand failed.\n", True),
    # A source that needs what nothing makes needs it also when it is compiled alone.
    (missing("readline/readline.h") + FAILED, False),
    (missing("named.h") + FAILED, True),
    (missing("sub/grammar.h") + FAILED, True),
    (missing("config.h") + FAILED, True),
    ("a.c:1:1: error: unknown type name 'int8_t'\n" + FAILED, False),
    ("/bin/sh: 1: ./make_table: not found\nmake: *** [makefile:60: table.h] Error 127\n", True),
    # A program is missing on this machine.
    ("bison -d a.y\nmake: bison: No such file or directory\nmake: *** [makefile:60: a.c] Error 127\n", False),
    ("/bin/sh: 1: flex: not found\nmake: *** [makefile:60: a.c] Error 127\n", False),
    # Make was not started, or had nothing to do.
    ("configure: error: no zlib\n", False),
    ("Error: Template tests/Makefile.in is missing\n", False),
    ("make: *** No targets specified and no makefile found.  Stop.\n", False),
    ("Makefile:85: *** missing separator.  Stop.\n", False),
])  # fmt: skip
def test_the_order_of_a_build_helps_where_a_file_may_come_too_late(tmp_path: Path, output: str, expected: bool) -> None:
    (tmp_path / "Makefile").write_text("LIBS = -lreadline\nnamed.h: make_it\n\t./make_it > $@\n")
    (tmp_path / "src").mkdir()
    for name in ("src/grammar.y", "config.h.in", "readline.c"):
        (tmp_path / name).touch()
    assert may_need_order(output, tmp_path) is expected
    assert build_failure("make", "failed", output, "log", "riscv64", (), tmp_path).one_by_one is expected


@pytest.mark.parametrize(("output", "expected"), [
    ("make[1]: *** [Makefile:182: all] Error 2\nmake: *** [Makefile:11: test] Error 2\n", ("test",)),
    ("make: *** [test-api] Error 2\nmake: *** [Makefile:9: run_tests] Error 1\n", ("test-api", "run_tests")),
    ("make: *** [GNUmakefile:9: test/check] Error 1\n", ("test/check",)),
    ("make: *** [Makefile:9: tests/a.o] Error 1\n", ()),
    ("make: *** [Makefile:9: xmltest] Error 1\n", ()),
    ("make: *** [Makefile:9: all] Error 1\n", ()),
])  # fmt: skip
def test_tests_that_failed_are_known_by_their_target(output: str, expected: tuple[str, ...]) -> None:
    assert failed_tests(output) == expected


READLINE = "  CFLAGS += -DHAVE_READLINE\n  LIBS += \\\n    -lreadline\nendif\n"


@pytest.mark.parametrize(("makefile", "expected"), [
    (f"ifneq ($(HAVE_READLINE),no)\n{READLINE}", "HAVE_READLINE=no"),
    (f"WITH ?= yes\nifeq ($(strip $(WITH)),yes) # by default\n{READLINE}", "WITH=no"),
    (f'ifeq "${{WITH}}" "1"\n{READLINE}', "WITH=0"),
    (f"ifeq ($(WITHOUT),)\n{READLINE}", "WITHOUT=1"),
    (f"ifneq ($(WITH),)\n{READLINE}", "WITH="),
    (f"ifdef WITH\n{READLINE}", "WITH="),
    (f"ifndef WITHOUT\n{READLINE}", "WITHOUT=1"),
    (f"ifdef WITHOUT\n  CFLAGS += -DPLAIN\nelse\n{READLINE}", "WITHOUT=1"),
    (f"ifneq ($(A),no)\n  A = 1\nelse ifneq ($(B),no)\n{READLINE}", "B=no"),
    # What is asked for the system is not for the user to say; the condition around it may be.
    (f"ifdef WITH\nifeq ($(shell uname),Linux)\n{READLINE}endif\n", "WITH="),
    (f"ifeq ($(OS),Windows_NT)\n{READLINE}", None),
    (f"ifeq ($(UNAME_S),Linux)\n{READLINE}", None),
    (f"ifneq ($(WITH),no)\n  A = 1\nendif\n{READLINE}", None),
    ("ifneq ($(WITH),no)\n  LIBS += -lm\nendif\n", None),
])  # fmt: skip
def test_the_variable_that_leaves_a_library_out_is_found(tmp_path: Path, makefile: str, expected: str | None) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/Makefile").write_text(makefile)
    assert word_without(tmp_path, "readline/readline.h") == expected
    assert word_without(tmp_path, 'library "readline"') == expected
    assert word_without(tmp_path, "sys/config.h") is None


def test_that_variable_is_advised(tmp_path: Path) -> None:
    def said(command: str) -> str:
        output = missing("readline/readline.h") + FAILED
        return str(build_failure(command, "failed", output, "log", "riscv64", (), tmp_path)).splitlines()[-1]

    without = "Build without the library that it belongs to"
    assert without in said("make CC=$CC")
    (tmp_path / "Makefile").write_text(f"ifneq ($(HAVE_READLINE),no)\n{READLINE}")
    assert said("make CC=$CC").endswith("that leaves it out: `make CC=$CC HAVE_READLINE=no`")
    assert without in said("make CC=$CC HAVE_READLINE=no")
    assert without in said("./build.sh")


def test_every_missing_library_is_told(tmp_path: Path) -> None:
    output = missing("fpu_control.h") + missing("zlib.h") + FAILED
    *_, first, second = str(build_failure("make", "failed", output, "log", "riscv64", (), tmp_path)).splitlines()
    assert first.startswith("<fpu_control.h> belongs to glibc")
    assert second.startswith("It needs zlib.h, which is not there")


def test_files_outside_of_the_directory_are_told(tmp_path: Path) -> None:
    output = "make[1]: *** No rule to make target '../../src/a.c', needed by 'a.o'.  Stop.\nmake: *** [x] Error 2\n"

    def said(command: str) -> str:
        return str(build_failure(command, "failed", output, "log", "riscv64", (), tmp_path)).splitlines()[-1]

    assert said("make CC=$CC").startswith("It needs ../../src/a.c, which is not below the directory that was given")
    assert said("make CC=$CC").endswith("`cd SUBDIRECTORY && make CC=$CC`")
    assert "not below" not in said("make -C deep/down CC=$CC")
