"""The ``instrument`` command: what it writes and prints, and how it refuses bad input."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from instrumenter.cli import main

PROGRAM = """\
#include <stdio.h>
int n;
static int f(int x) { return x; }
int main(void) { n = f(2); puts("done"); return 0; }
"""
SPEC = """\
sources: [program.c]
flags: [-O1, -DUNUSED=1]
target: host
metrics:
  calls: {event: call, callee: f}
  writes: {event: write, variable: n, add: x_y}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program and a spec that is right but for what is added."""
    (tmp_path / "program.c").write_text(PROGRAM)
    (tmp_path / "spec.yaml").write_text(SPEC.replace(", add: x_y", ""))
    return tmp_path


def instrument(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, [str(folder / "spec.yaml"), "--out", str(folder / "out"), *options])


def test_writes_sources_counters_and_how_to_compile(folder: Path) -> None:
    result = instrument(folder)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "calls: call f, at 1 place",
        "writes: write n, at 1 place",
        f"written to {folder}/out",
    ]
    assert sorted(os.listdir(folder / "out")) == [
        "0_program.c", "compile.sh", "counters.txt", "measure_counters.c",
    ]  # fmt: skip
    assert "(__measure_counters[1]++, n = (__measure_counters[0]++, f(2)))" in (folder / "out/0_program.c").read_text()
    assert (folder / "out/counters.txt").read_text() == (
        "metric\tsymbol\toffset_bytes\ncalls\t__measure_counters\t0\nwrites\t__measure_counters\t8\n"
    )
    done = subprocess.run([folder / "out/compile.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([folder / "out/program"], capture_output=True, check=True).stdout == b"done\n"


def test_builds_into_a_directory_that_has_things_in_it(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out/mine.txt").write_text("kept")
    (folder / "out/0_program.c").write_text("old")
    assert instrument(folder, "--build").exit_code == 0
    assert subprocess.run([folder / "out/program"], capture_output=True, check=True).stdout == b"done\n"
    assert (folder / "out/mine.txt").read_text() == "kept"
    assert "measure" in (folder / "out/0_program.c").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["out", "program.c", "spec.yaml"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("callee: f", "callee: g", "{spec}:5: metric 'calls': no callee 'g' in {folder}/program.c"),
        ("callee: f", "calee: f",
         "{spec}:5: metrics.calls.calee: unknown key, expected one of: event, function, callee, variable, field, "
         "file, line, add, method, local, sampled; did you mean 'callee'?"),
        ("event: write", "event: writ",
         "{spec}:6: metrics.writes.event: got 'writ', expected 'call', 'entry', 'exit', 'write', 'loop', 'branch', "
         "'alloc' or 'alloc_bytes'"),
        ("program.c", "porgram.c", "{spec}:1: no such source file: {folder}/porgram.c"),
        ("sources: [program.c]", "sources: []",
         "{spec}:1: sources: got none, expected at least 1"),
        ("sources: [program.c]", "sources: program.c", "{spec}:1: sources: got 'program.c', expected a list"),
        ("target: host", "place: packed\ntarget: host",
         "{spec}:3: place: unknown key, expected one of: sources, flags, libraries, metrics, placement, volatile, "
         "atomic, target; did you mean 'placement'?"),
        ("target: host", "flags: [-O2]", "{spec}:3: flags: given twice, first in line 2"),
        ("target: host", "target: [host",
         "{spec}:4: not YAML: expected ',' or ']', but got ':' (while parsing a flow sequence, which begins at line "
         "3)"),
        ("  calls:", "  'a b':",
         "{spec}:4: metrics: got the metric name 'a b', expected letters, digits, '_', '.' and '-'"),
        ("variable: n", "variable: n, add: x_y",
         "{spec}:6: metric 'writes': the expression to add, 'x_y', is not valid (use of undeclared identifier "
         "'x_y') where the event happens, {folder}/program.c:4"),
    ],
)  # fmt: skip
def test_bad_input(folder: Path, old: str, new: str, message: str) -> None:
    spec = folder / "spec.yaml"
    spec.write_text(spec.read_text().replace(old, new))
    result = instrument(folder, "--build")
    assert result.exit_code == 2
    expected = message.format(spec=spec, folder=folder).splitlines()
    assert result.stderr.splitlines() == [f"instrument: {line}" for line in expected]
    assert not (folder / "out").exists()


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for content, message in [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe", "is not UTF-8 text"),
    ]:
        if content is not None:
            (tmp_path / "spec.yaml").write_bytes(content)
        result = instrument(tmp_path)
        assert (result.exit_code, result.stderr) == (2, f"instrument: {tmp_path}/spec.yaml: {message}\n")
    (tmp_path / "spec.yaml").write_text("- a\n")
    result = instrument(tmp_path)
    assert (result.exit_code, result.stderr) == (
        2, f"instrument: {tmp_path}/spec.yaml:1: got a list, expected a mapping of keys to values\n",
    )  # fmt: skip


def test_a_program_that_does_not_compile_leaves_nothing(folder: Path) -> None:
    (folder / "program.c").write_text(PROGRAM + "int undefined(void); int g(void) { return undefined(); }\n")
    result = instrument(folder, "--build")
    assert result.exit_code == 1
    assert result.stderr.startswith("instrument: the program does not compile:\n")
    assert "undefined" in result.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["program.c", "spec.yaml"]


def test_a_place_that_cannot_be_written_to(folder: Path) -> None:
    (folder / "file").write_text("")
    result = CliRunner().invoke(main, [str(folder / "spec.yaml"), "--out", str(folder / "file/out")])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"instrument: cannot write to {folder}/file/out: ")


def test_help_teaches_and_is_quick() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert "nodes:  {event: entry, function: search}" in result.stdout
    assert "Exit status: 0 done; 1" in result.stdout
    heavy = (
        "import sys, instrumenter.cli;"
        "print([name for name in ('clang', 'numpy', 'pydantic', 'elftools') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
