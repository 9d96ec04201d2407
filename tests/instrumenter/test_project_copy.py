"""What of a project is copied, hashed and noticed: links, what earlier configurations left, the environment, and files
outside of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from instrumenter.projects.project import Project, ProjectRecipe
from instrumenter.projects.project_copy import copy_tree, tree_digest
from instrumenter.projects.project_tree import environment_digest
from tests.instrumenter.guest_output import output_of


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a source, a folder, and a shared folder beside it."""
    for name in ("project/sub", "shared/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project/app.c").write_text("int main(void) { return 0; }\n")
    (tmp_path / "project/sub/data").write_text("data")
    (tmp_path / "shared/n.h").write_text("#define N 1\n")
    (tmp_path / "shared/deep/m.h").write_text("#define M 1\n")
    return tmp_path / "project"


@pytest.mark.parametrize("target", ["../shared/n.h", "{shared}/n.h", "../shared", "{shared}", "inner"])
def test_what_a_link_out_of_the_project_leads_to_is_part_of_it(project: Path, tmp_path: Path, target: str) -> None:
    (project / "inner").symlink_to(tmp_path / "shared")
    if target != "inner":
        (project / "link").symlink_to(target.format(shared=tmp_path / "shared"))
    before = tree_digest(project)
    copy_tree(project, tmp_path / "copy")
    link = tmp_path / "copy" / ("inner" if target == "inner" else "link")
    header = link / "n.h" if link.is_dir() else link
    assert not link.is_symlink()
    assert header.read_text() == "#define N 1\n"
    assert os.access(header, os.W_OK)
    (tmp_path / "shared/n.h").write_text("#define N 2\n")
    assert tree_digest(project) != before


def test_a_link_inside_stays_one_and_leads_to_the_copy(project: Path, tmp_path: Path) -> None:
    (project / "relative").symlink_to("sub/data")
    (project / "whole").symlink_to(project / "sub")
    (project / "nowhere").symlink_to("made/later")
    (project / "null").symlink_to("/dev/null")
    (tmp_path / "shared/back").symlink_to(project)
    (project / "shared").symlink_to("../shared")
    (project / "around").symlink_to("..")
    copy = tmp_path / "other/copy"
    copy.parent.mkdir()
    copy_tree(project, copy)
    links = {name: os.readlink(copy / name) for name in ("relative", "whole", "nowhere", "null", "around")}
    assert links == {
        "relative": "sub/data", "whole": "sub", "nowhere": "made/later", "null": "/dev/null", "around": str(tmp_path),
    }  # fmt: skip
    assert (copy / "shared/deep/m.h").is_file()
    assert (copy / "shared/back").is_symlink()  # without end otherwise


def test_what_cmake_and_meson_configured_elsewhere_is_left_out(project: Path, tmp_path: Path) -> None:
    before = tree_digest(project)
    for name in ("build/CMakeCache.txt", "build/CMakeFiles/x", "CMakeCache.txt", "CMakeFiles/y"):
        (project / name).parent.mkdir(exist_ok=True, parents=True)
        (project / name).write_text("made here")
    (project / "CMakeLists.txt").write_text("project(p)\n")
    (project / "out/meson-private").mkdir(parents=True)
    (project / "out/build.ninja").touch()
    copy_tree(project, tmp_path / "copy")
    kept = sorted(str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*"))
    assert kept == ["CMakeLists.txt", "app.c", "build", "out", "sub", "sub/data"]
    whole = tree_digest(project)
    (project / "build/app.o").touch()
    assert tree_digest(project) == whole != before


@pytest.mark.parametrize(("name", "value", "counts"), [
    ("M", "7", True), ("CMAKE_BUILD_TYPE", "Debug", True), ("CFLAGS", "-O0", False), ("TERM", "dumb", False),
    ("SSH_TTY", "/dev/pts/9", False), ("OLDPWD", "/", False), ("CC", "gcc", False), ("GITHUB_RUN_ID", "1", False),
])  # fmt: skip
def test_the_environment_of_a_build_counts(
    name: str, value: str, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = environment_digest("make")
    monkeypatch.setenv(name, value)
    assert (environment_digest("make") != before) == counts


def test_another_tool_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    before = [environment_digest(command) for command in ("./b", "generate && ./b")]
    (tmp_path / "generate").touch(0o755)
    after = [environment_digest(command) for command in ("./b", "generate && ./b")]
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False]


@pytest.mark.usefixtures("own_cache")
def test_a_header_outside_of_the_project_is_noticed(project: Path, tmp_path: Path) -> None:
    """By the names of headers in headers, too; the build's own files of dependencies stay as they are."""
    header = tmp_path / "shared/n.h"
    (project / "inner.h").write_text(f'#include "{header}"\n')
    (project / "app.c").write_text('#include <stdio.h>\n#include "inner.h"\nint main(void) { printf("%d", N); }\n')
    command = "$CC -MMD -c app.c && $CC app.o -o app && grep -q inner.h app.d"
    seen = []
    for number in (1, 2, 1):
        header.write_text(f"#define N {number}\n")
        recipe = ProjectRecipe.of(Project(project, command, "app"))
        build = recipe.build({})
        assert output_of(build.elf_path) == str(number)
        seen.append((build.key, recipe.program_digest))
    assert seen[0] == seen[2] != seen[1]
    assert seen[0][1] != seen[1][1]
    assert ProjectRecipe.of(Project(project, command, "app")).find({}) == build
