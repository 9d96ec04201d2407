"""The time that a build took, by which `measure run --dry-run` tells that of the next ones: without libraries, which
only the first one needs to make."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from instrumenter.building.generated_sources import preprocess_all
from instrumenter.building.program_build import Recipe
from instrumenter.compiler.toolchain import Toolchain
from instrumenter.projects.project import Project, ProjectRecipe

LIBRARY_SECONDS = 2.0


def new_program() -> str:
    """The text of a program that no earlier run of the tests left in the store of builds."""
    return f"long here = {time.time_ns()}; int main(void) {{ return 0; }}\n"


@pytest.fixture
def missing_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's libraries seem to be missing, and take `LIBRARY_SECONDS` to make."""

    def make(self: Toolchain, *, common: bool = False) -> bool:
        time.sleep(LIBRARY_SECONDS)
        ready.touch()
        return True

    ready = tmp_path / "ready"
    monkeypatch.setattr(Toolchain, "_ready", lambda self, cplusplus, lto=False: ready)
    monkeypatch.setattr(Toolchain, "lacks_c_library", property(lambda self: not ready.exists()))
    monkeypatch.setattr(Toolchain, "_make_c_library", make)


@pytest.mark.usefixtures("missing_library")
@pytest.mark.parametrize("relinkable", [False, True])
def test_the_library_is_no_part_of_the_time_of_a_program(tmp_path: Path, relinkable: bool) -> None:
    source = tmp_path / "program.c"
    source.write_text(new_program())
    started = time.perf_counter()
    build = Recipe(preprocess_all([source], ("-O1",), Toolchain()), ("-O1",), relinkable=relinkable).build({})
    assert (tmp_path / "ready").exists()
    assert 0 < build.seconds < time.perf_counter() - started - LIBRARY_SECONDS


@pytest.mark.usefixtures("missing_library")
def test_the_library_is_no_part_of_the_time_of_a_project(tmp_path: Path) -> None:
    """Nor is that of C++, which a link of its build command makes: the listing tells its time."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "program.c").write_text(new_program())
    entry = {"kind": "link", "output": "other", "sha256": "", "library_seconds": LIBRARY_SECONDS}
    (project / "entry.json").write_text(f"{json.dumps(entry)}\n")
    command = f"$CC program.c -o program && sleep {LIBRARY_SECONDS} && cat entry.json >> $INSTRUMENT_LOG"
    started = time.perf_counter()
    build = ProjectRecipe.of(Project(project, command, "program"), None).build({})
    assert 0 < build.seconds < time.perf_counter() - started - 2 * LIBRARY_SECONDS
