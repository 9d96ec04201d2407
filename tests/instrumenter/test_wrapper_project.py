"""Programs made by their own builds: the same counts as from sources, and what is said when a build goes wrong."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from common import build_cache
from common.file_cache import cache_directory
from emulator.machine import Machine
from emulator.probes import BlockCounter
from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import SamplerConfig, build_program
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.errors import SourceError, SpecError
from instrumenter.find.probes import ProbeFinder
from instrumenter.projects.build_advice import failed_build
from instrumenter.projects.project import Project, ProjectRecipe, linked_programs
from instrumenter.projects.project_copy import tree_digest
from instrumenter.spec.software_metrics import MetricSpec
from tests.instrumenter.guest_output import execute

pytestmark = [
    pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed"),
    pytest.mark.usefixtures("own_cache"),
]

FILES = {
    "Makefile": """\
CFLAGS = -O0 -Wall -Ilib -Ibuild -MMD
OBJECTS = app/main.o app/start.o app/plus.o app/other.o
build/app: $(OBJECTS) build/libcore.a
\t$(CC) -s -o $@ $(OBJECTS) -Lbuild -lcore -lm
build/libcore.a:
\t$(MAKE) -C lib
app/main.o: build/times.h
build/times.h: times.sh
\tmkdir -p build
\tsh times.sh > $@
build/libcore.a: build/times.h
app/plus.o: app/plus.cpp
\t$(CXX) -O1 -fno-exceptions -c -o $@ $<
fail:
\t@echo first; echo "what went wrong" >&2; exit 7
native:
\tcc -o build/native app/native.c
stripped: build/app
\tcp build/app build/final && printf x >> build/final
nothing:
\t@echo nothing to do
""",
    "lib/Makefile": """\
CFLAGS = -O0 -I../build -MMD
../build/libcore.a: work.o two.o
\t$(AR) rcs $@ work.o two.o
\t$(RANLIB) $@
two.o: two\\ words.c
\t$(CC) $(CFLAGS) -c 'two words.c' -o two.o
-include work.d
""",
    "lib/core.h": """\
struct tally { long sum; int steps; };
extern struct tally tally;
int work(int n);
int two(int n);
""",
    "lib/work.c": """\
#include <stdlib.h>
#include "core.h"
#include "times.h"
struct tally tally;
static int helper(int n) { return n & 1 ? n : -n; }
int work(int n)
{
    int *copy = malloc(TIMES * sizeof *copy);
    for (int i = 0; i < TIMES; i++) {
        copy[i] = helper(n + i);
        tally.sum += copy[i];
        tally.steps++;
    }
    free(copy);
    return two(n);
}
""",
    "lib/two words.c": '#include "core.h"\nstatic int helper(int n) { return n + 2; }\n'
    "int two(int n) { return n > 3 ? helper(n) : helper(helper(n)); }\n",
    "app/main.c": """\
#include <stdio.h>
#include "core.h"
#include "times.h"
int start_value(void);
int plus(int a, int b);
int main(void)
{
    int n = start_value();
    for (int i = 0; i < 10; i++)
        n = plus(n, work(i));
    printf("%d %ld %d %s\\n", n, tally.sum, tally.steps, __FILE__);
    return 0;
}
""",
    "app/plus.cpp": 'extern "C" int plus(int a, int b) { return a + b; }\n',
    "app/start.S": ".globl start_value\nstart_value:\n\tli a0, 5\n\tret\n",
    "app/other.S": "#ifdef __x86_64__\n.globl fast\nfast:\n\tret\n#endif\n",
    "app/native.c": "int main(void) { return 0; }\n",
    "app/unused.c": "int unused(int n) { return n; }\n",
    "times.sh": 'echo "#define TIMES 7"\n',
}  # fmt: skip
METRICS = {
    "helpers": MetricSpec(event="entry", function="helper"),
    "steps": MetricSpec(event="write", field="tally.steps"),
    "work": MetricSpec(event="call", callee="work"),
    "loops": MetricSpec(event="loop", function="work"),
    "large": MetricSpec(event="branch", function="two"),
    "allocations": MetricSpec(event="alloc"),
    "rounds": MetricSpec(event="loop", function="main", file="main.c"),
}
EXPECTED = {"helpers": 84, "steps": 70, "work": 10, "loops": 70, "large": 6, "allocations": 10, "rounds": 10}
SUM = sum(k if k % 2 else -k for n in range(10) for k in range(n, n + 7))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A project in a directory with a space in its name."""
    directory = tmp_path / "my project"
    for name, text in FILES.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")


