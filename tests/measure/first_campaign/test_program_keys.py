"""What a program is made of: flags, and the files beside it that define what a link misses."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from instrumenter.errors import BuildFailure, SourceError
from instrumenter.projects.build_advice import build_failure
from measure.cli import main
from measure.errors import CampaignError
from measure.first_campaign.profile import _LOOP
from measure.first_campaign.program_keys import build_commands, flag_keys, input_keys, program_keys, sources_that_define

FILES = {
    "main.cpp": "int main() { return far(1); }\n",
    "far.c": "int far(int n)\n{\n    return n;\n}\n",
    "other.c": "int far(int n) { return n; }\nint main(void) { return far(2); }\n",
    "one_line.cpp": "struct Box { int n; int turn() { return n; } }; int near(int n) { return n; } int last;\n",
    "asking.c": "int ask(int n)\n{\n    if (far(n)) {\n        return near(n);\n    }\n    return 0;\n}\n",
    "caller.c": "int near(int n) { return n + far(n); }\n",
    "engine.cpp": "namespace app {\nEngine::Engine(const Config &c) : config(c) {}\n"
                  "unsigned Engine::run(unsigned n) const {\n    return n;\n}\n}\n",
    "runner.cpp": "struct Runner { unsigned run(unsigned n) { return n; } };\n",
    "vector.cpp": "Vector operator+(const Vector &a, const Vector &b) { return a; }\n"
                  "std::ostream &operator << (std::ostream &out, const Vector &one) { return out; }\n",
    "data.cpp": "int Engine::shared = 3;\n",
    "stack.cpp": "template <class T> void Stack<T>::push(T one) { items.add(one); }\ntemplate class Stack<int>;\n",
    "old.ii": "int far(int n) { return n; }\n",
}  # fmt: skip


@pytest.mark.parametrize(("missing", "files"), [
    ("near(int)", ["caller.c", "one_line.cpp"]),
    ("far", ["far.c"]), ("far(int)", ["far.c"]), ("app::Engine::run(unsigned int) const", ["engine.cpp"]),
    ("app::Engine::Engine(app::Config const&)", ["engine.cpp"]), ("app::Engine::shared", ["data.cpp"]),
    ("operator+(Vector const&, Vector const&)", ["vector.cpp"]), ("nothing(int)", []),
    ("operator<<(std::__1::basic_ostream<char, std::__1::char_traits<char>>&, Vector const&)", ["vector.cpp"]),
    ("Stack<int>::push(int)", ["stack.cpp"]),
])  # fmt: skip
def test_the_file_that_defines_a_name_is_found(tmp_path: Path, missing: str, files: list[str]) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    assert [path.name for path in sources_that_define([missing], [tmp_path / "main.cpp"])] == files


def test_directories_in_flags_that_were_typed_from_here_are_found_from_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("project/include", "project/src/own"):
        (tmp_path / name).mkdir(parents=True)
    given = "-Iproject/include -isystem project/include -Iown -Inone -I /usr/include -DI=project/include -include a.h"
    assert flag_keys(given, Path("project/src/a.c"), None)["flags"] == [
        "-I../include", "-isystem", "../include", "-Iown", "-Inone", "-I", "/usr/include", "-DI=project/include",
        "-include", "a.h",
    ]  # fmt: skip


def test_directories_in_a_campaigns_flags_are_looked_for_beside_its_file(tmp_path: Path) -> None:
    """As all other paths in it; they were seen from the source alone, and its headers were not found."""
    for name in ("campaigns", "src/own", "include"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "include" / "two.h").write_text("#define TWO 2\n")
    (tmp_path / "src" / "own" / "three.h").write_text("#define THREE 3\n")
    (tmp_path / "src" / "a.c").write_text(
        "#include <three.h>\n#include <two.h>\nint work(int n) { return n * THREE; }\n"
        "int main(void) { return work(TWO) - 6; }\n"
    )
    machine = Path(__file__).parents[3] / "configs" / "machines" / "desktop.yaml"
    campaign = tmp_path / "campaigns" / "c.yaml"
    campaign.write_text(
        "name: c\nprogram: {source: ../src/a.c, flags: [-O2, -I../include, -Iown]}\n"
        f"machine: {machine}\nsampling: {{every: 1000 cycles}}\nhardware_metrics: [PAPI_TOT_INS, PAPI_LD_INS]\n"
        "software_metrics: {calls: {event: entry, function: work}}\n"
    )
    found = CliRunner().invoke(main, ["run", "--counts", str(campaign)])
    assert found.exit_code == 0, found.output
    assert "entry work" in found.output


@pytest.mark.parametrize(
    ("text", "is_loop"),
    [
        ("while (0);", False), ("while ( (void)0 , 0 );", False), ("while (false)", False), ("while (n, n)", True),
        ("for (;;)", True), ("while (0x10)", True),
    ],
)  # fmt: skip
def test_the_text_of_a_loop(text: str, is_loop: bool) -> None:
    assert (_LOOP.search(text) is not None) == is_loop


def test_flags_are_split_as_a_shell_does(tmp_path: Path) -> None:
    program = tmp_path / "main.cpp"
    assert flag_keys(None, program, None) == {}
    assert flag_keys("-O2 '-DNAME=\"a b\"'", program, None) == {"flags": ["-O2", '-DNAME="a b"']}
    assert flag_keys("-O3", tmp_path, None) == {"flags": ["-O3"]}
    with pytest.raises(CampaignError, match="--flags -O2 'a: No closing quotation"):
        flag_keys("-O2 'a", program, None)
    (tmp_path / "makefile").touch()
    for build in (None, "make"):
        with pytest.raises(CampaignError, match="give them in --build, such as `make CC=\\$CC CFLAGS='-O3'`"):
            flag_keys("-O3", tmp_path, build)


@pytest.mark.parametrize(("script", "arguments"), [
    ("# Generated by GNU Autoconf 2.71 for demo 1.2.\n# see --host\n", " --host=$HOST CC=$CC CXX=$CXX"),
    ("case $option in\n--prefix=*) ;;\nCXX=*) CXX=$optarg ;;\nCXXFLAGS=*) ;;\nesac\n", " CXX=$CXX"),
    ("case $1 in --host=*) host=$1 ;; CC=*|AR=*) eval $1 ;; MYCC=*) ;; esac\n", " --host=$HOST CC=$CC AR=$AR"),
    ('cc="${CC-gcc}"\ncase $1 in -prefix) ;; *) echo "unknown option" ; exit 64 ;; esac\n', ""),
])  # fmt: skip
def test_a_configure_script_gets_the_arguments_that_it_takes(tmp_path: Path, script: str, arguments: str) -> None:
    (tmp_path / "configure").write_text(f"#! /bin/sh\n{script}")
    assert build_commands(tmp_path) == [f"./configure{arguments} && make -j$(nproc)"]


def test_make_gets_the_tools_that_rules_call_by_other_variables(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(
        "CC = gcc\nLD\t= gcc # links\nPACK ?= ar\nexport INDEX := ranlib\nCOMPILER = gcc\nHOSTCC = cc\nSTART = ld -r\n"
        "ifeq ($(COMPILER),gcc)\nendif\n"
        "app: main.o\n\t$(LD) -o $@ main.o\n\t@$(PACK) rc a.a main.o\n\t-${INDEX} a.a\n"
        "x: x.o\n\t$(HOSTCC) x.c\n\t$(START) x.o\n"
    )
    assert build_commands(tmp_path) == ["make -j$(nproc) CC=$CC LD=$CC PACK=$AR INDEX=$RANLIB"]
    (tmp_path / "GNUmakefile").write_text("app:\n\t$(CC) main.c\n")  # which make takes first
    assert build_commands(tmp_path) == ["make -j$(nproc) CC=$CC"]


@pytest.mark.parametrize(
    ("rule", "first"),
    [
        ("build:\n\tmkdir build && cd build && cmake ..\n", "cmake -S"),
        ("$(BUILD):\n\t$(CMAKE) \\\n\t.\n", "cmake -S"),
        ("# or use cmake .\napp: app.c\n\t$(CC) -o app app.c\n\techo see my-cmake-notes\n", "make -j"),
    ],
)
def test_cmake_comes_before_a_makefile_that_calls_it(tmp_path: Path, rule: str, first: str) -> None:
    (tmp_path / "CMakeLists.txt").touch()
    (tmp_path / "Makefile").write_text(f"all: test\n{rule}")
    commands = build_commands(tmp_path)
    assert len(commands) == 2
    assert commands[0].startswith(first)


def test_arguments_that_name_files_and_directories_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("data/a.txt", "data/deep/b.txt", "a=b.txt", "other/c.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    Path("empty").mkdir()
    arguments = ["data", "a=b.txt", "empty", ".", str(tmp_path), "-v", ""]
    found = input_keys(arguments, None, ["a=b.txt", "/in=a=b.txt", "/more=other", "other"], tmp_path)
    assert found["files"] == {
        "/data": "data", "/a=b.txt": "a=b.txt", "/in": "a=b.txt", "/more": "other", "/other": "other"
    }  # fmt: skip
    with pytest.raises(CampaignError, match="--file none: no such file or directory"):
        input_keys([], None, ["/in=none"], tmp_path)


@pytest.mark.parametrize("name", ["demo", "demo-0.31.1", "demo_2", "demo-v1.2-rc1", "demo-main"])
def test_the_program_named_as_the_directory_is_taken_whatever_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made = ["build/src/demo", "build/test/demo_test"]
    monkeypatch.setattr("instrumenter.projects.project.linked_programs", lambda *_: made)
    (tmp_path / name).mkdir()
    (tmp_path / name / "makefile").touch()
    said: list[str] = []
    keys = program_keys(tmp_path / name, None, None, tmp_path, said.append)
    assert keys == {"build": "make -j$(nproc) CC=$CC", "directory": name, "binary": "build/src/demo"}
    assert said == ["Measures build/src/demo; --binary takes another that it links: build/test/demo_test"]


def test_a_makefile_that_fails_may_be_built_for_one_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def linked(_: Path, command: str, notify: object) -> list[str]:
        raise build_failure(command, "failed", "view.c:1:10: fatal error: 'SDL.h' file not found\n", "log", "r", (), _)

    monkeypatch.setattr("instrumenter.projects.project.linked_programs", linked)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/Makefile").touch()
    with pytest.raises(CampaignError, match="not be measured: --binary PATH builds only the one at PATH"):
        program_keys(tmp_path / "demo", None, None, tmp_path, lambda text: None)
    with pytest.raises(CampaignError) as caught:
        program_keys(tmp_path / "demo", None, "src/app", tmp_path, lambda text: None)
    assert "--binary" not in str(caught.value)


def test_a_makefile_that_needs_its_order_is_built_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def linked(_: Path, command: str, notify: object) -> list[str]:
        asked.append(command)
        if "-j" in command:
            raise SourceError("table.h: no such file")
        return ["app"]

    monkeypatch.setattr("instrumenter.projects.project.linked_programs", linked)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/makefile").touch()
    said: list[str] = []
    keys = program_keys(tmp_path / "demo", None, None, tmp_path, said.append)
    assert keys == {"build": "make CC=$CC", "directory": "demo", "binary": "app"}
    assert asked == ["make -j$(nproc) CC=$CC", "make CC=$CC"]
    assert said == ["That failed; the next one to try:"]
    # A command of the user's is run as it is.
    with pytest.raises(CampaignError, match=r"table\.h: no such file"):
        program_keys(tmp_path / "demo", "make -j$(nproc) CC=$CC", None, tmp_path, said.append)
    assert asked == ["make -j$(nproc) CC=$CC", "make CC=$CC", "make -j$(nproc) CC=$CC"]


@pytest.mark.parametrize(("output", "times"), [
    ("configure: error: no zlib\n", 1), ("CMake Error: no\n\n-- Configuring incomplete, errors occurred!\n", 1),
    ("a.c:1:1: error: no\n  1 | x\nmake: *** [Makefile:1: a.o] Error 1\n", 2),
    ("a.c:1:1: error: 'readline/readline.h' file not found\nmake: *** [Makefile:1: a.o] Error 1\n", 1),
])  # fmt: skip
def test_a_project_that_cannot_be_configured_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, times: int
) -> None:
    asked: list[str] = []

    def linked(_: Path, command: str, notify: object) -> list[str]:
        asked.append(command)
        raise build_failure(command, "failed", output, "log", "riscv64", (), tmp_path)

    monkeypatch.setattr("instrumenter.projects.project.linked_programs", linked)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/configure").touch()
    said: list[str] = []
    with pytest.raises(CampaignError, match=output.splitlines()[0]) as caught:
        program_keys(tmp_path / "demo", None, None, tmp_path, said.append)
    assert "--build" not in str(caught.value)
    assert len(asked) == times
    assert said == ["That failed (a.c:1:1: error: no); the next one to try:"] * (times - 1)


def test_a_build_that_takes_another_compiler_is_tried_with_these_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much it prints before and after the words that tell so, which the message does not have then."""
    asked: list[str] = []
    output = "a.c:1:1: error: no\n" + "work\n" * 9 + "ld: a.o: file in wrong format\n" + "work\n" * 9

    def linked(_: Path, command: str, notify: object) -> list[str]:
        asked.append(command)
        raise build_failure(command, "failed", output, "log", "riscv64", (), tmp_path)

    monkeypatch.setattr("instrumenter.projects.project.linked_programs", linked)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/makefile").touch()
    with pytest.raises(CampaignError) as caught:
        program_keys(tmp_path / "demo", None, None, tmp_path, lambda text: None)
    assert "wrong format" not in str(caught.value)
    assert asked == ["make -j$(nproc) CC=$CC", "export PATH=$COMPILERS:$PATH; make -j$(nproc) CC=$CC"]


