"""What is said of a build that failed in a project whose submodules were not fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrumenter.projects.build_advice import failed_build
from instrumenter.projects.empty_submodules import empty_submodules

MODULES = """\
[submodule "one"]
\tpath = third/one
\turl = https://example.org/one
[submodule "two"]
\tpath = two
[submodule "outside"]
\tpath = ../elsewhere
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "project"
    (tree / "third/one").mkdir(parents=True)
    (tree / "two").mkdir()
    (tree / ".gitmodules").write_text(MODULES)
    return tree


def message(tree: Path, output: str) -> str:
    return failed_build("make", "failed", output, "log", "riscv64-linux-musl", (), tree).splitlines()[-1]


def test_folders_without_files_are_empty(tree: Path) -> None:
    assert empty_submodules(tree) == ["third/one", "two"]
    (tree / "two/a.c").write_text("")
    (tree / "third/one/.git").write_text("gitdir: ../../.git/modules/one")
    assert empty_submodules(tree) == ["third/one"]
    (tree / ".gitmodules").unlink()
    assert empty_submodules(tree) == []


@pytest.mark.parametrize(
    "output",
    [
        "a.c:1:10: fatal error: 'one.h' file not found",
        "CMake Error at CMakeLists.txt:6 (add_library):\n  Cannot find source file:\n\n    third/one/one.c",
        "make: *** No rule to make target 'third/one/one.c', needed by 'app'.  Stop.",
        "make: *** third/one: No such file or directory.  Stop.",
    ],
)
def test_a_build_that_misses_something_says_how_to_fetch_them(tree: Path, output: str) -> None:
    assert message(tree, output) == (
        "A part of the project is missing: it has 2 submodules of git, which are empty (third/one, two). "
        "`git submodule update --init --recursive` in the project fetches that"
    )
    (tree / "two/a.c").write_text("")
    assert "it has a submodule of git, which is empty (third/one)." in message(tree, output)
    (tree / "third/one/one.c").write_text("")
    assert "submodule" not in message(tree, output)


def test_other_errors_are_not_blamed_on_them(tree: Path) -> None:
    assert "submodule" not in message(tree, "a.c:1:2: error: expected ';'")
