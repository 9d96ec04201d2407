"""What is told of how a project was compiled: without optimisation, with the command that compiles it otherwise; and
where its counters are, by one name for each source."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrumenter.projects.program_notices import optimisation_notices
from instrumenter.projects.project import Project, ProjectRecipe
from instrumenter.spec.software_metrics import MetricSpec


def unit(name: str, words: str, driver: str = "cc", sites: int = 1) -> dict[str, object]:
    return {"name": name, "words": words.split(), "driver": driver, "sites": {"m": sites} if sites else {}}


@pytest.mark.parametrize(
    ("words", "is_told"),
    [
        ("-g", True),
        ("-O2", False),
        ("-O", False),
        ("-Og", False),
        ("-O2 -O0", True),
        ("-O0 -Os", False),
        ("-Oz", False),
    ],
)
def test_the_last_level_counts(words: str, is_told: bool) -> None:
    told = optimisation_notices([unit("a.c", words)], "make CC=$CC")
    assert bool(told) == is_told


def test_the_command_is_for_the_languages_of_the_sources_that_count() -> None:
    units = [unit("a.c", "-g"), unit("b.cpp", "-g", "c++"), unit("c.c", "-O2"), unit("d.c", "-g", sites=0)]
    (told,) = optimisation_notices(units, "make CC=$CC CXX=$CXX")
    assert told.startswith("Compiled without optimisation (no -O in the flags): a.c, b.cpp. An optimised program ")
    assert told.endswith('`make CC="$CC -O2" CXX="$CXX -O2"`')
    (told,) = optimisation_notices(units[1:2], "cmake -S . -B build && cmake --build build")
    assert '-DCMAKE_CXX_FLAGS="-O2"' in told
    (told,) = optimisation_notices([unit(f"{n}.c", "-g") for n in range(9)], "make")
    assert "0.c, 1.c, 2.c and 6 more" in told


def test_what_cannot_be_added_by_the_command_is_left_to_the_user() -> None:
    (told,) = optimisation_notices([unit("a.c", "-O0")], "make CC=$CC")
    assert "(-O0 in the flags)" in told
    assert told.endswith("give the build command flags with -O2")


@pytest.mark.usefixtures("own_cache")
def test_a_file_has_one_name_however_the_build_calls_it(tmp_path: Path) -> None:
    src = tmp_path / "demo" / "src"
    src.mkdir(parents=True)
    (src / "step.h").write_text("static int step(int n) { return n + 1; }\n")
    (src / "one.c").write_text('#include "step.h"\nint one(int n) { return step(n); }\n')
    (src / "main.c").write_text('#include "step.h"\nint one(int);\nint main(void) { return step(one(-2)); }\n')
    command = '$CC -O1 -c src//one.c && $CC -O1 one.o ./src/./main.c "-I$PWD/src/." -o app'
    project = ProjectRecipe.of(Project(tmp_path / "demo", command, "app"))
    build = project.build({"steps": MetricSpec(event="entry", function="step")})
    assert build.places == {"steps": {"src/step.h:1": 2}}
