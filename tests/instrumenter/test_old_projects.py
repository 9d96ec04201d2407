"""Builds of old programs: makefiles that call gcc and strip by name, and C from before its standards."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from instrumenter.building.program_build import build_program
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.projects.project import Project, ProjectRecipe, linked_programs
from instrumenter.spec.software_metrics import MetricSpec
from measure.first_campaign.program_keys import program_keys
from tests.instrumenter.guest_output import output_of

OLD = """\
main() {
    int i, n = 0;
    char *text = strdup("x");
    for (i = 0; i < 100; i++) n += work(i);
    printf("%d %s\\n", n, text);
    return 0;
}
work(i) { if (i < 0) return; return i % 10; }
"""
MAKEFILE = """\
all: old
old: old.c
\tgcc -static -O2 -c old.c
\tgcc -o old old.o -lm
\tstrip old
\tstrip -s -o copied old
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "old.c").write_text(OLD)
    (folder / "Makefile").write_text(MAKEFILE)
    return folder


def test_old_c_is_compiled_as_gcc_did_and_counted(tmp_path: Path) -> None:
    (tmp_path / "old.c").write_text(OLD)
    build = build_program([tmp_path / "old.c"], metrics={"works": MetricSpec(event="entry", function="work")})
    assert output_of(build.elf_path) == "450 x\n"
    assert build.sites == {"works": 1}


@pytest.mark.parametrize("language", ["c", "c++"])
def test_latin_1_is_no_error_with_werror(tmp_path: Path, language: str) -> None:
    """It was, and the advice was to name an older standard."""
    source = tmp_path / "latin.c"
    source.write_bytes(b'/* caf\xe9 */\nconst char *s = "caf\xe9"; // \xe9\nint main(void) { return *s != 99; }\n')
    flags = ["-Wall", "-Wextra", "-Werror", *(["-std=gnu++17", "-x", "c++"] if language == "c++" else [])]
    Toolchain().compile(source, flags, tmp_path / "latin.o")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_compilers_that_a_makefile_calls_by_name(project: Path) -> None:
    notices: list[str] = []
    keys = program_keys(project, None, None, project.parent, notices.append)
    command = "export PATH=$COMPILERS:$PATH; make -j$(nproc) CC=$CC"
    assert keys == {"build": command, "directory": "old", "binary": "old"}
    assert [text for text in notices if "gcc" in text] == [
        "It links no program with $CC; once more, with gcc, cc and the like in its place:"
    ]
    assert linked_programs(project, command, notices.append) == ["old"]
    twice = command.replace("; make", "; true && make")  # as configure and make: both have the compilers
    assert linked_programs(project, twice, notices.append) == ["old"]
    recipe = ProjectRecipe.of(Project(project, command, "old"))
    build = recipe.build({"works": MetricSpec(event="entry", function="work")})
    assert output_of(build.elf_path) == "450 x\n"
    assert build.sites == {"works": 1}


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_strip_keeps_symbols_and_copies(project: Path) -> None:
    (project / "Makefile").write_text(MAKEFILE + "\t./copied > said.txt\n\tgrep -q '450 x' said.txt\n")
    assert linked_programs(project, "PATH=$COMPILERS:$PATH make", lambda text: None) == ["old"]
