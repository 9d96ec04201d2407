"""Names of sources and places in a project: from its root, wherever the compiler ran, and whatever it read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from instrumenter.errors import SpecError
from instrumenter.projects.project import Project, ProjectRecipe
from instrumenter.spec.software_metrics import MetricSpec
from tests.instrumenter.small_project import project_with

PIPED = "int piped(int n) { return n + 1; }"
BUILD = f"""set -e
$CC -O1 -Iinc -c app.c
(cd src && $CC -O1 -I../inc -c part.c -o ../part.o && $CC -O1 -I$PWD/../inc -DSECOND -c ./part.c)
echo '{PIPED}' | $CC -O1 -x c - -c -o piped.o
$CC app.o part.o src/part.o piped.o -o app
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = project_with(
        tmp_path,
        '#include "twice.h"\nint one(int), two(int), piped(int);\n'
        "int main(void) { return !(twice(1) + one(2) + two(3) + piped(4)); }\n",
    )
    (folder / "inc").mkdir()
    (folder / "src").mkdir()
    (folder / "inc/twice.h").write_text("static int twice(int n) { return 2 * n; }\n")
    (folder / "src/part.c").write_text(
        '#include "twice.h"\n#ifdef SECOND\nint two(int n) { return twice(n); }\n#else\n'
        "int one(int n) { return twice(n); }\n#endif\n"
    )
    return folder


def recipe(directory: Path) -> ProjectRecipe:
    return replace(ProjectRecipe.of(Project(directory, BUILD, "app")), atomic=False)


def test_places_are_named_from_the_project(directory: Path) -> None:
    # One header had a name for each directory in which the compiler ran, and a source its name without its folder.
    metrics = {
        "twice": MetricSpec(event="entry", function="twice"), "one": MetricSpec(event="entry", function="one"),
    }  # fmt: skip
    build = recipe(directory).build(metrics)
    assert build.places == {"twice": {"inc/twice.h:1": 3}, "one": {"src/part.c:5": 1}}
    assert build.warnings == (
        "standard input of the compiler for piped.o: not instrumented: only sources in files are instrumented",
    )


def test_a_source_from_standard_input_is_told_where_a_function_has_no_body(directory: Path) -> None:
    # It was missing among the sources that are not instrumented.
    with pytest.raises(SpecError) as caught:
        recipe(directory).build({"x": MetricSpec(event="entry", function="piped")})
    assert str(caught.value).splitlines()[1:] == [
        "Not instrumented:",
        "standard input of the compiler for piped.o: not instrumented: only sources in files are instrumented",
    ]
