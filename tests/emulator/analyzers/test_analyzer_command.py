"""``emulate --analyzer``: what a user types, and what is said."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from instrumenter.building.program_build import build_program

ROOT = Path(__file__).parent.parent.parent.parent


def emulate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    code = "from emulator.cli import main; main()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_several_analyzers_between_two_places(small: Path, steps: list[Any], tmp_path: Path) -> None:
    done = emulate(
        "--stats", "--analyzer", "mix by=mnemonic top=2", "--analyzer", f"bbv interval=1k out={tmp_path / 'x.bb'}",
        "--from", "main", "--", small, "3",
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.strip()
    begin = [step.pc for step in steps].index(_address(small, "main"))
    lines = done.stderr.splitlines()
    assert f"{len(steps):>16,}  instructions" in lines
    assert f"{len(steps) - begin:>16,}          instructions" in lines
    assert any(line.endswith("x.bb") for line in lines)


def test_a_selection(small: Path, steps: list[Any]) -> None:
    done = emulate("--analyzer", "caches", "--select", "symbol=walk class=load", "--", small, "3")
    assert done.returncode == 0
    assert "  accesses\n" in done.stderr


@pytest.mark.parametrize("place", ["100M", "seldom"])
def test_a_place_that_was_not_reached_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "a.c").write_text(
        "int seldom(void) { return 1; } int main(int n, char **a) { return n > 9 ? seldom() : 0; }"
    )
    program = build_program([tmp_path / "a.c"], ["-O0"]).elf_path
    done = emulate("--analyzer", "mix", "--from", place, "--", program)
    assert done.returncode == 0
    assert re.search(
        rf"^emulate: the program ended after [\d,]+ instructions, before --from {place}$", done.stderr, re.M
    )


def test_the_end_counts_from_the_beginning_on(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(
        "#define KEPT __attribute__((noinline))\n"
        "volatile int kept; KEPT void end(void) { kept++; } KEPT void step(void) { kept++; }"
        "int main(void) { end(); for (int i = 0; i < 5; i++) step(); end();"
        " for (int i = 0; i < 1000; i++) step(); return 0; }"
    )
    program = build_program([tmp_path / "a.c"], ["-O1"]).elf_path

    def counted(*options: str) -> int:
        done = emulate("--analyzer", "mix", *options, "--", program)
        assert done.returncode == 0, done.stderr
        found = re.search(r"^\s*([\d,]+)\s+instructions", done.stderr, re.M)
        assert found is not None, done.stderr
        return int(found[1].replace(",", ""))

    one_step = counted("--from", "step", "--until", "step")
    assert 0 < one_step < 20
    assert 4 * one_step < counted("--from", "step", "--until", "end") < 6 * one_step
    assert counted("--from", "step") > 1000 * one_step
    before = emulate("--analyzer", "mix", "--from", "1k", "--until", "1000", "--", program)
    assert before.returncode == 2
    assert "got 1000, expected more than 1k of --from" in before.stderr


def test_the_list() -> None:
    done = emulate("--list-analyzers")
    assert done.returncode == 0
    for name in ("mix", "caches", "branches", "values", "callgraph", "footprint", "coverage", "bbv"):
        assert any(line.startswith(name + " ") for line in done.stdout.splitlines())
    for limit in (
        "tables of ``entries`` counters each, a power of two from 1024 on.",
        "a table of ``entries`` rows, a power of two.",
        "``out``: the file of a picture to write, which ends in .png, .svg or .pdf.",
    ):
        assert limit in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--analyzer", "cachse"), "analyzer 'cachse' is unknown; did you mean caches?"),
        (("--analyzer", "caches", "--select", "clas=load"), "got 'clas=load', expected KEY=VALUE,VALUE"),
        (("--select", "class=load"), "got it without --analyzer, expected both: see --list-analyzers"),
        (("--analyzer", "callgraph", "--select", "symbol=walk"), "callgraph: got a selection, but it is always of the"),
        (("--analyzer", "bbv", "--select", "symbol=walk"), "bbv: got a selection, but it is always of the whole"),
        (("--analyzer", "mix", "--from", "mian"), "it has no function 'mian'; did you mean main"),
        (("--analyzer", "mix", "--select", "symbol=wakl"), "it has no function 'wakl'; did you mean walk"),
        (("--analyzer", "mix", "--until", "0x"), "expected a function, an address such as 0x10400"),
        (
            ("--analyzer", "footprint out=x.csv"),
            "out=x.csv: expected the name of a picture, ending in .png, .svg, .pdf",
        ),
        (("--stat",), "No such option '--stat'"),  # it was taken for the program
    ],
)
def test_mistakes(small: Path, arguments: tuple[str, ...], message: str) -> None:
    done = emulate(*arguments, "--", small)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_an_analyzer_that_cannot_write_its_file_has_no_report_and_the_others_have(small: Path, tmp_path: Path) -> None:
    # It said that the file cannot be written, and then what is in it.
    gone = tmp_path / "gone" / "x.info"
    done = emulate("--analyzer", f"coverage out={gone}", "--analyzer", "mix", "--", small, "3")
    assert done.returncode == 1
    assert f"emulate: coverage: {gone}: cannot be written" in done.stderr
    assert " lines of " not in done.stderr
    assert "  instructions\n" in done.stderr


def _address(program: Path, name: str) -> int:
    from emulator.linux.loader.elf import load_image

    symbol = load_image(program).find_symbol(name)
    assert symbol is not None
    return symbol.address
