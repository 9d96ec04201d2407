"""Levels of optimisation mean what they mean to gcc and clang, though the compiler has fewer of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrumenter.building.program_build import build_program
from instrumenter.compiler.toolchain import Toolchain, as_optimised_link, as_other_compilers

CHESS = Path(__file__).parents[2] / "experiments/workloads/chess.c"
ASSERTS = "#include <assert.h>\nint f(int x) { assert(x > 41); return x; }\n"


def test_levels_differ(tmp_path: Path) -> None:
    """-O1 and -O3 gave the code of -O2, to the byte, and -Og that of -O0."""
    toolchain, sizes = Toolchain(), {}
    for level in ("-O0", "-Og", "-O1", "-O2", "-O3"):
        toolchain.compile(CHESS, [level, "-g0"], tmp_path / "chess.o")
        sizes[level] = (tmp_path / "chess.o").stat().st_size
    assert sizes["-O1"] != sizes["-O2"] != sizes["-O3"]
    assert sizes["-Og"] < sizes["-O0"]


@pytest.mark.parametrize("flags", [["-O2"], ["-O3"], ["-Os"]])
def test_assertions_are_there_unless_the_program_leaves_them_out(tmp_path: Path, flags: list[str]) -> None:
    """NDEBUG was defined at every level but -O0."""
    (tmp_path / "a.c").write_text(ASSERTS)
    toolchain = Toolchain()
    assert "x > 41" in toolchain.preprocess(tmp_path / "a.c", flags)
    assert "__assert_fail" in toolchain.preprocess(tmp_path / "a.c", flags).rpartition("int f")[2]
    assert "__assert_fail" not in toolchain.preprocess(tmp_path / "a.c", [*flags, "-DNDEBUG"]).rpartition("int f")[2]


def test_the_last_level_counts() -> None:
    assert as_other_compilers(["-c", "a.c"]) == []
    assert as_other_compilers(["-O3", "-c", "a.c", "-O1"]) == ["-UNDEBUG", "-Xclang", "-O1"]
    assert as_other_compilers(["-O2", "-o", "-Os.o"]) == ["-UNDEBUG"]
    assert as_other_compilers(["-O4"]) == ["-UNDEBUG", "-Xclang", "-O3"]
    assert as_other_compilers(["-Ofast"]) == ["-UNDEBUG", "-Xclang", "-O3", "-ffast-math"]


def test_programs_of_all_levels_have_one_run_time_library(tmp_path: Path) -> None:
    """At -O0 they had all of one that was not optimised: ten times the code."""
    (tmp_path / "a.c").write_text(
        '#include <stdio.h>\nint main(int n, char **a) { return printf("%f", n / 3.0) < 0; }\n'
    )
    text_bytes = [build_program([tmp_path / "a.c"], [level]).text_bytes for level in ("-O2", "-O0", "-Os")]
    assert max(text_bytes) - min(text_bytes) < 200
    assert as_optimised_link(["a.o", "-Os", "-lm", "-Xlinker", "-O1"]) == ["a.o", "-lm", "-Xlinker", "-O1", "-O2"]
    assert as_optimised_link(["-Os", "-flto", "a.o"]) == ["-Os", "-flto", "a.o"]
    assert as_optimised_link(["-flto", "a.o"]) == ["-flto", "a.o", "-O2"]