def test_targets_that_test_and_fail_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    works = "./configure && make -j$(nproc) --old-file=test --old-file=test-api"

    def linked(_: Path, command: str, notify: object) -> list[str]:
        asked.append(command)
        tests = [name for name in ("test", "test-api") if f"--old-file={name} " not in f"{command} "]
        if tests:
            raise BuildFailure(f"{tests[0]} failed", True, (tests[0],))
        return ["app"]

    monkeypatch.setattr("instrumenter.projects.project.linked_programs", linked)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/configure").touch()
    said: list[str] = []
    keys = program_keys(tmp_path / "demo", None, None, tmp_path, said.append)
    assert keys == {"build": works, "directory": "demo", "binary": "app"}
    assert said == [f"That failed (in its tests: {name}); the next one to try:" for name in ("test", "test-api")]
    assert asked == ["./configure && make -j$(nproc)", "./configure && make -j$(nproc) --old-file=test", works]
    with pytest.raises(CampaignError, match="test-api failed"):  # a command of the user's is run as it is
        program_keys(tmp_path / "demo", "make --old-file=test", None, tmp_path, lambda text: None)


def test_a_target_that_fails_again_is_left_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def linked(_: Path, command: str, notify: object) -> list[str]:
        raise BuildFailure("failed", True, ("check",))

    monkeypatch.setattr("instrumenter.projects.project.linked_programs", linked)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/makefile").touch()
    said: list[str] = []
    with pytest.raises(CampaignError, match="failed"):
        program_keys(tmp_path / "demo", None, None, tmp_path, said.append)
    assert len(said) == 3  # as first, and one by one, each with and without


