"""Objects that an earlier build has left in a project's directory: make takes them as they are, without counters."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from instrumenter.compiler.toolchain import HOST_TARGET, Toolchain
from instrumenter.errors import SourceError
from instrumenter.projects.build_advice import build_failure, with_make_clean
from instrumenter.projects.old_objects import compiled_files
from instrumenter.projects.project import Project, ProjectRecipe
from instrumenter.spec.software_metrics import MetricSpec

METRICS = {"helpers": MetricSpec(event="entry", function="helper")}
SOURCES = {
    "a.c": "static __attribute__((noinline)) int helper(int n) { return n + 1; }\nint a(int n) { return helper(n); }\n",
    "main.c": "int a(int n);\nint b(int n);\nint main(void) { return a(b(-1)); }\n",
    "b.c": "static __attribute__((noinline)) int helper(int n) { return n; }\nint b(int n) { return helper(n); }\n",
}
MAKEFILES = {
    "object": "app: a.o b.o main.o\n\t$(CC) $^ -o $@\n",
    "archive": "app: main.o libab.a\n\t$(CC) main.o -L. -lab -o $@\nlibab.a: a.o b.o\n\t$(AR) rcs $@ $^\n",
    "thin": "app: main.o libab.a\n\t$(CC) main.o libab.a -o $@\nlibab.a: a.o b.o\n\t$(AR) rcsT $@ $^\n",
}
CLEAN = "clean:\n\trm -f *.o *.a app\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Three sources, and an object of one of them that is newer than it."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
        os.utime(folder / name, (1_000_000_000, 1_000_000_000))
    Toolchain().compile(folder / "b.c", ["-O1"], folder / "b.o")
    return folder


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize(("makefile", "name"), [
    ("object", "b.o"), ("archive", "b.o in libab.a"), ("thin", "b.o in libab.a"),
])  # fmt: skip
def test_an_object_of_an_earlier_build_is_no_part_of_a_program(project: Path, makefile: str, name: str) -> None:
    """It was linked without its counters, and what it counts was missing without a word."""
    (project / "Makefile").write_text(MAKEFILES[makefile] + CLEAN)
    command = "make CC=$CC AR=$AR"
    with pytest.raises(SourceError) as caught:
        ProjectRecipe.of(Project(project, command, "app")).build(METRICS)
    cleaned = f"{command} clean && {command}"
    assert str(caught.value) == (
        f"'app' is linked from {name}, which an earlier build has left in the directory, and which this one takes as "
        f"it is. Remove it from the directory, or let the command do that in its copy: `{cleaned}`"
    )
    if makefile == "object":
        assert ProjectRecipe.of(Project(project, cleaned, "app")).build(METRICS).sites == {"helpers": 2}


@pytest.mark.usefixtures("own_cache")
def test_objects_that_come_without_sources_are_told(project: Path) -> None:
    (project / "b.c").unlink()
    (project / "Makefile").write_text(MAKEFILES["object"])
    build = ProjectRecipe.of(Project(project, "make CC=$CC", "app")).build(METRICS)
    assert build.sites == {"helpers": 1}
    assert "Compiled before the build, so nothing is counted in it: b.o" in build.notices


@pytest.mark.usefixtures("own_cache")
def test_a_program_of_an_earlier_build_is_told(project: Path) -> None:
    Toolchain().link([project / name for name in SOURCES], ["-O1"], project / "app")
    (project / "Makefile").write_text("app: a.c b.c main.c\n\t$(CC) $^ -o $@\n" + CLEAN)
    with pytest.raises(SourceError, match=r"'app' was not made by this build: it lies in the directory, .*make clean"):
        ProjectRecipe.of(Project(project, "make", "app")).build(METRICS)


def test_objects_of_this_machine_are_old_ones(project: Path) -> None:
    """The advice was to link with $CC, which the build did."""
    output = "ld.lld: error: b.o is incompatible with elf64lriscv\nmake: *** [Makefile:2: app] Error 1\n"
    failure = build_failure("make CC=$CC", "failed", output, "log", "riscv64-linux-musl", [], project, ["b.o", "ab.o"])
    assert "It links b.o, which an earlier build has left" in str(failure)
    assert str(failure).endswith("`make CC=$CC clean && make CC=$CC`")
    assert not failure.other_compiler


@pytest.mark.parametrize(("command", "advised"), [
    ("./configure --host=$HOST && make -j4", "./configure --host=$HOST && make -j4 clean && make -j4"),
    ("PATH=$COMPILERS:$PATH make", "PATH=$COMPILERS:$PATH make clean && PATH=$COMPILERS:$PATH make"),
    ("export PATH=$COMPILERS:$PATH; make", "export PATH=$COMPILERS:$PATH; make clean && make"),
    ("make -C src CC=$CC app", "make -C src CC=$CC clean && make -C src CC=$CC app"),
    ("./build.sh", ""),
])  # fmt: skip
def test_a_command_is_advised_that_cleans_its_copy_first(command: str, advised: str) -> None:
    assert with_make_clean(command, 2).partition("`")[2].rstrip("`") == advised


def test_members_of_archives_are_known_by_their_contents(tmp_path: Path) -> None:
    names = ["short.o", "a_name_that_is_longer_than_sixteen.o", "odd.o"]
    toolchain = Toolchain(HOST_TARGET)
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(b"\x7fELF" + bytes([number]) * (number + 1))
    for archive, how in (("plain.a", "qcS"), ("thin.a", "qcTS")):
        subprocess.run([*toolchain.tool("ar"), how, archive, *names], cwd=tmp_path, check=True)
    found = compiled_files(tmp_path)
    single = {name: found[name]["contents"][name] for name in names}
    assert found["plain.a"]["contents"] == single
    assert {Path(name).name: content for name, content in found["thin.a"]["contents"].items()} == single
