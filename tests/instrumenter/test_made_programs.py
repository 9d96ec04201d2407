"""Builds that run the programs that they make: in the emulator, from each kind of process that may start them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from instrumenter.building import made_programs
from instrumenter.building.program_build import SamplerConfig
from instrumenter.building.project import Project, ProjectRecipe, linked_programs
from instrumenter.errors import SourceError
from instrumenter.spec.software_metrics import MetricSpec
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


@pytest.mark.parametrize("way", STARTS)
def test_every_way_to_start_a_program_starts_it_in_the_emulator(folder: Path, way: str) -> None:
    environment = {**os.environ, **made_programs.variables(made_programs.write_command(folder, folder))}
    done = subprocess.run(
        ["/bin/sh", "-c", STARTS[way]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[a][b c]\n", done.stderr


def test_status_and_other_programs_are_as_without_it(folder: Path) -> None:
    environment = {**os.environ, **made_programs.variables(made_programs.write_command(folder, folder))}

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