def recipe(
    directory: Path,
    command: str = "make -j3",
    binary: str = "build/app",
    sampler: SamplerConfig | None = None,
) -> ProjectRecipe:
    return ProjectRecipe.of(Project(directory, command, binary), sampler)


def counts_of_sources(directory: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The same program from its sources: by counters, and by probes of the program without counters."""
    build = directory / "build"
    build.mkdir()
    (build / "times.h").write_text("#define TIMES 7\n")
    (directory / "start.c").write_text(
        "int start_value(void) { return 5; }\nint plus(int a, int b) { return a + b; }\n"
    )
    sources = [directory / name for name in ("app/main.c", "lib/work.c", "lib/two words.c", "start.c")]
    flags = ["-O0", f"-I{directory}/lib", f"-I{build}"]
    counters = execute(build_program(sources, flags, METRICS))[1]
    plain = build_program(sources, flags)
    finder = ProbeFinder(plain.elf_path, preprocess_all(sources, flags, Toolchain()), flags, METRICS)
    blocks = BlockCounter(with_addresses=True)
    with Machine(plain.elf_path, consumers=[blocks], limit_instructions=10_000_000, background=False) as machine:
        machine.run()
        executions = blocks.executions_by_pc(machine.facts)
    probed = {m: sum(executions.get(pc, 0) for pc in finder.probe_for(m).pcs) for m in METRICS}
    return counters, probed


def test_counts_are_those_of_the_sources_and_of_probes(directory: Path) -> None:
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    mine = recipe(directory)
    plain = execute(mine.build({}))
    assert plain == (f"78 {SUM} 70 app/main.c\n", {})
    said: list[str] = []
    build = mine.build(METRICS, notify=said.append)
    assert said == [f"Building the project by its own command, counting {len(METRICS)} metrics: make -j3"]
    output, counters = execute(build)
    assert output == plain[0]
    assert counters == EXPECTED
    assert build.sites == {
        "helpers": 2, "steps": 1, "work": 1, "loops": 1, "large": 1, "allocations": 1, "rounds": 1,
    }  # fmt: skip
    assert build.notices == (
        "Compiled without optimisation (-O0 in the flags): app/main.c, lib/two words.c, lib/work.c. An optimised "
        "program spends its time elsewhere; to measure that, give the build command flags with -O2",
    )
    assert build.warnings == (
        "app/start.S: not instrumented: assembler: only C and C++ are instrumented",  # other.S leaves no code
    )
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    assert counts_of_sources(directory) == (EXPECTED, EXPECTED)


def test_code_layouts_are_linked_and_not_built_again(directory: Path) -> None:
    said: list[str] = []
    mine = recipe(directory)
    builds = [mine.build(METRICS, offset, said.append) for offset in (34, 0, 1000)]
    assert len(said) == 2  # without counters, which tells whether they have to be atomic, and with them
    markers = cache_directory().glob(f"projects/*/{build_cache.PROJECT_MARKER}")
    took = min(json.loads(marker.read_bytes())["seconds"] for marker in markers)
    assert all(build.seconds >= took > 0 for build in builds)  # what other counters would take
    assert len({build.key for build in builds}) == 3
    addresses = []
    for build in builds:
        assert execute(build)[1] == EXPECTED
        with Machine(build.elf_path, background=False) as machine:
            symbol = machine.image.find_symbol("work")
            assert symbol is not None
            addresses.append(symbol.address)
    assert 34 <= addresses[0] - addresses[1] < 1000 <= addresses[2] - addresses[1] < 1200
    assert mine.find(METRICS, 34) == builds[0]
    assert mine.find(METRICS, 36) is None


def test_a_program_that_was_changed_after_linking_is_built_for_every_layout(directory: Path) -> None:
    said: list[str] = []
    mine = recipe(directory, "make stripped", "build/final")
    builds = [mine.build({}, offset, said.append) for offset in (0, 64)]
    assert len(said) == 2
    assert all(build.elf_path.read_bytes().endswith(b"x") for build in builds)
    assert builds[0].elf_path.read_bytes() != builds[1].elf_path.read_bytes()


def test_what_was_edited_is_built_again_and_nothing_else(directory: Path) -> None:
    first = recipe(directory).build(METRICS)
    assert recipe(directory).find(METRICS) == first
    (directory / ".git").mkdir()
    (directory / ".git/index").write_text("of no importance")
    assert recipe(directory).find(METRICS) == first
    header = directory / "times.sh"
    header.write_text(header.read_text().replace("7", "8"))
    assert recipe(directory).find(METRICS) is None
    assert execute(recipe(directory).build(METRICS))[1] == {
        **EXPECTED,
        "helpers": 94,
        "steps": 80,
        "loops": 80,
    }
    header.chmod(0o755)
    assert recipe(directory).find(METRICS) is None


def test_the_signal_sampler_is_linked_in(directory: Path) -> None:
    sampler = SamplerConfig(1_000_000, 2)
    build = recipe(directory, sampler=sampler).build({"work": METRICS["work"]})
    with Machine(build.elf_path, background=False) as machine:
        assert machine.image.find_symbol("on_timer") is not None
    with Machine(recipe(directory).build({}).elf_path, background=False) as machine:
        assert machine.image.find_symbol("on_timer") is None


@pytest.mark.parametrize(
    ("command", "binary", "problem"),
    [
        ("make fail", "build/app", "the build command failed with exit status 2: make fail\nIts first error"),
        ("make fail", "build/app", "\n  what went wrong\n"),
        ("kill -9 $$", "build/app", "the build command was ended by signal 9"),
        ("make nothing", "build/app", "left no file 'build/app'; it linked nothing with $CC"),
        ("make", "build/ap", "left no file 'build/ap'; it linked build/app. Say in `binary:`"),
        (
            "mkdir build; make native",
            "build/native",
            "'build/native' is for x86-64, expected RISC-V: the build did",
        ),
        ("make", "times.sh", "'times.sh' is no program (no ELF file)"),
        ("make", "app/main.o", "'app/main.o' is an object file, expected a linked program"),
    ],
)
def test_a_build_that_goes_wrong_is_told(directory: Path, command: str, binary: str, problem: str) -> None:
    with pytest.raises(SourceError) as caught:
        recipe(directory, command, binary).build({})
    assert problem in str(caught.value)
    kept = [path.name for path in (cache_directory() / "projects").iterdir() if path.is_dir()]
    assert len(kept) == (binary == "build/ap")
    if kept:  # for the name that the message tells
        said: list[str] = []
        recipe(directory, command, "build/app").build({}, notify=said.append)
        assert said == []


def test_empty_directories_are_there_for_the_build_to_write_into(directory: Path) -> None:
    before = tree_digest(directory)
    (directory / "obj/deep").mkdir(parents=True)
    assert tree_digest(directory) != before
    (directory / "m.c").write_text("int main(void) { return 0; }\n")
    assert linked_programs(directory, "$CC m.c -o obj/deep/app", lambda text: None) == ["obj/deep/app"]


def test_programs_of_a_build_in_other_directories_are_named_from_the_project(directory: Path) -> None:
    (directory / "tools/make").mkdir(parents=True)
    (directory / "tools/make/m.c").write_text("int main(void) { return 0; }\n")
    command = "cd tools/make && mkdir ../../out && $CC m.c -o ../../out/app"
    assert linked_programs(directory, command, lambda text: None) == ["out/app"]


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("/usr/bin/ld: aes.o: error adding symbols: file in wrong format", "`make CC=$CC LD=$CC AR=$AR`"),
        ('./smoke: 2: Syntax error: "(" unexpected', "`make CC=$CC TARGET`"),
        ("bash: ./tests: cannot execute binary file: Exec format error", "`make CC=$CC TARGET`"),
        ("objcopy: Unable to recognise the format of the input file `a.o'", "`make CC=$CC OBJCOPY=riscv64-linux-gnu-o"),
        ("a.s: Assembler messages:\na.s:3: Error: no such instruction: `ret'", '`make CC=$CC AS="$CC -c"`'),
        ("make[2]: *** [Makefile:11: test] Error 2", "`make CC=$CC TARGET`"),
        ("error: using shared libraries requires dynamic linking", "`./configure --disable-shared`"),
        ("a.h:3:1: error: unknown type name '__BEGIN_DECLS'", '`export CC="$CC -D__BEGIN_DECLS= -D__END_DECLS="; cat '),
        ("a.c:3:10: fatal error: 'sys/queue.h' file not found", "<sys/queue.h> belongs to glibc; the C library here"),
        ("a.c:3:10: fatal error: 'readline/readline.h' file not found", "It needs readline/readline.h, which is not"),
        ('error: unable to find dynamic system library "z" using strategy', 'It needs library "z", which is not there'),
        (
            "CMake Error at CMakeLists.txt:9 (add_subdirectory):\n  The source directory\n\n    /p/third\n\n  does not "
            "contain a CMakeLists.txt file.",
            "A part of the project is missing, /p/third: if it is a submodule of git, `git submodule update --init`",
        ),
    ],
)
def test_a_build_that_fails_says_what_to_do_and_where_all_of_its_output_is(
    directory: Path, output: str, advice: str
) -> None:
    (directory / "words").write_text(f"{output}\n" + "last\n" * 20)
    with pytest.raises(SourceError) as caught:
        linked_programs(directory, "cat words; false", lambda text: None)
    message = str(caught.value)
    assert advice in message
    assert "a configure script needs" not in message
    whole = re.search(r"\(all of them: (.*)\):", message)
    assert whole
    assert output in Path(whole[1]).read_text()


@pytest.mark.parametrize(("output", "shown"), [
    (
        "cc -Werror: x.c\nx.c:3:7: error: no such thing\n    3 | int a = b;\n      |         ^\n"
        + "".join(f"more {number}\n" for number in range(30)),
        "  x.c:3:7: error: no such thing\n      3 | int a = b;\n        |         ^\n"
        "Its last lines (all of them: log):\n  more 24\n",
    ),
    ("gcc -o app x.o\nld: x.o: file in wrong format\n", "  ld: x.o: file in wrong format\nAll that it printed: log\n"),
    (
        "-- Detecting\nCMake Error at CMakeLists.txt:294 (add_subdirectory):\n  The directory\n\n    third\n\n  ...\n",
        "  CMake Error at CMakeLists.txt:294 (add_subdirectory):\n    The directory\n      third\n    ...\nAll that it",
    ),
    (
        "looking\nfound\nMakefile:85: *** missing separator.  Stop.\n",
        "  looking\n  found\n  Makefile:85: *** missing separator.  Stop.\nAll that it printed: log\n",
    ),
    (
        "-parse error: premature end\nFAILURE\n0 of 58\nmake[1]: *** [test] Error 1\nmake: *** [all] Error 2\n",
        "  FAILURE\n  0 of 58\n  make[1]: *** [test] Error 1\nIts last lines",
    ),
])  # fmt: skip
def test_a_build_that_fails_shows_its_first_error_then_its_end(output: str, shown: str) -> None:
    message = failed_build("make", "failed with exit status 2", output, "log", "target")
    head, after = message.split("\nIts first error:\n")
    assert head == "the build command failed with exit status 2: make"
    assert after.startswith(shown)
    assert "more 23" not in after


@pytest.mark.parametrize(
    ("command", "proposed", "linked"),
    [
        ("make -j2 CC=$CC", 'make -j2 CC="$CC -D__BEGIN_DECLS= -D__END_DECLS="', "make -j2 CC=$CC LD=$CC AR=$AR"),
        (
            "cmake -S . -B b && cmake --build b",
            'cmake -DCMAKE_C_FLAGS="-D__BEGIN_DECLS= -D__END_DECLS=" -S . -B b && cmake --build b',
            "make CC=$CC LD=$CC AR=$AR",
        ),
        (
            "./configure CC=$CC && make && cp a b",
            './configure CC="$CC -D__BEGIN_DECLS= -D__END_DECLS=" && make && cp a b',
            "./configure CC=$CC && make LD=$CC AR=$AR && cp a b",
        ),
    ],
)
def test_advice_is_a_build_command_that_can_be_taken(command: str, proposed: str, linked: str) -> None:
    declarations = "a.h:1:1: error: unknown type name '__BEGIN_DECLS'"
    assert f"`{proposed}`" in failed_build(command, "failed", declarations, "log", "target")
    linker = "/usr/bin/ld: x.o: error adding symbols: file in wrong format"
    assert f"`{linked}`" in failed_build(command, "failed", linker, "log", "target")


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [
        (
            {"x": MetricSpec(event="entry", function="wrok")},
            "metric 'x': no function 'wrok' in app/main.c, app/plus.cpp, lib/two words.c, lib/work.c; did you mean "
            "'work'",
        ),
        (
            {"x": MetricSpec(event="loop", function="two")},
            "/work.c has its event (loop two); nothing to count",
        ),
        ({"x": MetricSpec(event="entry", function="start_value")}, "app/start.S: not instrumented: assembler"),
        (
            {"x": MetricSpec(event="entry", function="work", add="none")},
            "metric 'x': the expression to add, 'none'",
        ),
    ],
)
def test_a_metric_that_matches_nowhere_is_told(
    directory: Path, metrics: Mapping[str, MetricSpec], problem: str
) -> None:
    with pytest.raises(SpecError) as caught:
        recipe(directory).build(metrics)
    assert problem in str(caught.value)


def test_all_metrics_that_match_nowhere_are_told_at_once(directory: Path) -> None:
    """So that `measure init`, which drops them, builds the project once more only."""
    without_site = {name: MetricSpec(event="loop", function="two") for name in "acd"}
    with pytest.raises(SpecError) as caught:
        recipe(directory).build({**without_site, "b": MetricSpec(event="entry", function="two")})
    assert (caught.value.metric, caught.value.others) == ("a", ("c", "d"))


def test_a_metric_of_another_program_of_the_project_is_told(directory: Path) -> None:
    command = "make && $CC -c app/unused.c -o app/unused.o"
    with pytest.raises(SpecError) as caught:
        recipe(directory, command).build({"x": MetricSpec(event="entry", function="unused")})
    assert "metric 'x' counts in app/unused.c, but 'build/app' is linked without it" in str(caught.value)


@needs_cmake
def test_cmake_finds_the_compiler_by_itself(directory: Path) -> None:
    (directory / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.10)\nproject(demo C)\n"
        "configure_file(times.in times.h)\n"
        "add_library(core STATIC lib/work.c)\n"
        "target_include_directories(core PUBLIC lib ${CMAKE_BINARY_DIR})\n"
        "add_executable(app app/main.c start.c)\ntarget_link_libraries(app core m)\n"
    )
    (directory / "times.in").write_text("#define TIMES 7\n")
    (directory / "start.c").write_text(
        "int start_value(void) { return 5; }\nint plus(int a, int b) { return a + b; }\nint two(int n) { return n; }\n"
    )
    build = recipe(directory, "cmake -B out . && cmake --build out -j2", "out/app").build(
        {"steps": METRICS["steps"], "rounds": METRICS["rounds"]}
    )
    assert execute(build)[1] == {"steps": 70, "rounds": 10}


@needs_cmake
def test_shared_libraries_of_a_cmake_project_become_part_of_its_program(directory: Path) -> None:
    (directory / "CMakeLists.txt").write_text(
        'cmake_minimum_required(VERSION 3.10)\nproject(demo C)\noption(BUILD_SHARED_LIBS "" ON)\n'
        "add_library(core lib.c)\nadd_executable(app main.c)\ntarget_link_libraries(app core)\n"
    )
    (directory / "lib.c").write_text("int twice(int n) { return 2 * n; }\n")
    (directory / "main.c").write_text(
        "int twice(int n);\nint main(void) { int n = 0; while (n < 14) n += twice(1); return n - 14; }\n"
    )
    build = recipe(directory, "cmake -B out . && cmake --build out", "out/app").build(
        {"calls": MetricSpec(event="entry", function="twice")}
    )
    assert execute(build)[1] == {"calls": 7}


@needs_cmake
@pytest.mark.slow
def test_libraries_of_one_name_in_a_cmake_project_are_files_of_their_own(directory: Path) -> None:
    (directory / "below").mkdir()
    (directory / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 2.8)\nproject(demo C)\nadd_library(core SHARED one.c)\n"
        "add_library(core_static STATIC two.c)\nset_target_properties(core core_static PROPERTIES OUTPUT_NAME core)\n"
        "add_subdirectory(below)\nadd_executable(app main.c)\ntarget_link_libraries(app core core_static core_3)\n"
    )
    (directory / "below/CMakeLists.txt").write_text(
        "add_library(core_3 STATIC three.c)\n"
        "set_target_properties(core_3 PROPERTIES OUTPUT_NAME core ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})\n"
        "add_library(other STATIC three.c)\nset_target_properties(other PROPERTIES OUTPUT_NAME core)\n"
    )
    for place, name in (("", "one"), ("", "two"), ("below/", "three")):
        (directory / f"{place}{name}.c").write_text(f"int {name}(void) {{ return 0; }}\n")
    (directory / "main.c").write_text(
        "int one(void), two(void), three(void);\nint main(void) { return one() + two() + three(); }\n"
    )
    command = "cmake -B out . && cmake --build out -j3 && find out -name '*.a' | sort | tr '\\n' ' ' && false"
    with pytest.raises(SourceError) as caught:
        linked_programs(directory, command, lambda text: None)
    found = "out/below/libcore.a out/libcore-core_3.a out/libcore-core_static.a out/libcore.a"
    assert f"\n  {found}" in str(caught.value)
    # Programs with which cmake tries the compiler are none of the project's.
    assert linked_programs(directory, "cmake -B out . && cmake --build out", lambda text: None) == ["out/app"]
