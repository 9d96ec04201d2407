"""Builds that run the programs that they make: in the emulator, from each kind of process that may start them."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from instrumenter.building.program_build import HostSamplerConfig, SamplerConfig
from instrumenter.compiler.toolchain import HOST_TARGET
from instrumenter.errors import SourceError
from instrumenter.projects import build_by_hand, made_programs
from instrumenter.projects.project import Project, ProjectRecipe, linked_programs
from instrumenter.spec.software_metrics import MetricSpec
from instrumenter.wrapper.environment_spec import read_sites
from tests.instrumenter.guest_output import output_of

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

# A program that writes the table of another one: from its argument, the environment, its input and a file beside it.
GENERATOR = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int square(int n) { return n * n; }
int main(int argc, char **argv) {
    char folder[4096], line[100];
    FILE *list = fopen("numbers.txt", "r"), *table = fopen(argv[1], "w");
    if (!list || !table || !getcwd(folder, sizeof folder) || access(folder, R_OK) || !fgets(line, sizeof line, stdin))
        return 1;
    fprintf(table, "int extra = %s;\\nint table[] = {", getenv("EXTRA"));
    for (int n; fscanf(list, "%d", &n) == 1;) fprintf(table, "%d, ", square(n));
    fprintf(table, "%s};\\n", line);
    fclose(table);
    return puts("made") < 0;
}
"""
MAIN = """
#include <stdio.h>
#include "table.h"
static int square(int n) { return n * n; }
int main(void) {
    int sum = extra;
    for (unsigned n = 0; n < sizeof table / sizeof *table; n++) sum += square(table[n]);
    printf("%d\\n", sum);
    return 0;
}
"""
MAKEFILE = """
app: main.c table.h
\t$(CC) -O1 -o app main.c
table.h: make_table numbers.txt
\techo 4 | EXTRA=100 ./make_table table.h > said.txt
make_table: make_table.c
\t$(CC) -O1 -o make_table make_table.c
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "two stages"
    folder.mkdir()
    for name, text in {"make_table.c": GENERATOR, "main.c": MAIN, "Makefile": MAKEFILE, "numbers.txt": "2 3\n"}.items():
        (folder / name).write_text(text)
    return folder


def test_a_build_runs_what_it_makes(project: Path) -> None:
    assert linked_programs(project, "make CC=$CC", lambda text: None) == ["app", "make_table"]
    recipe = ProjectRecipe.of(Project(project, "make CC=$CC", "app"))
    expected = 100 + 4**2 + 9**2 + 4**2
    assert output_of(recipe.build({}).elf_path) == f"{expected}\n"
    # Also when the build's own programs count and sample: their sampler finds hardware counters, and its trace is lost.
    counted = ProjectRecipe.of(Project(project, "make CC=$CC", "app"), SamplerConfig(1_000_000, 2))
    build = counted.build({"squares": MetricSpec(event="entry", function="square")})
    assert build.sites == {"squares": 1}
    assert not (project / "app").exists()


def test_a_build_for_this_machine_runs_what_it_makes(project: Path) -> None:
    """The sampler in each program ended it: "this program was built for `measure`, which starts it"."""
    # No variable of the build reaches the program.
    (project / "Makefile").write_text(MAKEFILE.replace("EXTRA=100 ./make_table", "env -i EXTRA=100 ./make_table"))
    recipe = ProjectRecipe.of(Project(project, "make CC=$CC && ./app", "app"), HostSamplerConfig(), target=HOST_TARGET)
    for metrics in ({}, {"squares": MetricSpec(event="entry", function="square")}):
        build = recipe.build(metrics)
        done = subprocess.run([build.elf_path], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{100 + 4**2 + 9**2 + 4**2}\n", "")
        assert build.sites == dict.fromkeys(metrics, 1)


@pytest.mark.parametrize(("named", "command"), [("$(CC)", "make CC=$CC"), ("gcc", "PATH=$COMPILERS:$PATH make")])
def test_a_build_by_hand_runs_what_it_makes(
    named: str, command: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make CC=instrument-cc` ended with "Exec format error", and $COMPILERS was set in campaigns only."""
    (project / "Makefile").write_text(MAKEFILE.replace("$(CC)", named))
    (project / "spec.yaml").write_text("metrics: {squares: {event: entry, function: square}}\n")
    monkeypatch.setenv("INSTRUMENT_SPEC", str(project / "spec.yaml"))
    monkeypatch.setenv("CFLAGS", "-no-such-flag")
    assert build_by_hand.build(command, project) == 0
    assert output_of(project / "app") == f"{100 + 4**2 + 9**2 + 4**2}\n"
    assert [note["sites"] for note in read_sites(project / "app")] == [{"squares": 1}]
    assert build_by_hand.build("exit 7", project) == 7
    assert build_by_hand.build("kill -9 $$", project) == 137
    monkeypatch.setenv("INSTRUMENT_SPEC", "/none")
    told = CliRunner().invoke(build_by_hand.main, [command])
    assert (told.exit_code, told.output) == (
        2, "instrument-build: error: /none: cannot be read: No such file or directory\n",
    )  # fmt: skip


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_cmake_runs_what_it_makes(project: Path) -> None:
    # The commands of a rule had the target's name instead of its path, and a check that runs a program ended cmake by
    # a segmentation fault.
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.10)\nproject(demo C)\ninclude(CheckCSourceRuns)\n"
        'check_c_source_runs("int main(void) { return 0; }" ENDS_WELL)\n'
        'check_c_source_runs("int main(void) { return 1; }" ENDS_BADLY)\n'
        'if(NOT ENDS_WELL OR ENDS_BADLY)\n  message(FATAL_ERROR "wrong")\nendif()\n'
        "add_executable(header header.c)\n"
        "add_custom_command(OUTPUT table.h COMMAND header table.h DEPENDS header)\n"
        "add_executable(app main.c ${CMAKE_BINARY_DIR}/table.h)\ninclude_directories(${CMAKE_BINARY_DIR})\n"
        "enable_testing()\nadd_test(NAME sum COMMAND app)\n"
        "set_tests_properties(sum PROPERTIES PASS_REGULAR_EXPRESSION 9)\n"
    )
    (project / "header.c").write_text(
        "#include <stdio.h>\nint main(int n, char **words) {\n"
        'return fputs("enum { extra = 5 };\\nint table[] = {2};\\n", fopen(words[1], "w")) < 0; }\n'
    )
    command = "cmake -B out . && cmake --build out && cd out && ctest"
    assert linked_programs(project, command, lambda text: None) == ["out/app", "out/header"]


