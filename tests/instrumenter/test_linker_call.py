"""Makefiles that call ``ld`` by its name: partial links of objects for the emulated machine, and what is not."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from instrumenter.compiler.toolchain import HOST_TARGET
from instrumenter.projects.project import Project, ProjectRecipe
from instrumenter.projects.project_tree import build_environment, write_compilers
from instrumenter.spec.software_metrics import MetricSpec
from tests.instrumenter.guest_output import execute

FILES = {
    "one.c": "int one(int n) { return n + 1; }\n",
    "two.c": "int one(int); int two(int n) { int s = 0; for (int i = 0; i < n; i++) s += one(i); return s; }\n",
    "main.c": "#include <stdio.h>\nint two(int); extern char _binary_words_txt_start[];\n"
    'int main(void) { return printf("%.5s %d\\n", _binary_words_txt_start, two(9)) < 0; }\n',
    "words.txt": "words",
}
BUILD = """set -e
for each in one two main; do $CC -O1 -fPIC -c $each.c; done
ld -r -o part.o one.o two.o
ld -r -b binary -o words.o words.txt
ld -shared -soname libpart.so.1 -o libpart.so.1 part.o
ld -r -m elf64lriscv main.o words.o -o all.o
$CC all.o libpart.so.1 -o app
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def test_partial_links_by_ld_keep_their_counters(directory: Path) -> None:
    # The linker of this machine refused the objects, and no variable of a makefile says which one to take.
    metrics = {"ones": MetricSpec(event="entry", function="one"), "turns": MetricSpec(event="loop", function="two")}
    build = replace(ProjectRecipe.of(Project(directory, BUILD, "app")), atomic=False).build(metrics)
    assert execute(build) == ("words 45\n", {"ones": 9, "turns": 9})


def test_ld_links_no_program_and_leaves_this_machines_objects_to_its_linker(directory: Path) -> None:
    commands = directory / "bin"
    write_compilers(commands)
    others = directory / "others"
    others.mkdir()
    (others / "ld").write_text('#!/bin/sh\necho "other: $*"\n')
    (others / "ld").chmod(0o755)
    environment = build_environment(commands, {})
    environment["PATH"] = f"{commands}:{others}:{environment['PATH']}"

    def ld(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ld", *words], cwd=directory, env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    subprocess.run([commands / "instrument-cc", "-c", "one.c"], cwd=directory, env=environment, check=True)
    assert "LLD" in ld("-v").stdout
    refused = ld("-o", "app", "one.o", "-lc")
    assert refused.returncode == 1
    assert "got a call of ld that links a program" in refused.stderr
    assert "LD=$CC" in refused.stderr
    assert ld("-o", "app", "missing.o").stdout == "other: -o app missing.o\n"
    shutil.rmtree(commands)
    write_compilers(commands, HOST_TARGET)
    assert ld("-r", "-o", "all.o", "one.o").stdout == "other: -r -o all.o one.o\n"