def test_an_advised_build_command_comes_with_the_option_that_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def linked(_: Path, command: str, notify: object) -> list[str]:
        output = "configure: error: or --disable-zlib\n"
        raise build_failure(command, "failed", output, "log", "riscv64", (), tmp_path)

    monkeypatch.setattr("instrumenter.projects.project.linked_programs", linked)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/configure").touch()
    with pytest.raises(CampaignError) as caught:
        program_keys(tmp_path / "demo", None, None, tmp_path, lambda text: None)
    *_, advice, how = str(caught.value).splitlines()
    assert advice.endswith("`./configure --disable-zlib && make -j$(nproc)`")
    assert how == "Such a command is given with --build 'COMMAND'"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(("compiler", "times"), [("$(CC)", 1), ("cc", 2)])
def test_a_project_of_a_library_alone_is_built_once(tmp_path: Path, compiler: str, times: int) -> None:
    """It was built a second time with gcc and the like replaced, although $CC had compiled all of it."""
    (tmp_path / "demo").mkdir()
    # With a text of its own, since builds are kept by content.
    (tmp_path / "demo/f.c").write_text(f"/* {tmp_path} {time.time()} */ int f(void) {{ return 1; }}\n")
    (tmp_path / "demo/Makefile").write_text(f"f.o: f.c\n\t{compiler} -c f.c\n")
    said: list[str] = []
    with pytest.raises(CampaignError, match="if it makes a library only, measure a program that uses it"):
        program_keys(tmp_path / "demo", None, None, tmp_path, said.append)
    assert sum(one.startswith("Building the project") for one in said) == times


