"""Projects that make shared libraries: their programs, which are linked statically, have what they need of them."""

from __future__ import annotations

import functools
import operator
from dataclasses import replace
from pathlib import Path

import pytest

from instrumenter.projects.project import Project, ProjectRecipe
from instrumenter.spec.software_metrics import MetricSpec
from tests.instrumenter.guest_output import execute

METRICS = {
    "steps": MetricSpec(event="loop", function="mix"),
    "turns": MetricSpec(event="entry", function="turn"),
    "rounds": MetricSpec(event="loop", function="main"),
}
EXPECTED = {"steps": 5 * 6, "turns": 5 * 6 // 2 + 1, "rounds": 5}
FILES = {
    "base.c": "int turn(int n) { return n ^ 7; }\n",
    "mix.c": "int turn(int);\nint mix(int n) {\n    int sum = 0;\n"
    "    for (int i = 0; i < 6; i++) sum = sum * 31 + (i & 1 ? turn(n) : i);\n    return sum;\n}\n",
    "app.c": "#include <stdio.h>\nint mix(int);\nint turn(int);\nint main(void) {\n    int sum = turn(1);\n"
    '    for (int i = 0; i < 5; i++) sum ^= mix(i);\n    printf("%d\\n", sum);\n    return 0;\n}\n',
}
# As libtool calls the compiler: a library that is made of a convenience library, one that needs it, and programs that
# name them in several ways.
BUILD = """set -e
mkdir .libs
for each in base mix app; do $CC -O1 -c $each.c -fPIC -DPIC -o .libs/$each.o; done
$AR cr .libs/libpart.a .libs/base.o
$CC -shared -fPIC -DPIC -Wl,--whole-archive .libs/libpart.a -Wl,--no-whole-archive -O1 -Wl,-soname -Wl,libbase.so.1 \
  -Wl,-version-script -Wl,base.ver -o .libs/libbase.so.1.0.2
(cd .libs; ln -s libbase.so.1.0.2 libbase.so.1; ln -s libbase.so.1.0.2 libbase.so)
$CC -shared .libs/mix.o -Xlinker -rpath -Xlinker $PWD -L.libs -l:libbase.so.1 -O1 -Wl,-h,libmix.so -o .libs/libmix.so
$CC -O1 -o .libs/by_path .libs/app.o ./.libs/libmix.so -Wl,-rpath -Wl,/usr/local/lib
$CC -O1 -o .libs/by_name .libs/app.o .libs/libmix.so -L .libs -lmix -lbase -lm -Wl,-rpath-link -Wl,.libs
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared") / "a project"
    folder.mkdir()
    for name, text in {**FILES, "base.ver": "{ global: turn; local: *; };\n"}.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("program", ["by_path", "by_name"])
def test_programs_have_the_shared_libraries_of_libtool_and_their_counts(directory: Path, program: str) -> None:
    recipe = ProjectRecipe.of(Project(directory, BUILD, f".libs/{program}"), relinkable=True)
    build = replace(recipe, atomic=False).build(METRICS)
    assert build.relinkable
    assert build.sites == {"steps": 1, "turns": 1, "rounds": 1}
    assert execute(build) == (f"{functools.reduce(operator.xor, map(mixed, range(5)), 1 ^ 7)}\n", EXPECTED)


def mixed(n: int) -> int:
    """What ``mix`` returns."""
    total = 0
    for i in range(6):
        total = 31 * total + ((n ^ 7) if i % 2 else i)
    return total