def test_what_such_a_program_says_when_it_fails_is_told(project: Path) -> None:
    (project / "numbers.txt").unlink()
    (project / "Makefile").write_text(MAKEFILE.replace(" numbers.txt", ""))
    with pytest.raises(SourceError, match=r"\*\*\* \[Makefile:5: table.h\] Error 1"):
        linked_programs(project, "make CC=$CC", lambda text: None)


def python(statement: str) -> str:
    """A shell command that executes the statement in Python."""
    return shlex.join([sys.executable, "-c", f'import os, subprocess; WORDS = ["x", "a", "b c"]; {statement}'])


STARTS = {
    "the shell": "./hello a 'b c'",
    "the shell, in the background": "./hello a 'b c' & wait",
    "execvp of env": "env ./hello a 'b c'",
    "execvp by PATH": "PATH=.:$PATH env hello a 'b c'",
    "python": python('subprocess.run(["./hello", "a", "b c"])'),
    "posix_spawn": python('os.waitpid(os.posix_spawn("./hello", WORDS, os.environ), 0)'),
    "posix_spawnp": "PATH=.:$PATH " + python('os.waitpid(os.posix_spawnp("hello", WORDS, os.environ), 0)'),
    "execv": python('os.execv("./hello", WORDS)'),
    "xargs": "printf '%s\\0' a 'b c' | xargs -0 ./hello",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program for the emulated machine, and the environment's values to start it."""
    made = tmp_path_factory.mktemp("started")
    (made / "hello.c").write_text(
        "#include <stdio.h>\n#include <stdlib.h>\nint main(int n, char **words) {\n"
        'for (int i = 1; i < n; i++) printf("[%s]", words[i]);\nputs(getenv("LD_PRELOAD") ? "loaded" : "");\n'
        "return 7; }\n"
    )
    subprocess.run([made_command("instrument-cc"), "hello.c", "-o", "hello"], cwd=made, check=True)
    return made


def made_command(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


@pytest.fixture(scope="module", params=["with a server", "alone"])
def environment(request: pytest.FixtureRequest, folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which programs are started: by a server, or each with an emulator of its own."""
    if request.param == "alone":
        yield {**os.environ, **made_programs.variables(made_programs.write_command(folder, folder))}
        return
    with made_programs.serving(folder, folder) as command:
        yield {**os.environ, **made_programs.variables(command)}


@pytest.mark.parametrize("way", STARTS)
def test_every_way_to_start_a_program_starts_it_in_the_emulator(
    folder: Path, environment: dict[str, str], way: str
) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", STARTS[way]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[a][b c]\n", done.stderr


def test_status_and_other_programs_are_as_without_it(folder: Path, environment: dict[str, str]) -> None:
    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    assert run(["sh", "-c", "./hello"]).returncode == 7
    assert run(["sh", "-c", "echo $0 $1; exit 3", "x", "y"]).stdout == "x y\n"
    assert run(["sh", "-c", "exit 3"]).returncode == 3
    assert run(["sh", "-c", "./missing"]).returncode == 127
    assert run(["sh", "-c", "./hello.c"]).returncode == 126  # not executable
    os.chmod(folder / "hello", 0o644)
    try:
        assert run(["sh", "-c", "./hello"]).returncode == 126
    finally:
        os.chmod(folder / "hello", 0o755)


@pytest.mark.parametrize("linked", [False, True])
def test_a_program_writes_below_the_tree_and_nowhere_else(tmp_path: Path, linked: bool) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    for made in (outside, folder, folder / "tree"):
        made.mkdir()
    if linked:  # as a user's home may be
        folder = tmp_path / "link"
        folder.symlink_to("folder")
    tree = folder / "tree"
    (tree / "write.c").write_text(
        "#include <stdio.h>\nint main(int n, char **words) {\n"
        'for (int i = 1; i < n; i++) { FILE *f = fopen(words[i], "w"); printf("%d", f != 0); if (f) fclose(f); }\n'
        "return 0; }\n"
    )
    subprocess.run([made_command("instrument-cc"), "write.c", "-o", "write"], cwd=tree, check=True)
    environment = {**os.environ, **made_programs.variables(made_programs.write_command(tmp_path, tree))}
    names = ["inside.txt", str(tree / "too.txt"), str(outside / "no.txt")]
    done = subprocess.run(
        ["/bin/sh", "-c", './write "$@"', "sh", *names], cwd=tree, env=environment, capture_output=True, check=False
    )
    assert done.stdout == b"110", done.stderr
    assert (tree / "inside.txt").exists()
    assert (tree / "too.txt").exists()
    assert list(outside.iterdir()) == []


def servers(tree: Path) -> list[int]:
    """The processes that serve programs of ``tree``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if any(b"emulator.build_server" in word for word in words) and os.fsencode(tree) in words:
                found.append(int(path.parent.name))
    return found


def test_programs_of_a_build_load_the_emulator_once(folder: Path) -> None:
    with made_programs.serving(folder, folder) as command:
        environment = {**os.environ, **made_programs.variables(command)}
        assert servers(folder) == []  # a build that runs nothing has none
        for number in "12":
            words = ["sh", "-c", f"./hello {number} & ./hello {number}; wait"]
            done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
            assert done.stdout == f"[{number}]\n" * 2
            assert len(servers(folder)) == 1
    assert servers(folder) == []


def test_a_program_has_input_directory_environment_and_umask_of_its_starter(
    folder: Path, environment: dict[str, str]
) -> None:
    (folder / "state.c").write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\nint main(void) {\n"
        "char line[100], place[4096];\nif (!fgets(line, 100, stdin) || !getcwd(place, 4096)) return 1;\n"
        'printf("%s%s %s\\n", line, getenv("SAID"), place);\nreturn !fopen("made", "w"); }\n'
    )
    subprocess.run([made_command("instrument-cc"), "state.c", "-o", "state"], cwd=folder, check=True)
    (folder / "below").mkdir(exist_ok=True)
    script = "cd below; umask 037; export SAID='a b'; (read first; ../state) > out 2> err"
    subprocess.run(["sh", "-c", script], cwd=folder, env=environment, input=b"one\ntwo\n", check=True)
    assert (folder / "below/out").read_text() == f"two\na b {folder}/below\n"
    assert (folder / "below/err").read_text() == ""
    assert (folder / "below/made").stat().st_mode & 0o777 == 0o640
    (folder / "below/made").unlink()


def test_a_program_ends_with_the_process_that_the_build_knows(folder: Path, environment: dict[str, str]) -> None:
    (folder / "forever.c").write_text('#include <stdio.h>\nint main(void) { puts("on"); fflush(stdout); for (;;); }\n')
    subprocess.run([made_command("instrument-cc"), "forever.c", "-o", "forever"], cwd=folder, check=True)
    with subprocess.Popen(["sh", "-c", "exec ./forever"], cwd=folder, env=environment, stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"on\n"
        one.kill()
        assert one.stdout.read() == b""  # the end of the pipe: no process has it any more


def test_programs_run_also_where_the_server_cannot(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with made_programs.serving(folder, folder) as command:
        environment = {**os.environ, **made_programs.variables(command)}
        monkeypatch.setattr(sys, "executable", "/bin/false")
        words = ["sh", "-c", "./hello 1; ./hello 2"]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout.endswith("[2]\n")
        assert done.returncode == 7


def test_programs_run_also_where_no_socket_can_be(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (long := tmp_path / ("x" * 120)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with made_programs.serving(folder, folder) as command:
        environment = {**os.environ, **made_programs.variables(command)}
        words = ["sh", "-c", "./hello 1"]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "[1]\n"