def test_the_program_behind_a_script_of_libtool_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instrumenter.projects.project.linked_programs", lambda *_: ["src/.libs/app", "other"])
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/Makefile").touch()
    said: list[str] = []
    keys = program_keys(tmp_path / "demo", None, "src/app", tmp_path, said.append)
    assert keys["binary"] == "src/.libs/app"
    assert said == ["src/app is a shell script of libtool: measures the program, src/.libs/app"]


def test_files_of_an_earlier_build_are_named_when_nothing_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory in which `make` was called before, by the machine's own compiler: there is nothing to do."""
    monkeypatch.setattr("instrumenter.projects.project.linked_programs", lambda *_: [])
    (tmp_path / "demo/src").mkdir(parents=True)
    (tmp_path / "demo/makefile").touch()
    with pytest.raises(CampaignError, match=r"links no program with .* if it calls another compiler"):
        program_keys(tmp_path / "demo", None, None, tmp_path, lambda text: None)
    (tmp_path / "demo/src/main.o").write_bytes(b"\x7fELF and more")
    with pytest.raises(
        CampaignError, match=r"files of an earlier build, such as src/main\.o, .*'make clean && make CC=\$CC'"
    ):
        program_keys(tmp_path / "demo", None, None, tmp_path, lambda text: None)


def test_the_program_that_is_named_is_made_alone_if_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    works = "make -j$(nproc) CC=$CC src/app"

    def linked(_: Path, command: str, notify: object) -> list[str]:
        asked.append(command)
        if command != works:
            raise SourceError("make: *** No rule to make target")
        return ["src/app"]

    monkeypatch.setattr("instrumenter.projects.project.linked_programs", linked)
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/makefile").touch()
    keys = program_keys(tmp_path / "demo", None, "src/app", tmp_path, lambda text: None)
    assert keys == {"build": works, "directory": "demo", "binary": "src/app"}
    works = "make CC=$CC"
    keys = program_keys(tmp_path / "demo", None, "src/app", tmp_path, lambda text: None)
    assert keys == {"build": works, "directory": "demo", "binary": "src/app"}
    assert asked[1:] == [
        "make -j$(nproc) CC=$CC src/app", "make -j$(nproc) CC=$CC", "make CC=$CC src/app", "make CC=$CC",
    ]  # fmt: skip


def test_after_a_configure_script_the_program_that_is_named_is_made_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instrumenter.projects.project.linked_programs", lambda _, command, notify: ["app", "src/app"])
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/configure").write_text("--host")
    keys = program_keys(tmp_path / "demo", None, "app", tmp_path, lambda text: None)
    assert keys["build"] == "./configure --host=$HOST && make -j$(nproc) app"
    keys = program_keys(tmp_path / "demo", None, "src/app", tmp_path, lambda text: None)
    assert keys["build"] == "./configure --host=$HOST && make -j$(nproc)"


def test_cmake_builds_the_program_that_is_named_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instrumenter.projects.project.linked_programs", lambda _, command, notify: ["build/a/app"])
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/CMakeLists.txt").touch()
    keys = program_keys(tmp_path / "demo", None, "build/a/app", tmp_path, lambda text: None)
    assert keys["build"].endswith(" && cmake --build build -j$(nproc) --target app")


@pytest.mark.parametrize(("files", "said"), [
    (["configure.ac", "src/app.c"], "--build 'autoreconf -fi && ./configure --host=$HOST && make -j$(nproc)'"),
    (["meson.build", "src/Makefile"], "--build 'meson setup build && ninja -C build'"),
    (
        ["src/app.c", "projects/make/Makefile", "projects/visual c/CMakeLists.txt"],
        "projects/make (or projects/visual c) has a build; to take that: --build 'cd projects/make && make "
        "-j$(nproc) CC=$CC'",
    ),
    (
        ["Makefile.app", "Makefile.am", "makefile.win", "x.mk", "debugger/Makefile"],
        "--build 'make -f Makefile.app CC=$CC', or another of Makefile.app, makefile.win, x.mk",
    ),
    (["a/README", "src/app.c"], "src has source files: give that directory, `measure init demo/src`"),
    (["a/b/c/Makefile"], "say how it is built with --build COMMAND"),
])  # fmt: skip
def test_a_directory_without_a_build_at_its_top_names_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in files:
        Path("demo", name).parent.mkdir(parents=True, exist_ok=True)
        Path("demo", name).touch()
    with pytest.raises(CampaignError) as caught:
        program_keys(Path("demo"), None, None, Path(), lambda text: None)
    assert "has no C or C++ file, configure script, makefile or CMakeLists.txt at its top: " in str(caught.value)
    assert str(caught.value).endswith(said)
